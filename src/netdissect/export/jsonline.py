"""A value as one line of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, Final

from netdissect.model.figures import decimal, digits
from netdissect.model.lasting import Lasting
from netdissect.model.native import i64
from netdissect.model.text import escape_surrogates

MAX_DEPTH: Final = 900
"""Nesting depth of values; deeper ones raise RecursionError."""
MAX_KEYS: Final = 1024
LONG_KEY: Final = 64
"""MAX_KEYS keys, and as many other texts, are cached in their JSON form if they are shorter than
this: there are few different ones, and they recur all the time.
"""

_KEYS: Final[dict[str, tuple[str, str]]] = {}
_WORDS: Final[dict[str, str]] = {}
_LEAST: Final = 1e-4
_MOST: Final = 1e9
"""Between _LEAST and this, a number has no exponent and at most 15 digits."""
_UNBOUNDED: Final = {math.inf: '"inf"', -math.inf: '"-inf"'}


def dump(value: Any) -> str:
    """Return one line of JSON. It is ASCII only, so that no text from a packet reaches the terminal
    unescaped.

    Bytes become lower-case hex; NaN and the infinities become the strings `NaN`, `inf` and `-inf`.
    For lone surrogates see `model.text.escape_surrogates`.
    """
    out: list[str] = []
    _write(out, value, MAX_DEPTH)
    return "".join(out)


def text(value: str | None) -> str:
    """Return a text as JSON; None is null."""
    if value is None:
        return "null"
    if len(value) >= LONG_KEY:
        return _quoted(value)
    written = _WORDS.get(value)
    if written is None:
        written = _quoted(value)
        if len(_WORDS) < MAX_KEYS:
            _WORDS[value] = written
    return written


def figure(value: Any) -> str:
    """Return a number as JSON; None is null."""
    if value is None:
        return "null"
    if type(value) is int:
        return digits(value)
    return _written(value) if isinstance(value, float) else str(value)


def _written(value: float) -> str:
    """Return what `repr` writes for a number; infinity and NaN in quotes.

    Nearly all numbers are multiples of a millionth, such as times in ms. With at most 15 digits
    their decimal form is the shortest one that identifies the number, and takes a quarter of the
    time that `repr` needs to find it.
    """
    if _LEAST <= value < _MOST:
        number: i64 = int(value * 1e6 + 0.5)
        if int(number) / 1e6 == value:
            return decimal(number)
    # The difference is NaN for infinity and NaN, else 0: one test for both.
    return repr(value) if value - value == 0.0 else _UNBOUNDED.get(value, '"NaN"')


def _write(out: list[str], value: Any, deep: int) -> None:  # noqa: C901, PLR0912 - one a kind
    """Append a value to a line. Python's own encoder takes three times as long for so many small
    objects.
    """
    if isinstance(value, str):
        out.append(_quoted(value))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, int):
        out.append(digits(int(value)))
    elif isinstance(value, float):
        out.append(figure(value))
    elif not deep:
        raise RecursionError("a value is too deep for JSON")
    elif isinstance(value, dict):
        lasting: Any = value if type(value) is Lasting else None
        if lasting is not None and lasting.json is not None:
            out.append(lasting.json)
            return
        begun, first = len(out), True
        for key, item in value.items():
            known = _KEYS.get(key)
            if known is None:
                known = _key(key)
            out.append(known[0] if first else known[1])
            first = False
            if type(item) is int:  # numbers and texts are the most frequent: save a call
                out.append(digits(item))
            elif type(item) is str:
                out.append(text(item))
            else:
                _write(out, item, deep - 1)
        out.append("{}" if first else "}")
        if lasting is not None:
            lasting.json = "".join(out[begun:])
            del out[begun:]  # fewer parts to join once more
            out.append(lasting.json)
    elif isinstance(value, (list, tuple)):
        before = "["
        for item in value:
            out.append(before)
            before = ","
            _write(out, item, deep - 1)
        out.append("[]" if before == "[" else "]")
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out.append(f'"{bytes(value).hex()}"')
    elif isinstance(value, Mapping):
        _write(out, dict(value), deep)
    elif isinstance(value, (set, frozenset)):
        _write(out, sorted(value), deep)
    else:
        _write(out, str(value), deep)


def _quoted(value: str) -> str:
    written: str = _quote(value)
    # A surrogate, or text that looks like an escaped one; backslashes are rare in texts.
    if "\\" in written and ("\\ud" in written or "\\x" in written):
        written = _quote(escape_surrogates(value))
    return written


def _key(key: Any) -> tuple[str, str]:
    """Return a key as JSON with a colon after it, as the first of an object and as a later one."""
    quoted = _quoted(key.hex() if isinstance(key, bytes) else str(key))
    written = f"{{{quoted}:", f",{quoted}:"
    if isinstance(key, str) and len(key) < LONG_KEY and len(_KEYS) < MAX_KEYS:
        _KEYS[key] = written
    return written
