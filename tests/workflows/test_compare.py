"""`s2s compare`: laws of the tests, of groups and seeds, and of what the table, the JSON and the page show."""

import html
import json
import os
import re
import shutil
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support import wrong_files
from support.compared import REFERENCE, sentences, spoiled
from support.many_directions import CONFIG as MANY
from support.many_directions import write_corpora
from support.run_folders import make_run

from seq2seq.cli import main
from seq2seq.errors import DataError
from seq2seq.evaluation.text import score_texts
from seq2seq.text.words import numbers_of
from seq2seq.workflows.compare.comparison import TestLines as Lines
from seq2seq.workflows.compare.comparison import compare
from seq2seq.workflows.compare.page import LARGEST, page
from seq2seq.workflows.compare.sentences import marked
from seq2seq.workflows.compare.systems import System, file_system
from seq2seq.workflows.compare.views import count_words, names_of
from seq2seq.workflows.compare.wording import shown_p, shown_value, verdict

QUICK = ("bleu", "chrf")

SYSTEMS = [
    System(name, spoiled(REFERENCE, rate, seed)) for name, rate, seed in (("a", 0.2, 1), ("b", 0.2, 2), ("c", 0.4, 3))
]


@pytest.fixture(scope="module")
def compared():
    return compare(SYSTEMS, Lines("set", [REFERENCE], sentences(120, 9), count_words(REFERENCE, REFERENCE)), QUICK)


def bleu(lines, references=REFERENCE) -> float:
    return score_texts(lines, references, ["bleu"])[0].score


# -- tests of differences ----------------------------------------------------------------------------------------------


def test_identical_systems_are_no_difference():
    same = [System("a", SYSTEMS[0].translations), System("b", list(SYSTEMS[0].translations)), SYSTEMS[2]]
    found = compare(same, Lines("set", [REFERENCE]), QUICK)
    for pair in found.pairs:
        if (pair.first, pair.second) == ("a", "b"):
            assert (pair.difference, pair.p_value, pair.corrected, pair.is_different) == (0.0, 1.0, 1.0, False)
            assert verdict(pair) == "no difference"
    assert all(found.rows["a"][metric].letters == found.rows["b"][metric].letters for metric in QUICK)
    assert found.notes == ["a and b have the same translations"]


def test_the_order_of_arguments_changes_the_order_alone(compared):
    test = Lines("set", [REFERENCE], sentences(120, 9), count_words(REFERENCE, REFERENCE))
    other = compare(SYSTEMS[::-1], test, QUICK)
    assert list(other.rows) == list(compared.rows)[::-1]
    assert dict(other.rows) == dict(compared.rows)
    turned = {(pair.second, pair.first, pair.metric): pair for pair in other.pairs}
    for pair in compared.pairs:
        back = turned[pair.first, pair.second, pair.metric]
        assert (back.difference, back.p_value) == (-pair.difference, pair.p_value)
        assert back.corrected == pytest.approx(pair.corrected)
    views = {view.title: view for view in other.views}
    assert [dict(one.values) for view in compared.views for one in view.buckets] == [
        dict(one.values) for view in compared.views for one in views[view.title].buckets
    ]


def test_two_systems_have_the_figures_of_sacrebleus_paired_bootstrap(compared):
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    named = [(system.name, list(system.translations)) for system in SYSTEMS[:2]]
    scorers = {"bleu": BLEU(references=[REFERENCE]), "chrf": CHRF(references=[REFERENCE])}
    _, theirs = PairedTest(named, scorers, None, "bs")()
    found = compare(SYSTEMS[:2], Lines("set", [REFERENCE]), QUICK)
    for pair in found.pairs:
        column = theirs[found.titles[pair.metric]]
        assert pair.p_value == column[1].p_value
        figures = [found.rows[name][pair.metric] for name, _ in named]
        assert [(f.score, f.mean, f.half_width) for f in figures] == [(r.score, r.mean, r.ci) for r in column]


