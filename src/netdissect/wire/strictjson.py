"""Reads strict JSON of bounded depth, and reports what is odd about it. Never raises on input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

DEPTH_LIMIT: Final = 64
"""Depth to which arrays and objects may be nested; deeper texts are legal JSON but are not read."""
_LONGEST_INTEGER: Final = 4000
"""Digits of the longest integer that is kept exact; longer ones become floating point."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Json:
    """The result of reading a text as JSON."""

    value: Any
    """The value of the text; None if it is not valid."""
    valid: bool
    """Whether the text is strict JSON within the bounds."""
    fault: str | None
    """Why the text is not strict JSON; None if it is, or is too deep to tell."""
    too_deep: bool = False
    """Whether it is nested deeper than DEPTH_LIMIT."""
    duplicate_key: str | None = None
    """A key that occurs twice in one object; the last value counts."""
    lone_surrogate: bool = False
    """Whether a \\u escape is half of a surrogate pair, which is no character."""


class _NotStrictError(ValueError):
    """The text has something odd, which the fast reader leaves to the thorough one."""


def is_plain_object(text: str) -> bool:
    """Return True for a JSON object without anything odd: a fast test for the most frequent case.

    False only means that `read_json` has to tell.
    """
    try:
        value, end = _SCAN(text, 0)
    except (ValueError, RecursionError, StopIteration):
        return False
    if end != len(text) or not isinstance(value, dict):
        return False
    if "\\" in text and ("\\ud" in text or "\\uD" in text):  # perhaps a lone surrogate
        return False
    for inner in value.values():
        if isinstance(inner, (dict, list)):
            return not (_may_be_deep(text) and _too_deep(value))
    return True


def _may_be_deep(text: str) -> bool:
    """Return whether a text has enough brackets to be nested too deeply."""
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
    """Read a text that the fast reader has rejected."""
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
        raise _NotStrictError("duplicate key")
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
"""The fast reader. Creating one takes longer than reading most texts."""
_SCAN: Callable[[str, int], tuple[Any, int]] = _FAST.scan_once  # type: ignore[attr-defined]
"""(text, position) -> (value, end): the fast reader without the overhead of `decode`."""
