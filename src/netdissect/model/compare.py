"""What differs between two nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["ABSENT", "Changed", "differences"]

MAX_DEPTH = 64
"""Levels compared one by one; what lies deeper is compared as a whole."""


class _Absent:
    """Stands for what one side does not have."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


class Changed(NamedTuple):
    """One place in which two values differ."""

    path: str
    """Dotted names, lists with their index: `spaces[0].units`."""
    before: Any
    """The first value; `ABSENT` where it has none."""
    after: Any


def differences(before: Any, after: Any, path: str = "", depth: int = 0) -> Iterator[Changed]:
    """Yield every place in which two values of mappings, lists and scalars differ, in order."""
    if depth < MAX_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            place = f"{path}.{name}" if path else str(name)
            left, right = before.get(name, ABSENT), after.get(name, ABSENT)
            yield from differences(left, right, place, depth + 1)
    elif depth < MAX_DEPTH and _is_list(before) and _is_list(after):
        for index in range(max(len(before), len(after))):
            left = before[index] if index < len(before) else ABSENT
            right = after[index] if index < len(after) else ABSENT
            yield from differences(left, right, f"{path}[{index}]", depth + 1)
    # The same object is no difference, also where it is NaN, which equals nothing, not even
    # itself.
    elif before is not after and before != after:
        yield Changed(path, before, after)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