def test_a_planted_tenth_of_a_point_is_noise_and_two_points_are_found():
    references = sentences(300)
    base, noise = spoiled(references, 0.2, 1), spoiled(references, 0.2, 2)
    wanted = bleu(base, references) + 0.1
    other = references if bleu(noise, references) < wanted else spoiled(references, 0.6, 3)
    mixed = ([*other[:count], *noise[count:]] for count in range(0, 40, 2))
    noise = min(mixed, key=lambda lines: abs(bleu(lines, references) - wanted))
    mended = ([*references[:count], *base[count:]] for count in range(4, 300, 3))
    better = next(lines for lines in mended if bleu(lines, references) >= wanted + 1.9)
    assert bleu(noise, references) == pytest.approx(wanted, abs=0.2)
    systems = [System(name, lines) for name, lines in (("base", base), ("noise", noise), ("better", better))]
    found = {(pair.first, pair.second): pair for pair in compare(systems, Lines("set", [references]), ["bleu"]).pairs}
    assert not found["base", "noise"].is_different
    assert found["base", "noise"].detectable > 0.2
    assert "no difference found" in verdict(found["base", "noise"])
    assert found["base", "better"].is_different
    assert verdict(found["base", "better"]) == "different"


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_the_one_changed_line_is_shown():
    changed = list(REFERENCE)
    changed[76] = changed[76].replace(changed[76].split()[2], "elephant", 1)
    found = compare([System("a", REFERENCE), System("b", changed)], Lines("set", [REFERENCE]), QUICK)
    (pair,) = found.sentences
    assert pair.num_different == 1
    (sentence,) = [*pair.won, *pair.lost]
    assert sentence.line == 77
    assert [part for part, is_own in sentence.texts[1] if is_own] == ["elephant"]
    assert "<mark>elephant</mark>" in page(found)


def test_a_file_that_is_the_source_or_the_reference_is_named():
    systems = [System("copied", [f" {line} " for line in sentences(120, 9)]), System("right", REFERENCE), SYSTEMS[0]]
    found = compare(systems, Lines("set", [REFERENCE], sentences(120, 9)), QUICK)
    assert found.notes == ["copied: this file is the source", "right: this file is the reference"]


def test_marked_parts_joined_are_the_texts():
    for one, other in zip(REFERENCE, SYSTEMS[0].translations, strict=True):
        parts = marked(one, other)
        assert ["".join(part for part, _ in side) for side in parts] == [one, other]
    assert marked("我喜欢猫", "我喜欢狗")[0] == [("我喜欢", False), ("猫", True)]


def test_word_sequences_are_those_that_one_system_has_right():
    references = ["the old man sleeps here", "an old man sings", "a cat"]
    good = ["the old man runs", "an old man sings", "a dog"]
    poor = ["the man old runs", "an man old sings", "a cat"]
    (pair,) = compare([System("good", good), System("poor", poor)], Lines("set", [references]), QUICK).sentences
    assert {(one.text, one.first, one.second) for one in pair.ngrams_won} >= {
        ("old man", 2, 0),
        ("an old man sings", 1, 0),
    }
    assert "man" not in {one.text for one in pair.ngrams_won}  # both have it
    assert [(one.text, one.first, one.second) for one in pair.ngrams_lost] == [("a cat", 1, 0)]
    assert "old man" in page(compare([System("good", good), System("poor", poor)], Lines("set", [references]), QUICK))


