"""A compact map from connections to values of which few are distinct."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

MAX_BYTE_CODE: Final = 255
"""Largest code that fits into one byte; with more distinct values each connection takes four."""

_Value = TypeVar("_Value", bound=Hashable)


class ByConnection(Mapping[int, _Value], Generic[_Value]):
    """Connection number -> value. A capture may have millions of connections, so each takes one
    byte (four bytes if there are more than 255 distinct values).
    """

    def __init__(self) -> None:
        self._codes: dict[_Value, int] = {}
        self._values: list[_Value] = []
        self._code_of = array("B")
        """Connection number -> 1 + index into `_values`; 0 if it has no value."""

    def put(self, number: int, value: _Value) -> None:
        """Set the value of a connection; connections are numbered from 1."""
        code = self._codes.setdefault(value, len(self._codes) + 1)
        if code > len(self._values):
            self._values.append(value)
            if code > MAX_BYTE_CODE and self._code_of.itemsize == 1:
                self._code_of = array("I", self._code_of)
        if number >= len(self._code_of):
            missing = number + 1 - len(self._code_of)
            self._code_of.frombytes(bytes(self._code_of.itemsize * missing))
        self._code_of[number] = code

    def __getitem__(self, number: int) -> _Value:
        code = self._code_of[number] if 0 <= number < len(self._code_of) else 0
        if not code:
            raise KeyError(number)
        return self._values[code - 1]

    def __iter__(self) -> Iterator[int]:
        return (number for number, code in enumerate(self._code_of) if code)

    def __len__(self) -> int:
        return len(self._code_of) - self._code_of.count(0)
