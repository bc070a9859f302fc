"""`s2s augment`: a pair or a reason for each line, the same whatever the shards and their order; a folder to train on.

The model reverses sentences of number words, so the pairs are known.
"""

import gzip
import json
import random
import re
import shutil
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF
from support.number_words import sentences
from support.reversed_folder import folder

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import SourceConfig
from seq2seq.data.sources import open_pairs
from seq2seq.errors import DataError
from seq2seq.evaluation.selection import consensus, nearest
from seq2seq.inference.pipeline import Pipeline
from seq2seq.store.calibration import ConfidenceMap, read_calibration, write_calibration
from seq2seq.workflows.augment.job import opened
from seq2seq.workflows.augment.shards import plan

__all__ = ["folder"]  # a fixture

LINES = [" ".join(row) for row in sentences(40, 9)]
ODD = {5: "", 11: "   ", 17: "https://a.example/b?c=1", 23: "one\xfftwo".encode("latin-1")}


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory) -> Path:
    """A folder with `text`, 40 lines with odd ones among them, one of which is in the validation set."""
    place = tmp_path_factory.mktemp("augment")
    held_out = (folder / "valid.en").read_text().splitlines()[3]
    lines = [ODD.get(number, line) for number, line in enumerate(LINES)]
    lines[30] = held_out.upper() + "!"
    (place / "text").write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in
                                          [part for line in lines for part in (line, b"\n")]))  # fmt: skip
    shutil.copytree(folder / "runs" / "toy", place / "run")
    shutil.copy(folder / "valid.en", place / "valid.en")
    config = place / "run" / "config.yaml"  # the run was trained in a folder that has moved
    config.write_text(re.sub(r"/\S*/(?=valid\.)", f"{folder}/", config.read_text()))
    return place


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.chdir(place)


def augmented(name: str, *options: str, text: str = "text", model: str = "run") -> Path:
    assert main(["augment", model, "--text", text, "-o", name, *options]) == 0
    return Path(name)


def records(made: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(made.glob("part-*.gz")) for line in gzip.open(path, "rt")]


def held_out() -> set[int]:
    """The indices of lines that are in the validation set, apart from case and punctuation."""
    known = set(Path("valid.en").read_text().splitlines())
    lines = Path("text").read_text(errors="replace").splitlines()
    return {number for number, line in enumerate(lines) if line.lower().strip("!") in known}


@pytest.mark.parametrize("options", [("--limit", "3"), ("--dry-run",), ("--tag", "no such piece")])
def test_no_model_stays_in_memory(options):
    main(["augment", "run", "--text", "text", "-o", "freed", "--force", *options])
    assert opened.cache_info().currsize == 0


def contents(made: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.iterdir()}


@pytest.fixture(scope="module")
def whole(place) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return place / augmented("whole", "--kind", "forward")


def test_each_line_becomes_a_pair_or_is_counted_with_its_reason(whole):
    counts = json.loads((whole / "augment.json").read_text())["counts"]
    left = held_out()
    assert 30 in left
    assert counts["left_out"] == {"blank": 2, "held out": len(left), "not UTF-8": 1, "not language": 1}
    assert counts["lines"] == counts["pairs"] + sum(counts["left_out"].values()) == 40
    found = records(whole)
    assert counts["pairs"] == len(found)
    assert [record["origin"] for record in found] == [
        ["text", number + 1] for number in range(40) if number not in {*ODD, *left}
    ]
    expected = Pipeline.load("run").translate([record["source"] for record in found])
    assert [record["target"] for record in found] == [each.text for each in expected]
    assert [record["score"] for record in found] == pytest.approx([each.score for each in expected], abs=2e-4)
    assert all(record["source"] == LINES[record["origin"][1] - 1] for record in found)


@pytest.mark.parametrize("side", ["en", "de"])
def test_both_sides_of_the_held_out_sets_of_a_run_are_left_out(side, folder, capsys):
    """The targets too, because a model of many directions translates from them."""
    lines = (folder / f"valid.{side}").read_text().splitlines()
    Path(f"known.{side}").write_text("".join(f"{line}\n" for line in lines))
    assert main(["augment", "run", "--text", f"known.{side}", "-o", f"known {side}", "--force"]) == 2
    out, err = capsys.readouterr()
    assert f"left out: held out {len(lines)}\n" in out
    assert "is not in a run" not in err


