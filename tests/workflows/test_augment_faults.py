"""The lines that `s2s augment` leaves out, one for each reason; pairs that are drawn, and pairs with a tag; parts of
two engines."""

import functools
import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.echo import EchoEngine, tokenizers_of_texts
from support.foreign_models import SOURCE, TARGET
from support.number_words import sentences
from support.our_models import make_ours, make_tiny
from support.reversed_folder import folder

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.config.description import ModelDescription
from seq2seq.config.directions import LanguagesConfig
from seq2seq.config.schema import ModelConfig, SearchConfig
from seq2seq.data.directions import open_training
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError
from seq2seq.evaluation.selection import consensus
from seq2seq.inference.degeneration import SYMPTOMS
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.translator import Translator
from seq2seq.runtime import Runtime
from seq2seq.search.base import Hypothesis
from seq2seq.tasks.inputs import Inputs
from seq2seq.tasks.task import prepare_tokenizers
from seq2seq.workflows.augment.job import AugmentJob, Recipe
from seq2seq.workflows.augment.shards import plan

__all__ = ["folder"]  # a fixture

LINES = [" ".join(row) for row in sentences(12, 9)]
FINE = "Der Hund schläft, und die Katze sieht zu."
# By reason: a line, its translation, and whether the search found its end.
FAULTS = {
    "loop": ("A man rides a red bicycle.", "Der Hund " * 6, True),
    "copy": ("Two dogs play in the snow!", "Two dogs play in the snow!", True),
    "long": ("Where is the station? Two dogs play.", FINE, False),
    "short": ("A man rides a red bicycle, and two dogs play in the snow!", "Ja", True),
    "empty": ("A dog plays.", " ", True),
    "lost words": ("A man rides Москва a red bicycle.", FINE, True),
    "other language": ("A man plays in the snow.", "Женщина читает книгу в большом парке", True),
    "no score": ("Two men ride in the snow.", FINE, True),
    "not language": ("https://a.example/b?c=1", "", True),
    "too long": (", and two dogs ride a red bicycle" * 40, FINE, True),
    "": ("The dog rides a bicycle.", FINE, True),
}


