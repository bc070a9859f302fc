"""Sources of a configuration: aligned text files, TSV or CSV, JSONL, TMX, or a dataset of the hub or a local folder.

`tasks`, `check` and `classify` open sources with it. Modules for tables and datasets are imported only if such a source
is used.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.directions import LanguagesConfig
from seq2seq.data.examples import Source
from seq2seq.data.text_files import TextFiles
from seq2seq.errors import DataError
from seq2seq.text.forms import TMX, form_of_file

if TYPE_CHECKING:
    from seq2seq.data.columns import Columns


def open_pairs(
    config: SourceConfig,
    source_language: str,
    target_language: str,
    cache: Path | None = None,
    languages_of_lines: LanguagesConfig | None = None,
) -> Source:
    """Open a source of sentence pairs; unless `config` names the columns, they are named after the languages.

    Facts of files are stored in the folder `cache`. `languages_of_lines` are those of a model of many directions, if
    each line of the file has its own.

    Raises:
        DataError: a file is missing or damaged, the two sides have unequal line counts, a column is missing. Errors
            of single lines (a short row, broken JSON) are raised during reading, with the line.
    """
    languages = source_language, target_language
    if config.source is not None:
        return with_noise(TextFiles(config, cache), config, languages)
    if (memory := config.tmx or (config.tsv if config.tsv and form_of_file(config.tsv) is TMX else None)) is not None:
        from seq2seq.data.tmx import TmxFile

        return with_noise(TmxFile(memory, languages, config.weight, cache), config, languages)
    if languages_of_lines is not None and config.jsonl is not None and config.jsonl.is_dir():
        remedy = "write from and to instead of from_column and to_column"
        raise DataError(f"{config.jsonl}: a folder of pairs, whose lines name no languages; {remedy}")
    from seq2seq.data.columns import pair_columns

    columns = pair_columns(config, *languages)
    if languages_of_lines is not None:
        from seq2seq.data.tables import DirectedLines

        every = (*languages_of_lines.source, *languages_of_lines.target)
        return with_noise(DirectedLines(config, columns, languages_of_lines, cache), config, case_rules(config, every))
    return with_noise(_open_columns(config, columns, cache), config, languages)


def open_labelled(
    config: SourceConfig, cache: Path | None = None, label_names: Mapping[str, str] | None = None
) -> Source:
    """Open a source of labelled texts: columns `sentence` or `text`, and `label`, unless `config` names others.

    In JSONL and datasets the label may be an object with the probability of each label, by its name in the data or in
    answers (`label_names`). The object may also be in a column `probabilities`, as `s2s classify` writes it. A blank
    text with a blank label is no example.

    Raises:
        DataError: for the reasons that `open_pairs` lists, or if the source contains pairs.
    """
    if (pairs := config.source or config.tmx) is not None:
        raise DataError(f"{pairs}: labelled texts come from tsv, jsonl or hub, not from pairs")
    if config.jsonl is not None and config.jsonl.is_dir():
        remedy = "name a file or dataset of labelled texts"
        raise DataError(f"{config.jsonl}: a folder of pairs, which have no labels; {remedy}")
    from seq2seq.data.columns import label_columns

    return with_noise(_open_columns(config, label_columns(config, label_names or {}), cache), config)


def with_noise(source: Source, config: SourceConfig, languages: Sequence[str] = ()) -> Source:
    """Return a source with the noise of its configuration, by the case rules of `languages`."""
    if config.noise is None:
        return source
    from seq2seq.data.noise import NoisySource

    return NoisySource(source, config.noise, languages)


def case_rules(config: SourceConfig, languages: Sequence[str]) -> Sequence[str]:
    """Return the languages with case rules for the noise of a source whose lines have languages of their own.

    The result is empty if the noise does not change case, so that the source keeps its fingerprint of earlier versions.
    """
    return languages if config.noise is not None and config.noise.changes_case else ()


def _open_columns(config: SourceConfig, columns: "Columns", cache: Path | None) -> Source:
    if config.hub is not None:
        from seq2seq.data.hub import HubSource

        return HubSource(config, columns, cache)
    from seq2seq.data.tables import JsonLines, Table

    if config.tsv is not None:
        return Table(config.tsv, columns, config.weight, cache)
    assert config.jsonl is not None  # the config has one of the four
    if config.jsonl.is_dir():
        from seq2seq.data.parts import Parts

        return Parts(config.jsonl, columns, config.weight, cache)
    return JsonLines(config.jsonl, columns, config.weight, cache)
