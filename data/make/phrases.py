"""The phrasebook's actions (verbs with what belongs to them), adverbs, times and numbers.

The tables are written as in lexicon.py; vocabulary.py reads both.
"""

# English[/past/participle] … = German middle, `~` where `nicht` stands, infinitive, third person, perfect.
# A hyphen parts the prefix of a separable verb. An entry without `=` is one of an earlier class.
ACTIONS = {
    # What one does again and again.
    "habit": """
        read/read/read the {reading} = {reading:den} ~ lesen, liest, hat gelesen
        buy/bought/bought {grocery} = {grocery:-en} kaufen, kauft, hat gekauft
        eat/ate/eaten {food} = {food:-en} essen, isst, hat gegessen
        eat/ate/eaten {fruit:a} = {fruit:einen} essen, isst, hat gegessen
        drink/drank/drunk {drink} = {drink:-en} trinken, trinkt, hat getrunken
        drink/drank/drunk a cup of {hot} = {cup:einen} {hot} trinken, trinkt, hat getrunken
        cook {dish} = {dish:-en} kochen, kocht, hat gekocht
        visit {family:own} = {family:ownen} ~ besuchen, besucht, hat besucht
        call {family:own} = {family:ownen} ~ an-rufen, ruft, hat angerufen
        help {family:own} = {family:ownem} ~ helfen, hilft, hat geholfen
        talk to {contact:the} = ~ mit {contact:dem} sprechen, spricht, hat gesprochen
        wait for the {transport} = ~ auf {transport:den} warten, wartet, hat gewartet
        go/went/gone to the {venue} = ~ in {venue:den} gehen, geht, ist gegangen
        go/went/gone to the {errand} = ~ zu {errand:dem} gehen, geht, ist gegangen
        go/went/gone to work by {ride} = ~ mit {ride:dem} zur Arbeit fahren, fährt, ist gefahren
        take/took/taken the {transport} = {transport:den} ~ nehmen, nimmt, hat genommen
        watch {show:a} = {show:einen} sehen, sieht, hat gesehen
        watch TV = ~ fern-sehen, sieht, hat ferngesehen
        go/went/gone shopping = ~ ein-kaufen, kauft, hat eingekauft
        go/went/gone for a walk = ~ spazieren gehen, geht, ist gegangen
        go/went/gone swimming = ~ schwimmen gehen, geht, ist gegangen
        go/went/gone dancing = ~ tanzen gehen, geht, ist gegangen
        work in the garden = ~ im Garten arbeiten, arbeitet, hat gearbeitet
        play {sport} = {sport:-en} spielen, spielt, hat gespielt
        play the {instrument} = {instrument:-en} spielen, spielt, hat gespielt
        do/did/done {exercise} = {exercise:-en} machen, macht, hat gemacht
        learn {language} = {language:-en} lernen, lernt, hat gelernt
        listen to {listening} = {listening:-en} hören, hört, hat gehört
        listen to the {broadcast} = {broadcast:-en} hören, hört, hat gehört
        tidy up the {room} = {room:den} ~ auf-räumen, räumt, hat aufgeräumt
        clean the {room} = {room:den} ~ putzen, putzt, hat geputzt
        wash the {vehicle} = {vehicle:den} ~ waschen, wäscht, hat gewaschen
        feed/fed/fed the {animal} = {animal:den} ~ füttern, füttert, hat gefüttert
        water the flowers = die Blumen ~ gießen, gießt, hat gegossen
        write/wrote/written {writing:a} = {writing:einen} schreiben, schreibt, hat geschrieben
        stay at home = ~ zu Hause bleiben, bleibt, ist geblieben
        pick up {family:own} from the {pickup} = {family:ownen} ~ von {pickup:dem} ab-holen, holt, hat abgeholt
        swim/swam/swum in the lake = ~ im See schwimmen, schwimmt, ist geschwommen
        bake {baked:a} = {baked:einen} backen, backt, hat gebacken
        prepare {meal} = {meal:den} ~ vor-bereiten, bereitet, hat vorbereitet
        ride/rode/ridden a bike = ~ Rad fahren, fährt, ist gefahren""",
    # Parts of the day, which no calendar holds.
    "routine": """
        get/got/got up early = ~ früh auf-stehen, steht, ist aufgestanden
        get/got/got up late = ~ spät auf-stehen, steht, ist aufgestanden
        sleep/slept/slept until {clock} = ~ bis {clock} schlafen, schläft, hat geschlafen
        stay in bed = ~ im Bett bleiben, bleibt, ist geblieben
        come/came/come home late = ~ spät nach Hause kommen, kommt, ist gekommen
        work until {clock} = ~ bis {clock} arbeiten, arbeitet, hat gearbeitet""",
    # What one does once.
    "deed": """
        repair the {device} = {device:den} ~ reparieren, repariert, hat repariert
        sell/sold/sold {sellable:own} = {sellable:ownen} ~ verkaufen, verkauft, hat verkauft
        buy/bought/bought {clothing:a} = {clothing:einen} kaufen, kauft, hat gekauft
        buy/bought/bought {colour clothing:a} = {colour clothing:einen} kaufen, kauft, hat gekauft
        buy/bought/bought {sort device:a} = {sort device:einen} kaufen, kauft, hat gekauft
        buy/bought/bought {build furniture:a} = {build furniture:einen} kaufen, kauft, hat gekauft
        look for {small:own} = {small:ownen} ~ suchen, sucht, hat gesucht
        invite {family:own} = {family:ownen} ~ ein-laden, lädt, hat eingeladen
        invite the {person} = {person:den} ~ ein-laden, lädt, hat eingeladen
        meet/met/met the {person} = {person:den} ~ treffen, trifft, hat getroffen
        help the {person} = {person:dem} ~ helfen, hilft, hat geholfen
        thank the {person} = {person:dem} ~ danken, dankt, hat gedankt
        book {bookable:a} = {bookable:einen} buchen, bucht, hat gebucht
        reserve {reservable:a} = {reservable:einen} reservieren, reserviert, hat reserviert
        rent {rental:a} = {rental:einen} mieten, mietet, hat gemietet
        order {order:a} = {order:einen} bestellen, bestellt, hat bestellt
        pay/paid/paid the {bill} = {bill:den} ~ bezahlen, bezahlt, hat bezahlt
        fill in the {form} = {form:den} ~ aus-füllen, füllt, hat ausgefüllt
        sign the {document} = {document:den} ~ unterschreiben, unterschreibt, hat unterschrieben
        send/sent/sent {family:own} {writing:a} = {family:ownem} {writing:einen} schicken, schickt, hat geschickt
        give/gave/given {family:own} {present:a} = {family:ownem} {present:einen} schenken, schenkt, hat geschenkt
        show/showed/shown the {person} the {sight} = {person:dem} {sight:den} ~ zeigen, zeigt, hat gezeigt
        visit the {sight} = {sight:den} ~ besichtigen, besichtigt, hat besichtigt
        fly/flew/flown to {city} = ~ nach {city} fliegen, fliegt, ist geflogen
        drive/drove/driven to {city} = ~ nach {city} fahren, fährt, ist gefahren
        travel to {country} = ~ nach {country} reisen, reist, ist gereist
        travel to {land} = ~ in {land:den} reisen, reist, ist gereist
        move to {city} = ~ nach {city} um-ziehen, zieht, ist umgezogen
        change trains in {city} = ~ in {city} um-steigen, steigt, ist umgestiegen
        arrive in {city} = ~ in {city} an-kommen, kommt, ist angekommen
        bring/brought/brought along {treat:a} = {treat:einen} mit-bringen, bringt, hat mitgebracht
        take/took/taken along the {luggage} = {luggage:den} ~ mit-nehmen, nimmt, hat mitgenommen
        turn on the {switchable} = {switchable:den} ~ an-machen, macht, hat angemacht
        turn off the {switchable} = {switchable:den} ~ aus-machen, macht, hat ausgemacht
        open the {opening} = {opening:den} ~ auf-machen, macht, hat aufgemacht
        close the {opening} = {opening:den} ~ zu-machen, macht, hat zugemacht
        try/tried/tried on the {clothing} = {clothing:den} ~ an-probieren, probiert, hat anprobiert
        borrow {book:a} = {book:einen} aus-leihen, leiht, hat ausgeliehen
        return the {book} = {book:den} ~ zurück-geben, gibt, hat zurückgegeben
        take/took/taken part in the {lesson} = ~ an {lesson:dem} teil-nehmen, nimmt, hat teilgenommen
        study for the {studied} = ~ für {studied:den} lernen, lernt, hat gelernt
        park the car in front of the {place} = das Auto ~ vor {place:dem} parken, parkt, hat geparkt
        put/put/put the {small} on the {surface} = {small:den} ~ auf {surface:den} legen, legt, hat gelegt
        hang/hung/hung the {picture} on the wall = {picture:den} ~ an die Wand hängen, hängt, hat gehängt
        paint the {room} = {room:den} ~ streichen, streicht, hat gestrichen
        make/made/made an appointment with the {professional} =
            {appointment:einen} bei {professional:dem} vereinbaren, vereinbart, hat vereinbart""",
    # What one can fail at or forget.
    "task": """
        repair the {device}; sell/sold/sold {sellable:own}; book {bookable:a}; reserve {reservable:a}
        pay/paid/paid the {bill}; fill in the {form}; sign the {document}; turn on the {switchable}
        turn off the {switchable}; close the {opening}; open the {opening}; send/sent/sent {family:own} {writing:a}
        return the {book}; study for the {studied}; bring/brought/brought along {treat:a}
        take/took/taken along the {luggage}; invite {family:own}""",
    # What one may politely ask of a stranger.
    "request": """
        open the {opening}; close the {opening}; turn on the {switchable}; turn off the {switchable}
        fill in the {form}; sign the {document}
        call the {contact} = {contact:den} ~ an-rufen, ruft, hat angerufen
        wait for the {contact} = ~ auf {contact:den} warten, wartet, hat gewartet
        wait in front of the {place} = ~ vor {place:dem} warten, wartet, hat gewartet
        talk to the {contact} = ~ mit {contact:dem} sprechen, spricht, hat gesprochen
        help the {person}; read/read/read the {reading}; put/put/put the {small} on the {surface}
        take/took/taken along the {luggage}; take/took/taken the {transport}; feed/fed/fed the {animal}
        tidy up the {room}; go/went/gone to the {errand}; park the car in front of the {place}; pay/paid/paid the {bill}
        return the {book}""",
    "chore": """
        tidy up the {room}; clean the {room}; wash the {vehicle}; feed/fed/fed the {animal}; water the flowers
        prepare {meal}; call {family:own}; help {family:own}; write/wrote/written {writing:a}
        read/read/read the {reading}""",
    "outing": """
        go/went/gone for a walk; go/went/gone swimming; work in the garden; wash the {vehicle}; ride/rode/ridden a bike
        swim/swam/swum in the lake; go/went/gone to the {venue}; wait for the {transport}""",
    # What one may like or learn to do.
    "hobby": """
        play {sport}; play the {instrument}; listen to {listening}; learn {language}; cook {dish}
        do/did/done {exercise}; go/went/gone to the {venue}; go/went/gone for a walk; go/went/gone swimming
        go/went/gone dancing; go/went/gone shopping; work in the garden; ride/rode/ridden a bike
        bake {baked:a}; drink/drank/drunk {drink}; eat/ate/eaten {food}""",
}

