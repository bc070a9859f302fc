"""References are parallel to whole texts; another spelling of the same command continues a folder; the estimate of a
dry run measures each model."""

import shutil
from itertools import product
from pathlib import Path

import pytest
from support.number_words import sentences
from support.our_models import make_ours
from support.reversed_folder import folder

from seq2seq.cli import main
from seq2seq.errors import DataError
from seq2seq.workflows.augment.job import Recipe, models_stay_open
from seq2seq.workflows.augment.request import Request, prepare

__all__ = ["folder"]  # a fixture

# Values of the model, which change nothing when they are given.
SEARCH = {"--beam-size": "1", "--length-penalty": "1", "--n-best": "1"}
DRAWS = {"--temperature": "1", "--top-k": "0", "--top-p": "1", "--seed": "1"}
FEW = ["--text", "text", "--shard-lines", "2", "-o", "pairs"]


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> Path:
    """A folder with two models, and texts whose names are their numbers of lines."""
    place = tmp_path_factory.mktemp("requests")
    for seed, name in enumerate(("first", "second")):
        make_ours(place / name, True, seed=seed, ending=1.0)
    for count in range(1, 7):
        (place / f"{count}").write_text("A man.\n" * count)
        (place / f"{count} there").write_text("Ein Mann.\n" * count)
    return place


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("counts", [(3,), (3, 5), (5, 3)], ids=str)
def test_references_are_parallel_to_the_whole_texts_whatever_the_limit(counts, limit, untrained, monkeypatch):
    """A line too many shifts the others, wherever the limit is."""
    monkeypatch.chdir(untrained)
    texts = tuple(Path(f"{count}") for count in counts)
    recipe, search = Recipe(keep="chrf"), {"beam_size": 2, "n_best": 2}
    with models_stay_open():
        for others in product(*((count - 1, count, count + 1) for count in counts)):
            references = tuple(Path(f"{count} there") for count in others)
            request = Request((Path("first"),), texts, Path("new"), recipe, search, references=references, limit=limit)
            wrong = [pair for pair in zip(counts, others, strict=True) if pair[0] != pair[1]]
            if not wrong:
                assert prepare(request).num_lines == min(limit or 9, sum(counts))
                continue
            own, other = wrong[0]
            with pytest.raises(DataError, match=f"^--text {own} has {own} lines, but --reference {other} there has"):
                prepare(request)


def test_a_reference_may_belong_to_several_texts(untrained, monkeypatch):
    monkeypatch.chdir(untrained)
    shutil.copy("3", "copy")
    texts, references = (Path("3"), Path("copy")), (Path("3 there"), Path("3 there"))
    recipe, search = Recipe(keep="chrf"), {"beam_size": 2, "n_best": 2}
    request = Request((Path("first"),), texts, Path("new"), recipe, search, references=references)
    job = prepare(request).job
    assert [shard.count for shard in job.references] == [shard.count for shard in job.shards] == [3, 3]


def test_a_dry_run_measures_each_model_that_has_lines_left(untrained, monkeypatch, capsys):
    monkeypatch.chdir(untrained)
    command = ["augment", "first", "second", "--each", "--text", "3", "-o", "each"]
    assert main([*command, "--dry-run"]) == 0
    assert " lines per second over 6 lines: about " in capsys.readouterr().out
    assert main(command) == 2  # untrained models give no pairs
    (part,) = Path("each").glob("part-00001.jsonl.gz")
    part.unlink()
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("6 lines in 2 parts, of which 1 is there; nothing is written\n")
    assert " lines per second over 3 lines: about " in said
    assert said.endswith(" minutes for the others\n")


# -- other spellings ---------------------------------------------------------------------------------------------------


@pytest.fixture
def place(folder, tmp_path, monkeypatch) -> Path:
    """The current folder, with a model in `run`, and `text`, which it translates."""
    monkeypatch.chdir(tmp_path)
    Path("run").symlink_to(folder / "runs" / "toy" / "best")
    Path("text").write_text("".join(f"{' '.join(row)}\n" for row in sentences(6, 9)))
    return tmp_path


def contents(made: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.glob("part-*")}


def spellings(place: Path) -> list[tuple[list[str], list[str]]]:
    """Two spellings of one command, by pairs."""
    absolute = [str(place / "text") if word == "text" else word for word in FEW]
    found = [(FEW, absolute), ([*FEW, *(word for item in SEARCH.items() for word in item)], FEW)]
    found += [(FEW, [*FEW, *item]) for item in SEARCH.items()]
    sampled = [*FEW, "--sample"]
    found.append((sampled, [*sampled, *(word for item in DRAWS.items() for word in item)]))
    chosen = [*FEW, "--beam-size", "2", "--n-best", "2", "--keep", "chrf", "--reference"]
    found.append(([*chosen, "text"], [*chosen, str(place / "text")]))
    return found


def test_another_spelling_of_the_same_command_continues_a_folder_with_the_same_bytes(place, capsys):
    for first, second in spellings(place):
        for command, other in ((first, second), (second, first)):
            assert main(["augment", "run", *command]) == 0
            whole = contents(Path("pairs"))
            assert len(whole) == 6
            Path("pairs/part-00001.jsonl.gz").unlink()
            assert main(["augment", "run", *other]) == 0, (capsys.readouterr().err, command, other)
            assert contents(Path("pairs")) == whole
            shutil.rmtree("pairs")


# By the options of another command: the settings without and with them.
DIFFERENCES = {
    "--beam-size 2": {"beam_size": ("1", "2")},
    "--length-penalty 0.5": {"length_penalty": ("1.0", "0.5")},
    "--tag <b>": {"tag": ("not given", "'<b>'")},
    "--noise upper=1": {"noise": ("not given", '{"upper": 1.0}')},
    "--sample --seed 3": {"sample": ("false", "true"), "seed": ("1", "3")},
}


@pytest.mark.parametrize("change", DIFFERENCES)
def test_what_differs_is_told_with_the_settings_that_hold(change, place, capsys):
    commands = [["augment", "run", *FEW], ["augment", "run", *FEW, *change.split()]]
    for there, here in ((0, 1), (1, 0)):
        assert main(commands[there]) == 0
        capsys.readouterr()
        assert main(commands[here]) == 2
        (told,) = (line for line in capsys.readouterr().err.splitlines() if "was made by another command" in line)
        settings = told.partition("command: ")[2].partition(";")[0].split(", options.")
        names = DIFFERENCES[change].items()
        wanted = {f"{name} {values[there]} there, {values[here]} here" for name, values in names}
        assert {each.removeprefix("options.") for each in settings} == wanted
        shutil.rmtree("pairs")


def test_a_filtered_corpus_is_continued_by_another_path_to_it(place, capsys):
    numbers = [" ".join(row) for row in sentences(6, 9)]
    Path("corpus.tsv").write_text("".join(f"A dog: {each}.\tDas ist ein Hund: {each}.\n" for each in numbers))
    options = ["--from", "en", "--to", "de", "--force", "--shard-lines", "2", "-o", "clean"]
    names = ["corpus.tsv", str(place / "corpus.tsv")]
    for first, second in (names, names[::-1]):
        assert main(["filter", first, *options]) == 0
        whole = contents(Path("clean"))
        assert len(whole) == 6
        Path("clean/part-00001.jsonl.gz").unlink()
        assert main(["filter", second, *options]) == 0, capsys.readouterr().err
        assert contents(Path("clean")) == whole
        shutil.rmtree("clean")
