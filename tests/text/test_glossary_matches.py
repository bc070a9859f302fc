"""Terms of a glossary are found as the file says, in the case and the language of the text; so are forbidden words."""

import pytest
from support.glossaries import of_rows, read

from seq2seq.errors import DataError
from seq2seq.inference.glossary_translator import _led_prefixes, _prefixes
from seq2seq.text.glossary import Glossary, occurrences, places


def found(glossary: Glossary, text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(match.entry.source, text[slice(*match.span)], match.forms) for match in glossary.matches(text)]


def test_terms_are_whole_words_the_longest_first_in_the_case_of_the_text(tmp_path):
    glossary = read(
        tmp_path / "terms.tsv",
        "source\ttarget\toptions\n# a remark\n\nclient\tAuftraggeber|Auftraggebers\nclient server\tClientserver\n"
        "Firefox\t=\nWHO\tWeltgesundheitsorganisation\ninvoice*\tRechnung\nus\tuns\tcase\n犬\tHund\n",
    )
    assert len(glossary.entries) == 7
    text = "The CLIENT and a client server; Client's clients, invoices, firefox Firefox, who WHO US us."
    assert found(glossary, text) == [
        ("client", "CLIENT", ("AUFTRAGGEBER", "AUFTRAGGEBERS")),
        ("client server", "client server", ("Clientserver",)),
        ("client", "Client", ("Auftraggeber", "Auftraggebers")),
        ("invoice", "invoices", ("Rechnung",)),
        ("Firefox", "Firefox", ("Firefox",)),
        ("WHO", "WHO", ("Weltgesundheitsorganisation",)),
        ("us", "us", ("uns",)),
    ]
    assert found(glossary, "Client") == [("client", "Client", ("Auftraggeber", "Auftraggebers"))]
    assert found(glossary, "二匹の犬が走る") == [("犬", "犬", ("Hund",))]


@pytest.mark.parametrize(
    ("row", "text", "found"),
    [
        (("Rechnung", "invoice"), "Invoice no. 3 is missing.", ["Invoice"]),
        (("Rechnung", "invoice"), "The invoice is late. Invoice no. 3, INVOICE 4", ["invoice"]),
        (("API", "Schnittstelle"), "die Programmierschnittstelle", ["schnittstelle"]),
        (("us", "uns", "case"), "Nur uns", ["uns"]),
        (("us", "uns", "case"), "Uns fehlt es.", ["Uns"]),
        (("us", "uns", "case"), "Ja. „Uns“ fehlt es.", ["Uns"]),
        (("us", "uns", "case"), "Nur Uns, nicht UNS", []),
        (("us", "uns", "case"), "UNS fehlt es.", []),
        (("npm", "="), "Npm installiert es.", ["Npm"]),
        (("npm", "="), "Es ist NPM, nicht Npm.", []),
        (("US", "="), "Us fehlt es. us", []),
    ],
)
def test_only_forms_of_case_sensitive_terms_and_copies_have_one_spelling(row, text, found):
    """Apart from a capital at the beginning of a sentence; a capital in the source says nothing about the target."""
    spans = places(of_rows(row).matches(row[0]), text)
    assert [text[slice(*span)] for span in spans if span] == found


def test_a_source_with_a_capital_matches_only_as_it_is_written():
    glossary = of_rows(("Essen", "food"), ("Rechnung*", "invoice"), source="de", target="en")
    text = "Wir essen das Essen. Rechnungen: ESSEN, rechnungen"
    assert found(glossary, text) == [("Essen", "Essen", ("food",)), ("Rechnung", "Rechnungen", ("invoice",))]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("the dashboard", ["tableau de bord"]),
        ("Open the Dashboard", ["Tableau de bord"]),
        ("DASHBOARD settings", ["TABLEAU DE BORD"]),
        ("Dashboard Settings", ["Tableau de bord"]),
        ("Dashboard settings", ["tableau de bord"]),
        ("Dashboard", ["tableau de bord"]),
        ("(“Dashboard” settings", ["tableau de bord"]),
        ("Dashboard URL or settings", ["tableau de bord"]),
        ("Dashboard. Settings follow.", ["tableau de bord"]),
        ("It is here. Dashboard settings, Dashboard", ["tableau de bord", "Tableau de bord"]),
        ("Use the old Dashboard", ["Tableau de bord"]),
    ],
)
def test_the_capital_that_begins_a_sentence_is_not_one_of_the_term(text, forms):
    glossary = of_rows(("dashboard", "tableau de bord"), target="fr")
    assert [match.forms for match in glossary.matches(text)] == [(form,) for form in forms]