WORDS = {
    "repeated": """
        every day = jeden Tag; every week = jede Woche; every month = jeden Monat; every Friday = jeden Freitag
        on Mondays = montags; on Saturdays = samstags; on Sundays = sonntags; at the weekend = am Wochenende
        twice a week = zweimal pro Woche; once a month = einmal im Monat; in summer = im Sommer
        in winter = im Winter""",
    "times": "once = einmal; twice = zweimal; three times = dreimal; four times = viermal; five times = fünfmal",
    "part": """
        in the morning = am Morgen; in the evening = am Abend; in the afternoon = am Nachmittag; in summer = im Sommer
        in winter = im Winter; after work = nach der Arbeit; at the weekend = am Wochenende; on Sundays = sonntags
        on holiday = im Urlaub""",
    "often": """
        often = oft; always = immer; sometimes = manchmal; usually = normalerweise; rarely = selten; never = nie""",
    "soon": """
        today = heute; tomorrow = morgen; tonight = heute Abend; this afternoon = heute Nachmittag
        tomorrow morning = morgen früh; tomorrow evening = morgen Abend; next week = nächste Woche
        on Monday = am Montag; on Tuesday = am Dienstag; on Wednesday = am Mittwoch; on Thursday = am Donnerstag
        on Friday = am Freitag; on Saturday = am Samstag; on Sunday = am Sonntag; next month = nächsten Monat
        in two hours = in zwei Stunden; after lunch = nach dem Mittagessen; before the holidays = vor den Ferien
        the day after tomorrow = übermorgen""",
    "past": """
        yesterday = gestern; yesterday evening = gestern Abend; last week = letzte Woche; last year = letztes Jahr
        this morning = heute Morgen; two days ago = vor zwei Tagen; three weeks ago = vor drei Wochen
        an hour ago = vor einer Stunde; last month = letzten Monat; on Monday = am Montag; on Friday = am Freitag
        last weekend = letztes Wochenende; the day before yesterday = vorgestern; on Sunday = am Sonntag
        on Wednesday = am Mittwoch; a month ago = vor einem Monat""",
    "weekday": """
        Monday = Montag; Tuesday = Dienstag; Wednesday = Mittwoch; Thursday = Donnerstag; Friday = Freitag
        Saturday = Samstag; Sunday = Sonntag""",
    "month": """
        January = Januar; February = Februar; March = März; April = April; May = Mai; June = Juni; July = Juli
        August = August; September = September; October = Oktober; November = November; December = Dezember""",
    "season": "spring = Frühling; summer = Sommer; autumn = Herbst; winter = Winter",
    "city": """
        Berlin = Berlin; Hamburg = Hamburg; Munich = München; Cologne = Köln; Vienna = Wien; Zurich = Zürich
        Frankfurt = Frankfurt; Leipzig = Leipzig; Dresden = Dresden; Bremen = Bremen; Nuremberg = Nürnberg
        Hanover = Hannover; Stuttgart = Stuttgart; London = London; Paris = Paris; Rome = Rom; Prague = Prag
        Warsaw = Warschau""",
    "country": """
        Italy = Italien; France = Frankreich; Spain = Spanien; Austria = Österreich; Poland = Polen; England = England
        Greece = Griechenland; Portugal = Portugal; Norway = Norwegen; Sweden = Schweden; Denmark = Dänemark""",
    "side": "left = links; right = rechts",
    "where": """
        in the taxi = im Taxi; on the train = im Zug; at the hotel = im Hotel; at the station = am Bahnhof
        in the office = im Büro; at school = in der Schule; in the car = im Auto; in the restaurant = im Restaurant""",
    "illness": """
        a headache = Kopfschmerzen; toothache = Zahnschmerzen; a cold = eine Erkältung; a fever = Fieber
        a cough = Husten; back pain = Rückenschmerzen; stomach ache = Bauchschmerzen; the flu = die Grippe""",
    "weather": """
        rain = regnen; snow = schneien; get colder = kälter werden; get warmer = wärmer werden
        be sunny = sonnig sein; be foggy = neblig sein; be windy = windig sein""",
    "greeting": "Good morning = Guten Morgen; Good evening = Guten Abend; Good afternoon = Guten Tag; Hello = Hallo",
    "forename": "Anna = Anna; Peter = Peter; Maria = Maria; Paul = Paul; Lena = Lena; Thomas = Thomas",
    "family_name": """
        Schmidt = Schmidt; Weber = Weber; Keller = Keller; Wolf = Wolf; Meyer = Meyer; Fischer = Fischer; Braun = Braun
        Hoffmann = Hoffmann""",
    "fine": """
        fine = gut; very well = sehr gut; not so well = nicht so gut; much better = viel besser
        well again = wieder gut""",
    "unwell": "ill = krank; injured = verletzt; unconscious = bewusstlos; very ill = sehr krank",
    "raining": "is raining = regnet; is snowing = schneit",
    "condition": """
        it rains tomorrow = es morgen regnet; the weather is nice = das Wetter schön ist
        it is too cold = es zu kalt ist
        the shop is closed = das Geschäft geschlossen ist; the train is late = der Zug Verspätung hat
        nobody is at home = niemand zu Hause ist; it snows = es schneit; the sun is shining = die Sonne scheint""",
}

FEW = "two = zwei; three = drei; four = vier"
SMALL_NUMBERS = """
    two = zwei; three = drei; four = vier; five = fünf; six = sechs; seven = sieben; eight = acht; nine = neun
    ten = zehn; eleven = elf; twelve = zwölf"""
TEENS = """
    thirteen = dreizehn; fourteen = vierzehn; fifteen = fünfzehn; sixteen = sechzehn; seventeen = siebzehn
    eighteen = achtzehn; nineteen = neunzehn"""
TENS = """
    twenty = zwanzig; thirty = dreißig; forty = vierzig; fifty = fünfzig; sixty = sechzig; seventy = siebzig
    eighty = achtzig; ninety = neunzig"""
ORDINALS = """
    first = erste; second = zweite; third = dritte; fourth = vierte; fifth = fünfte; sixth = sechste; seventh = siebte
    eighth = achte; ninth = neunte; tenth = zehnte; eleventh = elfte; twelfth = zwölfte; thirteenth = dreizehnte
    fifteenth = fünfzehnte; eighteenth = achtzehnte; twentieth = zwanzigste; thirtieth = dreißigste"""
