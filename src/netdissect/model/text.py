"""Escaping and quoting of text that may come from packets, file names or configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_MAX_DIGITS = 18
"""Digits of the largest count; every such number fits into 64 bits."""
_LONE = re.compile("[\ud800-\udfff]")
"""A lone surrogate: Python's `str` has no paired ones."""
_ESCAPE = r"\\(?:x([89a-f][0-9a-f])|u(d[89a-f][0-9a-f]{2}))"
_LIKE_ESCAPE = re.compile(_ESCAPE)
_ESCAPED = re.compile(rf"\\\\|{_ESCAPE}")
_WORD = re.compile(
    rb"(?:[A-Za-z0-9]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+"
)
"""A word in lines of text. A byte that is no UTF-8 separates words, so that lines that are shown
alike stay alike.
"""


def escape(char: str) -> str:
    r"""Return a character as an escape sequence, `\xNN` for a byte that was not UTF-8 (PEP 383)."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - what `surrogateescape` makes of bytes 80 to ff
        code -= 0xDC00
    if code <= 0xFF:  # noqa: PLR2004
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def escape_surrogates(text: str) -> str:
    r"""Return text that every Unicode encoding can represent; `unescape_surrogates` reverses it.

    Text with lone surrogates, or with something that looks like one of these escapes, is escaped:
    `\xNN` for a byte that was not UTF-8, `\uNNNN` for another surrogate, `\\` for a backslash. All
    other text stays as it is.
    """
    if not (_LONE.search(text) or _LIKE_ESCAPE.search(text)):
        return text
    # Backslashes first, so that those of the escapes stay single.
    return _LONE.sub(lambda found: escape(found[0]), text.replace("\\", "\\\\"))


def unescape_surrogates(text: str) -> str:
    """Return the text that `escape_surrogates` was called with."""
    if not _LIKE_ESCAPE.search(text):
        return text

    def char(found: re.Match[str]) -> str:
        octet, half = found[1], found[2]
        return chr(0xDC00 + int(octet, 16)) if octet else chr(int(half, 16)) if half else "\\"

    return _ESCAPED.sub(char, text)


def parse_count(text: str) -> int | None:
    """Return the number that consists of at most 18 digits 0 to 9; None for any other text."""
    # Without `isascii`, `²` and digits of other scripts would count as digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def quoted(value: Any) -> str:
    """Return a value that a user entered as messages show it: text in quotes, others as in TOML."""
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {quoted(item)}' for key, item in value.items())}}}"
    return str(value)


def words(octets: bytes, spell: Callable[[bytes], bytes]) -> bytes:
    """Return bytes whose words are overwritten, but no other characters."""
    return _WORD.sub(lambda match: spell(match[0]), octets)