@pytest.mark.parametrize(
    ("row", "before", "begun"),
    [
        (("dashboard", "panneau"), "", "Panneau"),
        (("dashboard", "panneau"), "« ", "« Panneau"),
        (("dashboard", "panneau"), "C'est vrai. ", "C'est vrai. Panneau"),
        (("dashboard", "panneau"), "Le ", "Le panneau"),
        (("dashboard", "panneau"), "M. ", "M. panneau"),
        (("Dashboard", "panneau"), "", "Panneau"),
        (("dashboard", "panneau", "case"), "", "Panneau"),
        (("dashboard", "="), "", "dashboard"),
    ],
)
def test_a_forced_term_has_a_capital_only_where_it_begins_a_sentence(row, before, begun):
    (match,) = of_rows(row, target="fr").matches(row[0])
    assert _prefixes(before, match, True) == [begun]
    assert _prefixes(before, match, False) == [before + match.forms[0]]
    assert _led_prefixes("", match, ["Le"]) == [f"Le {match.forms[0]}"]
    assert places([match], begun) == [(len(before), len(begun))]


def test_the_rows_of_a_glossary_make_the_same_glossary():
    rows = (
        ("us", "uns|unser", "case"), ("US", "USA"), ("API*", "Schnittstelle"), ("dog*", "Hund"), ("npm", ""),
        ("iPhone", "="), ("a|b", "="), ("cat", "cat"), ("bat", "bat", "case"), ("eel", "=|"), ("bee", "|"),
        ("-", "Kunde"), ("-", "Wer", "case"),
    )  # fmt: skip
    glossary = of_rows(*rows)
    again = of_rows(*glossary.rows)
    assert len(glossary.entries) == 11
    assert (again.entries, again.forbidden) == (glossary.entries, glossary.forbidden)


def test_forms_are_found_as_words_or_at_the_end_of_a_compound():
    assert occurrences("Stuhl", "Ein Stuhl, zwei Stühle und Lehrstuhl") == [(4, 9)]
    assert occurrences("Stuhl", "Lehrstuhl", in_compounds=True) == [(4, 9)]
    assert occurrences("rote Bank", "eine rote  Bank") == [(5, 15)]
    assert occurrences("C++", "in C++ und C++x") == [(3, 6), (11, 14)]
    assert occurrences("犬", "小犬が") == [(1, 2)]


def test_one_place_of_a_translation_is_that_of_one_term(tmp_path):
    glossary = read(tmp_path / "terms.tsv", "dog\tHund\nhound\tHund\n")
    matches = glossary.matches("a dog and a hound")
    assert places(matches, "ein Hund") == [(4, 8), None]
    assert places(matches, "ein Hund und ein Hund") == [(4, 8), (17, 21)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client Auftraggeber\n\tx\n", "line 2 has no source term"),
        ("a\tb\tcsae\n", "'csae' is not an option"),
        ("-\t |\n", "line 1 forbids nothing"),
        (f"{'a' * 300}\tb\n", "more than 200 characters"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path / "terms.tsv", text)


def test_the_first_of_two_equal_terms_counts_and_deepls_csv_is_read(tmp_path):
    glossary = read(tmp_path / "terms.tsv", "dog\tHund\nDog\tDogge\ndog\tKöter\n")
    assert [entry.forms for entry in glossary.entries] == [("Hund",), ("Dogge",)]
    assert glossary.problems == ("line 3: 'dog' is already in line 1, which counts",)
    assert found(glossary, "Dog dog") == [("Dog", "Dog", ("Dogge",)), ("dog", "dog", ("Hund",))]
    glossary = read(tmp_path / "terms.csv", '"dog, big",Dogge,en,de\ncat,Katze,en,de\n')
    assert [(entry.source, entry.forms) for entry in glossary.entries] == [
        ("dog, big", ("Dogge",)),
        ("cat", ("Katze",)),
    ]


@pytest.mark.parametrize(
    ("form", "text", "kept"),
    [
        ("Ende", "Eine lachende Frau steht am Ende.", "Ende"),
        ("Ende", "Eine lachende Frau.", None),
        ("Ende", "Das WOCHENENDE und das Ende.", "Ende"),
        ("Ende", "Das Wochenende.", "ende"),
        ("Tisch", "Das ist praktisch.", None),
        ("stuhl", "ein Gartenstuhl und ein Stuhl", "Stuhl"),
    ],
)
def test_a_noun_is_in_nouns_alone_and_a_whole_word_comes_first(form, text, kept):
    (place,) = places(of_rows(("term", form)).matches("a term"), text)
    assert (place and text[slice(*place)]) == kept


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("https://www.dog.com/man", False), ("info@dog.com", False), ("dog.txt", False), ("@dog", False),
        ("#dog", False), ("see (www.dog.com).", False), ("my_dog_2", False),
        ("a dog.", True), ("(dog)", True), ("dog/cat", True), ("dog-like", False),
    ],
)  # fmt: skip
def test_a_term_is_not_part_of_an_address_or_a_name(text, is_found):
    assert bool(of_rows(("dog", "Hund")).matches(text)) == is_found
    assert of_rows(("www.dog.com", "=")).matches("see www.dog.com")


POSSESSIVES = ("{}'s new product", "The {}’s product", "{}'s", "It is {}'s.", "{}'s, {}’s!")