def strict(line: str) -> dict:
    """Parse JSON as its standard defines it, which has no NaN."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def records(made: Path) -> list[dict]:
    return [strict(line) for path in sorted(made.glob("part-*.gz")) for line in gzip.open(path, "rt")]


@pytest.fixture
def pipeline() -> Pipeline:
    """A pipeline into German whose engine answers with the translations of `FAULTS`."""
    tokenizers = tokenizers_of_texts()
    known = {tuple(tokenizers.source.read(line)): (line, *answer) for line, *answer in FAULTS.values()}

    def answer(ids, config):
        line, text, is_finished = known.get(tuple(ids), ("", FINE, True))  # a part of a long line
        score = float("nan") if line == FAULTS["no score"][0] else -0.25
        return [Hypothesis(tuple(tokenizers.target.encode(text)), score, score, is_finished)]

    about = ModelDescription(source_language="en", target_language="de", model=ModelConfig(preset="tiny"))
    return Pipeline(Translator(EchoEngine(300, answer), tokenizers, SearchConfig(), description=about))


@pytest.mark.parametrize("reason", FAULTS)
def test_a_line_is_left_out_for_its_own_reason(reason, pipeline, tmp_path):
    line, translation, _ = FAULTS[reason]
    (tmp_path / "text").write_text(f"{line}\n", encoding="utf-8")
    (shard,) = plan([tmp_path / "text"], 9)[1]
    left_out = Counter()
    job = AugmentJob(tmp_path / "made", (), (), (), Recipe("forward", skip_long=True), (shard,))
    found = [strict(json.dumps(record)) for record in job.records(pipeline, shard, (), left_out)]
    assert left_out == ({reason: 1} if reason else {})
    assert [(record["source"], record["target"]) for record in found] == ([] if reason else [(line, translation)])


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("kept", ["Der Hund schläft in dem Park.", FINE])
def test_a_candidate_that_was_cut_off_is_long_wherever_it_stands(is_finished, kept, tmp_path):
    """The candidate nearest to the reference is kept, wherever it stands, unless it was cut off."""
    tokenizers, line = tokenizers_of_texts(), "The dog sleeps, and the cat looks on."
    texts = [FINE, "Der Hund schläft in dem Park."]

    def answer(ids, config):
        return [
            Hypothesis(tuple(tokenizers.target.encode(text)), score, score, is_finished or text != kept)
            for text, score in zip(texts, (-0.25, -0.5), strict=True)
        ]

    about = ModelDescription(source_language="en", target_language="de", model=ModelConfig(preset="tiny"))
    search = SearchConfig(beam_size=2, n_best=2)
    pipeline = Pipeline(Translator(EchoEngine(300, answer), tokenizers, search, description=about))
    (tmp_path / "text").write_text(f"{line}\n", encoding="utf-8")
    (shard,) = plan([tmp_path / "text"], 9)[1]
    left_out = Counter()
    job = AugmentJob(tmp_path / "made", (), (), (), Recipe("forward", "chrf"), (shard,))
    found = [record["target"] for record in job.records(pipeline, shard, [kept], left_out)]
    (other,) = set(texts) - {kept}
    assert (found, dict(left_out)) == ([kept if is_finished else other], {})


def test_lines_without_a_finite_score_are_counted_and_are_not_in_the_folder(tmp_path, monkeypatch, capsys):
    """The weights are as large as those of a trained model may be, and the scores of drawn translations overflow."""

    def enlarged(model, _):
        for weight in model.parameters():
            weight.mul_(1e9).clamp_(-1e6, 1e6)

    monkeypatch.chdir(tmp_path)
    make_tiny(tmp_path / "model", [*SOURCE, *TARGET] * 5, 341, SearchConfig(), enlarged)
    Path("text").write_text("".join(f"{line}\n" for line in SOURCE))
    drawn = Pipeline.load("model", engine="torch", sample=True).translate(SOURCE)
    assert all(str(answer.score) == "nan" for answer in drawn), "the model does what the test is about"
    assert main(["augment", "model", "--text", "text", "--sample", "-o", "made", "--engine", "torch"]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"0 pairs of {len(SOURCE)} lines in made", f"left out: no score {len(SOURCE)}"]
    assert "made: has no pairs, so no training can read it; change the text or the options" in err
    assert records(Path("made")) == []


# -- candidates --------------------------------------------------------------------------------------------------------

LINE = "A man rides a red bicycle, and two dogs play in the snow!"
SOUND = ["Ein Mann fährt ein rotes Rad, und zwei Hunde spielen im Schnee!", "Ein Mann fährt Rad, und im Schnee spielen "
         "zwei Hunde.", "Zwei Hunde spielen im Schnee, ein Mann fährt ein Rad!"]  # fmt: skip
# By reason: the text of a candidate, its score, and whether the search found its end.
FAULTY = {
    "loop": ("Der Hund " * 6, -0.1, True),
    "copy": (LINE, -0.1, True),
    "long": ("Ein Mann fährt ein rotes Rad, und zwei Hunde spielen im Schnee, im", -0.1, False),
    "short": ("Ja", -0.1, True),
    "empty": (" ", -0.1, True),
    "other language": ("Женщина читает книгу в большом парке", -0.1, True),
    "no score": ("Ein Mann fährt ein rotes Rad, und zwei Hunde spielen im Schnee.", float("nan"), True),
}


shared_tokenizers = functools.cache(tokenizers_of_texts)


def kept_of(candidates, keep, reference, folder):
    """The targets of the pairs that a job makes of `LINE`, whose candidates are given, and the reasons of no pair."""
    tokenizers = shared_tokenizers()

    def answer(ids, config):
        return [
            Hypothesis(tuple(tokenizers.target.encode(text)), score, score, ended) for text, score, ended in candidates
        ]

    about = ModelDescription(source_language="en", target_language="de", model=ModelConfig(preset="tiny"))
    search = SearchConfig(beam_size=len(candidates), n_best=len(candidates))
    pipeline = Pipeline(Translator(EchoEngine(300, answer), tokenizers, search, description=about))
    (folder / "text").write_text(f"{LINE}\n", encoding="utf-8")
    (shard,) = plan([folder / "text"], 9)[1]
    left_out = Counter()
    job = AugmentJob(folder / "made", (), (), (), Recipe("forward", keep), (shard,))
    return [record["target"] for record in job.records(pipeline, shard, [reference], left_out)], dict(left_out)


@pytest.mark.parametrize("keep", ["chrf", "mbr"])
@pytest.mark.parametrize("reason", FAULTY)
def test_a_candidate_with_a_fault_changes_nothing_if_another_has_none(reason, keep, tmp_path):
    """It is neither kept, although it is the reference, nor counts in the choice among the others."""
    sound = [(text, -0.25 - index / 8, True) for index, text in enumerate(SOUND)]
    faulty = FAULTY[reason]
    for count in (1, 2, 3):
        expected = kept_of(sound[:count], keep, faulty[0], tmp_path)
        assert expected in [([text], {}) for text in SOUND]
        for place in range(count + 1):
            candidates = [*sound[:place], faulty, *sound[place:count]]
            assert kept_of(candidates, keep, faulty[0], tmp_path) == expected


@pytest.mark.parametrize("reason", FAULTY)
def test_a_line_whose_candidates_all_have_a_fault_is_left_out_for_that_of_the_chosen_one(reason, tmp_path):
    for other in FAULTY.keys() - {reason}:
        candidates = [FAULTY[other], FAULTY[reason]]
        if reason == "empty":  # nothing is nearer to it than another, so the first is chosen
            candidates.reverse()
        assert kept_of(candidates, "chrf", FAULTY[reason][0], tmp_path) == ([], {reason: 1})


# -- draws and tags ----------------------------------------------------------------------------------------------------


def test_parts_of_two_engines_are_told(tmp_path, monkeypatch, capsys):
    """Models of --each may have different engines; parts of one model should not. Without a cache that can be written,
    PyTorch runs the models."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        make_ours(tmp_path / name, True, ending=1.0, search=SearchConfig(beam_size=2))
    Path("text").write_text("A man.\n" * 4)
    command = ["augment", "first", "second", "--each", "--text", "text", "--shard-lines", "2", "-o", "pairs"]

    def engines():
        assert main(command) == 2  # untrained models give no pairs
        facts = [json.loads(Path(f"pairs/part-0000{number}.json").read_text()) for number in range(4)]
        return [each["engine"].partition(" ")[0].strip(",") for each in facts], capsys.readouterr().err

    made, told = engines()
    assert (set(made), "translations may differ" in told) == ({"CTranslate2"}, False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for missing in ([2, 3], [1]):
        for number in missing:
            Path(f"pairs/part-0000{number}.jsonl.gz").unlink()
        made, told = engines()
        (*warnings,) = (line for line in told.splitlines() if "their translations may differ" in line)
        assert len(warnings) == (missing == [1]), "the parts of one group have one engine"
    assert made == ["CTranslate2", "PyTorch", "PyTorch", "PyTorch"]
    pattern = r"pairs: has 1 part with CTranslate2, \S+, version [\d.]+ and 1 part with PyTorch on cpu .*, version \d"
    assert re.search(pattern, warnings[0])


@pytest.fixture
def place(folder, tmp_path, monkeypatch) -> Path:
    """The current folder: it has `text`, number words that the model in `run` translates in reverse order."""
    monkeypatch.chdir(tmp_path)
    Path("run").symlink_to(folder / "runs" / "toy" / "best")
    Path("text").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path


def test_of_drawn_translations_the_one_nearest_to_the_others_is_kept(place):
    options = ["--sample", "--n-best", "4", "--temperature", "1.4", "--seed", "3", "--keep", "mbr", "--kind", "forward"]
    assert main(["augment", "run", "--text", "text", "-o", "drawn", "--shard-lines", "5", *options]) == 0
    settings = {"sample": True, "n_best": 4, "temperature": 1.4, "seed": 3, "engine": "torch"}
    answers = Pipeline.load("run", **settings).translate(LINES)
    candidates = [[answer.text, *(each.text for each in answer.alternatives)] for answer in answers]
    assert all(len(texts) == 4 for texts in candidates)
    best, is_every_one_sound = [], []
    translator = Pipeline.load("run", **settings).translator
    for line, answer, texts in zip(LINES, answers, candidates, strict=True):
        faults = [answer.flags, *translator.flags([(line, text) for text in texts[1:]])]
        finished = [True, *(each.is_finished for each in answer.alternatives)]
        is_sound = [not SYMPTOMS & set(flags) and ended for flags, ended in zip(faults, finished, strict=True)]
        own = [index for index in range(4) if is_sound[index] or not any(is_sound)]
        best.append(own[consensus([texts[index] for index in own])])
        is_every_one_sound.append(all(is_sound))
    assert len(set(best)) > 1, "it is not always the first"
    assert len(set(is_every_one_sound)) == 2, "candidates with and without a fault are among them"
    made = records(Path("drawn"))
    kept = {record["origin"][1] - 1: record["target"] for record in made}
    assert len(kept) > len(LINES) / 2
    assert kept == {line: candidates[line][best[line]].strip() for line in kept}
    counts = strict(Path("drawn/augment.json").read_text())["counts"]
    assert counts["pairs"] + sum(counts["left_out"].values()) == len(LINES)


def test_a_tag_precedes_each_synthetic_source_whatever_the_tokenizer_of_the_model(place):
    """Noise changes the source, and not its tag."""
    command = ["augment", "run", "--text", "text", "--force", "-o"]
    assert main([*command, "plain"]) == 0
    assert main([*command, "marked", "--tag", "<back>"]) == 0
    assert main([*command, "noisy", "--tag", "<back>", "--noise", "upper=1"]) == 0
    plain, marked, noisy = (records(Path(name)) for name in ("plain", "marked", "noisy"))
    assert len(plain) > len(LINES) / 2
    assert marked == [{**record, "source": f"<back> {record['source']}"} for record in plain]
    assert [record["source"] for record in noisy] == [f"<back> {record['source'].upper()}" for record in plain]


CONFIG = """
{languages}
data:
  train: [{{{sides}, source: text, target: text}}, {{{sides}, jsonl: marked{noise}}}]
  valid: {{{sides}, source: text, target: text}}
tokenizer: {{{tokenizer}}}
training: {{init_from: {initial}}}
"""
LANGUAGES = {
    "one": ("source_language: de\ntarget_language: en", ""),
    "many": ("languages: {source: [de], target: [en, fr], tags: source}", "from: de, to: en"),
}
TOKENIZERS = {
    "a new one": ("vocab_size: 300", "null", "add <back> to tokenizer.extra_pieces"),
    "that of another model": ("init_from: run", "null", "make the folder again without --tag"),
    "that of the initial model": ("", "run", "make the folder again without --tag"),
    "a new one with the tag": ("vocab_size: 300, extra_pieces: [<back>]", "null", ""),
}


@pytest.mark.parametrize("noise", ["", ", noise: {upper: 1}"])
@pytest.mark.parametrize(
    ("languages", "name"),
    [*(("one", name) for name in TOKENIZERS), ("many", "a new one"), ("many", "a new one with the tag")],
)
def test_a_training_needs_the_tag_as_a_piece(place, languages, name, noise):
    assert main(["augment", "run", "--text", "text", "--force", "-o", "marked", "--tag", "<back>"]) == 0
    tokenizer, initial, remedy = TOKENIZERS[name]
    named, sides = LANGUAGES[languages]
    written = CONFIG.format(languages=named, sides=sides, noise=noise, tokenizer=tokenizer, initial=initial)
    config = config_file.parse(written.replace("{, ", "{"))
    if remedy:
        with pytest.raises(DataError, match=f"marked: its sources begin with <back>, .*; {re.escape(remedy)}$"):
            Inputs.open(config, place)
        return
    inputs = Inputs.open(config, place)
    tokenizers = prepare_tokenizers(inputs, None, Runtime(torch.device("cpu"), torch.float32))
    texts = [pair.source for pair in inputs.train[1]]
    assert len(texts) > len(LINES) / 2
    assert bool(noise) == all(text == f"<back> {text.removeprefix('<back> ').upper()}" for text in texts)
    pieces = [tokenizers.source.pieces(tokenizers.source.encode(text)) for text in texts]
    assert all("<back>" in own[:2] and own.count("<back>") == 1 for own in pieces)


def test_a_filtered_folder_keeps_the_tag(place):
    assert main(["augment", "run", "--text", "text", "--force", "-o", "marked", "--tag", "<back>"]) == 0
    assert main(["filter", "marked", "--from", "de", "--to", "en", "--force", "-o", "clean"]) == 0
    kept = open_pairs(SourceConfig(jsonl=Path("clean").resolve()), "de", "en")
    assert kept.tag == "<back>"
    assert all(pair.source.startswith("<back> ") for pair in kept)


def test_a_tag_of_sources_is_not_learned_as_a_target(place):
    assert main(["augment", "run", "--text", "text", "--force", "-o", "marked", "--tag", "<back>"]) == 0
    sides = {"from": "de", "to": "en"}
    config = SourceConfig.model_validate({"jsonl": Path("marked").resolve(), "both_ways": True, **sides})
    forward, backward = open_training(config, LanguagesConfig(source=("de", "en"), target=("en", "de"), tags="source"))
    assert (forward.tag, backward.tag) == ("<back>", None)
    pairs = [pair.texts for pair in forward]
    assert all(source.startswith("<back> ") for source, _ in pairs)
    assert [pair.texts for pair in backward] == [(target, source.removeprefix("<back> ")) for source, target in pairs]
