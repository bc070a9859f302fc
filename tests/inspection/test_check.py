"""`s2s check`: what was planted in a corpus is found, with its line; what spoils a result is exit code 1."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.cli import main
from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import Config, TokenizerConfig
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.sources import open_pairs
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.inspection import blocks
from seq2seq.inspection.check import CheckReport, Corpora, check_corpora
from seq2seq.inspection.layout import as_text
from seq2seq.inspection.oddities import ODDITIES, oddities_of
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

NOUNS = ["dog", "cat", "house", "tree", "river", "bridge", "garden", "window", "teacher", "child"]
TRANSLATED = ["Hund", "Katze", "Haus", "Baum", "Fluss", "Brücke", "Garten", "Fenster", "Lehrer", "Kind"]
NAMES = ["Anna", "Bert", "Clara", "Dora", "Emil", "Fritz", "Greta", "Hans"]


def aligned(count: int, seed: int = 1) -> tuple[list[str], list[str]]:
    """Pairs with what translations keep: length, numbers, names, marks; no two are near."""
    draw = random.Random(seed)
    sides: tuple[list[str], list[str]] = [], []
    for _ in range(count):
        places = [draw.randrange(len(NOUNS)) for _ in range(draw.randint(3, 14))]
        name, number, mark = draw.choice(NAMES), draw.randrange(10**6), draw.choice(".....?!")
        sides[0].append(f"The {' '.join(NOUNS[place] for place in places)} of {name} {number}{mark}")
        sides[1].append(f"Das {' '.join(TRANSLATED[place] for place in places)} von {name} {number}{mark}")
    return sides


@pytest.fixture
def write(tmp_path):
    def write(name: str, lines: list[str] | list[bytes], end: bytes = b"\n") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + end for line in lines))
        return path

    return write


@pytest.fixture
def check(write):
    """Checks two lists of lines as training corpus."""

    def check(source: list, target: list, **settings) -> CheckReport:
        config = SourceConfig(source=write("a.en", source), target=write("a.de", target))
        tokenizer = TokenizerConfig(vocab_size=400)
        return check_corpora(Corpora([config], {}, ("en", "de"), tokenizer=tokenizer, **settings), num_workers=1)

    return check


def test_a_sound_corpus_has_no_problems(check):
    report = check(*aligned(400))
    assert report.ok
    assert report.problems == []
    (train,) = report.corpora
    assert train.filters.kept == train.examples == 400
    assert not any(side.findings for side in train.sides.values())
    assert not train.agreement.shifts


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("empty", " \t "), ("no_words", "@@ ..."), ("control", "a bell\x07 rings"),
        ("control", "soft\u00adhyphen here"),
        ("control", "two\u2028lines of one"), ("control", "\ufefffirst of a file"), ("replacement", "lost \ufffd text"),
        ("mojibake", "Das MÃ¤dchen hÃ¶rt zu"), ("mojibake", "it is whatâ€™s left"), ("mixed_script", "pаypal is it"),
        ("foreign_script", "Это по-русски написано"), ("entity", "salt &amp; pepper"), ("tab", "one\ttwo"),
        ("decomposed", "a cafe\u0301 is here"), ("decomposed", "der \u1112\u1161\u11ab Fluss"),
        ("odd_space", "12\u00a0km from here"), ("leading_space", " it begins so"), ("trailing_space", "it ends so "),
        ("double_space", "there  are two"),
    ],
)  # fmt: skip
def test_what_is_planted_in_a_side_is_found_with_its_line(check, kind, text):
    source, target = aligned(300)
    target[41] = text
    side = check(source, target).corpora[0].sides
    assert not side["source"].findings
    finding = side["target"].findings[kind]
    assert finding.count == 1
    ((number, texts),) = finding.examples
    assert (number, texts) == (42, (text,))


def test_sound_letters_are_not_mojibake(check):
    source, target = aligned(300)
    target[:5] = ["„Das macht Spaß“, sagt er", "à «Âge» É", "Ça va? «Où»", "Å æ ø Ð", "naïve café… “Ñ”"]
    assert "mojibake" not in check(source, target).corpora[0].sides["target"].findings


def test_what_is_planted_in_pairs_is_found_with_its_line(check):
    source, target = aligned(300)
    source[10], target[10] = source[3], target[3]
    target[20] = source[20] + " "
    target[30] = "Hund"
    target[40] = " ".join(TRANSLATED * 30)
    report = check(source, target, filters=FilterConfig(max_length=100)).corpora[0]
    found = {kind: (finding.count, finding.examples[-1][0]) for kind, finding in report.findings.items()}
    assert found == {"copy": (1, 21), "over_long": (1, 41), "ratio": (1, 31), "duplicate": (1, 11)}
    assert report.filters.dropped == {"length": 1, "ratio": 1, "duplicate": 1}


def test_filters_drop_what_training_will_drop(check, tmp_path, write):
    source, target = aligned(600)
    draw = random.Random(3)
    for place in draw.sample(range(600), 60):
        target[place] = draw.choice(["", "Hund", target[place] * 4, target[0]])
    source[:2] = source[5:7]
    filters = FilterConfig(max_length=60, max_ratio=2.5)
    report = check(source, target, filters=filters).corpora[0]
    pairs = open_pairs(SourceConfig(source=tmp_path / "a.en", target=tmp_path / "a.de"), "en", "de")
    config = TokenizerConfig(vocab_size=400)
    text = TokenizerText([pairs], filters, config, seed=1)
    tokenizer = Tokenizer.train([*text.side(0), *text.side(1)], config, seed=1)
    corpus = prepare_corpus([pairs], TokenizerPair(tokenizer, tokenizer), filters, tmp_path / "c", 1)
    assert report.filters.total == corpus.counts.total
    assert set(corpus.counts.dropped) == {"empty", "length", "ratio"}
    assert report.filters.dropped == corpus.counts.dropped


@pytest.mark.slow
@pytest.mark.parametrize("removed", [50, 700, 1180])
@pytest.mark.parametrize("side", [0, 1])
def test_unequal_counts_name_the_place_where_the_sides_drift_apart(check, removed, side):
    sides = aligned(1200)
    del sides[side][removed]
    report = check(*sides)
    assert not report.ok
    assert report.corpora[0].lines == [1200 - (side == 0), 1200 - (side == 1)]
    (shift,) = report.corpora[0].agreement.shifts
    assert abs(shift.first - (removed + 1)) <= 3
    assert shift.offset == (-1 if side else 1)
    assert any(
        "1,200" in p.message and "1,199" in p.message and f"{shift.first:,}" in p.message for p in report.problems
    )
    assert report.corpora[0].shift_context


def test_a_shift_is_found_though_the_counts_are_equal(check):
    source, target = aligned(2400)
    target.insert(1700, target.pop(1100))
    report = check(source, target)
    assert not report.ok
    (shift,) = report.corpora[0].agreement.shifts
    assert abs(shift.first - 1101) <= 3
    assert abs(shift.last - 1700) <= 3
    assert shift.offset == -1


def test_a_shift_of_a_small_corpus_is_json(write, capsys):
    source, target = aligned(150)
    del target[60]
    names = [str(write(name, lines)) for name, lines in (("a.en", source), ("a.de", target))]
    assert main(["check", *names, "--format", "json"]) == 1
    (corpus,) = json.loads(capsys.readouterr().out)["corpora"]
    assert [shift["offset"] for shift in corpus["agreement"]["shifts"]] == [-1]


def test_a_file_that_ends_early_agrees_up_to_its_end(check):
    source, target = aligned(800)
    report = check(source, target[:700])
    (problem,) = report.problems
    assert problem.level == "error"
    assert problem.message.endswith("the sides agree up to where the shorter one ends")


@pytest.mark.slow
@pytest.mark.parametrize(("removed", "offset"), [(400, -1), (500, -40)])
def test_drift_is_found_by_many_lines_too(check, removed, offset):
    source, target = aligned(1500)
    del target[removed : removed - offset]
    (shift,) = check(source, target).corpora[0].agreement.shifts
    assert abs(shift.first - (removed + 1)) <= 5
    assert shift.offset == offset


def test_bytes_that_are_not_utf8_are_named_by_line(check):
    source, target = aligned(300)
    raw = [line.encode() for line in target]
    raw[6], raw[250] = "Mädchen".encode("latin-1"), b"\xff\xfe"
    report = check(source, raw)
    finding = report.corpora[0].sides["target"].findings["invalid_utf8"]
    assert "replacement" not in report.corpora[0].sides["target"].findings
    assert [number for number, _ in finding.examples] == [7, 251]
    assert not report.ok


def config_text(name: str, parts: dict[str, tuple[Path, Path]]) -> str:
    def source(part: str) -> dict:
        return {"source": str(parts[part][0]), "target": str(parts[part][1])}

    data = {"train": source("train"), "valid": source("valid"), "test": {"final": source("final")}}
    languages = {"source_language": "en", "target_language": "de"}
    return json.dumps({**languages, "data": data, "tokenizer": {"vocab_size": 400}, "model": {"preset": "tiny"}})


@pytest.fixture
def config(write, tmp_path):
    """Writes a config with its corpora; `change` may change the lines first."""

    def config(change=lambda lines: None) -> Path:
        lines = {
            name: aligned(count, seed) for name, count, seed in (("train", 400, 1), ("valid", 50, 2), ("final", 50, 3))
        }
        change(lines)
        parts = {n: (write(f"{n}.en", s), write(f"{n}.de", t)) for n, (s, t) in lines.items()}
        path = tmp_path / "run.yaml"
        path.write_text(config_text("run", parts))
        return path

    return config


def run(capfd, *arguments: object) -> tuple[int, str, str]:
    code = main(["check", *map(str, arguments)])
    out, err = capfd.readouterr()
    return code, out, err


def test_a_config_without_problems_is_exit_0(config, capfd):
    code, out, err = run(capfd, config())
    assert (code, err) == (0, "")
    assert "0 errors, 0 warnings" in out
    for words in ("train: 400 examples", "valid: 50 examples", "final in train: none of 50", "tokenizer.vocab_size"):
        assert words in out


def test_overlap_with_the_test_set_is_exit_1(config, capfd):
    def change(lines):
        for side in (0, 1):
            lines["train"][side][100:110] = lines["final"][side][:10]
            lines["valid"][side][0] = lines["final"][side][20]

    code, out, _ = run(capfd, config(change), "--format", "json")
    report = json.loads(out)
    assert code == 1
    assert report["ok"] is False
    assert report["overlaps"]["train"]["final"]["pair_exact"] == 10
    assert report["overlaps"]["train"]["valid"]["pair_exact"] == 0
    assert report["overlaps"]["valid"]["final"]["pair_exact"] == 1
    assert {(p["level"], p["corpus"]) for p in report["problems"]} == {("error", "final"), ("warning", "final")}


def test_characters_and_words_that_training_never_shows_are_counted(config, capfd):
    def change(lines):
        lines["valid"][1][3] += " ŵŵ Qqqq"

    _, out, _ = run(capfd, config(change), "--format", "json")
    side = json.loads(out)["corpora"][1]["sides"]["target"]
    assert side["unseen_characters"] == {"ŵ": 2, "Q": 1, "q": 3}
    assert 0 < side["unseen_word_share"] < 1


def test_swapped_scripts_are_an_error(config, capfd):
    def change(lines):
        lines["valid"] = (["Это собака и кошка"] * 3, ["Das ist ein Hund"] * 3)

    code, out, _ = run(capfd, config(change))
    assert code == 1
    assert "error: valid: source is in Cyrillic" in out


def test_labels_are_judged(write, capfd):
    texts = [f"word{i} is {'good' if i % 3 else 'bad'}" for i in range(300)]
    rows = [f"{text}\t{int('good' in text)}" for text in texts]
    rows += [f"{texts[7]}\t0", f"{texts[8]}\t{int('good' in texts[8])}"]
    code, out, _ = run(capfd, write("a.tsv", ["sentence\tlabel", *rows]), "--format", "json")
    (train,) = json.loads(out)["corpora"]
    assert code == 0
    assert sum(train["labels"].values()) == 302
    assert train["contradictions"]["count"] == 1
    assert [number for number, _ in train["contradictions"]["examples"]] == [9, 302]
    assert train["sides"]["text"]["findings"]["repeated"]["count"] == 2
    assert train["findings"]["duplicate"]["count"] == 1
    code, out, _ = run(capfd, write("b.tsv", ["sentence\tlabel", *(f"{text}\t1" for text in texts)]))
    assert code == 1
    assert "every text has the label '1'" in out


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "tsv.gz"])
def test_pairs_in_one_file(write, tmp_path, capfd, kind):
    pairs = list(zip(*aligned(200), strict=True))
    lines = (
        [json.dumps({"translation": {"en": s, "de": t}}) for s, t in pairs]
        if kind == "jsonl"
        else map("\t".join, pairs)
    )
    path = write(f"a.{kind}", list(lines))
    if kind.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    code, out, err = run(capfd, path)
    assert (code, err) == (0, "")
    assert "train: 200 examples" in out
    with path.open("ab") as stream:
        stream.write(gzip.compress(b"only one column\n") if kind.endswith(".gz") else b"{]\n")
    code, out, _ = run(capfd, path)
    assert code == 1
    assert "line 201" in out


@pytest.mark.slow
def test_processes_change_nothing(write, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_LINES", 200)
    sides = aligned(1500)
    for line in range(0, 1500, 70):
        sides[1][line] += "  "
    config = SourceConfig(source=write("a.en", sides[0]), target=write("a.de", sides[1]))
    valid = SourceConfig(source=write("v.en", sides[0][50:90]), target=write("v.de", sides[1][50:90]))
    corpora = Corpora([config], {"valid": valid}, ("en", "de"), tokenizer=TokenizerConfig(vocab_size=400))
    alone, together = (check_corpora(corpora, workers) for workers in (1, 2))
    assert alone.as_dict() == together.as_dict()
    assert alone.overlaps["train"]["valid"].pair_exact == 40
    assert alone.corpora[0].sides["target"].findings["trailing_space"].count == 22


def test_wrong_use_is_one_line_and_exit_2(write, tmp_path, capfd):
    text = write("a.en", ["one"])
    bad = write("bad.yaml", ["data: [1"])
    cases = (
        [tmp_path / "none.en", text],
        [text],
        [text, text, text],
        [bad],
        [tmp_path / "none.yaml"],
        [text, text, "--set", "a=b"],
    )
    for arguments in cases:
        code, out, err = run(capfd, *arguments)
        assert (code, out) == (2, ""), arguments
        assert len(err.splitlines()) == 1, err


def test_every_kind_has_words():
    assert all(oddity.meaning for oddity in ODDITIES.values())
    assert all(oddity.advice for oddity in ODDITIES.values() if oddity.warn < 1)
    assert Config.model_fields  # the filters named in them are settings
    meanings = [oddity.meaning for oddity in ODDITIES.values()]
    for name in ("max_length", "max_ratio"):
        assert any(f"data.filters.{name}" in words for words in meanings)
        assert name in FilterConfig.model_fields


@settings(max_examples=300)
@given(st.text(st.sampled_from("a. &amp;\t\x07\u00a0\u2028\ufffdÃ¤â€Ðа\u0430яΩé漢")))
def test_the_quick_look_at_a_line_misses_no_oddity(line):
    assert oddities_of(line) == [o.name for o in ODDITIES.values() if o.find is not None and o.find(line)]


def test_a_shared_example_is_named_by_its_corpus_and_line(write):
    sides = aligned(240)
    rows = ["en\tde", *map("\t".join, zip(*sides, strict=True))]
    train = [
        SourceConfig(source=write("a.en", sides[0][:100]), target=write("a.de", sides[1][:100])),
        SourceConfig(tsv=write("b.tsv", [rows[0], "", *rows[101:201]])),
    ]
    valid = SourceConfig(tsv=write("v.tsv", [rows[0], *rows[201:], rows[4], rows[104]]))
    tokenizer = TokenizerConfig(vocab_size=400)
    report = check_corpora(Corpora(train, {"valid": valid}, ("en", "de"), tokenizer=tokenizer), num_workers=1)
    found = report.overlaps["train"]["valid"].examples
    pairs = [(one.held_out_number, one.train_corpus, one.train_number) for one in found if one.kind == "pair_exact"]
    assert pairs == [(42, "train.0", 4), (43, "train.1", 6)]
    lines = [line.strip() for line in as_text(report, 3, None)]
    assert any(line.startswith("train.1 6: ") for line in lines)


def test_lines_after_the_end_of_the_shorter_file_hide_no_damage(check):
    source, target = aligned(300)
    source[5] += " \ufffd"
    source[9] += " \ufffd"
    sides = check([*source[:290], b"caf\xe9", b"caf\xe9 2", *source[292:]], target[:280]).corpora[0].sides
    assert sides["source"].findings["invalid_utf8"].count == 2
    damaged = sides["source"].findings["replacement"]
    assert (damaged.count, [number for number, _ in damaged.examples]) == (2, [6, 10])
