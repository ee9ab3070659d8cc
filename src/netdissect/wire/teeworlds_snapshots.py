"""Teeworlds snapshots: reads a delta, applies it to its base, computes checksums, names items.

A snapshot maps (type, id) of each item to its integers. Source: docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from struct import pack
from typing import Any, Final

from netdissect.model.lasting import Lasting
from netdissect.model.native import i64
from netdissect.wire.teeworlds import object_rows
from netdissect.wire.varint import VarintError, read_teeworlds, signed_32

Ints = tuple[int, ...]
Items = dict[tuple[int, int], Ints]
"""(type, id) -> integers of the item."""

MAX_ITEMS: Final = 1024
"""Items of the largest snapshot. Source: Teeworlds `CSnapshotBuilder::MAX_ITEMS`."""
_U32: Final = 0xFFFFFFFF
_UUID_INTS: Final = 4
"""Integers that hold a UUID."""
_HEAD: Final = ("item_type", "item_id", "object")
"""Names of the values that every item has."""
_LESS_128: Final = bytes((octet - 128) & 0xFF for octet in range(256))
"""Table that takes 128 from each byte."""
_FIRST_EXTENDED: Final = 0x4000
"""First type that stands for a UUID, which an item of type 0 announces."""


class SnapshotError(ValueError):
    """The data of a delta is damaged.

    Attributes:
        delta: the part that was read before the fault.

    """

    def __init__(self, message: str, delta: Delta) -> None:
        super().__init__(message)
        self.delta = delta


@dataclass(slots=True)
class Delta:
    """The difference between a snapshot and its base."""

    deleted: list[tuple[int, int]] = field(default_factory=list)
    """(type, id) of the items that only the base has."""
    updated: Items = field(default_factory=dict)
    """(type, id) -> integers of new items, and differences of the integers of others."""


@cache
def static_sizes(family: str) -> dict[int, int]:
    """Return type -> number of integers of the types whose size is not on the wire."""
    return {
        number: int(row["ints"])
        for number, row in object_rows(family).items()
        if isinstance(number, int) and row["size_on_wire"] == "static"
    }


def read_counts(data: bytes) -> tuple[int, int, int]:
    """Return (number of items deleted, number updated, offset of the first item).

    Raises:
        VarintError: the data ends early.

    """
    end = len(data)
    gone, at = read_teeworlds(data, 0, end)
    changed, at = read_teeworlds(data, at, end)
    _temporary, at = read_teeworlds(data, at, end)
    return gone, changed, at


def read_item_head(data: bytes, at: int, sizes: dict[int, int]) -> tuple[int, int, int, int]:
    """Return (type, id, number of integers, offset of the first one) of an updated item; `sizes` is
    that of `static_sizes`.

    Raises:
        VarintError: the data ends early.

    """
    end = len(data)
    kind, at = read_teeworlds(data, at, end)
    number, at = read_teeworlds(data, at, end)
    size = sizes.get(kind, -1)
    if size < 0:
        size, at = read_teeworlds(data, at, end)
    return kind, number, size, at


def read_delta(data: bytes, family: str) -> Delta:
    """Return the delta in the joined data of a snapshot.

    A number of integers is believed only if as many bytes follow, so memory is bounded by the data.

    Raises:
        SnapshotError: the data ends early, or states impossible numbers.

    """
    delta = Delta()
    sizes = static_sizes(family)
    end = len(data)
    try:
        gone, changed, at = read_counts(data)
        if not 0 <= gone <= MAX_ITEMS or not 0 <= changed <= MAX_ITEMS:
            raise SnapshotError(f"{gone} items deleted, {changed} updated", delta)
        for _ in range(gone):
            key, at = read_teeworlds(data, at, end)
            delta.deleted.append((key >> 16 & 0xFFFF, key & 0xFFFF))
        for _ in range(changed):
            kind, number, size, at = read_item_head(data, at, sizes)
            if not 0 <= size <= end - at:
                raise SnapshotError(f"item {kind}/{number} of {size} integers", delta)
            values: list[int] = []
            for _ in range(size):
                value, at = read_teeworlds(data, at, end)
                values.append(value)
            delta.updated[kind & 0xFFFF, number & 0xFFFF] = tuple(values)
    except VarintError as fault:
        raise SnapshotError(str(fault), delta) from None
    return delta


def apply(base: Items, known: int, delta: Delta) -> tuple[Items, int]:
    """Return the snapshot that `delta` makes of `base`, and its checksum: the sum of all integers
    as a signed 32-bit number. Differences wrap at 32 bits. `known` is the checksum of `base`.
    """
    items = dict(base)
    total: i64 = known
    for key in delta.deleted:
        total -= sum(items.pop(key, ()))
    for key, steps in delta.updated.items():
        total -= sum(items.get(key, ()))
        before = base.get(key)
        if before is None:
            items[key] = steps
            total += sum(steps)
        else:
            items[key], added = _stepped(before, steps)
            total += added
    return items, signed_32(total)


def _stepped(before: Ints, steps: Ints) -> tuple[Ints, i64]:
    """Return the integers of an item, from those before and the differences to them; their sum."""
    after: list[int] = []
    total: i64 = 0
    known = len(before)
    for place, step in enumerate(steps):
        value: i64 = step
        if place < known:
            was: i64 = before[place]
            value = signed_32(was + value)
        after.append(value)
        total += value
    return tuple(after), total


class NamedItems:
    """Gives the items of consecutive snapshots the names of their types and fields. Most items of a
    snapshot are those of its base (`apply`); they are named once.
    """

    __slots__ = ("_family", "_known")

    def __init__(self, family: str) -> None:
        self._family = family
        self._known: dict[tuple[int, int], tuple[Ints, dict[str, Any], _Object | None]] = {}
        """(type, id) -> integers, named values and names of each item of the snapshot that came
        last.
        """

    def of(self, items: Items) -> list[dict[str, Any]]:
        """Return the items of a snapshot, or of a delta."""
        objects = _objects(self._family)
        uuids: dict[int, bytes] | None = None
        before, known = self._known, {}
        found = []
        for key, values in items.items():
            kind, number = key
            known_as: int | bytes = kind
            if kind >= _FIRST_EXTENDED:
                if uuids is None:
                    uuids = _uuids(items)
                known_as = uuids.get(kind, b"")
            row = objects.get(known_as)
            entry = before.get(key)
            # What a type stands for is in another item, which may change.
            if entry is None or entry[2] is not row:
                named = _item(kind, number, values, row)
            elif entry[0] is values:
                named = entry[1]
            elif row is not None and row.is_plain(entry[0], values):
                named = _changed(entry[1], entry[0], values, row.keys)
            else:
                named = _item(kind, number, values, row)
            known[key] = (values, named, row)
            found.append(named)
        self._known = known
        return found


def _uuids(items: Items) -> dict[int, bytes]:
    """Return type -> UUID of the types that items of type 0 announce."""
    return {
        number: _octets(values)
        for (kind, number), values in items.items()
        if kind == 0 and len(values) == _UUID_INTS
    }


class _Object:
    """The names of one type of item."""

    __slots__ = ("keys", "name", "strings")

    def __init__(self, name: str, keys: tuple[str, ...]) -> None:
        self.name = name
        self.keys = keys
        """`_HEAD`, then one name per integer."""
        packed = "name0" in keys and "skin0" in keys
        self.strings: list[tuple[str, int, int]] = [
            (name, keys.index(f"{name}0") - len(_HEAD), count)
            for name, count in (PACKED.items() if packed else ())
        ]
        """(name, index of the first integer, number of integers) of each packed string."""

    def is_plain(self, before: Ints, after: Ints) -> bool:
        """Return whether two items of this type have the same names, one per integer."""
        size = len(after)
        return len(before) == size <= len(self.keys) - len(_HEAD) and not self.strings


def _changed(
    named: dict[str, Any], before: Ints, after: Ints, keys: tuple[str, ...]
) -> dict[str, Any]:
    """Return the values of an item by name, from those before: most of them stay."""
    item = Lasting(named)
    for place, value in enumerate(after):
        if value != before[place]:
            item[keys[place + len(_HEAD)]] = value
    return item


def _item(
    kind: int, number: int, values: Ints, known: _Object | None
) -> dict[str, Any]:
    """Return the values of an item by name."""
    if kind == 0 and len(values) == _UUID_INTS:
        uuid = _octets(values).hex()
        return {"item_type": kind, "item_id": number, "object": "uuid", "uuid": uuid}
    if known is None:
        return {"item_type": kind, "item_id": number, "object": None, "ints": list(values)}
    keys = known.keys
    item = Lasting(zip(keys, (kind, number, known.name, *values), strict=False))
    for name, first, count in known.strings:
        ints = values[first : first + count]
        item[name] = unpack_string(ints + (0,) * (count - len(ints)))
    if len(values) + len(_HEAD) > len(keys):
        item["ints"] = list(values[len(keys) - len(_HEAD) :])
    return item


def object_fields(family: str) -> tuple[str, ...]:
    """Return the names of all integers of all objects of a family, with those of DDNet, sorted."""
    known = (row.keys[len(_HEAD) :] for row in _objects(family).values())
    return tuple(sorted({name for names in known for name in names}))


@cache
def _objects(family: str) -> dict[int | bytes, _Object]:
    """Return the objects of a family by type or UUID."""
    return {
        key: _Object(row["name"], (*_HEAD, *_names(row)))
        for key, row in object_rows(family).items()
    }


def _names(row: dict[str, Any]) -> tuple[str, ...]:
    """Return one name per integer of an object: `end_ticks_0` ... where a field is an array."""
    names: list[str] = []
    for entry in (*row["fields"], *row.get("newer_extra_fields", ())):
        name, count = entry["name"], _count(entry)
        numbered = (f"{name}_{index}" for index in range(count))
        names.extend((name,) if count == 1 else numbered)
    return tuple(names)


def _count(entry: dict[str, Any]) -> int:
    """Return the number of integers of a field, which may be an array of arrays."""
    count = 1
    inner: dict[str, Any] | None = entry
    while inner is not None and inner.get("type") == "array":
        count *= inner["count"]
        inner = inner["item"]
    return count


PACKED: Final = {"name": 4, "clan": 3, "skin": 6}
"""String in a client_info item of 0.6 -> number of integers that hold it."""


def pack_string(octets: bytes, count: int) -> list[int]:
    """Return the `count` integers that hold a text; see `unpack_string`."""
    padded = octets[: 4 * count - 1].ljust(4 * count - 1, b"\0")
    stored = bytes((octet + 128) & 0xFF for octet in padded) + b"\0"
    return [
        int.from_bytes(stored[at : at + 4], "big", signed=True) for at in range(0, len(stored), 4)
    ]


def unpack_string(ints: Sequence[int]) -> str:
    """Return the text in packed integers: four big-endian bytes each, every byte plus 128."""
    plain = _octets(ints)[:-1].translate(_LESS_128)
    return plain.split(b"\0")[0].decode("utf-8", "surrogateescape")


def _octets(ints: Sequence[int]) -> bytes:
    """Return the bytes of integers, four each."""
    return pack(f">{len(ints)}I", *[value & _U32 for value in ints])
