"""Which layer reads what, found out by asking the function that says it: a table for programs that
cannot call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

__all__ = ["Chooser", "UnknowableError", "asked", "samples"]

Chooser: TypeAlias = Callable[[bytes], Any]
"""Returns the layer that reads some bytes."""
_Row: TypeAlias = list[list[Any]]
"""[least size, name of a layer] of each that is chosen with one byte, in order."""

_SIZES = (*range(1, 17), 33, 64, 512)
"""Sizes of what is asked about."""
_LONG = 33
_PLACES = 8
"""Places of a byte that may say which layer it is."""
_BYTES = range(256)


class UnknowableError(Exception):
    """Which layer is chosen hangs on more than a table can say."""


def samples(layers: Iterable[Callable[[], Any]]) -> list[bytes]:
    """Return bytes to ask about: of one value, and layers as they are built without values."""
    found = [512 * filler for filler in (b"\0", b"\1", b"\x80", b"\xff")]
    for layer in layers:
        try:
            found.append(bytes(layer()))
        except Exception:  # noqa: BLE001, S112 - a plug-in's, which wants some
            continue
    return found


def asked(
    choose: Sequence[Chooser], octets: Sequence[bytes], name: Callable[[Any], str]
) -> dict[Any, Any]:
    """Return which layers are chosen by the byte at one place (`at`) and the size: byte ->
    [least size, name] of each; `other` is what most bytes have.

    Args:
        choose: say which layer it is; all must say the same.
        octets: samples, with which it is asked.
        name: returns the name of a layer.

    Raises:
        UnknowableError: that hangs on more.

    """

    def named(each: Chooser, about: bytearray) -> str:
        try:
            return name(each(bytes(about)))
        except Exception as error:
            why = f"a layer is chosen by what came before ({type(error).__name__})"
            raise UnknowableError(why) from error

    def answers(about: bytearray) -> set[str]:
        return {named(each, about) for each in choose}

    for at in range(_PLACES):
        found = ((byte, _row(at, byte, octets, answers)) for byte in _BYTES)
        rows = {byte: row for byte, row in found if row}
        if len(rows) == len(_BYTES) and _alone(rows, at, octets, answers):
            told = list(rows.values())
            # What most bytes choose is told once, so that the table stays small.
            usual = max(told, key=told.count)
            unusual = {byte: row for byte, row in rows.items() if row != usual}
            return {**unusual, "at": at, "other": usual}
    raise UnknowableError("a layer is chosen by more than one byte and the size")


def _row(
    at: int, byte: int, octets: Iterable[bytes], answers: Callable[[bytearray], set[str]]
) -> _Row:
    """Return what is chosen with a byte at a place; nothing where that hangs on others, too."""
    row: _Row = []
    for size in _SIZES:
        found = set()
        for sample in octets:
            about = bytearray(sample[:size].ljust(size, b"\0"))
            if at < size:
                about[at] = byte
            found |= answers(about)
            if len(found) > 1:
                return []
        (name,) = found
        if not row or row[-1][1] != name:
            row.append([size, name])
    return row


def _alone(
    rows: Mapping[int, _Row],
    at: int,
    octets: Iterable[bytes],
    answers: Callable[[bytearray], set[str]],
) -> bool:
    """Return whether no value of another byte has another layer chosen."""
    for sample, place in product(octets, range(_PLACES)):
        about = bytearray(sample[:_LONG].ljust(_LONG, b"\0"))
        for about[place] in _BYTES:
            *_, name = (name for size, name in rows[about[at]] if size <= _LONG)
            if answers(about) != {name}:
                return False
    return True
