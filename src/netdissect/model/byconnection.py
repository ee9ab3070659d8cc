"""What is known of each connection, where few different things are."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

__all__ = ["ByConnection"]

LAST_BYTE: Final = 255
"""Values from which on the code of each takes more than a byte."""

_Value = TypeVar("_Value", bound=Hashable)


class ByConnection(Mapping[int, _Value], Generic[_Value]):
    """Connection -> one of few values: a byte or four for each, as a capture may have millions."""

    def __init__(self) -> None:
        self._codes: dict[_Value, int] = {}
        self._values: list[_Value] = []
        self._of = array("B")
        """Number of a connection -> 1 + index of its value; 0 where it has none."""

    def put(self, number: int, value: _Value) -> None:
        """Take the value of a connection; they are numbered from 1."""
        code = self._codes.setdefault(value, len(self._codes) + 1)
        if code > len(self._values):
            self._values.append(value)
            # One byte for each of a million connections, as long as 255 values are enough.
            if code > LAST_BYTE and self._of.itemsize == 1:
                self._of = array("I", self._of)
        if number >= len(self._of):
            self._of.frombytes(bytes(self._of.itemsize * (number + 1 - len(self._of))))
        self._of[number] = code

    def __getitem__(self, number: int) -> _Value:
        code = self._of[number] if 0 <= number < len(self._of) else 0
        if not code:
            raise KeyError(number)
        return self._values[code - 1]

    def __iter__(self) -> Iterator[int]:
        return (number for number, code in enumerate(self._of) if code)

    def __len__(self) -> int:
        return len(self._of) - self._of.count(0)
