"""Documents whose text comes after any amount of what is not translated."""

from collections.abc import Callable, Sequence

_CODE = "for value in range(10): print(value, the.name_of_it)"
_PICTURE = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 3

# What stands before the text, by format, and how much of it is made of a number.
LEADS: dict[str, dict[str, Callable[[int], str]]] = {
    "html": {
        "nothing": lambda count: "",
        "styles": lambda count: f"<head><style>{'body p > a { color: white; }' * count}</style></head>",
        "a script": lambda count: f"<script>{_CODE * count}</script>",
        "links": lambda count: '<link rel="stylesheet" href="the-style-of-the-page.css">\n' * count,
        "a comment": lambda count: f"<!-- {'<p>This is the licence of the page.</p> ' * count} -->",
        "code": lambda count: f"<pre>{_CODE * count}\n\n{_CODE}</pre>",
        "what is marked": lambda count: f'<div translate="no">{"<p>This is English.</p>" * count}</div>',
        "a program": lambda count: f"<?php {'echo <p>; the_header_of_it(); ' * count} ?>",
        "a picture": lambda count: f'<img src="{_PICTURE * count}">',
        "attributes": lambda count: f'<div class="{"content main " * count}"></div>',
        "empty elements": lambda count: '<div class="content"><span></span></div>' * count,
    },
    "xml": {
        "nothing": lambda count: "",
        "a declaration": lambda count: f"<?xml version='1.0'?>{'<!-- This is the licence. -->' * (count + 1)}",
        "a comment": lambda count: f"<!-- {'<p>This is the licence of it.</p> ' * count} -->",
        "what is marked": lambda count: f'<d translate="no">{"<p>This is English.</p>" * count}</d>',
        "code": lambda count: f"<code>{_CODE * count}</code>",
        "attributes": lambda count: f'<d kind="{"content main " * count}"/>',
        "empty elements": lambda count: "<content><main/></content>" * count,
    },
    "markdown": {
        "nothing": lambda count: "",
        "front matter": lambda count: "---\n" + "key: this is the title of it\n\n" * (count + 1) + "---\n\n",
        "code": lambda count: "```python\n" + f"{_CODE}\n\n" * count + "```\n\n",
        "pictures": lambda count: "![](the-picture-of-the-house.png)\n" * count + "\n",
        "a picture": lambda count: f"![]({_PICTURE * count})\n\n",
        "styles": lambda count: "<style>\n" + "body p > a { color: white; }\n\n" * count + "</style>\n\n",
        "a comment": lambda count: "<!-- " + "This is the licence of it.\n\n" * count + " -->\n\n",
        "definitions": lambda count: "".join(f"[r{number}]: http://the.name.org\n" for number in range(count)) + "\n",
    },
    "plain": {
        "nothing": lambda count: "",
        "variables": lambda count: "%d {value} ${name}\n" * count,
        "addresses": lambda count: "https://the.name.org/of/the/house\n" * count,
        "blank lines": lambda count: "\n" * count,
    },
}


def document(form: str, lead: str, count: int, paragraphs: Sequence[str]) -> str:
    """A document with paragraphs after `count` times what is not translated."""
    before = LEADS[form][lead](count)
    inner = "".join(f"<p>{one}</p>\n" for one in paragraphs)
    match form:
        case "html":
            return f"<!doctype html>\n<html>{before}<body>{inner}</body></html>"
        case "xml":
            return f"{before}<r>{inner}</r>" if lead == "a declaration" else f"<r>{before}{inner}</r>"
        case "markdown":
            return before + "\n\n".join(paragraphs)
        case _:
            return before + "\n".join(paragraphs)