def test_held_out_lines_are_left_out_in_any_case(capsys):
    Path("street").write_text("one\nDie Straße ist naß.\nDIE STRASSE IST NASS\ndie strasse ist nass\n")
    Path("street held out").write_text("Die STRAẞE ist naß!\n")
    assert main(["augment", "run", "--text", "street", "--held-out", "street held out", "-o", "street kept"]) == 0
    assert "left out: held out 3\n" in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--held-out", "valid.en")], ids=["unknown", "named"])
def test_a_model_outside_a_run_has_no_held_out_sets_and_a_warning_says_so(options, capsys):
    shutil.copytree("run/best", "stray/outside", dirs_exist_ok=True)
    shutil.copy("run/config.yaml", "stray")  # beside the model, but not that of its run
    Path("known").write_text("".join(Path("valid.en").read_text().splitlines(keepends=True)[:3]))
    status = main(["augment", "stray/outside", "--text", "known", "-o", f"outside {len(options)}", *options])
    out, err = capsys.readouterr()
    assert (status, "held out 3" in out) == ((2, True) if options else (0, False))
    warnings = [line for line in err.splitlines() if "is not in a run" in line]
    assert len(warnings) == (0 if options else 1)
    assert all(line.startswith("s2s: warning: stray/outside is not in a run, so ") for line in warnings)


def test_back_swaps_the_sides_of_forward(whole):
    back = records(augmented("back"))
    assert [(each["target"], each["source"]) for each in back] == [
        (each["source"], each["target"]) for each in records(whole)
    ]


@pytest.mark.parametrize("options", [(), ("--sample", "--seed", "3")], ids=["beam", "sample"])
def test_the_pairs_do_not_depend_on_shards_or_on_the_order_of_parts(options):
    name = options[0] if options else "beam"
    one = records(augmented(f"one{name}", "--kind", "forward", *options))
    many = augmented(f"many{name}", "--kind", "forward", "--shard-lines", "7", *options)
    keys = ("source", "target", "origin")
    assert len(list(many.glob("part-*.gz"))) == 6
    assert [[each[key] for key in keys] for each in records(many)] == [[each[key] for key in keys] for each in one]
    before = contents(many)
    for number in (4, 1):
        (many / f"part-{number:05}.jsonl.gz").unlink()
    augmented(f"many{name}", "--kind", "forward", "--shard-lines", "7", *options)
    assert contents(many) == before


@pytest.mark.slow
def test_drawn_translations_are_the_same_bytes_whatever_the_workers():
    options = ("--sample", "--seed", "3", "--shard-lines", "10")
    alone = contents(augmented("alone", *options, "--workers", "1"))
    assert contents(augmented("shared", *options, "--workers", "2")) == alone
    assert contents(augmented("drawn-again", *options[:2], "4", *options[3:])) != alone


def test_several_texts_and_models_follow_each_other(folder, whole):
    shutil.copytree("run/best", "twin", dirs_exist_ok=True)
    (Path("twin") / "README.md").write_text("another card")
    Path("second").write_text(f"{LINES[0]}\n{LINES[1]}\n")
    made = Path("both")
    assert main(["augment", "run", "twin", "--each", "--text", "text", "--text", "second", "-o", "both", "--kind",
                 "forward"]) == 0  # fmt: skip
    once = [record | {"score": None} for record in records(whole)]
    found = [record | {"score": None} for record in records(made)]
    second = [record | {"origin": ["second", record["origin"][1]]} for record in once[:2]]
    assert found == 2 * [*once, *second]


def test_an_ensemble_of_equal_models_gives_the_pairs_of_one(whole):
    shutil.copytree("run/best", "other", dirs_exist_ok=True)
    assert main(["augment", "run", "other", "--text", "text", "-o", "ensemble", "--kind", "forward"]) == 0
    assert [each["target"] for each in records(Path("ensemble"))] == [each["target"] for each in records(whole)]


