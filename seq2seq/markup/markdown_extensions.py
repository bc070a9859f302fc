r"""Constructs of Markdown that CommonMark does not have, as rules of its parser; they are copied.

Front matter, maths, containers (`:::`), modules of MDX, footnotes, alerts (`> [!NOTE]`), boxes of tasks, abbreviations,
admonitions (`!!! note`), attribute lists (`{.wide}`), links of wikis, citations. `markdown_parser` adds the rules.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline

# The first line of YAML is a key, so that text between two thematic breaks is none.
FRONT_MATTER = re.compile(
    r"\ufeff?(?:---[ \t]*\r?\n(?:[ \t\r]*(?:#.*)?\n)*?(?:\{|[\"']?[\w.-]+[\"']?[ \t]*:\s|(?=---|\.\.\.))"
    r"(?:.*\n)*?(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n(?:.*\n)*?\+\+\+)[ \t]*(?:\r?\n|\Z)"
)
# The dollar signs of maths touch it, and no digit is after the last one (Pandoc), so that prices are text.
_DOLLARS = (
    r"\$\$(?:[^$\\]|\\.)++\$\$"
    r"|(?<![\w$])\$(?=[^\s$])(?:[^$\\]|\\.)++(?<!\s)\$(?![\w$])|(?<![\w$])\$[A-Za-z]\$(?=[a-z])"
)
_IN_BRACKETS = r"\\\((?:[^\\]|\\[^()\[\]])++\\\)|\\\[(?:[^\\]|\\[^()\[\]])++\\\]"
_MATHS = re.compile(f"(?:{_DOLLARS}|{_IN_BRACKETS})", re.DOTALL)
_COMMAND = re.compile(r"\\[A-Za-z]")
_OPERATOR = re.compile(r"[\^_=]")
_ENVIRONMENT = re.compile(r"\\begin\{([A-Za-z]+\*?)\}")
LONGEST_ENVIRONMENT = 10_000
_WIKI = re.compile(r"!?\[\[([^\[\]\n]++)\]\](?![\[(])")
_POINT = re.compile(
    r"\[\^[^\[\]\s]++\](?!\()|\[-?@\w[^\[\]\n]*+\](?![\[(:])|\{/\*(?>(?:[^*{]|\*(?!/)|\{(?!/\*))*)\*/\}"
)
# At the beginning of a block: alerts, boxes, tables of contents; of a line: definitions, admonitions, attribute lists.
_BLOCK_LABEL = re.compile(r"\A(?:\[![A-Za-z][\w-]*\][+-]?(?=\s|\Z)|\[[ xX]\](?=\s)|\[(?:TOC|toc)\]\Z)")
_LINE_LABEL = re.compile(
    r"\[\^[^\[\]\s]++\]:[ \t]*|\*\[[^\[\]\n]++\]:[ \t]*"
    r"|(?:!!!|\?\?\?\+?)[ \t]+[\w-]+(?>(?:[ \t]+[\w-]+)*)(?:[ \t]+\"[^\"\n]*\")?[ \t]*(?=\n|\Z)"
    r"|\{:[^{}\n]*\}[ \t]*(?=\n|\Z)"
)
# The first characters of the constructs that `extension` reads.
EXTENSION_BEGINS = "[*!?{$\\"
_LINE_BEGIN = re.compile(r"(?:\A|\n)[ \t]*\Z")
MOST_INDENT = 40
_ATTRIBUTE = r"""(?:[.#][A-Za-z][\w:.-]*+|[\w:-]++=(?:"[^"\n]*"|'[^'\n]*'|[^\s"'{}]++))"""
ATTRIBUTES = re.compile(rf"\{{:?[ \t]*{_ATTRIBUTE}(?>(?:[ \t]+{_ATTRIBUTE})*)[ \t]*\}}")
_LINE_REST = re.compile(r"[ \t]*(?:\n|\Z)")
_CONTAINER = re.compile(r":{3,}(?=[ \t]*(?:[\w{]|\Z))")
_DISPLAY = re.compile(rf"(\$\$|\\\[)[ \t]*\Z|{_ENVIRONMENT.pattern}")
_AFTER_DISPLAY = re.compile(r"[ \t]*(?:\{[^{}]*\}|\([^()]*\))?[.,;]?[ \t]*\Z")
_MODULE = re.compile(
    r"import\s+(?:(?:[\w$*{][^'\"]*\sfrom\s+)?(['\"])[^'\"]+\1\s*;?\s*\Z|\{\s*\Z)"
    r"|export\s+(?:(?:const|let|var)\s+[\w$]+\s*=|\{|\*\s+from\s|default\s+(?:[A-Z][\w$]*;?\s*\Z|[({\[])"
    r"|(?:default\s+)?(?:async\s+)?function\*?\s*[\w$]*\s*\()"
)


def add_extensions(parser: MarkdownIt) -> None:
    """Add the rules of this module to a parser of CommonMark."""
    ends = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "container", _container, ends)  # type: ignore[typeddict-item]
    parser.block.ruler.before("table", "display", _display, ends)  # type: ignore[typeddict-item]
    parser.block.ruler.before("table", "module", _module)
    parser.block.ruler.at("reference", _reference)


def extension(state: StateInline, silent: bool) -> bool:
    """Read a construct within a block (a rule of the parser).

    Its token is a `piece`, which is a word of the sentence, a `point`, which is none, `attributes`, or a `cut`, which
    ends a sentence.
    """
    found = _found(state)
    if found is None:
        return False
    kind, end = found
    if not silent:
        state.push(kind, "", 0)
    state.pos = end
    return True


def _found(state: StateInline) -> tuple[str, int] | None:
    """Return the kind and the end of the construct that begins at the place of the parser."""
    text, begin, end = state.src, state.pos, state.posMax
    if match := _BLOCK_LABEL.match(text, begin, end):
        return "cut", match.end()
    if (match := _LINE_LABEL.match(text, begin, end)) and _LINE_BEGIN.search(text, max(begin - MOST_INDENT, 0), begin):
        return "cut", match.end()
    if stop := _end_of_maths(text, begin, end):
        return "piece", stop
    if match := _ENVIRONMENT.match(text, begin, end):
        closing = f"\\end{{{match[1]}}}"
        stop = text.find(closing, begin, min(begin + LONGEST_ENVIRONMENT, end))
        return ("piece", stop + len(closing)) if stop > 0 else None
    if match := _WIKI.match(text, begin, end):
        is_link = normalizeReference(match[1]) in state.env.get("references", ())
        return None if is_link else ("piece", match.end())
    if match := _POINT.match(text, begin, end):
        return "point", match.end()
    if match := ATTRIBUTES.match(text, begin, end):
        marks = state.env.get("marks")
        is_list = (marks and marks[-1][1] == begin) or _LINE_REST.match(text, match.end(), end)
        return ("attributes", match.end()) if is_list else None
    return None


def begins_maths(text: str, begin: int) -> bool:
    """Whether maths begins at a place of a text."""
    return bool(_end_of_maths(text, begin, len(text)))


def _end_of_maths(text: str, begin: int, end: int) -> int:
    """Return the end of the maths that begins at a place; 0 if there is none."""
    found = _MATHS.match(text, begin, end)
    return found.end() if found and _is_maths(found.group()) else 0


def _is_maths(raw: str) -> bool:
    """Whether text between signs of maths is maths, and no escaped brackets or prices."""
    if raw.startswith("$$"):
        return True
    signs = 1 if raw.startswith("$") else 2
    content = raw[signs:-signs]
    if _COMMAND.search(content):
        return True
    if raw.startswith("$"):
        has_words = content[0].isdigit() and re.search(r"\s", content) and re.search(r"[^\W\d_]{2}", content)
        return not has_words or bool(_OPERATOR.search(content))
    if _OPERATOR.search(content):
        return not re.search(r"[^\W\d_]{3}", content)
    return raw.startswith("\\(") and bool(re.fullmatch("[A-Za-z]", content.strip()))


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _copy(state: StateBlock, kind: str, begin: int, end: int) -> None:
    """Make lines a token that has no content."""
    token = state.push(kind, "", 0)
    token.map = [begin, end]
    state.line = end


def _container(state: StateBlock, begin: int, _end: int, silent: bool) -> bool:
    """Read the first or the last line of a container."""
    if state.is_code_block(begin) or not _CONTAINER.match(_line(state, begin)):
        return False
    if not silent:
        _copy(state, "container", begin, begin + 1)
    return True


def _display(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """Read lines of maths; lines that are known to have no end of it are not searched again."""
    opening = None if state.is_code_block(begin) else _DISPLAY.match(_line(state, begin))
    if opening is None:
        return False
    closing = f"\\end{{{opening[2]}}}" if opening[2] else {"$$": "$$", "\\[": "\\]"}[opening[1]]
    unclosed = state.env.setdefault("unclosed", {})
    first, last = unclosed.get(closing, (0, 0))
    if first <= begin < last or closing in _line(state, begin)[2:]:
        return False
    number = begin + 1
    while number < end and (state.isEmpty(number) or state.sCount[number] >= state.blkIndent):
        _, found, after = _line(state, number).partition(closing)
        if found and _AFTER_DISPLAY.match(after):
            if not silent:
                _copy(state, "display", begin, number + 1)
            return True
        number += 1
    unclosed[closing] = (begin, number)
    return False


def _module(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """Read imports and exports of MDX, which an empty line ends."""
    if silent or state.level or not _MODULE.match(_line(state, begin)) or state.tShift[begin]:
        return False
    number = begin
    while number < end and not state.isEmpty(number):
        number += 1
    _copy(state, "module", begin, number)
    return True


def _reference(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    """Read the definition of a link, unless it is a footnote."""
    return not _line(state, begin).startswith("[^") and reference(state, begin, end, silent)
