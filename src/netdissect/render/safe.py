"""Makes text from packets, file names and peers harmless for a terminal.

Rich and Textual pass ESC through, so a chat line could set the window title, clear the screen or,
with a bidirectional override, display something else than it says. Every string that does not come
from this program passes `safe()` before it is printed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from netdissect.model.text import escape

LINE_LIMIT = 4096
"""Maximum number of characters shown of one value; the rest is only counted."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# Printable according to Python, but invisible or reordering: fillers and joiners.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(chr(code) for code in (*range(0x180B, 0x1810), *range(0xFE00, 0xFE0F)))
)

_PLAIN = re.compile("[ -~→←–…✓✗»○·]*").fullmatch
"""Matches text of ASCII characters and the signs of this program's own lines."""
_VISIBLE: Final = bytes(code if 32 <= code < 127 else 32 for code in range(256))  # noqa: PLR2004
"""Byte of printable ASCII -> itself, any other -> a space."""
_OFTEN = 64
"""Maximum length of texts that are cached because they recur, such as a pair of addresses."""
_MAX_COMBINING = 2
"""Maximum number of consecutive combining marks: more would paint over the lines above."""


def safe(text: str, limit: int = LINE_LIMIT) -> str:
    r"""Return `text` with everything that a terminal would obey or hide written as an escape.

    Control characters (C0, DEL, C1), line and paragraph separators, bidirectional and zero-width
    characters, unassigned and private code points and lone surrogates become `\xNN`, `\uNNNN` or
    `\UNNNNNNNN`; line feed, return and tab become `\n`, `\r`, `\t`. A backslash stays as it is: the
    result is for people, and programs use JSON. Text longer than `limit` is cut, with a note on how
    much is missing.
    """
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    if not (text.isascii() and text.isprintable()):
        if len(text) <= _OFTEN:
            text = _often(text)
        elif not _PLAIN(text):
            text = _escaped(text)
    return f"{text}… (+{cut} characters)" if cut > 0 else text


def is_plain(text: str) -> bool:
    """Return whether a quick check shows that `safe` would not change the text or any part of it;
    False may be wrong.
    """
    text = text.replace("→", "-")  # in nearly all lines
    if len(text) > LINE_LIMIT:
        return False
    if text.isascii():  # in a tenth of the instructions of `isprintable`
        octets = text.encode()
        return octets.translate(_VISIBLE) == octets
    return _PLAIN(text) is not None


def _escaped(text: str) -> str:
    out: list[str] = []
    marks = 0
    for char in text:
        if char.isascii():
            marks = 0
            out.append(char if char.isprintable() else _escape(char))
        elif not char.isprintable() or char in _INVISIBLE:
            marks = 0
            out.append(_escape(char))
        elif _is_combining(char):
            marks += 1
            out.append(char if marks <= _MAX_COMBINING else _escape(char))
        else:
            marks = 0
            out.append(char)
    return "".join(out)


_often = lru_cache(maxsize=1024)(_escaped)


def _is_combining(char: str) -> bool:
    from unicodedata import category  # noqa: PLC0415 - only for text outside ASCII

    return category(char) in {"Mn", "Me"}


def _escape(char: str) -> str:
    return _SHORT.get(char) or escape(char)
