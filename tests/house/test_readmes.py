"""READMEs are true: links lead somewhere, shown commands and their options exist, and the tour of the code fits it."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from seq2seq import cli

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "seq2seq"
TRACKED = subprocess.run(["git", "ls-files", "*README.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
COMMAND_FILES = sorted((ROOT / "configs").glob("*.sh"))
READMES = [ROOT / name for name in TRACKED] or [path for path in ROOT.rglob("README.md") if ".venv" not in str(path)]
TOUR = (PACKAGE / "README.md").read_text(encoding="utf-8")
TREE = TOUR[TOUR.index("```") : TOUR.rindex("```")]
LARGEST_PICTURE = 200_000


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def shown_commands(text: str) -> list[list[str]]:
    """Return the words of each `s2s` command in blocks of shell; a continued line is one command."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if re.search(r"\bs2s \w", line)]
    commands = [
        shlex.split(part, comments=True) for line in lines for part in re.split(r" && | \| |; ", line.split("  #")[0])
    ]
    return [words[words.index("s2s") + 1 :] for words in commands if "s2s" in words]


def command_of(words: list[str]) -> click.Command:
    """Return the command that these words name, below the groups on the way to it."""
    context = click.Context(cli.group)
    found: click.Command = cli.group
    for word in words:
        if not isinstance(found, click.Group):
            break
        below = found.get_command(context, word)
        if below is None:  # such as the folder of `s2s runs FOLDER`
            break
        found = below
    return found


@pytest.mark.parametrize("path", READMES, ids=ids)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", [*READMES, *COMMAND_FILES], ids=ids)
def test_shown_commands_exist_with_these_options(path):
    text = path.read_text(encoding="utf-8")
    commands = shown_commands(f"```sh\n{text}```" if path in COMMAND_FILES else text)
    assert commands or path not in COMMAND_FILES
    for words in commands:
        command = command_of(words)
        assert command is not cli.group, words
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if isinstance(command, click.Group):  # its default command takes the options
            known |= {
                name for below in command.commands.values() for parameter in below.params for name in parameter.opts
            }
        unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
        assert not unknown, (words, unknown)


def test_commands_are_found_in_the_readme():
    verbs = {words[0] for words in shown_commands((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert verbs >= {"train", "translate", "bleu", "serve", "classify", "convert"}


def test_the_readme_is_short_and_its_pictures_are_small():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 170
    pictures = [ROOT / name for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert pictures
    assert [path for path in pictures if path.stat().st_size > LARGEST_PICTURE] == []


def test_the_tree_names_every_folder_and_file_of_the_top():
    named = set(re.findall(r"^(\w+(?:/|\.py))", TREE, re.MULTILINE))
    there = {path.name for path in PACKAGE.glob("*.py")}
    there |= {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert named == there


def test_lines_of_the_tour_are_about_right():
    """The README states the files and lines of the two tables, each of which states the lines of its files."""
    stated = re.findall(r"(\d+)\s+files\s+of ([\d,]+) lines", (ROOT / "README.md").read_text(encoding="utf-8"))
    tables = [table for table in TOUR.split("\n\n") if table.startswith("|")]
    assert len(tables) == len(stated) == 2
    for (files, total), table in zip(stated, tables, strict=True):
        rows = re.findall(r"`([\w/]+\.py)` \| (\d+) \|", table)
        counts = [len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name, _ in rows]
        assert len(rows) == int(files)
        assert sum(counts) == pytest.approx(int(total.replace(",", "")), rel=0.1)
        assert counts == pytest.approx([int(lines) for _, lines in rows], rel=0.2)


def test_the_promises_name_every_test_file_and_no_other():
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+/test_\w+\.py)`", text))
    there = {f"{path.parent.name}/{path.name}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert (there - named, named - there) == (set(), set())
