"""What the filters drop trains no tokenizer: its text is that of the corpus without the junk."""

import random

import pytest

from seq2seq.config.corpora import FilterConfig, SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data import tokenizer_text
from seq2seq.data.filters import PairFilter
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.data.tokenizer_text import TokenizerText
from seq2seq.text.tokenizer import Tokenizer

WORDS = (
    "the", "a", "man", "woman", "dog", "house", "reads", "writes", "sees", "big", "small", "old", "and", "with",
    "bicycle", "station",
)  # fmt: skip
SETTINGS, FILTERS = TokenizerConfig(vocab_size=400), FilterConfig()
JUNK = {
    "Han": [chr(code) for code in range(0x4E00, 0x5600)],
    "emoji": [chr(code) for code in range(0x1F300, 0x1F600)],
    "several scripts": [chr(code) for first in (0x0410, 0x0E01, 0x0905, 0xAC00) for code in range(first, first + 40)],
    "base64": list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    "digits": list("0123456789"),
    "words": [f"{chr(code)}x " for code in range(0x4E00, 0x5000)],
}


def sentences(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 14))).capitalize() + "." for _ in range(count)]


def both_sides():
    """Clean pairs whose sides are equally long."""
    lines = sentences(85, 1)
    return [lines, [" ".join(reversed(line.split())) for line in lines]]


def written(folder, *columns):
    folder.mkdir(exist_ok=True)
    for name, lines in zip("st", columns, strict=False):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return SourceConfig(source=folder / "s", target=folder / "t")


def texts(config, filters=FILTERS, settings=SETTINGS):
    text = TokenizerText([open_pairs(config, "en", "de")], filters, settings, seed=1)
    return [list(text.side(side)) for side in (0, 1)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    ("length", "where"),
    [
        pytest.param(length, where, marks=[] if (length == 3000) == (where == "both") else pytest.mark.slow)
        for length in (700, 3000, 30_000)
        for where in ("both", "source", "target")
    ],
)
@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_as_if_it_were_not_there(kind, where, length, shared, tmp_path):
    draw, clean = random.Random(length), both_sides()
    junk = "".join(draw.choices(JUNK[kind], k=length))
    rows = [junk if where in ("both", side) else "A man." for side in ("source", "target")]
    spoilt = [[*lines[:50], row, *lines[50:]] for lines, row in zip(clean, rows, strict=True)]
    settings = SETTINGS.model_copy(update={"shared": shared})
    assert texts(written(tmp_path, *spoilt), settings=settings) == clean
    Tokenizer.train(clean[0], settings, seed=1)  # the vocabulary is large enough


def test_one_side_far_longer_than_the_other_is_left_out(tmp_path):
    clean = both_sides()
    long = "The old man reads and the woman writes in the small house with the big dog and sees the old bicycle station"
    spoilt = written(tmp_path, [*clean[0], long], [*clean[1], "The."])
    assert texts(spoilt) == clean
    assert texts(spoilt, FilterConfig(max_ratio=100.0)) == [[*clean[0], long], [*clean[1], "The."]]


def test_what_the_filters_keep_is_never_left_out(tmp_path):
    draw = random.Random(3)
    columns = [[" ".join(sentences(draw.randint(1, 30), 60 * n + side)) for n in range(200)] for side in (0, 1)]
    found = texts(written(tmp_path, *columns))
    tokenizer, rules = Tokenizer.train([*columns[0], *columns[1]], SETTINGS, seed=1), PairFilter(FILTERS)
    pairs, kept = list(zip(*columns, strict=True)), set(zip(*found, strict=True))
    lengths = [[len(tokenizer.encode(text)) for text in pair] for pair in pairs]
    of_rules = [pair for pair, of_pair in zip(pairs, lengths, strict=True) if rules.rejects_lengths(*of_pair) is None]
    assert 20 < len(of_rules) < 180
    assert set(of_rules) <= kept < set(pairs)


def test_labelled_texts_are_filtered_alike(tmp_path):
    rows = [f"{line}\tx\n" for line in sentences(60, 1)]
    junk = "".join(random.Random(1).choices(JUNK["Han"], k=3000))
    (tmp_path / "x.tsv").write_text("text\tlabel\n" + "".join([*rows[:9], f"{junk}\tx\n", *rows[9:]]), encoding="utf-8")
    source = open_labelled(SourceConfig(tsv=tmp_path / "x.tsv"))
    assert list(TokenizerText([source], FILTERS, SETTINGS, 1).side(0)) == sentences(60, 1)


def test_the_first_examples_may_all_be_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_text, "EXAMPLES", 50)
    lines = ["", *sentences(80, 3)][:1] * 50 + ["a house " * 200, *sentences(80, 3)]
    sources, targets = ["hello there"] * 50 + lines[50:], lines
    assert texts(written(tmp_path, sources, targets))[0][-80:] == lines[-80:]