@pytest.mark.parametrize("damage", ["truncated", "changed", "no facts"])
def test_a_damaged_part_is_made_again(damage, whole, capsys):
    made = Path(shutil.copytree(whole, f"damaged {damage}"))
    part = made / "part-00000.jsonl.gz"
    match damage:
        case "truncated":
            part.write_bytes(part.read_bytes()[:-9])
        case "changed":
            part.write_bytes(part.read_bytes().replace(b"\x1f", b"\x1e", 1))
        case _:
            (made / "part-00000.json").unlink()
    augmented(made.name, "--kind", "forward")
    assert contents(made) == contents(whole)
    assert "part-00000.jsonl.gz: made again, because it is damaged" in capsys.readouterr().err


def test_a_full_disk_leaves_no_part_and_the_same_command_continues(monkeypatch, whole, capsys):
    from seq2seq import atomic

    def full(path, content):
        if path.name == "part-00001.jsonl.gz":
            raise OSError(28, "No space left on device", str(path))
        original(path, content)

    original = atomic.write_file
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_file", full)
        assert main(["augment", "run", "--text", "text", "-o", "full", "--shard-lines", "20"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("no space left on device; free some space and run the "
                                                             "same command again")  # fmt: skip
    assert not Path("full/part-00001.jsonl.gz").exists()
    augmented("full", "--shard-lines", "20")
    assert len(records(Path("full"))) == len(records(whole))


def test_options_of_pairs_and_their_counts(whole):
    plain = records(whole)
    noisy = records(augmented("noisy", "--kind", "forward", "--noise", "upper=1"))
    assert [each["source"] for each in noisy] == [each["source"].upper() for each in plain]
    few = augmented("few", "--limit", "4", "--kind", "forward", "--held-out", "second.en")
    assert [each["target"] for each in records(few)] == [each["target"] for each in plain if 1 < each["origin"][1] <= 4]


def test_lines_over_the_limit_are_left_out_on_request_and_no_others(place):
    """A short line is in parts too, if it has words that are copied."""
    lines = ["one two", "one two (你好).", "three four five " * 40]
    (place / "lengths").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    every = augmented("split", "--kind", "forward", text="lengths")
    short = augmented("short", "--kind", "forward", "--skip-long", text="lengths")
    assert [each["origin"][1] for each in records(every)][:2] == [1, 2]
    assert records(short) == records(every)[:2]
    assert json.loads((short / "augment.json").read_text())["counts"]["left_out"] == {"too long": 1}


def test_translations_of_low_confidence_are_left_out(whole):
    model, plain = Path(shutil.copytree("run/best", "calibrated")), records(whole)
    sure = ConfidenceMap(means=(0, 0, 0, 0), scales=(1, 1, 1, 1), weights=(9, 0, 0, 0), bias=1.5,
                         table=({"predicted": 0.5, "observed": 0.5, "sentences": 9},))  # fmt: skip
    write_calibration(model, read_calibration(model).model_copy(update={"confidence": sure}))
    options = ("--kind", "forward", "--held-out", "valid.en", "--min-confidence")
    every = records(augmented("every", *options, "0", model="calibrated"))
    assert [each["origin"] for each in every] == [each["origin"] for each in plain]
    low, high = max(pairwise(sorted(each["confidence"] for each in every)), key=lambda pair: pair[1] - pair[0])
    sure = augmented("sure", *options, str((low + high) / 2), model="calibrated")
    assert records(sure) == [each for each in every if each["confidence"] >= high]
    counts = json.loads((sure / "augment.json").read_text())["counts"]
    assert counts["left_out"]["low confidence"] == sum(each["confidence"] <= low for each in every) > 0


@pytest.fixture(autouse=True, scope="module")
def _second(place):
    (place / "second.en").write_text(f"{LINES[0]}\n")


def test_the_candidate_nearest_to_the_reference_or_to_the_others_is_kept():
    answers = Pipeline.load("run", beam_size=4, n_best=3).translate(LINES[:5])
    candidates = [[answer.text, *(each.text for each in answer.alternatives)] for answer in answers]
    Path("five").write_text("".join(f"{line}\n" for line in LINES[:5]))
    Path("five.de").write_text("".join(f"{texts[-1]}\n" for texts in candidates))
    options = ("--n-best", "3", "--beam-size", "4", "--kind", "forward")
    near = records(augmented("near", "--keep", "chrf", "--reference", "five.de", *options, text="five"))
    kept = {record["origin"][1] - 1: record["target"] for record in near}
    assert kept
    assert all(target == candidates[index][-1] for index, target in kept.items())
    mean = records(augmented("mean", "--keep", "mbr", *options, text="five"))
    assert all(each["target"] == (texts := candidates[each["origin"][1] - 1])[consensus(texts)] for each in mean)


# -- selection ---------------------------------------------------------------------------------------

TEXTS = st.lists(st.text("ab c日é.", max_size=8), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(TEXTS, st.randoms())
def test_selection_is_by_sacrebleus_chrf_and_does_not_depend_on_the_order(texts, draw):
    def gain(index: int) -> float:
        others = texts[:index] + texts[index + 1 :]
        return sum(CHRF().sentence_score(texts[index], [other]).score for other in others)

    chosen = consensus(texts)
    assert gain(chosen) == pytest.approx(max(map(gain, range(len(texts)))))
    shuffled = draw.sample(texts, len(texts))
    assert shuffled[consensus(shuffled)] == texts[chosen]
    scores = [CHRF().sentence_score(text, ["ab c"]).score for text in texts]
    assert nearest(texts, "ab c") == scores.index(max(scores))


# -- what data.train reads -----------------------------------------------------------------------------


def test_a_folder_is_read_in_order_from_any_position(whole):
    made = augmented("parts", "--kind", "forward", "--shard-lines", "7")
    source = open_pairs(SourceConfig(jsonl=made.resolve()), "en", "de")
    pairs = [(each["source"], each["target"]) for each in records(whole)]
    assert [pair.texts for pair in source] == pairs
    numbers = [number for chunk in source.chunks() for number, _ in chunk.numbered()]
    assert numbers == list(range(1, len(pairs) + 1))
    first, *_ = chunks = list(source.chunks())
    rest = [pair.texts for chunk in source.chunks(first.end) for pair in chunk.examples()]
    assert rest == pairs[len(first.examples()) :]
    assert [chunk.first for chunk in source.chunks(first.end)] == [chunk.first for chunk in chunks[1:]]


CONFIG = "source_language: {}\ntarget_language: {}\ndata: {{train: {{jsonl: {}}}, valid: {{jsonl: {}}}}}\n"


def test_a_configuration_names_the_folder_and_the_direction_must_fit(whole):
    made = str(whole)
    config = config_file.parse(CONFIG.format("en", "de", made, made))
    assert config_file.parse(config_file.dump(config)) == config
    with pytest.raises(DataError, match=r"its pairs are en-de, but the config translates de-en; make the folder with"):
        open_pairs(config.data.valid, "de", "en")


def test_an_unfinished_folder_is_not_read(whole):
    made = Path(shutil.copytree(whole, "unfinished"))
    description = json.loads((made / "augment.json").read_text())
    del description["counts"]
    (made / "augment.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="not finished; run the same s2s augment command again"):
        open_pairs(SourceConfig(jsonl=made.resolve()), "en", "de")


# -- identity ------------------------------------------------------------------------------------------


def test_each_changed_byte_of_the_text_is_noticed(whole):
    draw, text = random.Random(3), Path("text").read_bytes()
    facts, shards = plan([Path("text")], 7)
    assert b"".join(Path("text").read_bytes().splitlines(keepends=True)) == text
    for place in draw.sample(range(len(text)), 20):
        changed = bytes([text[place] ^ 1])
        Path("changing").write_bytes(text[:place] + changed + text[place + 1 :])
        others, _ = plan([Path("changing")], 7)
        assert others[0].sha256 != facts[0].sha256
        moved = [shard._replace(text=Path("changing")) for shard in shards]
        failing = 0
        for shard in moved:
            with suppress(DataError):
                shard.lines()
                continue
            failing += 1
        assert failing
