"""Glossaries in translations: terms are put in where they are missing, forbidden words left out, and no more."""

import json
import random

import pytest
from support.glossaries import of_rows, read
from support.our_models import make_ours
from support.reversed_folder import folder  # noqa: F401 (a fixture)
from support.toy_reversal import reversed_pairs

from seq2seq.cli import main
from seq2seq.inference.aligner import Aligner
from seq2seq.inference.glossary_translator import HARMLESS
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary


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


@pytest.mark.parametrize("term", ["vier neun", "neun vier", "neun vier eins"])
def test_a_term_that_contains_the_word_that_it_replaces_is_put_in(parts, term):
    translator, aligner = parts
    lines = [source for source, _ in reversed_pairs(60, 17) if source.split().count("four") == 1]
    answers = Pipeline(translator, aligner, of_rows(("four", term))).translate(lines)
    statuses = [one.status for answer in answers for one in answer.terms]
    assert statuses.count("forced") > 0.8 * len(statuses) > 10
    for answer in answers:
        for one in answer.terms:
            assert one.status == "missing" or answer.text[slice(*one.target)] == term
    # the word is not said a second time, where the model would have said it
    assert sum(answer.text.split().count("vier") == 1 for answer in answers) > 0.8 * len(answers)


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


@pytest.mark.parametrize("around", ["  {}", "{}  ", "\t{}", "\u3000{}\u3000"])
def test_white_space_around_a_line_changes_no_score(parts, tmp_path, around):
    translator, aligner = parts
    keeper = Pipeline(translator, aligner, read(tmp_path / "terms.tsv", "four\tneun\nsix\tzehn\n"))
    lines = [source for source, _ in reversed_pairs(12, 5) if {"four", "six"} & {*source.split()}]
    plain, spaced = keeper.translate(lines), keeper.translate([around.format(line) for line in lines])
    assert any(term.status == "forced" for one in plain for term in one.terms)
    assert [one.text.strip() for one in spaced] == [one.text for one in plain]
    assert [one.tokens for one in spaced] == [one.tokens for one in plain]
    assert [one.score for one in spaced] == pytest.approx([one.score for one in plain], abs=1e-4)


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
