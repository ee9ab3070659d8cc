"""Text that may have come from packets, file names or configuration, as it may be written."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["escape", "number", "quoted", "restored", "well_formed"]

_MOST_DIGITS = 18

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPE = r"\\(?:x([89a-f][0-9a-f])|u(d[89a-f][0-9a-f]{2}))"
_LIKE_ESCAPE = re.compile(_ESCAPE)
_WRITTEN = re.compile(rf"\\\\|{_ESCAPE}")


def escape(char: str) -> str:
    r"""Return a character as an escape: a byte that was no UTF-8 (PEP 383) as `\xNN`."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - what `surrogateescape` makes of bytes 80 to ff
        code -= 0xDC00
    if code <= 0xFF:  # noqa: PLR2004
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def well_formed(text: str) -> str:
    r"""Return text that every Unicode encoding can hold.

    Text with lone surrogates is written with escapes: `\xNN` for a byte that was no UTF-8,
    `\uNNNN` for another half of a pair, `\\` for a backslash; so is text that holds what looks like
    such an escape, so that `restored` can tell. All other text stays as it is.
    """
    if not (_LONE.search(text) or _LIKE_ESCAPE.search(text)):
        return text
    # The backslashes first: those of the escapes stay single, and `restored` can tell them apart.
    return _LONE.sub(lambda found: escape(found[0]), text.replace("\\", "\\\\"))


def restored(text: str) -> str:
    """Return the text of which `well_formed` made this."""
    if not _LIKE_ESCAPE.search(text):
        return text

    def char(found: re.Match[str]) -> str:
        octet, half = found[1], found[2]
        return chr(0xDC00 + int(octet, 16)) if octet else chr(int(half, 16)) if half else "\\"

    return _WRITTEN.sub(char, text)


def number(text: str) -> int | None:
    """Return the whole number that text is, in digits 0 to 9; None for any other, or a longer one
    than any count has.
    """
    # Without `isascii`, `²` and digits of other scripts would count as digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def quoted(value: Any) -> str:
    """Return what a user gave, as it is named in a message: text in quotes, values as in TOML."""
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {quoted(item)}' for key, item in value.items())}}}"
    return str(value)
