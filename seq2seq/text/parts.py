"""A text in consecutive parts: it is cut here, and the answers to its parts are joined here.

`Translator` cuts lines that are too long for a model, the server cuts texts into lines or sentences, `markup` cuts
segments into sentences. The same `Part` says in each case where the spans of an answer belong.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from seq2seq.text.scripts import is_spaced, runs_on
from seq2seq.text.splitting import language_tag, split_sentences, split_text
from seq2seq.text.untranslatable import Untranslatable

Split = Literal["lines", "sentences", "none"]


class Part(NamedTuple):
    """A part of a text, such as a line, a sentence or a part of a long line."""

    begin: int
    """Its first code point in the text."""
    before: str
    """Text between it and the part before, such as white space; it is not translated."""
    text: str
    tag: str = ""
    """The language tag that the text begins with, if this part lacks it."""
    is_copied: bool = False
    """Whether it is untranslatable; it never reaches the model then."""


def cut(text: str, split: Split, longest: int = sys.maxsize) -> list[Part]:
    """Return the lines or sentences of a text, at least one; with `none` the text is one part.

    A line ends at `\\n`, and a `\\r` before it belongs to the line end. `s2s translate` reads files in the same way, so
    both translate the same lines. White space at the ends of a line is part of its first and last sentence. A sentence
    of more than `longest` characters is cut as `split_text` does. Each has the language tag that its line or the text
    begins with.
    """
    if split == "none":
        return [Part(0, "", text)]
    parts, before, begin, tag = [], "", 0, "" if split == "lines" else _tag(text)
    for line in text.split("\n"):
        core = line.removesuffix("\r")
        cores, place = [core] if split == "lines" else bounded_sentences(core, longest), begin
        own = "" if split == "lines" else _tag(core)
        for number, one in enumerate(cores):
            there = "" if own and number == 0 else own or tag
            end = len(one) if number == len(cores) - 1 else len(one.rstrip())
            parts.append(Part(place, before, one[:end], there))
            before, place = one[end:], place + len(one)
        before, begin = line[len(core) :] + "\n", begin + len(line) + 1
    return parts


def fitting(
    text: str,
    length: Callable[[str], int],
    longest: int,
    untranslatable: Untranslatable | None = None,
    tag: str = "",
    is_spelled: bool = False,
) -> list[Part]:
    """Return the parts of a line that fit a model, cut at sentence ends where possible; usually the line itself.

    Args:
        text: a line without white space at its ends.
        length: the pieces of a text.
        longest: the most pieces of a part, its language tag included.
        untranslatable: finds what is copied; None copies nothing.
        tag: the language tag that the text begins with, which each part needs; one that leaves too little room is text.
        is_spelled: whether the tag may be text. It is text if all of the rest is copied, so that nothing is lost.
    """
    if tag and length(tag) > longest // 2:
        tag = ""
    rest = text[len(tag) :]
    stretches = [(rest, False)] if untranslatable is None else untranslatable.stretches(rest)
    if stretches == [(rest, False)] and length(text) <= longest:
        return [Part(0, "", text)]

    def is_copied(part: str) -> bool:
        return untranslatable is not None and untranslatable(part)

    def fits(part: str) -> bool:
        return length(tag + part) <= longest or is_copied(part)

    found: list[tuple[str, bool]] = []
    for stretch, is_verbatim in stretches:
        cores = [stretch] if is_verbatim else split_text(stretch, fits)
        found += [(core, is_verbatim or is_copied(core)) for core in cores]
    if is_spelled and tag and all(is_verbatim or not core.strip() for core, is_verbatim in found):
        return fitting(text, length, longest, untranslatable)
    parts, _ = stripped(core for core, _ in found)
    flags = (is_verbatim for core, is_verbatim in found if core.strip())
    return [
        part._replace(begin=part.begin + len(tag), tag=tag, is_copied=is_verbatim)
        for part, is_verbatim in zip(parts, flags, strict=True)
    ]


def stripped(stretches: Iterable[str]) -> tuple[list[Part], str]:
    """Return consecutive stretches of a text as parts without white space at their ends, and the white space after the
    last; blank ones are left out."""
    parts, before, begin = [], "", 0
    for stretch in stretches:
        core = stretch.strip()
        before += stretch[: len(stretch) - len(stretch.lstrip())]
        if core:
            parts.append(Part(begin + stretch.index(core), before, core))
            before = stretch[len(stretch.rstrip()) :]
        begin += len(stretch)
    return parts, before


def join(parts: Sequence[Part], texts: Sequence[str], ends: tuple[str, str] = ("", "")) -> tuple[str, list[int]]:
    """Return a text from the answers to its parts, between two ends, and where each answer is in it: the spans of an
    answer are shifted by `part.begin` and this place."""
    found, places, length, last, source = [ends[0]], [], len(ends[0]), "", ""
    for part, text in zip(parts, texts, strict=True):
        between = joint(source, last, part, text)
        places.append(length + len(between))
        found += [between, text]
        length, last, source = places[-1] + len(text), text or last + between, part.text
    return "".join([*found, ends[1]]), places


def joint(source: str, answer: str, part: Part, text: str) -> str:
    """Return what is between the answer to the part before, which is `source`, and the answer `text` to a part. Where a
    script without spaces has nothing between the parts, and the language of the answers has spaces, it is a space."""
    is_run_on = not part.before and (runs_on(source[-1:]) or runs_on(part.text[:1]))
    return " " if is_run_on and is_spaced(answer, text) else part.before


def _tag(text: str) -> str:
    return language_tag(text.lstrip())


def bounded_sentences(line: str, longest: int) -> list[str]:
    """Return the sentences of a line, at least one; those of more than `longest` characters are cut (`split_text`)."""
    sentences = split_sentences(line) or [""]
    return [part for one in sentences for part in split_text(one, lambda part: len(part) <= longest)]
