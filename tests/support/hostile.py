"""Strings that a peer could send to attack a terminal, a markup parser or a column layout."""

from __future__ import annotations

import random

__all__ = ["FORBIDDEN", "HOSTILE", "is_safe"]

_FIXED = [
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1bP+q544e\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bX sos \x1b\\",
    "\x1bc",
    "\x1b[?1049h",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\x90dcs\x9c",
    "\x85next",
    "\u2028line",
    "\u2029para",
    "abc\u202egnp.exe",
    "\u202d",
    "\u2066hidden\u2069",
    "\u2067x\u2069",
    "\u2068",
    "\u200b\u200c\u200d\ufeff",
    "\u00ad",
    "\u061c",
    "\u180e",
    "\u2060",
    "\ufff9\ufffa\ufffb",
    "\U000e0041\U000e007f",
    "\udc80\udcff",
    "\ud800",
    "\udfff",
    "[/foo]",
    "[bold]",
    "[red]x[/red]",
    "[link=http://evil]x[/link]",
    "[@click=app.bell]x[/]",
    ":smile:",
    "a\nb",
    "a\r\nb",
    "\ra",
    "a\tb",
    "\x00",
    "\x07\x07\x07",
    "\x08\x08",
    "\x0b\x0c",
    "\x0e\x0f",
    "\x7f",
    "%s%n",
    "{0}",
    "\\x1b[2J",
    "=cmd()",
    "+1",
    "-1",
    "@a",
    "\u0300" * 300,
    "a" + "\u0301" * 50,
    "\u3164\u115f\u2800",
    "\ufe0f",
    "\u034f",
    "x" * 1_000_000,
    "\x1b" * 10_000,
    "\U0010ffff",
    "\ufffe",
    "\ue000",
    "日本語",
    "🎮",
    "né",
    "",
    " ",
]


def _generated(count: int) -> list[str]:
    source = random.Random(7)
    alphabet = "".join(_FIXED[:60]) + "abc[]/ \x1b\x9b\u202e\u2066\n\r\x00\x07\udc80"
    return ["".join(source.choices(alphabet, k=source.randint(1, 40))) for _ in range(count)]


HOSTILE = _FIXED + _generated(200 - len(_FIXED))

FORBIDDEN = frozenset(
    [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
    + [
        chr(code)
        for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0x200B, 0x2010))
    ]
    + ["\u2028", "\u2029", "\ufeff", "\u00ad", "\u061c"]
) - {"\n"}


def is_safe(text: str) -> bool:
    """Return True if nothing in the text could act on a terminal."""
    return not (set(text) & FORBIDDEN) and not any(0xD800 <= ord(char) <= 0xDFFF for char in text)
