"""Markdown beyond CommonMark: extensions and elements of HTML are copied, and titles are translated. About 20 s."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.markup_answers import WORDS, Nonsense, upper
from test_markup import shape

from seq2seq.markup.translation import translate_documents

COPIED_ELEMENTS = (
    "<kbd>Enter it</kbd>",
    "<code>run it</code>",
    "<span translate='no'>Acme <b>corp</b></span>",
    "<b class='a notranslate'>a Brand</b>",
    "<script>var a = 'one'</script>",
    "<style>p { color: red }</style>",
    "<textarea>one two</textarea>",
    "<svg><text>a b</text></svg>",
)
# Within a sentence.
COPIED = (
    *COPIED_ELEMENTS,
    r"$\alpha$",
    "$x_i*y*z$",
    "$$x^2 + [y](z)$$",
    r"\(a_b\)",
    r"\[x = y_1\]",
    r"\begin{x}a *b* c\end{x}",
    "[[A page|x]]",
    "![[a picture.png]]",
    "[^note]",
    "[@doe2020, p. 5]",
    "{/* a *note* */}",
    "`code`{.python}",
)
COPIED_BLOCKS = (
    "$$\nx_i\n\n- *y*\n$$",
    "\\[\nx = y\n\\]",
    "\\begin{align}\nx &= y_1 \\\\\n- z\n\\end{align}",
    ":::",
    "::: {.callout-note title='x y'}",
    "import x from 'y'\nexport const word = 'x'",
    "[TOC]",
    "{: .a-class}",
)
# Blocks, where `{}` is translated text.
BLOCKS = (
    "{}",
    "> [!NOTE]\n> {}",
    "> [!tip]- {}\n> {}",
    ":::tip {}\n{}\n:::",
    ":::note[{}]\n\n{}\n\n:::",
    "# {} {{#an-id}}",
    "{}\n{{: .wide}}",
    "*[HTML]: {}\n*[CSS]: {}",
    '!!! note "{}"\n    {}',
    "- [ ] {}\n- [x] {}",
    '[a-word]: http://x.y "{}"',
    '{} [{}](a_b.c "{}"){{target=_blank}} **{}**{{: .x}}',
    "![{}](a.png '{}')",
    "[{}]{{.small}} <b title='{}'>{}</b> <img alt=\"{}\" src=x>",
    "{}\n$$\nx_i\n$$\n{}",
    "| {} | {} |\n|---|---|\n| [{}](u 'x y') | {} |",
)


@st.composite
def documents(draw):
    """A document, its copied pieces, and the same document in which all text is in capitals."""
    source, target, pieces = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        block = draw(st.sampled_from((*BLOCKS, *COPIED_BLOCKS)))
        if block in COPIED_BLOCKS:
            source.append(block)
            target.append(block)
            pieces.append(block)
            continue
        texts = [" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=4))) for _ in range(9)]
        source.append(block.format(*texts))
        target.append(block.replace("'x y'", "'X Y'").format(*map(str.upper, texts)))
        if block == "{}" and draw(st.booleans()):
            piece = draw(st.sampled_from(COPIED))
            source[-1], target[-1] = f"{source[-1]} {piece} {texts[1]}", f"{target[-1]} {piece} {texts[1].upper()}"
            pieces.append(piece)
    return "\n\n".join(source), pieces, "\n\n".join(target)


@settings(deadline=None, max_examples=100)
@given(found=documents())
def test_all_text_is_translated_and_nothing_else(found):
    text, _, expected = found
    (marked,) = translate_documents([text], "markdown", upper)
    assert marked.text == expected
    assert not any(flags for flags in marked.sentences if "markup" in flags)


@pytest.mark.parametrize("element", ["<script>a b</script>", "<style>p {}</style>", "<div>one</div>", "<pre>x</pre>"])
def test_an_element_within_a_paragraph_never_begins_a_block(element):
    text = f"one two {element} three four"
    for seed in range(120):
        (marked,) = translate_documents([text], "markdown", Nonsense(seed, 1.0))
        assert shape(marked.text) == shape(text)


@settings(deadline=None, max_examples=100)
@given(found=documents(), seed=st.integers(0, 10**6), keeps=st.sampled_from([0.0, 0.6, 1.0]))
def test_whatever_the_model_says_the_structure_is_kept(found, seed, keeps):
    text, pieces, _ = found
    (marked,) = translate_documents([text], "markdown", Nonsense(seed, keeps))
    before, after = (re.sub("(title|alt)=('[^']*'|\"[^\"]*\")", "", one) for one in (text, marked.text))
    assert shape(after) == shape(before)
    for piece in pieces:
        assert marked.text.count(piece) == text.count(piece)


@settings(deadline=None, max_examples=100)
@given(parts=st.lists(st.sampled_from([*WORDS, *COPIED_ELEMENTS, "<br>", "<i title='my way' id=a>so</i>"]), max_size=8))
def test_elements_of_html_are_read_as_in_html(parts):
    text = " ".join(["word", *parts])
    (ours,), (theirs,) = (translate_documents([text], form, upper) for form in ("markdown", "html"))
    assert ours.text == theirs.text


@pytest.mark.parametrize(
    "text",
    [
        "costs $5 and $10 now",
        "from $5 (or ten 10$) to US$20",
        "A$5 to US$6, or 5$ to 6$",
        "5 $ or more $ in",
        r"note \[see this text\] and \(that one\)",
        "{.2f} of {count} is {:d}",
        "import duties from abroad are high",
        "export function names",
        "$$ a lot",
        "word :::x word",
        "a [word] and [another one] there",
    ],
)
def test_what_only_resembles_an_extension_is_text(text):
    """Prices, escaped brackets, variables, and sentences about imports."""
    (marked,) = translate_documents([text], "markdown", upper)
    words = re.findall(r"[a-z]{3,}", re.sub(r"\{[^}]*\}", "", text))
    assert all(word.upper() in marked.text for word in words)
    assert not re.search(r"\\\$", marked.text)


@settings(deadline=None, max_examples=300)
@given(
    parts=st.lists(st.sampled_from([*"[](){}$:!^x1", "[r]", "[a]", "(u)", " ", "word", "$x$", "](", "*", "`"])),
    is_defined=st.booleans(),
)
def test_text_with_brackets_and_dollars_stays_text(parts, is_defined):
    """A reader of CommonMark sees the characters of the source, and no link."""
    text = "".join(parts).strip()
    escaped = re.sub(r"[!-/:-@\[-`{-~]", r"\\\g<0>", text)
    end = "\n\n[r]: /u\n\n[word]: /u\n" if is_defined else ""
    (marked,) = translate_documents([f"Now {escaped} one{end}"], "markdown", upper)
    seen = html.unescape(re.sub("</?p>", "", MarkdownIt("commonmark").render(marked.text))).strip()
    assert "".join(seen.split()).casefold() == "".join(f"Now{text}one".split()).casefold()


def test_text_of_an_extension_is_not_formed_by_escapes():
    """Escaped signs of maths are text, and stay escaped."""
    (marked,) = translate_documents([r"a \$(x + y)\$ b"], "markdown", upper)
    assert marked.text == r"A \$(X + Y)$ B"


@pytest.mark.parametrize("matter", ["+++\ntitle = 'x y'\n\n[a]\nb = 1\n+++\n", "+++\r\ntitle = 'x y'\r\n+++\r\n"])
def test_front_matter_in_toml_is_copied(matter):
    (marked,) = translate_documents([f"{matter}a word\n"], "markdown", upper)
    assert marked.text == f"{matter}A WORD\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man[^1].\n\n[^1]: Ibid.\n[^2]: Another one\n", "A MAN[^1].\n\n[^1]: IBID.\n[^2]: ANOTHER ONE\n"),
        ("A man^[See [a *man*](u).] rides", "A MAN^[SEE [A *MAN*](u).] RIDES"),
        ("> [!tip]- the first\n> 1\\. one\n", "> [!tip]- THE FIRST\n> 1\\. ONE\n"),
        ("> [!NOTE]\n> 1\\. one\n", "> [!NOTE]\n> 1\\. ONE\n"),
        ("See [a *word*][r]\n\n[r]: u (a title)\n", "SEE [A *WORD*][r]\n\n[r]: u (A TITLE)\n"),
        ("[*r*] one\n\n[*r*]: u\n", "[*r*] ONE\n\n[*r*]: u\n"),
        ("[a](u 'b \"c\" d')", "[A](u 'B \"C\" D')"),
        ("| a [[b\\|c]] |\n|---|\n| d $x$ |\n", "| A [[b\\|c]] |\n|---|\n| D $x$ |\n"),
        ("> a <b\n> title='x y'>c</b>\n", "> A <b\n> title='x y'>C</b>\n"),
        ("[[Home]] here\n\n[home]: u\n", "\\[[Home]\\] HERE\n\n[home]: u\n"),
    ],
)
def test_what_people_write_beyond_commonmark(text, expected):
    assert translate_documents([text], "markdown", upper)[0].text == expected
