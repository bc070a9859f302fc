"""The command `s2s glossary check`: problems of a glossary, and counts of its terms in a corpus and in translations."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Group
from seq2seq.errors import counted, shown
from seq2seq.lines import aligned, read_lines, shown_json

if TYPE_CHECKING:
    from seq2seq.inference.translator import Translation
    from seq2seq.text.glossary import Glossary


@dataclass
class Count:
    """The number of occurrences of a term, and of translations without the glossary that contain it."""

    entry: str
    forms: tuple[str, ...]
    occurs: int = 0
    translated: int | None = None


@click.group(cls=Group, epilog="Example: s2s glossary check terms.tsv --model runs/demo --corpus test.en")
def command() -> None:
    """Check a glossary for s2s translate --glossary."""


@command.command(epilog="Example: s2s glossary check terms.tsv --model runs/demo --corpus test.en")
@click.argument("glossary", type=options.FILE)
@click.option("--corpus", type=options.FILE, help="Source text in which to count the terms.")
@click.option(
    "--model",
    type=options.ANY_PATH,
    help="Model whose translations of --corpus, made without the glossary, are searched for the terms.",
)
@click.option(
    "--target-language", "forms_language", help="Language of the targets [default: --to, or that of --model]."
)
@options.format_option
@options.direction_options
@options.computing_options
def check(
    glossary: Path, corpus: Path | None, model: Path | None, forms_language: str | None, form: str, **loading: Any
) -> None:
    """Check GLOSSARY, and count its terms in a corpus and in translations of it by a model.

    A line of a glossary is source, tab, target. A target may have several forms separated by |, the preferred one
    first; = copies the source. A source that ends in * also matches longer words (invoice*). If the source is -, the
    target is forbidden in translations. A source with a capital matches only in its own case. The third column 'case'
    makes source and target case-sensitive. A file whose name ends in .csv has commas, semicolons or tabs between source
    and target, and ignores further columns, such as those of DeepL.
    """
    from seq2seq.text.glossary import Glossary

    if model is not None and corpus is None:
        raise click.UsageError("--model needs --corpus, the text to translate")
    translator = about = None
    if model is None:
        options.only_for("--model MODEL", *loading)
    else:
        from seq2seq.inference.translator import Translator

        translator = Translator.load(model, **loading)
        about = translator.description
    source_language, target_language = (about.source_language, about.target_language) if about else (None, None)
    entries = Glossary.read(glossary, forms_language or target_language, source_language)
    count = len(entries.entries) + len(entries.forbidden)
    report: dict[str, Any] = {"entries": count, "problems": list(entries.problems)}
    if corpus is not None:
        lines = list(read_lines(corpus, options.warn_invalid(corpus)))
        if not entries.forbidden:
            lines = [line for line in lines if entries.matches(line)]
        translations = translator.translate(lines) if translator is not None else None
        report["terms"] = [asdict(count) for count in _counts(entries, lines, translations)]
        present = [entries.said(translation.text) for translation in translations or ()]
        report["forbidden"] = {entry.words: sum(entry in words for words in present) for entry in entries.forbidden}
    if form == "json":
        click.echo(shown_json(report, indent=1))
        return
    click.echo(f"entries: {report['entries']:,}")
    for line in (*report["problems"], *_table(report.get("terms", ()))):
        click.echo(line)
    for words, times in report.get("forbidden", {}).items() if model is not None else ():
        click.echo(f"{shown(words)} is forbidden, and occurs in {counted(times, 'translation')}")


def _counts(glossary: "Glossary", lines: Sequence[str], translations: Sequence["Translation"] | None) -> list[Count]:
    from seq2seq.text.glossary import places

    occurs: Counter[str] = Counter()
    translated: Counter[str] = Counter()
    for index, line in enumerate(lines):
        matches = glossary.matches(line)
        occurs.update(match.entry.source for match in matches)
        if translations is not None:
            placed = zip(matches, places(matches, translations[index].text), strict=True)
            translated.update(match.entry.source for match, place in placed if place is not None)
    return [
        Count(
            entry.source,
            entry.forms,
            occurs[entry.source],
            None if translations is None else translated[entry.source],
        )
        for entry in glossary.entries
    ]


def _table(terms: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not terms:
        return
    total, translated = sum(term["occurs"] for term in terms), sum(term["translated"] or 0 for term in terms)
    with_model = terms[0]["translated"] is not None
    rows = [["term", "occurs", *(["translated"] if with_model else [])]]
    for term in sorted(terms, key=lambda term: -term["occurs"]):
        rows.append([term["entry"], str(term["occurs"]), *([str(term["translated"])] if with_model else [])])
    yield from aligned([*rows, ["all", str(total), *([str(translated)] if with_model else [])]])
