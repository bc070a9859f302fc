"""Lines that a reader may cut, join or change where it is careless."""

NASTY = [
    b"", b" ", b"\t \xc2\xa0", "\u2028".encode(), "\u3000\u200b\ufeff".encode(), b"\x00", b"\r", b"\x0c",
    b"\x1c\x1d\x1e\x1f", "a\u2028b\u2029c\u0085d\x0be\x0cf\x00g".encode(), b"cr\rin the middle", b"cr at the end\r",
    b"two\r\r", b"broken \xff\xfe utf-8", b"\xed\xa0\x80 lone surrogate", b"\xf0\x9f half an emoji", b"\xc0\x80",
    b"\xf4\x90\x80\x80", "\u202eright to left \u200f\u061c עברית العربية".encode(),
    "😀\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308".encode(), "日本語 한국어 ไทย ᚠᚢᚦ 𐎀𐎁 𓀀".encode(),
    b"\xef\xbb\xbfbyte order mark", b"\x1b[31mred\x1b[0m", "e\u0301\u0301\u0301".encode(), "▁▁ \u2581".encode(),
    b"<s> </s> <unk>", b'{"text": "\\u2028"}', b"a ||| b ||| c", b"tab\tin\tit", b"%s %n {} \\n \\",
    "\U0010ffff\ufffe\ue000".encode(), b"-" * 300,
]  # fmt: skip
