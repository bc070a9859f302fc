"""The sentence patterns of the phrasebook, by topic: English, a bar, German, with the slots that grammar.py describes.

Each English pattern has one German pattern and each English word one German word in its place, so that the translation
can be learned from examples: "you" is always "Sie", the past is always the perfect, and so on.
"""

TEMPLATES = {
    # Any action, by tense, mood and kind of clause.
    "statements": """
        {who} {habit:s} {repeated}. | {who} {habit:v} {repeated} {habit:obj} {habit:off}.
        {who} {often} {habit:s}. | {who} {habit:v} {often} {habit:obj} {habit:off}.
        {who} {often} {routine:s}. | {who} {routine:v} {often} {routine:obj} {routine:off}.
        {who} {routine:s} {repeated}. | {who} {routine:v} {repeated} {routine:obj} {routine:off}.
        {who} {routine:ed} yesterday. | {who} {routine:hat} gestern {routine:obj} {routine:pp}.
        {who} {often} {hobby:s} {part}. | {who} {hobby:v} {part} {often} {hobby:obj} {hobby:off}.
        {part} {who} {often} {hobby:s}. | {part} {hobby:v} {who} {often} {hobby:obj} {hobby:off}.
        {who} {who:is} {habit:ing} right now. | {who} {habit:v} gerade {habit:obj} {habit:off}.
        {who} will {do} {soon}. | {who} {who:wird} {soon} {do:obj} {do:inf}.
        {soon} {who} will {do}. | {soon} {who:wird} {who} {do:obj} {do:inf}.
        {who} {do:ed} {past}. | {who} {do:hat} {past} {do:obj} {do:pp}.
        {past} {who} {do:ed}. | {past} {do:hat} {who} {do:obj} {do:pp}.
        {who} {who:has} already {deed:en}. | {who} {deed:hat} schon {deed:obj} {deed:pp}.
        {who} {modal} {do} {soon}. | {who} {modal} {soon} {do:obj} {do:inf}.
        {who} {past_modal} {do} {past}. | {who} {past_modal} {past} {do:obj} {do:inf}.
        {who} {who:likes} to {hobby}. | {who} {hobby:v} gern {hobby:obj} {hobby:off}.
        {who} would rather {hobby}. | {who} {who:möchte} lieber {hobby:obj} {hobby:inf}.
        Please {request}. | Bitte {request:Sie} {request:obj} {request:off}.
        Please do not {request}. | Bitte {request:Sie} {request:nicht} {request:off}.
        {I} am going to {do} {soon}. | {I} habe vor, {soon} {do:obj} {do:zu}.""",
    "negation": """
        {who} {who:is} not {do:ing} today. | {who} {do:v} heute {do:nicht} {do:off}.
        {who} {who:does} not {habit}. | {who} {habit:v} {habit:nicht} {habit:off}.
        {who} {who:does} not want to {do} {soon}. | {who} {who:will} {soon} {do:nicht} {do:inf}.
        {who} did not {do} {past}. | {who} {do:hat} {past} {do:nicht} {do:pp}.
        {who} {mustn't} {do} today. | {who} {mustn't} heute {do:nicht} {do:inf}.
        {who} {who:has} never {hobby:en}. | {who} {hobby:hat} noch nie {hobby:obj} {hobby:pp}.""",
    "questions": """
        Does {worker} {habit} {repeated}? | {habit:v} {worker} {repeated} {habit:obj} {habit:off}?
        Do {you} {habit} {repeated}? | {habit:v} {you} {repeated} {habit:obj} {habit:off}?
        Did {who} {do} {past}? | {do:hat} {who} {past} {do:obj} {do:pp}?
        Will {who} {do} {soon}? | {who:wird} {who} {soon} {do:obj} {do:inf}?
        Can {who} {do} {soon}? | {who:kann} {who} {soon} {do:obj} {do:inf}?
        Must {who} {do} {soon}? | {who:muss} {who} {soon} {do:obj} {do:inf}?
        Would {you} like to {do} {soon}? | Möchten {you} {soon} {do:obj} {do:inf}?
        Shall {we} {do} {soon}? | Wollen {we} {soon} {do:obj} {do:inf}?
        Have {you} already {deed:en}? | {deed:hat} {you} schon {deed:obj} {deed:pp}?
        Could {you} please {request}? | Könnten {you} bitte {request:obj} {request:inf}?
        When did {who} {do}? | Wann {do:hat} {who} {do:obj} {do:pp}?
        When will {who} {do}? | Wann {who:wird} {who} {do:obj} {do:inf}?
        Why did {who} {do}? | Warum {do:hat} {who} {do:obj} {do:pp}?
        Why does {worker} want to {do}? | Warum {worker:will} {worker} {do:obj} {do:inf}?
        How often do {you} {habit}? | Wie oft {habit:v} {you} {habit:obj} {habit:off}?
        With whom does {worker} {hobby}? | Mit wem {hobby:v} {worker} {hobby:obj} {hobby:off}?
        Who wants to {do} {soon}? | Wer will {soon} {do:obj} {do:inf}?""",
    "clauses": """
        I know that {who} {habit:s} {repeated}. | Ich weiß, dass {who} {repeated} {habit:obj} {habit:end}.
        I hope that {who} will {do} {soon}. | Ich hoffe, dass {who} {soon} {do:obj} {do:inf} {who:wird}.
        I think that {who} {modal} {do}. | Ich glaube, dass {who} {do:obj} {do:inf} {modal}.
        I have heard that {who} {do:ed} {past}. | Ich habe gehört, dass {who} {past} {do:obj} {do:pp} {do:hat}.
        Do you know whether {who} {do:ed} {past}? | Wissen Sie, ob {who} {past} {do:obj} {do:pp} {do:hat}?
        I do not know whether {who} {modal} {do}. | Ich weiß nicht, ob {who} {do:obj} {do:inf} {modal}.
        Do you know when {who} will {do}? | Wissen Sie, wann {who} {do:obj} {do:inf} {who:wird}?
        {who} cannot come because {who:he} {duty} {do}. |
            {who} {who:kann} nicht kommen, weil {who:er} {do:obj} {do:inf} {duty}.
        {who} {who:is} tired because {who:he} {chore:ed} {past}. |
            {who} {who:ist} müde, weil {who:er} {past} {chore:obj} {chore:pp} {chore:hat}.
        {who} {who:is} happy because {who:he} {deed:ed} {past}. |
            {who} {who:ist} glücklich, weil {who:er} {past} {deed:obj} {deed:pp} {deed:hat}.
        When {who} {who:has} time, {who:he} {hobby:s}. |
            Wenn {who} Zeit {who:hat}, {hobby:v} {who:er} {hobby:obj} {hobby:off}.
        If {condition}, {who} will {hobby}. | Wenn {condition}, {who:wird} {who} {hobby:obj} {hobby:inf}.
        {who} {who:has} no time to {do}. | {who} {who:hat} keine Zeit, {do:obj} {do:zu}.
        {who} {who:has} forgotten to {task}. | {who} {who:hat} vergessen, {task:obj} {task:zu}.
        {who} {who:is} trying to {task}. | {who} {who:versucht}, {task:obj} {task:zu}.
        Before {who} {hobby:s}, {who:he} {chore:s}. |
            Bevor {who} {hobby:obj} {hobby:end}, {chore:v} {who:er} {chore:obj} {chore:off}.
        While {who} {chore:s}, {who2} {hobby2:s}. |
            Während {who} {chore:obj} {chore:end}, {hobby2:v} {who2} {hobby2:obj} {hobby2:off}.
        {who} told me that {who:he} {modal} {do}. |
            {who} {who:hat} mir gesagt, dass {who:er} {do:obj} {do:inf} {modal}.""",
    "shopping": """
        How much does the {clothing} cost? | Was kostet {clothing:der}?
        How much does the {colour clothing} cost? | Was kostet {colour clothing:der}?
        The {colour clothing} costs {age} euros. | {colour clothing:der} kostet {age} Euro.
        The {cost} costs {price} euros. | {cost:der} kostet {price} Euro.
        I am looking for {ware clothing:a}. | Ich suche {ware clothing:einen}.
        I am looking for {ware clothing:a} for my {family}. | Ich suche {ware clothing:einen} für {family:meinen}.
        I will take the {colour clothing}. | Ich nehme {colour clothing:den}.
        I like the {colour clothing}, but it is too {excess}. |
            {colour clothing:der} gefällt mir, aber {clothing:er} ist zu {excess}.
        This {clothing} is too {excess} for me. | {clothing:dieser} ist mir zu {excess}.
        Do you have this {clothing} in a {bigger} size? | Haben Sie {clothing:diesen} in einer {bigger} Größe?
        May I try on this {clothing}? | Darf ich {clothing:diesen} anprobieren?
        The {clothing} is {ware:er} than the {clothing2}. | {clothing:der} ist {ware:er} als {clothing2:der}.
        The {colour clothing} is {ware:er} than the {colour2 clothing2}. |
            {colour clothing:der} ist {ware:er} als {colour2 clothing2:der}.
        This is the {++ware clothing} in the shop. | Das ist {++ware clothing:der} im Geschäft.
        I do not need {sort device:a}. | Ich brauche {sort device:keinen}.
        Do you have {+ware clothing:a}? | Haben Sie {+ware clothing:einen}?
        We need {sort device:a} for the {workroom}. | Wir brauchen {sort device:einen} für {workroom:den}.
        The {clothing} that I bought {past} is {damage}. |
            {clothing:der}, {clothing:rel den} ich {past} gekauft habe, ist {damage}.
        I would like a kilo of {fruit:pl}, please. | Ich möchte bitte ein Kilo {fruit:pl -en}.
        I need {n} {fruit:pl} and {grocery}. | Ich brauche {n} {fruit:pl -en} und {grocery:-en}.
        The {fruit:pl} are {ripeness}. | {fruit:pl der} sind {ripeness}.
        Where can I buy {fresh grocery}? | Wo kann ich {fresh grocery:-en} kaufen?
        Which {clothing} do you like best? | {clothing:welcher} gefällt Ihnen am besten?
        Do you like the {colour clothing} better than the {colour2 clothing2}? |
            Gefällt Ihnen {colour clothing:der} besser als {colour2 clothing2:der}?
        I bought my {family} {colour clothing:a}. | Ich habe {family:meinem} {colour clothing:einen} gekauft.""",
    "restaurant": """
        I would like {order:a}, please. | Ich möchte bitte {order:einen}.
        I would like {order:a} and {order2:a}, please. | Ich möchte bitte {order:einen} und {order2:einen}.
        Could you bring us {n} {tableware:pl}, please? | Könnten Sie uns bitte {n} {tableware:pl -en} bringen?
        Could you bring me {tableware:a}, please? | Könnten Sie mir bitte {tableware:einen} bringen?
        We would like {few} {order:pl}. | Wir möchten {few} {order:pl -en}.
        We have reserved a table for {n} people. | Wir haben einen Tisch für {n} Personen reserviert.
        We would like to reserve a table for {n} people at {clock}. |
            Wir möchten einen Tisch für {n} Personen um {clock} reservieren.
        The {tasted} is too {flaw}. | {tasted:der} ist zu {flaw}.
        The {tasted} is {taste}, but the {tasted2} is {taste2}. |
            {tasted:der} ist {taste}, aber {tasted2:der} ist {taste2}.
        Is there {food} today? | Gibt es heute {food:-en}?
        I do not like {food}. | Ich mag {food:keinen}.
        I like {fresh grocery} very much. | Ich mag {fresh grocery:-en} sehr.
        {who} would rather drink {drink} than {drink2}. |
            {who} {who:möchte} lieber {drink:-en} als {drink2:-en} trinken.
        I drink my {hot} without {addition}. | Ich trinke {hot:meinen} ohne {addition:-en}.
        {who} {who:drinks} {hot} with {addition}. | {who} {who:trinkt} {hot:-en} mit {addition:-em}.
        We have no {grocery} left. | Wir haben {grocery:keinen} mehr.
        {who} would like {few} bottles of {bottled}. | {who} {who:möchte} {few} Flaschen {bottled:-en}.
        Is the {tasted} with or without {ingredient}? | Ist {tasted:der} mit oder ohne {ingredient:-en}?
        The {tasted} with {ingredient} costs {price} euros. | {tasted:der} mit {ingredient:-em} kostet {price} Euro.""",
    "travel": """
        The {departure} to {city} leaves at {clock}. | {departure:der} nach {city} fährt um {clock} ab.
        The train to {city} leaves from platform {n}. | Der Zug nach {city} fährt von Gleis {n} ab.
        When does the {next departure} to {city} leave? | Wann fährt {next departure:der} nach {city} ab?
        When does the {departure} from {city} arrive? | Wann kommt {departure:der} aus {city} an?
        The {departure} from {city} arrives at {clock}. | {departure:der} aus {city} kommt um {clock} an.
        The train from {city} is {many} minutes late. | Der Zug aus {city} hat {many} Minuten Verspätung.
        A ticket to {city}, please. | Eine Fahrkarte nach {city}, bitte.
        {n} tickets from {city} to {city2}, please. | {n} Fahrkarten von {city} nach {city2}, bitte.
        How long does the journey from {city} to {city2} take? | Wie lange dauert die Fahrt von {city} nach {city2}?
        {who} {who:is} going to {city} by {coach} {soon}. | {who} {who:fährt} {soon} mit {coach:dem} nach {city}.
        {who} {who:comes} from {country}. | {who} {who:kommt} aus {country}.
        {who} {who:comes} from {land}, but {who:he} {who:lives} in {country}. |
            {who} {who:kommt} aus {land:dem}, aber {who:er} {who:wohnt} in {country}.
        Does the {transport} stop at the {stop}? | Hält {transport:der} an {stop:dem}?
        Where do I have to change for {city}? | Wo muss ich nach {city} umsteigen?
        The {transport} is {pace:er} than the {transport2}. | {transport:der} ist {pace:er} als {transport2:der}.
        {who} {who:has} been to {city} {times}. | {who} {who:war} schon {times} in {city}.
        In {season} we are going to {country} with our {group:pl}. |
            Im {season} fahren wir mit {group:pl unserem} nach {country}.
        {who} cannot leave without {luggage:own}. | {who} {who:kann} nicht ohne {luggage:ownen} abreisen.
        {who} missed the {departure} to {city}. | {who} {who:hat} {departure:den} nach {city} verpasst.""",
    "directions": """
        How do I get to the {errand}? | Wie komme ich zu {errand:dem}?
        Excuse me, where is the {place}? | Entschuldigung, wo ist {place:der}?
        Excuse me, where is the {closest amenity}? | Entschuldigung, wo ist {closest amenity:der}?
        Turn {side} at the {landmark}. | Biegen Sie an {landmark:dem} {side} ab.
        First turn {side} at the {landmark} and then {side2} at the {landmark2}. |
            Biegen Sie zuerst an {landmark:dem} {side} und dann an {landmark2:dem} {side2} ab.
        Go past the {place} and then {side}. | Gehen Sie an {place:dem} vorbei und dann nach {side}.
        The {place} is opposite the {place2}. | {place:der} ist gegenüber von {place2:dem}.
        The {place} is next to the {place2}. | {place:der} ist neben {place2:dem}.
        The {place} is behind the {place2}. | {place:der} ist hinter {place2:dem}.
        The {place} is between the {place2} and the {place3}. | {place:der} ist zwischen {place2:dem} und {place3:dem}.
        Is there {amenity:a} near here? | Gibt es hier in der Nähe {amenity:einen}?
        There is no {amenity} near the {place}. | In der Nähe {place:des} gibt es {amenity:keinen}.
        Can you tell me where the {place} is? | Können Sie mir sagen, wo {place:der} ist?
        It takes {many} minutes on foot to the {errand}. | Zu Fuß braucht man {many} Minuten bis zu {errand:dem}.
        We are meeting at {clock} in front of the {place}. | Wir treffen uns um {clock} vor {place:dem}.
        {who} {who:is} waiting in front of the {place}. | {who} {who:wartet} vor {place:dem}.
        Go across the {crossing} and then {side}. | Gehen Sie über {crossing:den} und dann nach {side}.
        The {closest amenity} is {n} kilometres from the {place}. |
            {closest amenity:der} ist {n} Kilometer von {place:dem} entfernt.""",
    "housing": """
        The {small} is on the {surface}. | {small:der} liegt auf {surface:dem}.
        The {small} is under the {surface}. | {small:der} liegt unter {surface:dem}.
        Where is my {small}? Is it on the {surface}? | Wo ist {small:mein}? Liegt {small:er} auf {surface:dem}?
        The {upright} is in the {room}. | {upright:der} steht in {room:dem}.
        The {build upright} is in the {room}. | {build upright:der} steht in {room:dem}.
        We are putting the {upright} in the {room}. | Wir stellen {upright:den} in {room:den}.
        There is no {furniture} in the {room}. | In {room:dem} gibt es {furniture:keinen}.
        There are {few} {furniture:pl} in the {room}. | In {room:dem} gibt es {few} {furniture:pl -en}.
        There are {n} {small:pl} on the {surface}. | Auf {surface:dem} liegen {n} {small:pl -en}.
        The {device} in the {workroom} does not work. | {device:der} in {workroom:dem} funktioniert nicht.
        My {sort device} is broken. | {sort device:mein} ist kaputt.
        Our {dwelling} has {look feature:a}. | {dwelling:unser} hat {look feature:einen}.
        We are looking for {+size dwelling:a} with {feature:a}. | Wir suchen {+size dwelling:einen} mit {feature:einem}.
        {who} {who:lives} in {size dwelling:a} with {feature:a}. |
            {who} {who:wohnt} in {size dwelling:einem} mit {feature:einem}.
        The {room} is {look:er} than the {room2}. | {room:der} ist {look:er} als {room2:der}.
        The {dwelling} where {who} {who:lives} is {size}. |
            {dwelling:der}, in {dwelling:rel dem} {who} {who:wohnt}, ist {size}.
        The {home} costs {tens} euros a night. | {home:der} kostet {tens} Euro pro Nacht.
        {who} bought {build furniture:a} for the {room}. |
            {who} {who:hat} {build furniture:einen} für {room:den} gekauft.""",
    "family": """
        My {young} is {age} years old. | {young:mein} ist {age} Jahre alt.
        My {elder} is {old_age} years old. | {elder:mein} ist {old_age} Jahre alt.
        My {family} is {trait:er} than my {family2}. | {family:mein} ist {trait:er} als {family2:mein}.
        My {family} is as {trait} as my {family2}. | {family:mein} ist so {trait} wie {family2:mein}.
        My {family} lives in {city}. | {family:mein} wohnt in {city}.
        {who} {who:has} lived in {city} for {n} years. | {who} {who:wohnt} seit {n} Jahren in {city}.
        How old is your {family}? | Wie alt ist {family:Ihr}?
        This is my {family} and that is my {family2}. | Das ist {family:mein} und das ist {family2:mein}.
        {who} {who:has} {few} {sibling:pl}. | {who} {who:hat} {few} {sibling:pl -en}.
        {who} {who:has} one {sibling} and {few} {sibling2:pl}. |
            {who} {who:hat} {sibling:einen} und {few} {sibling2:pl -en}.
        {worker} {worker:is} {job:a}. | {worker} {worker:ist} {job}.
        {worker} {worker:wants} to become {job:a}. | {worker} {worker:will} {job} werden.
        {who} {who:is} very proud of {family:own}. | {who} {who:ist} sehr stolz auf {family:ownen}.
        Please say hello to your {family} from me. | Grüßen Sie bitte {family:Ihren} von mir.
        This {small} belongs to my {family}. | {small:dieser} gehört {family:meinem}.
        Does this {small} belong to your {family}? | Gehört {small:dieser} {family:Ihrem}?
        The {manner person} is helping my {family}. | {manner person:der} hilft {family:meinem}.
        {who} {who:knows} the {manner person} from {city}. | {who} {who:kennt} {manner person:den} aus {city}.
        The {person} who {who} {who:is} helping comes from {country}. |
            {person:der}, {person:rel dem} {who} {who:hilft}, kommt aus {country}.
        The {person} with whom {who} {who:is} talking comes from {city}. |
            {person:der}, mit {person:rel dem} {who} {who:spricht}, kommt aus {city}.
        The {person} who lives in {city} is very {trait}. |
            {person:der}, {person:rel der} in {city} wohnt, ist sehr {trait}.
        {who} {who:is} going to the {venue} with {family:own}. | {who} {who:geht} mit {family:ownem} in {venue:den}.
        I do not have {pet:a}, but my {family} has {few} {pet2:pl}. |
            Ich habe {pet:keinen}, aber {family:mein} hat {few} {pet2:pl -en}.""",
    "work": """
        {who} {who:has} a meeting with the {contact} at {clock}. |
            {who} {who:hat} um {clock} eine Besprechung mit {contact:dem}.
        The {event} starts at {clock}. | {event:der} fängt um {clock} an.
        The {event} starts at {clock} and ends at {clock2}. | {event:der} fängt um {clock} an und endet um {clock2}.
        {worker} {worker:works} in {city} as {job:a}. | {worker} {worker:arbeitet} in {city} als {job}.
        The {contact} needs the {reading} {soon}. | {contact:der} braucht {soon} {reading:den}.
        Give the {contact} the {reading}, please. | Geben Sie {contact:dem} bitte {reading:den}.
        {who} gave the {contact} the {reading} {past}. | {who} {who:hat} {contact:dem} {past} {reading:den} gegeben.
        {who} can give {him:him} the {reading} {soon}. | {who} {who:kann} {him:ihm} {soon} {reading:den} geben.
        I will call {him:him} {soon}. | Ich werde {him:ihn} {soon} anrufen.
        Can you help {him:him} {soon}? | Können Sie {him:ihm} {soon} helfen?
        The {writing} from the {contact} is very {rating}. | {writing:der} von {contact:dem} ist sehr {rating}.
        The {contact} works from {clock} to {clock2}. | {contact:der} arbeitet von {clock} bis {clock2}.
        Our {manner contact} comes from {country}. | {manner contact:unser} kommt aus {country}.
        Thank you for the {thanked}. | Vielen Dank für {thanked:den}.""",
    "health": """
        My {body} hurts. | {body:mein} tut weh.
        My {limb:pl} hurt. | {limb:pl mein} tun weh.
        {who} {who:has} {illness}. | {who} {who:hat} {illness}.
        {who} {who:has} had {illness} for {n} days. | {who} {who:hat} seit {n} Tagen {illness}.
        {who} cannot {do} because {who:he} {who:has} {illness}. |
            {who} {who:kann} {do:nicht} {do:inf}, weil {who:er} {illness} {who:hat}.
        Take the {medicine} {times} a day. | Nehmen Sie {times} am Tag {medicine:den}.
        {who} {who:is} allergic to {food}. | {who} {who:ist} gegen {food:-en} allergisch.
        {who} {who:needs} an appointment with the {professional} {soon}. |
            {who} {who:braucht} {soon} einen Termin bei {professional:dem}.
        {who} {who:is} {mood} today. | {who} {who:ist} heute {mood}.
        {who} {who:was} {mood} {past}. | {who} {who:war} {past} {mood}.
        Does your {body} still hurt? | Tut {body:Ihr} noch weh?
        {worker} {worker:has} broken {bone:own}. | {worker} {worker:hat} sich {bone:den} gebrochen.
        If you have {illness}, you should go to the {healer}. |
            Wenn Sie {illness} haben, sollten Sie zu {healer:dem} gehen.""",
    "weather": """
        It is {climate} today. | Heute ist es {climate}.
        It is {climate:er} in {city} than in {city2}. | In {city} ist es {climate:er} als in {city2}.
        It was {climate} {past} in {city}. | {past} war es in {city} {climate}.
        It will {weather} {soon}. | {soon} wird es {weather}.
        I hope that it will {weather} {soon}. | Ich hoffe, dass es {soon} {weather} wird.
        Will it {weather} {soon}? | Wird es {soon} {weather}?
        In {month} it is often {climate} in {country}. | Im {month} ist es in {country} oft {climate}.
        It {raining} in {city} right now. | In {city} {raining} es gerade.
        {who} {who:is} staying at home because it {raining}. | {who} {who:bleibt} zu Hause, weil es {raining}.
        Although it {raining}, {who} {who:is} {outing:ing}. |
            Obwohl es {raining}, {outing:v} {who} {outing:obj} {outing:off}.""",
    "time": """
        It is {clock}. | Es ist {clock}.
        The {closing} opens at {clock}. | {closing:der} macht um {clock} auf.
        The {closing} is open from {weekday} to {weekday2}. | {closing:der} ist von {weekday} bis {weekday2} geöffnet.
        When does the {closing} close on {weekday}? | Wann macht {closing:der} am {weekday} zu?
        Today is the {ordinal} of {month}. | Heute ist der {ordinal} {month}.
        Is today the {ordinal} of {month}? | Ist heute der {ordinal} {month}?
        My {family}'s birthday is in {month}. | Der Geburtstag {family:meines} ist im {month}.
        The {event} is on {weekday} at {clock}. | {event:der} ist am {weekday} um {clock}.
        The {event} lasts {tens} minutes. | {event:der} dauert {tens} Minuten.
        {who} will be back at {clock}. | {who} {who:wird} um {clock} zurück sein.
        See you on {weekday} at {clock}! | Bis {weekday} um {clock}!
        Where were {you} on {weekday} at {clock}? | Wo waren {you} am {weekday} um {clock}?""",
    "hobbies": """
        {who} {who:is} interested in {topic}. | {who} {who:interessiert} {who:sich} für {topic:-en}.
        {who} {who:is} not interested in {topic}. | {who} {who:interessiert} {who:sich} nicht für {topic:-en}.
        {who} {who:is} looking forward to the {pleasure}. | {who} {who:freut} {who:sich} auf {pleasure:den}.
        {who} {who:remembers} the {pleasure} in {city}. | {who} {who:erinnert} {who:sich} an {pleasure:den} in {city}.
        In my free time {I} like to {hobby}. | In meiner Freizeit {hobby:v} {I} gern {hobby:obj} {hobby:off}.
        The {show} was {rating:er} than the {show2}. | {show:der} war {rating:er} als {show2:der}.
        I thought the {show} was very {rating}. | Ich fand {show:den} sehr {rating}.
        The {book} that {who} {who:is} reading is {rating}. |
            {book:der}, {book:rel den} {who} {who:liest}, ist {rating}.
        {who} would like to learn to play the {instrument}. | {who} {who:möchte} {instrument:-en} spielen lernen.
        {who} {who:plays} {sport} better than {named}. | {who} {who:spielt} besser {sport:-en} als {named}.
        This is the {++rating show} of the year. | Das ist {++rating show:der} des Jahres.
        This is {rating show:a}. | Das ist {rating show:ein}.
        {who} watched {rating show:a} {past}. | {who} {who:hat} {past} {rating show:einen} gesehen.
        {who} {who:speaks} {language}, but no {language2}. |
            {who} {who:spricht} {language:-en}, aber {language2:keinen}.""",
    "emergencies": """
        {who} {who:has} lost {small:own}. | {who} {who:hat} {small:ownen} verloren.
        {who} left {small:own} {where}. | {who} {who:hat} {small:ownen} {where} vergessen.
        My {small} has been stolen. | {small:mein} wurde gestohlen.
        Have you seen my {small}? I cannot find it. |
            Haben Sie {small:meinen} gesehen? Ich kann {small:ihn} nicht finden.
        Is this your {small}? I found it {where}. | Ist das {small:Ihr}? Ich habe {small:ihn} {where} gefunden.
        There is a fire in the {room}! | In {room:dem} brennt es!
        Please call a doctor! My {family} is {unwell}. | Rufen Sie bitte einen Arzt! {family:mein} ist {unwell}.
        My {family} has had an accident. | {family:mein} hatte einen Unfall.
        The accident happened in front of the {place} {past}. | Der Unfall ist {past} vor {place:dem} passiert.
        Someone has stolen my {family}'s {small}. | Jemand hat {small:den} {family:meines} gestohlen.
        Where is your {family}'s {small}? | Wo ist {small:der} {family:Ihres}?
        Help! Where is the {closest rescue}? | Hilfe! Wo ist {closest rescue:der}?""",
    "greetings": """
        {greeting}, {surname}! How are you? | {greeting}, {surname}! Wie geht es Ihnen?
        {greeting}, my name is {forename} {family_name}. | {greeting}, mein Name ist {forename} {family_name}.
        Pleased to meet you, {surname}. | Freut mich, Sie kennenzulernen, {surname}.
        How is your {family}, {surname}? | Wie geht es {family:Ihrem}, {surname}?
        My {family} is {fine}. | {family:meinem} geht es {fine}.
        May I introduce my {family} to you? | Darf ich Ihnen {family:meinen} vorstellen?
        I wish you {nice wish:a}, {surname}. | Ich wünsche Ihnen {nice wish:einen}, {surname}.
        Congratulations on your {milestone}, {surname}! | Herzlichen Glückwunsch zu {milestone:Ihrem}, {surname}!
        Is {surname} at home? | Ist {surname} zu Hause?
        {greeting}, I would like to speak to {surname}. | {greeting}, ich möchte mit {surname:-em} sprechen.
        Do you know {surname} from {city}? | Kennen Sie {surname:-en} aus {city}?
        I have not seen your {family} for {n} years. | Ich habe {family:Ihren} seit {n} Jahren nicht gesehen.""",
}
