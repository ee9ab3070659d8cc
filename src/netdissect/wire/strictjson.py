"""Strict JSON of bounded depth, and what is odd about a text. Never raises on input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["DEPTH_LIMIT", "Json", "is_plain_object", "read_json"]

DEPTH_LIMIT: Final = 64
"""Arrays and objects inside each other at most; deeper texts are legal JSON but are not read."""
_LONGEST_INTEGER: Final = 4000
"""Digits of an integer kept exact; longer ones are read as floating point."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Json:
    """A text read as JSON."""

    value: Any
    """The value; None also where there is none."""
    valid: bool
    """True where `value` is the text's value."""
    fault: str | None
    """Why it is not valid JSON; None for valid JSON and where it nests too deeply to tell."""
    too_deep: bool = False
    """Nested deeper than DEPTH_LIMIT."""
    duplicate_key: str | None = None
    """A key that one object states twice; the last value wins."""
    lone_surrogate: bool = False
    """A \\u escape of half a surrogate pair: no character."""


class _NotStrictError(ValueError):
    """Something that the fast reader leaves to the thorough one."""


def is_plain_object(text: str) -> bool:
    """Return whether a text is a JSON object with nothing odd about it: the usual case, quickly.

    False says nothing: `read_json` then tells more.
    """
    try:
        value, end = _SCAN(text, 0)
    except (ValueError, RecursionError, StopIteration):
        return False
    if end != len(text) or not isinstance(value, dict):
        return False
    if "\\" in text and ("\\ud" in text or "\\uD" in text):  # perhaps half of a pair
        return False
    for inner in value.values():
        if isinstance(inner, (dict, list)):
            return not (_may_be_deep(text) and _too_deep(value))
    return True


def _may_be_deep(text: str) -> bool:
    """Return whether a text has brackets enough to nest too deeply."""
    return len(text) > 2 * DEPTH_LIMIT and text.count("[") + text.count("{") > DEPTH_LIMIT


def read_json(text: str) -> Json:
    """Return the value of a JSON text and what is odd about it."""
    try:
        value = _FAST.decode(text)
    except RecursionError:
        return Json(None, valid=False, fault=None, too_deep=True)
    except ValueError:
        return _thorough(text)
    if _may_be_deep(text) and _too_deep(value):
        return Json(None, valid=False, fault=None, too_deep=True)
    lone = "\\u" in text and _SURROGATE.search(text) is not None and _has_lone(value)
    return Json(value, valid=True, fault=None, lone_surrogate=lone)


def _thorough(text: str) -> Json:
    """Read a text that has something odd about it."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items) and not twice:
            seen: set[str] = set()
            twice.extend(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return found

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=_constant, parse_int=_integer
        )
    except RecursionError:
        return Json(None, valid=False, fault=None, too_deep=True)
    except ValueError as fault:
        return Json(None, valid=False, fault=str(fault))
    if _too_deep(value):
        return Json(None, valid=False, fault=None, too_deep=True)
    lone = _SURROGATE.search(text) is not None and _has_lone(value)
    return Json(
        value,
        valid=True,
        fault=None,
        duplicate_key=twice[0] if twice else None,
        lone_surrogate=lone,
    )


def _constant(word: str) -> Any:
    raise _NotStrictError(f"{word} is no JSON")


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        raise _NotStrictError("a key stands twice")
    return found


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _too_deep(value: Any) -> bool:
    """Return whether arrays and objects nest deeper than DEPTH_LIMIT."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        inner = [item for item in level if isinstance(item, (dict, list))]
        if not inner:
            return False
        level = [
            item for box in inner for item in (box.values() if isinstance(box, dict) else box)
        ]
    return True


def _has_lone(value: Any) -> bool:
    if isinstance(value, str):
        return any(0xD800 <= ord(char) <= 0xDFFF for char in value)  # noqa: PLR2004 - halves of a surrogate pair
    if isinstance(value, dict):
        return any(_has_lone(key) or _has_lone(inner) for key, inner in value.items())
    return isinstance(value, list) and any(_has_lone(inner) for inner in value)


_FAST = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_constant)
"""Reads what has nothing odd about it; made once, because making it costs more than most texts."""
_SCAN: Callable[[str, int], tuple[Any, int]] = _FAST.scan_once  # type: ignore[attr-defined]
"""The same at a place of a text, without a frame of the interpreter."""