@pytest.mark.parametrize("text", POSSESSIVES)
@pytest.mark.parametrize(
    "row", [("Acme", "="), ("driver", "Fahrer"), ("Node.js", "="), ("AT&T", "="), ("red car*", "x")]
)
def test_a_possessive_is_no_part_of_a_term(row, text):
    source = row[0].removesuffix("*")
    for written in (text, text.replace("'s", "'S").replace("’s", "’S").replace("{}", "{0}")):
        spans = [match.span for match in of_rows(row).matches(written.format(*[source] * 2))]
        assert [written.format(source, source)[slice(*span)] for span in spans] == [source] * written.count("{")
    longer = (f"{source}'s", "y") if not row[0].endswith("*") else (f"{source}'s", "=")
    (match,) = of_rows(row, longer).matches(f"the {source}'s")
    assert match.entry.source == longer[0]


@pytest.mark.parametrize("text", ["{}-like", "pre-{}", "{}-like's", "{}'t", "{}'sx", "{}s", "{}s's", "o'{}"])
def test_a_part_of_a_word_is_no_term(text):
    assert not of_rows(("dog", "Hund"), ("Acme", "=")).matches(f"{text.format('dog')} {text.format('Acme')}")


def test_the_plurals_of_dutch_are_no_possessives():
    assert not of_rows(("foto", "photo"), source="nl", target="en").matches("twee foto's")


@pytest.mark.parametrize(
    ("target", "row", "answer", "found"),
    [
        ("de", ("Acme", "="), "Acmes neues Rad", "Acmes"),
        ("de", ("Acme", "="), "das Rad von Acme", "Acme"),
        ("sv", ("Acme", "="), "Acmes nya cykel", "Acmes"),
        ("fr", ("Acme", "="), "Acmes vélo", None),
        ("de", ("acme", "Fahrer"), "des Fahrers Rad", "Fahrers"),
        ("de", ("Acme", "Hans"), "Hanss Rad", None),
    ],
)
def test_a_possessive_may_become_a_genitive_in_s(target, row, answer, found):
    glossary = of_rows(row, target=target)
    for text, expected in ((f"{row[0]}'s bike", found), (f"{row[0]} bike", found if found in (None, "Acme") else None)):
        (place,) = places(glossary.matches(text), answer)
        assert (place and answer[slice(*place)]) == expected


@pytest.mark.parametrize(("source", "text"), [("L'Oréal*", "L’Oréals Preis"), ("Wi-Fi*", "Wi‑Fis here")])
def test_an_ending_may_follow_any_form_of_an_apostrophe_or_hyphen(source, text):
    assert of_rows((source, "x")).matches(text)


def test_a_capital_at_the_beginning_of_a_german_sentence_is_not_applied():
    glossary = of_rows(("gestern", "yesterday"), target="en", source="de")
    assert found(glossary, "Gestern Abend spielte er.") == [("gestern", "Gestern", ("yesterday",))]
    assert found(glossary, "Erst Gestern Abend.") == [("gestern", "Gestern", ("Yesterday",))]


@pytest.mark.parametrize(
    ("words", "free", "text", "evades"),
    [
        ("Hund", "Ein Hund.", "Ein Einhund.", True),
        ("Hund", "Der Hund.", "Derhunde laufen.", True),
        ("Hund", "Der Hund.", "Der SCHÄFERHUND.", True),
        ("Hund", "Der Hund.", "Die Hundehütte.", True),
        ("Hund", "Ein Schäferhund und ein Hund.", "Ein Schäferhund und ein Tier.", False),  # the model's own word
        ("Hund", "Ein Hund.", "Ein Tier.", False),
        ("Hund", "Ein Hund.", "Ein Hund.", False),  # it is there, and hidden by nothing
        ("Hund", "Ein Hund.", "Das Verhundertfachen.", False),  # in the middle
        ("die", "die Katze", "dieser Kater", False),  # too short: a part of many words
        ("köter", "Ein Köter.", "Ein STRASSENKÖTER.", True),
        ("großer Hund", "Ein großer Hund.", "Ein Einhund.", False),
    ],
)
def test_a_word_that_hides_a_forbidden_one_evades_the_ban(tmp_path, words, free, text, evades):
    assert read(tmp_path / "terms.tsv", f"-\t{words}\n").evades(text, free) == evades
    assert not read(tmp_path / "terms.tsv", f"-\t{words}\tcase\n").evades(text, free)  # in this spelling alone


@pytest.mark.parametrize(
    ("row", "free", "suppressed"),
    [
        ("-\tHund", "Ein Hund.", True),
        ("-\tan", "Ein Mann am Strand, an dem andere sind.", False),  # too short: a part of many words
        ("-\tKind", "Ein Kind sieht die Kinder.", False),  # the model's own word
        ("-\tKind", "Ein Kind.", True),
        ("-\tsehen\tcase", "Sie sehen.", False),  # in this spelling alone
    ],
)
def test_longer_words_are_suppressed_where_they_would_evade(tmp_path, row, free, suppressed):
    glossary = read(tmp_path / "terms.tsv", f"{row}\n")
    (word,) = glossary.forbidden
    assert glossary.suppresses_longer(word, free) is suppressed
