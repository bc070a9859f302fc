"""Documents with markup: joined without a change they are the same, and what is not text is no segment. About 10 s."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.markup import html, markdown, plain, xml
from seq2seq.markup.document import OBJECT, join, walk

PARSERS = {"html": html.segments, "markdown": markdown.segments, "plain": plain.segments, "xml": xml.segments}
ODD_HTML = [
    "",
    " \r\n\t",
    "\ufeff<!DOCTYPE html>\r\n<html lang=de><head><title>A &amp; B</title></head><body>\r\n<p>One<br>two</p></body>",
    "a < b && c > d &copy &#65; &#x41; &unknown;",
    "<p>unclosed <b>bold <i>both</p> <li>item<li>another",
    "</b></p>closed only<p",
    "<a href='x' TITLE=\"Tell me\" title=again>link</a><IMG alt='A dog' src=x/>",
    "<script>if (a < b) document.write('<p>no</p>')</script><style>p > a {}</style>Text",
    "<!-- a comment --> text <!-- open",
    "<p translate='no'>Name</p><span class='x notranslate'>Brand</span> is here",
    "<pre>  a\n  b</pre><textarea>one\ntwo</textarea><code>x = 1</code> sets x",
    "<![CDATA[ <b>x</b> ]]> <?php echo 1 ?> rest",
    "<p>\n   Many\n   lines   <em> of </em>\ttext\n</p>",
    "<svg><text>no</text></svg> yes <math>x</math>",
    "<a><b><c><d><e>deep</e></d></c></b></a>",
    "text with \x00 and \ud800 in it",
    "<input type=submit value='Send it'><input type=text value='mine'><meta name=description content='&quot;us&quot;'>",
    "<title>A <b> in a title</title><p>text",
]
ODD_XML = [
    "plain text &amp; more",
    '<?xml version="1.0"?>\n<root a="1" b=\'2\'>Text <b>bold</b><!-- c --><x/></root>\n',
    "<a>one<![CDATA[ two <three> ]]></a>",
    "<u><s>Only structure</s><s> and <g id='1'>text</g> here</s></u>",
    "<r><c><![CDATA[<p>An <b>HTML</b> text</p>]]></c></r>",
    "<?pi data?><r>&#65;&lt;&nbsp;</r>".replace("&nbsp;", ""),
    "\ufeff<r>\r\n  <s>one\r\ntwo</s>\r\n</r>",
    '<source>Press <ph id="1"/> to <g id="2">start</g></source>',
]
ODD_MARKDOWN = [
    "---\ntitle: A page\n---\n# Head *line* #\n\nText with `code`, **bold** and [a link](http://x.y 'Title').\n",
    "* one\n* two\n  going on\n\n1. three\n2) four\n> quoted\nlazy\n",
    "| a | b \\| c |\n|---|:-:|\n| one *two* | `x|y` |\n",
    "```py\nx = 1\n```\n    indented\n\n~~gone~~ text\\\nhard break  \nsoft\nbreak",
    "<div>\n<p>A <b>block</b></p>\n</div>\n\nText <b>inline</b> <br> and <a href=x>more</a>.",
    "[ref]: http://a.b 'T'\n\nSee [ref] and [words][ref] and ![image](x.png) and ![alt text](y.png \"t\").",
    "Setext\n======\n\nother\n---\n\n***\n\nend&nbsp;&copy;\\*not\\* em_pha_sis _em_ __strong__ ***both***",
    "- [ ] to do\n- [x] done[^1]\n\n[^1]: A note.\n",
    "a\r\nb\r\n\r\n# c\r\n",
    "\ufeff# Title",
    "<http://auto.link> and https://plain.link.\n\tindented",
]
ODD_PLAIN = ["", "\n\r\n", "one {name}\r\n\r\n  %d files \n<b>&amp;</b>\rlast", "{x}", "\ufeff a\tb \x00 \ud800"]
ODD = {"html": ODD_HTML, "xml": ODD_XML, "markdown": ODD_MARKDOWN, "plain": ODD_PLAIN}
BITS = {
    "html": "<p> </p> <b> </b> <i> </i> <br> <a\thref='x'> </a> <!-- --> < > & &amp; &lt; <script> </script> <pre> "
    "</pre> <code> </code> <li> <span\ttranslate=no> </span> <img\talt='two\twords'> word {x} 😀 http://a.b . , \n",
    "markdown": "# * ** _ __ ` ``` [ ] ( ) ![ ](x) [a](b) <b> </b> <br> | - 1. > \\ & &amp; ~~ word {x} 😀 \n \n\n "
    "\r\n --- === \t <div> </div> http://a.b [^1] [x]: : !",
    "plain": "word {x} %d %(name)s $HOME 😀 http://a.b <b> &amp; . , ` # \n \r\n \r \t",
}


def same(kind: str, text: str) -> None:
    document = PARSERS[kind](text)
    assert join(document, [None] * len(document.segments)) == text
    assert join(document, [segment.raw for segment in document.segments]) == text
    for segment in document.segments:
        assert segment.text.strip()
        assert segment.text.count(OBJECT) == len(segment.pieces)
        assert segment.text == " ".join(segment.text.split(" "))
        for node in walk(segment.nodes):
            assert 0 <= node.begin <= node.end <= len(segment.text)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ODD.items() for text in texts])
def test_joined_without_a_change_a_document_is_the_same(kind, text):
    same(kind, text)


@pytest.mark.parametrize("kind", ["html", "markdown", "plain"])
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_whatever_is_written(kind, data):
    bits = data.draw(st.lists(st.sampled_from([*BITS[kind].split(" "), " "]) | st.text(max_size=3), max_size=30))
    same(kind, "".join(bit.replace("\t", " ") for bit in bits))
