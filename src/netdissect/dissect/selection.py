"""Tables of which layer reads which bytes, for programs that cannot call the choosing function.

A table is found by calling the function with many samples. It states, for one byte position, the
layer by the value of that byte and by the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

Chooser: TypeAlias = Callable[[bytes], Any]
"""Returns the layer that reads some bytes."""
_Row: TypeAlias = list[list[Any]]
"""For one value of the byte: [minimum size, layer name], ascending."""

_SIZES = (*range(1, 17), 33, 64, 512)
"""Sizes of samples in bytes."""
_LONG = 33
"""Size in bytes of samples for testing whether another byte matters."""
_POSITIONS = 8
"""Number of byte positions that may select the layer."""
_BYTES = range(256)


class NoTableError(Exception):
    """The choice depends on more than one byte and the size."""


def samples(layers: Iterable[Callable[[], Any]]) -> list[bytes]:
    """Return sample payloads: repeated bytes, and the default packet of each layer."""
    found = [512 * filler for filler in (b"\0", b"\1", b"\x80", b"\xff")]
    for layer in layers:
        try:
            found.append(bytes(layer()))
        except Exception:  # noqa: BLE001, S112 - a plug-in's layer may have no valid default
            continue
    return found


def selection_table(
    choosers: Sequence[Chooser], octets: Sequence[bytes], name: Callable[[Any], str]
) -> dict[Any, Any]:
    """Return the layer by the value of one byte and by the size.

    The table has a row per value of the byte, its position (`at`), and the most frequent row
    (`other`), which stands for all values without a row.

    Args:
        choosers: functions that must all choose the same layer.
        octets: samples.
        name: returns the name of a layer.

    Raises:
        NoTableError: the choice depends on something else.

    """

    def call(choose: Chooser, sample: bytearray) -> str:
        try:
            return name(choose(bytes(sample)))
        except Exception as error:
            why = f"a layer is chosen by what came before ({type(error).__name__})"
            raise NoTableError(why) from error

    def choices(sample: bytearray) -> set[str]:
        return {call(choose, sample) for choose in choosers}

    for at in range(_POSITIONS):
        found = ((byte, _row(at, byte, octets, choices)) for byte in _BYTES)
        rows = {byte: row for byte, row in found if row}
        if len(rows) == len(_BYTES) and _decides(rows, at, octets, choices):
            values = list(rows.values())
            usual = max(values, key=values.count)
            unusual = {byte: row for byte, row in rows.items() if row != usual}
            return {**unusual, "at": at, "other": usual}
    raise NoTableError("a layer is chosen by more than one byte and the size")


def _row(
    at: int, byte: int, octets: Iterable[bytes], choices: Callable[[bytearray], set[str]]
) -> _Row:
    """Return the row for a value of the byte at `at`; [] if samples of one size disagree."""
    row: _Row = []
    for size in _SIZES:
        found = set()
        for octets_of_sample in octets:
            sample = bytearray(octets_of_sample[:size].ljust(size, b"\0"))
            if at < size:
                sample[at] = byte
            found |= choices(sample)
            if len(found) > 1:
                return []
        (name,) = found
        if not row or row[-1][1] != name:
            row.append([size, name])
    return row


def _decides(
    rows: Mapping[int, _Row],
    at: int,
    octets: Iterable[bytes],
    choices: Callable[[bytearray], set[str]],
) -> bool:
    """Return whether the byte at `at` decides alone, whatever the value of any other byte."""
    for octets_of_sample, position in product(octets, range(_POSITIONS)):
        sample = bytearray(octets_of_sample[:_LONG].ljust(_LONG, b"\0"))
        for sample[position] in _BYTES:
            *_, name = (name for size, name in rows[sample[at]] if size <= _LONG)
            if choices(sample) != {name}:
                return False
    return True
