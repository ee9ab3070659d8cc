"""The differences between two nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MAX_DEPTH = 64
"""Nesting levels that are compared item by item; values below are compared as a whole."""
_WHO = ("space", "kind", "code", "side", "direction")
"""Names whose words, taken together, tell the rows of a list apart. A number would look like an
index.
"""


class _Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""Takes the place of a value that one side does not have."""


class Changed(NamedTuple):
    """One place at which two values differ."""

    path: str
    """Names separated by dots. Rows of a list have what tells them apart in brackets, other list
    items their index: `spaces[vital c2s].units`, `explain[0]`.
    """
    before: Any
    """First value, or `ABSENT`."""
    after: Any
    """Second value, or `ABSENT`."""


def differences(before: Any, after: Any, path: str = "", depth: int = 0) -> Iterator[Changed]:
    """Yield every place at which two values of mappings, lists and scalars differ, in order."""
    if depth < MAX_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            place = f"{path}.{name}" if path else str(name)
            left, right = before.get(name, ABSENT), after.get(name, ABSENT)
            yield from differences(left, right, place, depth + 1)
    elif depth < MAX_DEPTH and _is_list(before) and _is_list(after):
        rows, others = _named(before), _named(after)
        if rows is None or others is None:
            rows, others = dict(enumerate(before)), dict(enumerate(after))
        for name in dict.fromkeys((*rows, *others)):
            left, right = rows.get(name, ABSENT), others.get(name, ABSENT)
            yield from differences(left, right, f"{path}[{name}]", depth + 1)
    # Identity first: NaN does not equal itself.
    elif before is not after and before != after:
        yield Changed(path, before, after)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _named(rows: Sequence[Any]) -> dict[int | str, Any] | None:
    """Return {what tells it apart: row}; None if nothing tells these rows apart."""
    named: dict[int | str, Any] = {
        " ".join(row[key] for key in _WHO if isinstance(row.get(key), str)): row
        for row in rows
        if isinstance(row, Mapping)
    }
    return named if len(named) == len(rows) and "" not in named else None
