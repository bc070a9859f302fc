"""Glossaries: terms are found as the file says, put in where they are missing, and nothing else changes."""

import json
import random
from pathlib import Path

import pytest
from support.our_models import make_ours
from support.reversed_folder import folder  # noqa: F401 (a fixture)
from support.toy_reversal import reversed_pairs

from seq2seq.cli import main
from seq2seq.errors import DataError
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.glossary_translator import HARMLESS, _led_prefixes, _prefixes
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary, occurrences, places


def read(path: Path, text: str, language: str | None = "de") -> Glossary:
    path.write_text(text, encoding="utf-8")
    return Glossary.read(path, language)


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
        ("invoice", "invoices", ("Rechnung",)),
        ("Firefox", "Firefox", ("Firefox",)),
        ("WHO", "WHO", ("Weltgesundheitsorganisation",)),
        ("us", "us", ("uns",)),
    ]
    assert found(glossary, "Client") == [("client", "Client", ("Auftraggeber", "Auftraggebers"))]
    assert found(glossary, "二匹の犬が走る") == [("犬", "犬", ("Hund",))]


def of_rows(*rows: tuple[str, ...], target: str | None = "de", source: str | None = "en") -> Glossary:
    return Glossary.of(enumerate(rows, start=1), target, "terms", source)


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
        ("iPhone", "="), ("a|b", "="), ("cat", "cat"), ("bat", "bat", "case"), ("-", "Kunde"), ("-", "Wer", "case"),
    )  # fmt: skip
    glossary = of_rows(*rows)
    again = of_rows(*glossary.rows)
    assert len(glossary.entries) == 9
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


@pytest.fixture(scope="module")
def parts(folder):  # noqa: F811
    run = folder / "runs" / "toy"
    return Translator.load(run, threads=1), Aligner.load(run, device="cpu", threads=1)


def test_what_is_right_is_left_alone_and_what_is_missing_is_put_in_its_place(parts, tmp_path):
    """The model translates words in reverse, so the place of a term is known."""
    translator, aligner = parts
    glossary = read(tmp_path / "terms.tsv", "one\teins\nfour\tneun\n")  # neun is nine: the model never says it here
    rows = [pair for pair in reversed_pairs(200, 11) if pair[0].split().count("four") < 2 and "nine" not in pair[0]]
    lines = [source for source, _ in rows]
    free = [one.text for one in translator.translate(lines)]
    answers = Pipeline(translator, aligner, glossary).translate(lines)
    forced = hits = 0
    for (source, target), before, translation in zip(rows, free, answers, strict=True):
        terms = translation.terms
        assert [source[slice(*term.source)] for term in terms] == [
            word for word in source.split() if word in ("one", "four")
        ]
        if all(term.status == "kept" for term in terms):
            assert translation.text == before
        for term in terms:
            assert (term.target is None) == (term.status == "missing")
            if term.target is not None:
                assert translation.text[slice(*term.target)] == {"one": "eins", "four": "neun"}[term.entry]
        if before == target and "four" in source.split():
            forced += 1
            hits += translation.text == target.replace("vier", "neun")
    assert forced > 10
    assert hits / forced > 0.7
    statuses = [term.status for one in answers for term in one.terms if term.entry == "four"]
    assert statuses.count("forced") / len(statuses) > 0.9


def test_a_capital_of_the_source_stays_out_of_the_translation(parts):
    """The model translates words in reverse and without capitals: the first word of a line is the last one there."""
    translator, aligner = parts
    glossary = of_rows(("four", "neun"), ("Six", "SECHS"))
    lines = [source.capitalize() for source, _ in reversed_pairs(200, 13)]
    free = [one.text for one in translator.translate(lines)]
    answers = Pipeline(translator, aligner, glossary).translate(lines)
    statuses = [term.status for one in answers for term in one.terms if term.entry == "four"]
    assert statuses.count("forced") > 20
    assert not [one.text for one in answers if "Neun" in one.text]
    kept = 0
    for before, answer in zip(free, answers, strict=True):
        if answer.source.startswith("Six") and "sechs" in before.split():
            kept += 1
            assert answer.terms[0].status == "kept"
            assert "SECHS" not in answer.text
    assert kept


def test_next_words_are_those_with_the_highest_scores(parts):
    """In the order of the scorer's probabilities, whatever the other pairs are; none behind what is too long."""
    _, aligner = parts
    pairs = [(source, " ".join(target.split()[:2]) + " ") for source, target in reversed_pairs(5, 9)]
    pairs += [("four", ""), ("four " * 2000, ""), ("four", "neun " * 2000)]
    every = aligner.next_words(pairs, 10_000)
    assert every[-2:] == [[], []]
    assert len(every[0]) > 5
    for pair, words in zip(pairs[:-2], every[:-2], strict=True):
        details = aligner.align([(pair[0], pair[1] + word) for word in words])
        scores = [one.words[-1].log_prob for one in details]
        assert scores == pytest.approx(sorted(scores, reverse=True), abs=0.05)
        assert aligner.next_words([pair], 3) == [words[:3]]


def test_a_translation_does_not_depend_on_the_lines_beside_it(parts, tmp_path):
    translator, aligner = parts
    keeper = Pipeline(translator, aligner, read(tmp_path / "terms.tsv", "four\tneun\nsix\tzehn\n"))
    lines = [source for source, _ in reversed_pairs(12, 5)] + ["", "  four  ", "four. " * 30]
    together = keeper.translate(lines)
    random.Random(1).shuffle(lines)
    for line, alone in zip(lines, map(keeper.translate, ([line] for line in lines)), strict=True):
        (same,) = [one for one in together if one.source == line][:1]
        assert (same.text, same.terms) == (alone[0].text, alone[0].terms)


