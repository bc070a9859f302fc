"""Parts of a text that are not translated: variables, addresses, code, names of users; and emoji.

Variables are those of printf, Python, Java, ICU, Ruby, mustache, shells and templates. Letters and digits next to a
variable belong to it: `{hours}h`, `v{version}`. `segments` calls `find`, which makes a `Found` of each.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from seq2seq.text.scripts import UNSPACED

EMOJI = "emoji"


IsTerm = Callable[[str], bool]
"""Whether a text is a term of a glossary with another translation than itself, and is therefore not protected."""


class Found(NamedTuple):
    """A piece of a text, in code points."""

    begin: int
    end: int
    kind: str
    """variable, address, code, object or emoji."""


_PICTURE = "[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2190-\u21ff\u2300-\u23ff\u3030\u303d\u3297\u3299]"
# With variation selectors, skin tones, and the tags of flags such as that of Scotland.
_MODIFIED_PICTURE = f"{_PICTURE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
_EMOJI = (
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3"
    rf"|{_MODIFIED_PICTURE}(?:\u200d{_MODIFIED_PICTURE})*"
    r"|(?<![\w:]):[a-z][a-z0-9_+-]*:(?![\w:]))"
)
_ADDRESS_CHARACTER = rf"[^\s<>\"'`“”„«»‘’，。！？、；：「」『』（）\ufffc{UNSPACED}]"
_DOMAINS = "com|org|net|edu|gov|io|dev|app|info|eu|de|ch|uk|fr|nl|pl|jp|cn|br"
# Domains that are also words: "the end.it was" lacks a space. Another label, a digit, a hyphen or a path is required.
_WORDLIKE = "at|it|in|es|se|ca|au"
_LABEL = r"[A-Za-z0-9-]{1,63}\."
_ADDRESS = (
    rf"(?:(?:https?|ftps?|sftp|file|ssh|git|wss?)://|(?:mailto|tel):|www\.){_ADDRESS_CHARACTER}++"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?>(?:\.[\w-]{1,63})+)"
    rf"|(?<![\w.@/-])(?:(?:{_LABEL}){{1,8}}(?:{_DOMAINS})"
    rf"|(?:[A-Za-z0-9-]{{2,63}}\.){{2,8}}(?:{_WORDLIKE})|[A-Za-z]*+[0-9-]{_LABEL}(?:{_WORDLIKE})"
    rf"|{_LABEL}(?:{_WORDLIKE})(?=/))\b(?![.-]?\w)(?:/{_ADDRESS_CHARACTER}*+)?"
)
# Possessive quantifiers and lookbehinds keep the time of a search linear: no start within a run is tried again.
_VARIABLE = (
    r"\{\{\{[^{}]*+\}\}\}|\{\{[^{}]*+\}\}|\{%[^%]*+%\}|\{#[^#{}]*+#\}|<%[^%]*+%>"
    r"|[$#%@]\{[^{}]*+\}|\$\([\w.]++\)"
    r"|\{[\w.$\[\]:!<>^+#,%-]*+\}"
    r"|%\([\w.]++\)[-+#0]*+\d*+(?>(?:\.\d++)?)[a-zA-Z]"
    r"|(?<!\d)%(?>(?:\d++\$)?)[-+#0]*+(?>(?:\d++|\*)?)(?>(?:\.(?:\d++|\*))?)(?:hh|ll|[hlLzjtq])?[diouxXeEfFgGaAcCsSp@](?:%%)?"
    r"|%%\w++%%|(?<!\d)%\w++%|(?<!\d)\d++(?>(?:[.,]\d++)?)%%|(?<!\d)%\d++"
    r"|(?<![\w$])\$[A-Za-z_]\w*+(?>(?:\.\w++)*)"
)
# Options of a command: --name, --name=value, -name=value; -x, but no letter that is a word. Words of a dialogue, and
# second parts of compounds, may also begin with one hyphen.
_OPTION = (
    r"(?<![\w.-])(?:--[a-z][A-Za-z0-9_]*+(?>(?:-[A-Za-z0-9_]++)*)(?![\w-])(?:=\S*[^\s.,;:!?)])?"
    r"|--?[A-Za-z][\w-]*+=\S*[^\s.,;:!?)]|-[b-df-hj-np-tvwxz](?![\w'’-])|(?<=\w )-[BCDF-HJ-NP-TV-X](?![\w'’-]))"
)
_CODE = (
    r"`[^`\n]++`"
    r"|(?<![\w@])[@#][A-Za-z_][\w-]*+"
    rf"|{_OPTION}"
    r"|(?<![\w/.])(?:~|\.{1,2})?(?:/[\w.+-]*\w){2,}/?"
    r"|\b[A-Za-z][A-Za-z0-9]*+(?>(?:_[A-Za-z0-9]++)+)(?:\(\))?|(?<!\w)(?<!\w\.)[A-Za-z]\w*+(?>(?:\.\w++)*)\(\)"
)
_ICU = r"\{\s*\w+\s*,\s*(?:plural|selectordinal|select|number|date|time|duration|spellout|ordinal|choice)\b"
_PIECE = re.compile(
    f"(?P<object>\ufffc)|(?P<icu>{_ICU})|(?P<variable>{_VARIABLE})|(?P<address>{_ADDRESS})|(?P<code>{_CODE})"
    f"|(?P<emoji>{_EMOJI})"
)
_GLUED = rf"(?:(?![{UNSPACED}])[^\W_])"
_GLUED_BEFORE = re.compile(rf"{_GLUED}+\Z")
_GLUED_AFTER = re.compile(rf"(?!\w+://|www\.){_GLUED}+")
LONGEST_GLUE = 40
# Marks between two pieces that join them to one, as in %d/%d and {host}:{port}.
_JOINT = re.compile(r"[/:.@_=+×x-]?")


def no_term(_: str) -> bool:
    """Return False: without a glossary, no text is a term."""
    return False


def find(text: str, is_term: IsTerm = no_term) -> list[Found]:
    """Return the pieces of a text that are no terms, in order, without overlaps."""
    found: list[Found] = []
    for piece in _pieces(text):
        last = found[-1] if found else None
        if last is not None and EMOJI not in (last.kind, piece.kind) and _JOINT.fullmatch(text[last.end : piece.begin]):
            found[-1] = Found(last.begin, piece.end, last.kind)
        else:
            found.append(piece)
    return [piece for piece in found if not is_term(text[piece.begin : piece.end])]


def _pieces(text: str) -> Iterator[Found]:
    """Yield all pieces but emoji, from left to right; a variable includes the letters and digits next to it."""
    position = 0
    closing: dict[int, int] | None = None
    while match := _PIECE.search(text, position):
        begin, end, kind = match.start(), match.end(), match.lastgroup or ""
        if kind == "icu":
            closing = _closing(text) if closing is None else closing
            if begin not in closing:
                position = end
                continue
            end, kind = closing[begin], "variable"
        elif kind == "address":
            end = _end_of_address(text, begin, end)
        if kind == "variable":
            before = _GLUED_BEFORE.search(text, max(position, begin - LONGEST_GLUE), begin)
            after = _GLUED_AFTER.match(text, end, end + LONGEST_GLUE)
            begin, end = (before.start() if before else begin), (after.end() if after else end)
        yield Found(begin, end, kind)
        position = end


def _closing(text: str) -> dict[int, int]:
    """Return, for each brace, the place after the one that closes it."""
    opened: list[int] = []
    found = {}
    for match in re.compile("[{}]").finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            found[opened.pop()] = match.end()
    return found


def _end_of_address(text: str, begin: int, end: int) -> int:
    """Return the end of an address without the marks that end the sentence; a bracket that the address opens is
    kept."""
    open_brackets = text.count("(", begin, end) - text.count(")", begin, end)
    while text[end - 1] in ".,;:!?)]}*_…":
        if text[end - 1] == ")":
            if open_brackets >= 0:
                break
            open_brackets += 1
        end -= 1
    return end
