"""The nouns, adjectives and persons of the phrasebook, by semantic class, so that nobody is ever made to eat a car.

Every table is written like a vocabulary book: entries stand on lines of their own or between semicolons, English left
and German right of `=`. phrases.py holds the other words; vocabulary.py reads both; templates.py names the classes.
"""

# English[/plural] = article German, plural. A star marks weak nouns, `pl` those without a singular.
# `@class` takes over another class, a name without `=` one noun of an earlier class.
NOUNS = {
    "clothing": """
        coat = der Mantel, Mäntel; jacket = die Jacke, Jacken; shirt = das Hemd, Hemden; blouse = die Bluse, Blusen
        dress = das Kleid, Kleider; skirt = der Rock, Röcke; jumper = der Pullover, Pullover; hat = der Hut, Hüte
        scarf/scarves = der Schal, Schals; belt = der Gürtel, Gürtel; suit = der Anzug, Anzüge
        tie = die Krawatte, Krawatten; bag = die Tasche, Taschen""",
    "device": """
        computer = der Computer, Computer; printer = der Drucker, Drucker; television = der Fernseher, Fernseher
        camera = die Kamera, Kameras; washing machine = die Waschmaschine, Waschmaschinen
        fridge = der Kühlschrank, Kühlschränke; radio = das Radio, Radios; heater = die Heizung, Heizungen
        coffee machine = die Kaffeemaschine, Kaffeemaschinen; alarm clock = der Wecker, Wecker
        dishwasher = die Spülmaschine, Spülmaschinen; lamp = die Lampe, Lampen""",
    "switchable": "computer; television; radio; heater; lamp; washing machine; coffee machine; printer",
    "furniture": """
        table = der Tisch, Tische; chair = der Stuhl, Stühle; bed = das Bett, Betten; sofa = das Sofa, Sofas
        wardrobe = der Schrank, Schränke; bookcase = das Regal, Regale; armchair = der Sessel, Sessel
        desk = der Schreibtisch, Schreibtische; carpet = der Teppich, Teppiche; mirror = der Spiegel, Spiegel; lamp""",
    "upright": "table; chair; bed; sofa; wardrobe; bookcase; armchair; desk; lamp",
    "surface": "table; chair; bed; sofa; desk; armchair",
    "small": """
        key = der Schlüssel, Schlüssel; book = das Buch, Bücher; newspaper = die Zeitung, Zeitungen
        letter = der Brief, Briefe; wallet = der Geldbeutel, Geldbeutel; passport = der Pass, Pässe
        mobile phone = das Handy, Handys; ticket = die Fahrkarte, Fahrkarten; watch/watches = die Uhr, Uhren
        umbrella = der Regenschirm, Regenschirme; credit card = die Kreditkarte, Kreditkarten
        driving licence = der Führerschein, Führerscheine; pen = der Kugelschreiber, Kugelschreiber
        ring = der Ring, Ringe; camera; hat; bag""",
    "luggage": "suitcase = der Koffer, Koffer; rucksack = der Rucksack, Rucksäcke; bag; umbrella; camera; passport",
    "reading": """
        book; newspaper; letter; magazine = die Zeitschrift, Zeitschriften; novel = der Roman, Romane
        article = der Artikel, Artikel; message = die Nachricht, Nachrichten; report = der Bericht, Berichte""",
    "book": "book; novel; magazine; travel guide = der Reiseführer, Reiseführer",
    "writing": """
        letter; postcard = die Postkarte, Postkarten; e-mail = die E-Mail, E-Mails; message; report
        invitation = die Einladung, Einladungen""",
    "show": """
        film = der Film, Filme; programme = die Sendung, Sendungen; series/series = die Serie, Serien
        play = das Theaterstück, Theaterstücke; football match = das Fußballspiel, Fußballspiele""",
    "document": """
        contract = der Vertrag, Verträge; form = das Formular, Formulare; application = der Antrag, Anträge""",
    "form": "form; application",
    "fruit": """
        apple = der Apfel, Äpfel; banana = die Banane, Bananen; orange = die Orange, Orangen; pear = die Birne, Birnen
        tomato/tomatoes = die Tomate, Tomaten; onion = die Zwiebel, Zwiebeln; egg = das Ei, Eier
        roll = das Brötchen, Brötchen; potato/potatoes = die Kartoffel, Kartoffeln; lemon = die Zitrone, Zitronen
        carrot = die Karotte, Karotten; cucumber = die Gurke, Gurken""",
    "drink": """
        coffee = der Kaffee; tea = der Tee; water = das Wasser; milk = die Milch; apple juice = der Apfelsaft
        beer = das Bier; wine = der Wein; lemonade = die Limonade; cocoa = der Kakao
        orange juice = der Orangensaft""",
    "hot": "coffee; tea; cocoa",
    "bottled": "water; wine; beer; lemonade; apple juice",
    "dish": """
        fish = der Fisch; rice = der Reis; soup = die Suppe; noodles = die Nudeln pl; potatoes = die Kartoffeln pl
        chicken = das Hähnchen; meat = das Fleisch""",
    "food": """
        bread = das Brot; cheese = der Käse; fish; meat; rice; salad = der Salat; fruit = das Obst; cake = der Kuchen
        chocolate = die Schokolade; ice cream = das Eis; ham = der Schinken; yoghurt = der Joghurt; chicken; soup""",
    "grocery": """
        bread; cheese; fish; meat; rice; fruit; butter = die Butter; honey = der Honig; jam = die Marmelade; chocolate
        ham; yoghurt; milk; coffee; tea""",
    "tasted": "soup; salad; fish; meat; chicken; rice",
    "order": """
        pizza = die Pizza, Pizzas; soup = die Suppe, Suppen; salad = der Salat, Salate
        schnitzel = das Schnitzel, Schnitzel; omelette = das Omelett, Omeletts
        piece/pieces of cake = das Stück Kuchen, Stücke Kuchen; cup/cups of tea = die Tasse Tee, Tassen Tee
        cup/cups of coffee = die Tasse Kaffee, Tassen Kaffee; glass/glasses of water = das Glas Wasser, Gläser Wasser
        bottle/bottles of wine = die Flasche Wein, Flaschen Wein
        glass/glasses of juice = das Glas Saft, Gläser Saft""",
    "cup": "cup = die Tasse, Tassen",
    "treat": """
        cake = der Kuchen, Kuchen; bottle/bottles of wine = die Flasche Wein, Flaschen Wein
        salad = der Salat, Salate""",
    "baked": "cake = der Kuchen, Kuchen; apple pie = der Apfelkuchen, Apfelkuchen; pizza",
    "tableware": """
        knife/knives = das Messer, Messer; fork = die Gabel, Gabeln; spoon = der Löffel, Löffel
        plate = der Teller, Teller; glass = das Glas, Gläser; cup; menu = die Speisekarte, Speisekarten""",
    "meal": "breakfast = das Frühstück; lunch = das Mittagessen; dinner = das Abendessen",
    "family": """
        mother = die Mutter, Mütter; father = der Vater, Väter; brother = der Bruder, Brüder
        sister = die Schwester, Schwestern; son = der Sohn, Söhne; daughter = die Tochter, Töchter
        aunt = die Tante, Tanten; uncle = der Onkel, Onkel; grandmother = die Großmutter, Großmütter
        grandfather = der Großvater, Großväter; nephew = der Neffe*, Neffen; niece = die Nichte, Nichten""",
    "young": "brother; sister; son; daughter; nephew; niece",
    "elder": "mother; father; aunt; uncle",
    "sibling": "brother; sister; son; daughter; aunt; uncle; nephew; niece",
    "surname": """
        Mr Schmidt = der Herr Schmidt*, Herrn Schmidt; Mr Keller = der Herr Keller*, Herrn Keller
        Mr Braun = der Herr Braun*, Herrn Braun; Mrs Weber = die Frau Weber; Mrs Wolf = die Frau Wolf
        Mrs Meyer = die Frau Meyer; Mrs Fischer = die Frau Fischer; Mrs Hoffmann = die Frau Hoffmann""",
    "person": """
        colleague = der Kollege*, Kollegen; neighbour = der Nachbar*, Nachbarn; boss = der Chef, Chefs
        teacher = der Lehrer, Lehrer; doctor = der Arzt, Ärzte; customer = der Kunde*, Kunden; guest = der Gast, Gäste
        student = der Student*, Studenten; landlord = der Vermieter, Vermieter; lawyer = der Anwalt, Anwälte
        woman/women = die Frau, Frauen; man/men = der Mann, Männer; child/children = das Kind, Kinder
        girl = das Mädchen, Mädchen; boy = der Junge*, Jungen""",
    "contact": "colleague; neighbour; boss; teacher; doctor; customer; landlord; lawyer",
    "group": "child; neighbour; colleague; student; friend = der Freund, Freunde; guest",
    "professional": """
        doctor; dentist = der Zahnarzt, Zahnärzte; lawyer; eye doctor = der Augenarzt, Augenärzte
        hairdresser = der Friseur, Friseure""",
    "venue": """
        cinema = das Kino, Kinos; theatre = das Theater, Theater; museum = das Museum, Museen
        park = der Park, Parks; restaurant = das Restaurant, Restaurants; café = das Café, Cafés
        library = die Bibliothek, Bibliotheken; swimming pool = das Schwimmbad, Schwimmbäder; zoo = der Zoo, Zoos
        church = die Kirche, Kirchen; office = das Büro, Büros; pub = die Kneipe, Kneipen""",
    "errand": """
        station = der Bahnhof, Bahnhöfe; airport = der Flughafen, Flughäfen; bank = die Bank, Banken
        post office = die Post, Postämter; chemist's = die Apotheke, Apotheken
        supermarket = der Supermarkt, Supermärkte; bakery = die Bäckerei, Bäckereien; harbour = der Hafen, Häfen
        town hall = das Rathaus, Rathäuser; hospital = das Krankenhaus, Krankenhäuser
        bus stop = die Bushaltestelle, Bushaltestellen; petrol station = die Tankstelle, Tankstellen
        police station = die Polizeiwache, Polizeiwachen; bookshop = die Buchhandlung, Buchhandlungen""",
    "place": "@venue; @errand; bridge = die Brücke, Brücken; market = der Markt, Märkte; school = die Schule, Schulen",
    "healer": "doctor; chemist's; hospital",
    "stop": "station; airport; harbour; town hall; hospital; market; zoo; museum",
    "rescue": "hospital; police station; chemist's",
    "crossing": """
        bridge; street = die Straße, Straßen; square = der Platz, Plätze; market
        car park = der Parkplatz, Parkplätze""",
    "pickup": "station; airport; bus stop; harbour",
    "sight": """
        castle = das Schloss, Schlösser; cathedral = der Dom, Dome; old town = die Altstadt, Altstädte
        tower = der Turm, Türme; town hall; church; palace = der Palast, Paläste""",
    "landmark": """
        traffic lights = die Ampel, Ampeln; crossroads = die Kreuzung, Kreuzungen
        corner = die Ecke, Ecken; church; bridge; bank; school; petrol station; cinema; town hall; chemist's""",
    "room": """
        kitchen = die Küche, Küchen; living room = das Wohnzimmer, Wohnzimmer; hall = der Flur, Flure
        bedroom = das Schlafzimmer, Schlafzimmer; bathroom = das Bad, Bäder; cellar = der Keller, Keller
        garage = die Garage, Garagen; study/studies = das Arbeitszimmer, Arbeitszimmer
        children's room = das Kinderzimmer, Kinderzimmer""",
    "workroom": "kitchen; living room; cellar; study; hall",
    "ride": """
        bus/buses = der Bus, Busse; train = der Zug, Züge; car = das Auto, Autos; bike = das Fahrrad, Fahrräder
        tram = die Straßenbahn, Straßenbahnen; taxi = das Taxi, Taxis; underground = die U-Bahn, U-Bahnen""",
    "vehicle": "car; bike",
    "transport": "bus; train; tram; underground",
    "coach": "bus; train; car",
    "departure": """
        bus; train; express train = der Schnellzug, Schnellzüge; night train = der Nachtzug, Nachtzüge""",
    "event": """
        meeting = die Besprechung, Besprechungen; concert = das Konzert, Konzerte; course = der Kurs, Kurse
        party = die Party, Partys; lecture = der Vortrag, Vorträge; exam = die Prüfung, Prüfungen
        wedding = die Hochzeit, Hochzeiten; film; football match; trip = der Ausflug, Ausflüge""",
    "pleasure": """
        concert; party; wedding; trip; holiday = der Urlaub, Urlaube; weekend = das Wochenende, Wochenenden; film
        birthday = der Geburtstag, Geburtstage; journey = die Reise, Reisen; summer = der Sommer, Sommer""",
    "lesson": "course; meeting; exam; competition = der Wettbewerb, Wettbewerbe; trip",
    "studied": "exam; course; test = der Test, Tests",
    "body": """
        head = der Kopf, Köpfe; back = der Rücken, Rücken; arm = der Arm, Arme; leg = das Bein, Beine
        knee = das Knie, Knie; foot/feet = der Fuß, Füße; hand = die Hand, Hände; shoulder = die Schulter, Schultern
        throat = der Hals, Hälse; stomach = der Bauch, Bäuche; eye = das Auge, Augen; ear = das Ohr, Ohren
        tooth/teeth = der Zahn, Zähne; finger = der Finger, Finger""",
    "limb": "arm; leg; knee; foot; hand; eye; ear; finger",
    "bone": "arm; leg; hand; foot; finger; shoulder",
    "medicine": """
        tablets = die Tabletten pl; drops = die Tropfen pl; medicine = das Medikament; cough syrup = der Hustensaft""",
    "animal": """
        dog = der Hund, Hunde; cat = die Katze, Katzen; horse = das Pferd, Pferde; rabbit = das Kaninchen, Kaninchen
        bird = der Vogel, Vögel""",
    "pet": "dog; cat; rabbit; bird",
    "home": "flat = die Wohnung, Wohnungen; house = das Haus, Häuser; room = das Zimmer, Zimmer",
    "dwelling": "flat; house",
    "feature": """
        garden = der Garten, Gärten; balcony = der Balkon, Balkone; cellar; garage; lift = der Aufzug, Aufzüge
        kitchen; terrace = die Terrasse, Terrassen""",
    "opening": "window = das Fenster, Fenster; door = die Tür, Türen; suitcase; cupboard = der Schrank, Schränke",
    "bill": "bill = die Rechnung, Rechnungen; rent = die Miete, Mieten",
    "bookable": "flight = der Flug, Flüge; journey; course; hotel room = das Hotelzimmer, Hotelzimmer",
    "reservable": "table; room; hotel room",
    "rental": "car; bike; flat; house; boat = das Boot, Boote",
    "sellable": "car; bike; house; computer; camera; piano = das Klavier, Klaviere; boat",
    "present": "book; watch; scarf; ring; bike; camera; bag; picture = das Bild, Bilder; plant = die Pflanze, Pflanzen",
    "picture": "picture; mirror; map = die Karte, Karten; photo = das Foto, Fotos; calendar = der Kalender, Kalender",
    "appointment": "appointment = der Termin, Termine",
    "sport": """
        football = der Fußball; tennis = das Tennis; chess = das Schach; cards = die Karten pl
        basketball = der Basketball; table tennis = das Tischtennis; volleyball = der Volleyball""",
    "instrument": "piano; guitar = die Gitarre; violin = die Geige; flute = die Flöte; trumpet = die Trompete",
    "exercise": "sport = der Sport; yoga = das Yoga; gymnastics = die Gymnastik",
    "listening": "music = die Musik; jazz = der Jazz; pop music = die Popmusik",
    "broadcast": "radio",
    "language": """
        German = das Deutsch; English = das Englisch; French = das Französisch; Spanish = das Spanisch
        Italian = das Italienisch; Russian = das Russisch; Polish = das Polnisch; Turkish = das Türkisch""",
    "addition": "milk; sugar = der Zucker; cream = die Sahne; honey",
    "ingredient": "cheese; meat; butter; garlic = der Knoblauch; onions = die Zwiebeln pl; potatoes; rice",
    "land": "Switzerland = die Schweiz; Turkey = die Türkei; the Netherlands = die Niederlande pl",
    "topic": """
        music; history = die Geschichte; politics = die Politik; art = die Kunst; sport; fashion = die Mode
        technology = die Technik; football; nature = die Natur; literature = die Literatur""",
    "thanked": """
        help = die Hilfe; advice = der Rat; invitation; present = das Geschenk; coffee; meal = das Essen, Essen""",
    "amenity": "@errand; restaurant; café; cinema; hotel = das Hotel, Hotels; park; toilet = die Toilette, Toiletten",
    "closing": "bank; post office; chemist's; supermarket; bakery; library; museum; swimming pool; bookshop; market",
    "wish": "holiday; weekend; evening = der Abend, Abende; journey; birthday; party; day = der Tag, Tage",
    "milestone": "wedding; exam; birthday; success = der Erfolg; driving licence",
    "cost": "taxi; pizza; meal; ticket; book; umbrella; breakfast; magazine; plant; map; salad",
}

