"""One value as one line of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, Final

from netdissect.model.text import well_formed

__all__ = ["dump"]

MAX_DEPTH: Final = 900
"""How deep values lie in each other; beyond, RecursionError."""
MAX_KEYS: Final = 4096
LONG_KEY: Final = 64
"""Keys whose text is remembered, and as many other texts, and from which length on none is: there
are few, and they come again and again.
"""

_KEYS: Final[dict[str, str]] = {}
_WORDS: Final[dict[str, str]] = {}
_UNBOUNDED: Final = {math.inf: '"inf"', -math.inf: '"-inf"'}


def dump(value: Mapping[str, Any]) -> str:
    """Return one line of JSON: ASCII only, so no text from a packet can reach the terminal
    unescaped.

    Bytes become lower-case hex, NaN and the infinities the strings `NaN`, `inf`, `-inf`; of lone
    surrogates see `model.text.well_formed`.
    """
    line = _line(value, formed=True)
    # A surrogate, or text that looks like the escape of one; nearly no line has a backslash.
    odd = "\\" in line and ("\\ud" in line or "\\x" in line)
    return _line(value, formed=False) if odd else line


def _line(value: Any, *, formed: bool) -> str:
    out: list[str] = []
    _write(out, value, MAX_DEPTH, formed)
    return "".join(out)


def _write(out: list[str], value: Any, deep: int, formed: bool) -> None:  # noqa: C901, FBT001, PLR0912 - one a kind
    """Add a value to a line. Python's own encoder takes three times as long for so many small
    objects; `formed` False: text in it may have to be written otherwise.
    """
    if isinstance(value, str):
        out.append(_quote(value if formed else well_formed(value)))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, int):
        out.append(str(value))
    elif isinstance(value, float):
        finite = value - value == 0.0
        out.append(repr(value) if finite else _UNBOUNDED.get(value, '"NaN"'))
    elif not deep:
        raise RecursionError("a value is too deep for JSON")
    elif isinstance(value, dict):
        first = True
        for key, item in value.items():
            known = _KEYS.get(key) if formed and isinstance(key, str) else None
            if known is None:
                known = _key(key, formed)
            out.append("{" + known[1:] if first else known)
            first = False
            if type(item) is int:  # numbers and texts are by far the most: no call for each
                out.append(str(item))
            elif formed and type(item) is str:
                out.append(_word(item))
            else:
                _write(out, item, deep - 1, formed)
        out.append("{}" if first else "}")
    elif isinstance(value, (list, tuple)):
        before = "["
        for item in value:
            out.append(before)
            before = ","
            _write(out, item, deep - 1, formed)
        out.append("[]" if before == "[" else "]")
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out.append(f'"{bytes(value).hex()}"')
    elif isinstance(value, Mapping):
        _write(out, dict(value), deep, formed)
    elif isinstance(value, (set, frozenset)):
        _write(out, sorted(value), deep, formed)
    else:
        _write(out, str(value), deep, formed)


def _word(text: str) -> str:
    """Return a text as it stands in a line."""
    written = _WORDS.get(text)
    if written is None:
        written = _quote(text)
        if len(text) < LONG_KEY and len(_WORDS) < MAX_KEYS:
            _WORDS[text] = written
    return written


def _key(key: Any, formed: bool) -> str:  # noqa: FBT001 - private
    """Return a key as it stands in a line, between a comma and a colon."""
    text = key.hex() if isinstance(key, bytes) else str(key)
    written = f",{_quote(text if formed else well_formed(text))}:"
    if formed and isinstance(key, str) and len(key) < LONG_KEY and len(_KEYS) < MAX_KEYS:
        _KEYS[key] = written
    return written
