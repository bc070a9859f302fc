"""Inputs that cost more than their size where a parser is careless, and how their cost grows."""

import time
from collections.abc import Callable, Iterator

# What is repeated; the delimiters of all formats, and the beginnings of what `markup.protected` and others look for.
UNITS = (
    "<", "</", "<!", "<![", "<![CDATA[", "<?", "<?php ", "<!-- ", "-->", "<!-- a --> ", "<!DOCTYPE ", "<a ", "<a>",
    "</a>", "<a/>", "<a x=\">", "<a x='", "<a x=y>", "x=\"", "a=", "<p>", "<br>", "<b>", "<b></b>", "<b>w </b>",
    "<b>w</i>", "<script>", "<title>", "<pre>", "<code>x</code> w", "<svg>", "&", "&amp;", "&#", "&#9", "&x;", "[",
    "]", "[a][b]", "[a][b", "[ `]` ", "*[", "[`a",
    "](", "[a](b)", "[a](<b>)", "![", "![a](b)", "[^", "[^a]: ", "[a]: ", "(", ")", "\"", "'",
    "`", "``a` ", "*", "**a", "*a*", "*a**", "_", "_a_", "a_", "~", "~~a", "*_", "\\", "-", "=", "#", "> ", "> a\n",
    "- a\n", "- ", "1. ", "|a", "|-|\n", "---\n", "```\n", "\n\n", "a\n", "a  \n", "a", "a.", "1", "1.", "12.5 ",
    "1%", "%", "%%", "%a", "%1$", "%0", "%(a)0", "{", "}", "{{", "{a} ", "{a,plural,", "{%", "${", "$a.", "@a", "a@",
    "a@a.", ".a", "a_b", "_a()", "a.b() ", "/a", "/a-", "-a", "--a=", "--a=!", ":a", "http://a ", "http://)", "www.",
    ".", ",", "😀", "☺\u200d", "漢 ", "。", "word ", "Word. ", "<?a?>", "<a b='c' ", "<a title='w'>", "\u00a0",
    "\u0301", "One {a} two. ",
    "$", "$a", "$a$ ", "$$\n", "\\(", "\\[", "\\[\n", "\\begin{a}", "\\begin{a}\n", "[[", "[[a]] ",
    "^[", "[a]{.b} ", "{#a ", "{.a}", "{a=\"", ":::a\n", "*[a]: ", "[@a", "{/*", "!!! a", "[a](b \"c\") ", "import a\n",
)  # fmt: skip
NESTED = (
    ("<b>w ", "</b>"), ("<div>", "</div>"), ("<a x='1'>w ", "</a> w"), ("<b>", "</i>"),
    ("<span>w <b>x</b> ", "</span>"), ("[a", "](b)"), ("![a", "](b)"), ("*a ", "*"), ("**a ", "**"), ("{", "}"),
    ("(", ")"), ("`", "`"), ("[", "]"), ("![", "]"),
)  # fmt: skip
GROWTH = 8
# Eight times the input may take this many times the time: noise is allowed for, a quadratic cost of 64 is not.
MOST_TIMES = 24
# Seconds that are too short to be measured.
NOISE = 0.006


def families() -> Iterator[tuple[str, Callable[[int], str]]]:
    """Names of inputs, and the input of a size."""
    for unit in UNITS:
        yield repr(unit), lambda count, unit=unit: unit * count
        yield f"word {unit!r} word", lambda count, unit=unit: f"<p>word {unit * count} word</p>"
    for begin, end in NESTED:
        yield f"{begin!r} in each other", lambda count, begin=begin, end=end: begin * count + "word" + end * count
    yield "a reference of digits", lambda count: f"w &#{'9' * count}; w"
    yield "attributes", lambda count: f"<p>w <a {'x=y ' * count}>w</a>"
    yield "a name of an attribute", lambda count: f"<p>w <a {'a' * count}>w</a>"
    yield "a wide table", lambda count: "|a" * count + "|\n" + "|-" * count + "|\n" + "|b" * count + "|\n"
    yield "references", lambda count: "".join(f"[r{i}]: x{i}\n[r{i}] " for i in range(count))
    yield "runs of backticks", lambda count: "".join("`" * i + " a " for i in range(int((2 * count) ** 0.5)))
    yield "a long paragraph", lambda count: f"<p>{'One <b>two</b> three. ' * count}</p>"
    yield "a link around sentences", lambda count: f"<p>w <a href=x>{'One two three. ' * count}</a> <b>x</b></p>"


def bounded(count: int, family: Callable[[int], str]) -> int:
    """`count`, or, if a unit of the family is longer than three characters, the number of units of the same length."""
    length = len(family(2)) - len(family(1))
    return count * 3 // max(length, 3)


def seconds(call: Callable[[], object], tries: int = 3) -> float:
    """The CPU time of a call, the least of some."""
    found = []
    for _ in range(tries):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
        if found[-1] > 1:
            break
    return min(found)


def growth(call: Callable[[str], object], family: Callable[[int], str], count: int) -> float:
    """How many times as long a call takes for an input of eight times the size, at most; short times count as NOISE."""
    small, large = family(count), family(GROWTH * count)
    long = seconds(lambda: call(large), 1)
    if long <= MOST_TIMES * NOISE:  # however short the small input takes
        return long / NOISE
    found = long / max(seconds(lambda: call(small)), NOISE)
    return found if found <= MOST_TIMES else seconds(lambda: call(large)) / max(seconds(lambda: call(small)), NOISE)