# English, comparative, superlative = German, comparative, superlative stem.
ADJECTIVES = {
    "colour": """
        red = rot; blue = blau; green = grün; yellow = gelb; black = schwarz; white = weiß; grey = grau
        brown = braun""",
    "ware": """
        cheap, cheaper, cheapest = billig, billiger, billigst; expensive = teuer, teurer, teuerst
        beautiful = schön, schöner, schönst; modern = modern, moderner, modernst
        warm, warmer, warmest = warm, wärmer, wärmst
        long, longer, longest = lang, länger, längst; short, shorter, shortest = kurz, kürzer, kürzest
        elegant = elegant, eleganter, elegantest""",
    "size": """
        big, bigger, biggest = groß, größer, größt; small, smaller, smallest = klein, kleiner, kleinst
        new, newer, newest = neu, neuer, neuest; old, older, oldest = alt, älter, ältest; expensive; cheap; modern
        beautiful""",
    "build": """
        big; small; old; new; modern; comfortable = bequem, bequemer, bequemst
        heavy, heavier, heaviest = schwer, schwerer, schwerst""",
    "sort": "new; old; small; modern; good, better, best = gut, besser, best",
    "trait": """
        old; young, younger, youngest = jung, jünger, jüngst; tall, taller, tallest = groß, größer, größt
        friendly, friendlier, friendliest = freundlich, freundlicher, freundlichst
        hard-working = fleißig, fleißiger, fleißigst; patient = geduldig, geduldiger, geduldigst
        funny, funnier, funniest = lustig, lustiger, lustigst
        happy, happier, happiest = glücklich, glücklicher, glücklichst""",
    "manner": "young; friendly; nice, nicer, nicest = nett, netter, nettest; new; hard-working; funny",
    "nice": "nice = schön",
    "fresh": "fresh = frisch; good; German = deutsch; French = französisch",
    "taste": """
        good; cold, colder, coldest = kalt, kälter, kältest; salty = salzig; sweet = süß; fresh
        excellent = ausgezeichnet; sour = sauer; spicy = scharf""",
    "flaw": "cold; salty; sweet; sour; spicy",
    "climate": """
        cold; warm; hot, hotter, hottest = heiß, heißer, heißest; cool, cooler, coolest = kühl, kühler, kühlst
        sunny, sunnier, sunniest = sonnig, sonniger, sonnigst; windy, windier, windiest = windig, windiger, windigst""",
    "rating": """
        interesting = interessant, interessanter, interessantest; exciting = spannend, spannender, spannendst
        boring = langweilig, langweiliger, langweiligst; good; long; short; funny
        sad, sadder, saddest = traurig, trauriger, traurigst
        bad, worse, worst = schlecht, schlechter, schlechtest; difficult = schwierig, schwieriger, schwierigst""",
    "pace": """
        fast, faster, fastest = schnell, schneller, schnellst; cheap; expensive
        safe, safer, safest = sicher, sicherer, sicherst; comfortable""",
    "mood": """
        tired = müde; happy; ill = krank; healthy = gesund; hungry = hungrig; thirsty = durstig
        satisfied = zufrieden; nervous = nervös""",
    "damage": """
        dirty = schmutzig; wet = nass; torn = zerrissen; too small = zu klein; too big = zu groß; too long = zu lang
        too short = zu kurz""",
    "ripeness": "fresh; cheap; too small; too expensive = zu teuer; very good = sehr gut; not fresh = nicht frisch",
    "excess": "expensive; long; short; big; small; warm; modern; tight = eng",
    "bigger": "bigger = größeren; smaller = kleineren",
    "look": """
        big; small; new; old; modern; beautiful; dark, darker, darkest = dunkel, dunkler, dunkelst
        bright, brighter, brightest = hell, heller, hellst""",
    "next": "next = nächst",
    "closest": "nearest = nächst",
}