def test_terms_of_a_document_count_once(parts, tmp_path, monkeypatch):
    """However often a sentence is translated, because the model does not know the placeholders."""
    translator, aligner = parts
    monkeypatch.setattr(aligner, "calibration", aligner.calibration.model_copy(update={"stand_ins": ()}))
    keeper = Pipeline(translator, aligner, read(tmp_path / "terms.tsv", "four\tneun\nsix\tzehn\n"))
    text = "<p>four one {x} two six</p><p>one <code>a</code> {y} two {z} four</p><p>two <code>b</code></p><p>six</p>"
    keeper.translate([text, text], form="html")
    assert keeper.statuses.total() == 2 * 4


def test_what_is_forbidden_is_not_said(parts, tmp_path):
    """Unless a search without all those words finds nothing usable; other lines stay as they are."""
    translator, aligner = parts
    glossary = read(tmp_path / "terms.tsv", "one\tneun\n-\tvier|Sechs\n-\tdrei\tcase\n")
    assert Glossary.of(enumerate(glossary.rows, 1), "de", "again").rows == glossary.rows
    lines = [source for source, _ in reversed_pairs(60, 12)]
    free = [one.text for one in translator.translate(lines)]
    answers = Pipeline(translator, aligner, glossary).translate(lines)
    statuses = [term.status for one in answers for term in one.terms if term.source is None]
    assert statuses.count("avoided") > 10
    for before, translation in zip(free, answers, strict=True):
        terms, known = translation.terms, f"{before} neun"
        said = {one.words for one in glossary.said(translation.text)}
        if said:
            tried = {term.entry for term in terms if term.source is None}
            banned = [one for one in glossary.forbidden if one.words in tried]
            bans = {one.words: glossary.suppresses_longer(one, known) for one in banned}
            (other,) = translator.translate([translation.source], forbidden=[bans])
            is_usable = HARMLESS.issuperset(other.flags) and not glossary.evades(other.text, known)
            assert not is_usable or len(glossary.said(other.text)) > len(said)
        assert said == {term.entry for term in terms if term.status == "present"}
        assert not glossary.evades(translation.text, known)
        if not terms:
            assert translation.text == before
        for term in terms:
            if term.status == "present":
                assert translation.text[slice(*term.target)].casefold() == term.entry.casefold()


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


def test_a_prefix_is_kept_where_words_are_forbidden(parts, tmp_path):
    """With the space that ends its last word, which would continue without it."""
    translator, aligner = parts
    glossary = read(tmp_path / "terms.tsv", "-\tvier|Sechs\n-\tdrei\n")
    lines = [source for source, _ in reversed_pairs(20, 12)]
    prefixes = [f"{one.text[:2]} " for one in translator.translate(lines)]
    answers = Pipeline(translator, aligner, glossary).translate(lines, prefixes)
    assert any(term.status == "avoided" for one in answers for term in one.terms)
    for prefix, one in zip(prefixes, answers, strict=True):
        assert one.text.startswith(prefix)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_model_of_nonsense_loses_nothing(tmp_path, seed):
    make_ours(tmp_path / "model", ending=1.0, seed=seed)
    translator, aligner = Translator.load(tmp_path / "model"), Aligner.load(tmp_path / "model", device="cpu")
    glossary = read(tmp_path / "terms.tsv", "house\tHaus\nthe\tdas|die\nX9\t=\n")
    lines = ["the house", "", "X9 in the house, the X9", "nothing", "house " * 60]
    answers = Pipeline(translator, aligner, glossary).translate(lines)
    assert [answer.source for answer in answers] == lines
    for line, translation in zip(lines, answers, strict=True):
        terms = translation.terms
        assert len(terms) == len(glossary.matches(line))
        for term in terms:
            assert line[slice(*term.source)].casefold() == term.entry.casefold()
            if term.target is not None:
                assert translation.text[slice(*term.target)]


def test_the_commands(folder, tmp_path, capsys):  # noqa: F811
    (tmp_path / "terms.tsv").write_text("four\tneun\none\teins\n", encoding="utf-8")
    (tmp_path / "in").write_text("one four two\n\nthree\n")
    typed = [
        "translate",
        str(folder / "runs/toy"),
        "-i",
        str(tmp_path / "in"),
        "--glossary",
        str(tmp_path / "terms.tsv"),
    ]
    capsys.readouterr()
    assert main(typed) == 0
    captured = capsys.readouterr()
    assert captured.out.split("\n")[0].split().count("neun") == 1
    assert len(captured.out.split("\n")) == 4
    assert "terms: 1 forced, 1 kept" in captured.err
    assert main([*typed, "--format", "jsonl", "--details", "words"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [term["status"] for term in shown[0]["terms"]] == ["kept", "forced"]
    assert shown[1]["terms"] == shown[2]["terms"] == []
    assert shown[0]["details"]
    for more, words in ((["--n-best", "2"], "--n-best"), (["--prefix-file", str(tmp_path / "in")], "--prefix-file")):
        assert main([*typed, *more]) == 2
        assert words in capsys.readouterr().err
    typed = ["glossary", "check", str(tmp_path / "terms.tsv"), "--corpus", str(tmp_path / "in")]
    assert main([*typed, "--model", str(folder / "runs/toy"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["entries"] == 2
    assert [(term["entry"], term["occurs"], term["translated"]) for term in report["terms"]] == [
        ("four", 1, 0),
        ("one", 1, 1),
    ]
    assert main(typed) == 0
    assert "four" in capsys.readouterr().out