def test_table_json_and_page_have_the_same_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, lines in (("r", REFERENCE), *((system.name, system.translations) for system in SYSTEMS)):
        Path(name).write_text("\n".join(lines) + "\n")
    typed = ["compare", "a", "b", "c", "--reference", "r", "-m", "bleu,chrf"]
    assert main([*typed, "--html", "page.html"]) == 0
    table = capsys.readouterr().out
    assert main([*typed, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shown = re.sub(r"\s+", " ", table)
    text = re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", " ", Path("page.html").read_text())))
    for name, figures in found["rows"].items():
        cells = [f"{one['score']:.2f} ± {one['half_width']:.2f} {one['letters']}" for one in figures.values()]
        assert f"{name} {' '.join(cells)}" in shown
        assert f"{name} {' '.join(cells)}" in text
    for pair in found["pairs"]:
        title, names = found["titles"][pair["metric"]], f"{pair['first']} - {pair['second']}"
        figures = [f"{pair['difference']:+.2f}", f"{shown_p(pair['p_value'])} (sacreBLEU)", shown_p(pair["corrected"])]
        assert f"{names} {title} {figures[0]} p {figures[1]} corrected {figures[2]}" in shown
        assert " ".join((names, title, *figures)) in text
    for signature in found["signatures"].values():
        assert signature in table
        assert signature in text
    for view in found["views"]:
        for bucket in view["buckets"]:
            values = [shown_value(value, view["unit"]) for value in bucket["values"].values()]
            assert " ".join([bucket["label"], f"{bucket['count']:,}", *values]) in text


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def test_hostile_text_stays_text(compared):
    hostile = [
        '<script>alert("1")</script>',
        "</style></main><img src=x onerror=alert(1)>",
        "&lt;b&gt; &amp;amp; 'x'",
        "]]> <!-- x",
    ]
    names = ["<i>one</i>", '" onload="x', "new\nline\x00\u2028\udce9"]
    systems = [System(name, [f"{text} {place} {name[:2]}" for text in hostile]) for place, name in enumerate(names)]
    found = compare(systems, Lines("<u>set</u>", [hostile], [text[::-1] for text in hostile]), QUICK)
    text = page(found)
    text.encode()
    plain, own = Tags(), Tags()
    plain.feed(page(compared))
    own.feed(text)
    assert own.tags <= plain.tags
    assert own.attributes <= plain.attributes
    assert "script" not in own.tags
    said = "".join(own.text)
    assert "<u>set</u>" in said
    assert "<i>one</i>" in said
    for line in hostile:
        assert line in said


def test_the_page_is_one_file_of_at_most_2_mb(compared, monkeypatch):
    whole = page(compared)
    assert not re.search(r"<script|<link|<img|url\(|@import|(src|href)=", whole)
    assert whole.count("http") == whole.count("http-equiv")
    assert len(whole.encode()) <= LARGEST <= 2 * 2**20
    for largest in (30_000, 20_000):
        monkeypatch.setattr("seq2seq.workflows.compare.page.LARGEST", largest)
        cut = page(compared)
        assert len(cut.encode()) <= largest
        assert 0 < cut.count("<h3>Line") < whole.count("<h3>Line")
        assert "Tests of all pairs" in cut


def test_views_measure_what_they_say():
    sources = ["In 2024 the Berlin team won 1,234 games", "Ask Maria", "x", "Seldom words here"]
    references = ["2024 gewann das Berlin Team 1.234 Spiele", "Frag Maria", "y", "Seltene Worte hier"]
    good = ["2024 hat das Berlin Team 1 234 Spiele", "frag Maria", "x", ""]
    poor = ["Das Team gewann 1.234 Spiele", "Frag sie", "y", "Seltene Worte"]
    systems = [System("good", good, [(), ("loop",), (), ("empty",)]), System("poor", poor)]
    found = compare(
        systems, Lines("set", [references], sources, count_words(["the team", "words words"], sources)), QUICK
    )
    buckets = {bucket.label: bucket for view in found.views for bucket in view.buckets}
    assert (buckets["numbers"].count, dict(buckets["numbers"].values)) == (2, {"good": 100.0, "poor": 50.0})
    assert (buckets["names"].count, dict(buckets["names"].values)) == (2, {"good": 100.0, "poor": 0.0})
    assert dict(buckets["copies of the source"].values) == {"good": 1, "poor": 0}
    assert dict(buckets["empty"].values) == {"good": 1, "poor": 0}
    assert dict(buckets["first letter in another case than the reference"].values) == {"good": 1, "poor": 1}
    assert dict(buckets["flag loop"].values) == {"good": 1, "poor": None}
    (rare,) = [view for view in found.views if "rarest" in view.title]
    assert [(bucket.label, bucket.count) for bucket in rare.buckets] == [("0", 4)]
    assert numbers_of("1,234.5 and 1 234,5") == {"12345": 2}
    assert names_of("Yes, Anna and BERLIN") == {"Anna": 1, "BERLIN": 1}


def test_a_bucket_has_the_score_of_its_lines(compared):
    lengths = compared.views[0]
    assert sum(bucket.count for bucket in lengths.buckets) == len(REFERENCE)
    texts = sentences(120, 9)
    own = [line for line, text in enumerate(texts) if 6 <= len(text.split()) <= 10]
    (bucket,) = [bucket for bucket in lengths.buckets if bucket.label == "6 to 10"]
    score = score_texts([SYSTEMS[0].translations[line] for line in own], [REFERENCE[line] for line in own], ["chrf"])[0]
    assert (bucket.count, bucket.values["a"]) == (len(own), pytest.approx(score.score))


# -- files, models and runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["text", "translation"], ids=["this version", "the version before"])
def test_json_lines_bring_flags_and_sources(tmp_path, key):
    path = tmp_path / "out.jsonl"
    records = [{"source": line, key: line, "flags": ["loop"]} for line in REFERENCE]
    system = file_system(path, [json.dumps(record) for record in records])
    assert (system.translations, system.sources) == (REFERENCE, REFERENCE)
    assert system.flags == [("loop",)] * len(REFERENCE)
    other = [*REFERENCE[:4], "something else", *REFERENCE[5:]]
    with pytest.raises(DataError, match=r"out\.jsonl: line 5 is translated from another source"):
        compare([system, SYSTEMS[0]], Lines("set", [REFERENCE], other), QUICK)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_once_as_the_file_would_be(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, lines in (("r", REFERENCE), ("b", SYSTEMS[1].translations)):
        Path(name).write_text("\n".join(lines) + "\n")
    os.mkfifo("a")
    writer = threading.Thread(
        target=Path("a").write_text, args=("\n".join(SYSTEMS[0].translations) + "\n",), daemon=True
    )
    writer.start()
    assert main(["compare", "a", "b", "--reference", "r", "-f", "json", "-m", "chrf"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["rows"]["a"]["chrf"]["score"]
        == score_texts(SYSTEMS[0].translations, REFERENCE, ["chrf"])[0].score
    )


def test_models_and_runs_are_translated_as_for_s2s_bleu(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wrong_files.save(tmp_path / "model")
    make_run(tmp_path / "runs" / "mine")
    shutil.copytree("model", "runs/mine/best")
    Path("text").write_text("".join(f"{line}\n" for line in wrong_files.TEXTS))
    Path("runs/mine/config.yaml").write_text(
        wrong_files.CONFIG.replace("num_workers", "test: {news: {source: text, target: text}}, num_workers")
    )
    Path("runs/mine/metrics.jsonl").write_text('{"step": 1, "seconds": 9, "bleu": 3.0}\n{"step": 2, "bleu": 4.0}\n')
    assert main(["bleu", "--model", "runs/mine", "-f", "json", "-w", "9"]) == 0
    (bleu_score, chrf_score) = json.loads(capsys.readouterr().out)
    assert main(["compare", "runs/mine", "model", "text", "-f", "json", "-o", "page.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["test_set"] == "news"
    assert found["rows"]["runs/mine"]["bleu"]["score"] == pytest.approx(bleu_score["score"])
    assert found["rows"]["runs/mine"]["chrf"]["score"] == pytest.approx(chrf_score["score"])
    assert found["notes"][0] == "text: this file is the reference"
    assert [point[-1] for point in found["curves"]["points"]["bleu"]["runs/mine"]] == [3.0, 4.0]
    assert "<polyline" in Path("page.html").read_text()
    assert any("rarest" in view["title"] for view in found["views"])


@pytest.fixture
def run_and_model(tmp_path, monkeypatch):
    """A run with a test set, `runs/mine`, and a model without a run next to a configuration, `models/model`."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    wrong_files.save(tmp_path / "models" / "model")
    make_run(tmp_path / "runs" / "mine")
    shutil.copytree("models/model", "runs/mine/best")
    Path("text").write_text("".join(f"{line}\n" for line in wrong_files.TEXTS))
    config = wrong_files.CONFIG.replace("num_workers", "test: {NAME: {source: text, target: text}}, num_workers")
    Path("runs/mine/config.yaml").write_text(config.replace("NAME", "news"))
    Path("models/config.yaml").write_text(config.replace("NAME", "stray"))


@pytest.mark.parametrize("systems", [("models/model", "runs/mine"), ("text", "models/model", "runs/mine/best")])
def test_the_test_set_is_that_of_the_first_run_wherever_it_stands(run_and_model, capsys, systems):
    assert main(["compare", *systems, "-f", "json", "-m", "chrf"]) == 0
    assert json.loads(capsys.readouterr().out)["test_set"] == "news"


def test_a_configuration_next_to_a_model_is_not_that_of_its_run(run_and_model, capsys):
    assert main(["compare", "models/model", "text", "-m", "chrf"]) == 2
    assert (
        "a model without its run has no test sets; give --source FILE and --reference FILE" in capsys.readouterr().err
    )
    assert main(["tune", "models/model"]) == 2
    assert "a model without its run has no validation set" in capsys.readouterr().err


def test_a_test_set_that_was_moved_can_be_named(run_and_model, capsys):
    Path("text").rename("moved")
    assert main(["compare", "runs/mine", "moved"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.endswith("give --source FILE and --reference FILE")
    assert main(["compare", "runs/mine", "moved", "--source", "moved", "--reference", "moved", "-m", "chrf"]) == 0


@pytest.mark.slow
def test_a_direction_is_scored_by_its_own_language_and_chosen_by_the_name_that_is_told(tmp_path, monkeypatch, capsys):
    write_corpora(tmp_path)
    for path in tmp_path.glob("*.fr"):
        path.rename(path.with_suffix(".zh"))
    sides = {name: Path(tmp_path, f"valid.{name}").read_text().splitlines() for name in ("en", "de", "zh")}
    rows = zip(*sides.values(), strict=True)
    records = [{"f": "en", "t": to, "source": row[0], "target": row[1 + number]} for row in rows for number, to in
               enumerate(("de", "zh"))]  # fmt: skip
    (tmp_path / "mixed.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    mixed = "mixed: {jsonl: mixed.jsonl, from_column: f, to_column: t}"
    config = re.sub(r"\bfr\b", "zh", MANY).replace("TAGS", "source").replace("test: {", f"test: {{{mixed}, ")
    (tmp_path / "many.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "many.yaml", "--run-dir", "run", "--set", "training.max_steps=1"]) == 0
    capsys.readouterr()
    tokenizers = {}
    typed = ["compare", "run", "valid.zh", "-m", "bleu", "-f", "json", "--engine", "torch"]
    assert main(typed) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "--test-set chooses" in line]
    for name in ["mixed en-de", *told.partition(" chooses ")[2].split(" or ")]:
        capsys.readouterr()
        assert main([*typed, "--test-set", name]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["test_set"].removesuffix(" (zero-shot)") == name
        tokenizers[name] = re.search(r"tok:([^|]+)", found["signatures"]["bleu"])[1]
    assert tokenizers == {"mixed en-de": "13a", "mixed en-zh": "zh", "zero": "zh", "en-de": "13a"}
    assert main([*typed, "--test-set", "mixed en-fr"]) == 2
    assert "--test-set mixed en-fr: the directions of mixed are en-de, en-zh" in capsys.readouterr().err