# English / pronoun = German / gender: who can be the subject.
PERSONS = {
    "pronoun": "I = ich; you = Sie; he = er; she = sie; we = wir; they = sie",
    "him": "he = er; she = sie; they = sie; you = Sie",
    "named": """
        Anna/she = Anna; Peter/he = Peter; Maria/she = Maria; Paul/he = Paul; Lena/she = Lena; Thomas/he = Thomas
        Mr Schmidt/he = Herr Schmidt; Mrs Weber/she = Frau Weber; Mr Keller/he = Herr Keller; Mrs Wolf/she = Frau Wolf
        my brother/he = mein Bruder; my sister/she = meine Schwester; my mother/she = meine Mutter
        my father/he = mein Vater; my son/he = mein Sohn; my daughter/she = meine Tochter; my wife/she = meine Frau
        my husband/he = mein Mann; our neighbour/he = unser Nachbar; our boss/he = unser Chef
        my parents/they = meine Eltern; my friends/they = meine Freunde; our neighbours/they = unsere Nachbarn
        her colleagues/they = ihre Kollegen""",
    "I": "I = ich",
    "you": "you = Sie",
    "we": "we = wir",
    "worker": """
        he = er; she = sie; Anna/she = Anna; Peter/he = Peter; my brother/he = mein Bruder; Lena/she = Lena
        Paul/he = Paul
        my sister/she = meine Schwester; my uncle/he = mein Onkel; my aunt/she = meine Tante; Mr Keller/he = Herr Keller
        Mrs Wolf/she = Frau Wolf; my wife/she = meine Frau; my husband/he = mein Mann""",
}
PRONOUN_FORMS = {  # subject, object, possessive; subject, accusative, dative, possessive stem
    "I": ("I me my", "ich mich mir mein"),
    "you": ("you you your", "Sie Sie Ihnen Ihr"),
    "he": ("he him his", "er ihn ihm sein"),
    "she": ("she her her", "sie sie ihr ihr"),
    "we": ("we us our", "wir uns uns unser"),
    "they": ("they them their", "sie sie ihnen ihr"),
}

JOBS = """
    teacher = Lehrer, Lehrerin; doctor = Arzt, Ärztin; cook = Koch, Köchin; lawyer = Anwalt, Anwältin
    nurse = Krankenpfleger, Krankenpflegerin; engineer = Ingenieur, Ingenieurin; baker = Bäcker, Bäckerin
    journalist = Journalist, Journalistin; architect = Architekt, Architektin; bus driver = Busfahrer, Busfahrerin
    mechanic = Mechaniker, Mechanikerin; hairdresser = Friseur, Friseurin; musician = Musiker, Musikerin
    gardener = Gärtner, Gärtnerin; pilot = Pilot, Pilotin; student = Student, Studentin; waiter = Kellner, Kellnerin"""

AUXILIARIES = {
    "modal": "wants to = will; must = muss; can = kann; would like to = möchte; should = sollte; is allowed to = darf",
    "duty": "has to = muss; wants to = will; should = sollte; would like to = möchte",
    "mustn't": "must not = darf; cannot = kann; does not want to = will; should not = sollte",
    "past_modal": "had to = musste; wanted to = wollte; was able to = konnte; was allowed to = durfte",
}
