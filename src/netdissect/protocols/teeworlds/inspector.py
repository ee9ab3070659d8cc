"""Adds the items of snapshots to trees: a snapshot is a delta to an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from netdissect.model.annotations import Annotation, code_rows
from netdissect.model.dissection import Dissection, FieldNode, MessageView, concluded
from netdissect.model.events import Ev, Event
from netdissect.protocols.teeworlds.facts import FOLLOWED, MAP_CHANGE, SNAPSHOTS
from netdissect.protocols.teeworlds.snapshots import Part, Snapshot, Snapshots
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.teeworlds import message_rows
from netdissect.wire.teeworlds_forms import (
    CONNLESS_FLAG,
    MAX_PACKET,
    TOKEN_OCTETS,
    VITAL,
    Form,
    form_of,
)
from netdissect.wire.teeworlds_snapshots import Delta, Items, NamedItems
from netdissect.wire.varint import VarintError, read_teeworlds

_ROWS = {row.code: row for row in code_rows("teeworlds")}
_INCOMPLETE = "teeworlds-snap-incomplete"
_TYPED = frozenset({Ev.MESSAGE, Ev.UNIT, Ev.PLAIN_UNIT, Ev.NUMBERED})
"""Kinds of events whose second item is a type."""
_NOTE = Ev.NOTE


class SnapshotInspector:
    """The inspector of one connection. Datagrams come in the order of the capture."""

    asks_scanner = True

    def __init__(self) -> None:
        self._snapshots: Snapshots | None = None
        self._map_sequence: int | None = None
        """Sequence number of the last map change: a message that repeats it is a retransmission."""

    def wants(self, events: list[Event]) -> bool:
        """Return whether a datagram has a snapshot or a map change, or may have one at a fault."""
        for event in events:
            if event[0] == _NOTE or (event[0] in _TYPED and event[1] in FOLLOWED):
                return True
        return False

    def follow(
        self, payload: bytes, dialect: str, direction: int, events: list[Event]
    ) -> bool:
        """Process the snapshots of a datagram without its tree.

        Return False where the datagram has a fault or changes the map.
        """
        for event in events:
            if event[0] == _NOTE or (event[0] in _TYPED and event[1] == MAP_CHANGE):
                return False
        del direction
        form = form_of(dialect)
        parts = _parts(payload, form)
        for part in parts or ():
            if self._snapshots is None:
                self._snapshots = Snapshots(form.family)
            self._snapshots.given_up(part.tick)
            self._snapshots.feed(part)
        return parts is not None

    def inspect(self, dissection: Dissection) -> None:
        """Add `base`, `items` or `changes` to every snapshot message of a datagram."""
        for message in dissection.messages:
            if message.type == MAP_CHANGE:
                self._map_change(_sequence(dissection, message))
            elif message.type in SNAPSHOTS and message.node is not None:
                self._snapshot(dissection, message, message.node)

    def _map_change(self, sequence: int | None) -> None:
        """Forget the snapshots of the previous map, unless the message is a retransmission."""
        if self._snapshots is not None and (sequence is None or sequence != self._map_sequence):
            self._snapshots.reset()
        self._map_sequence = sequence

    def _snapshot(self, dissection: Dissection, message: MessageView, node: FieldNode) -> None:
        """Add the result of a snapshot message to its node and its fields."""
        values = {child.name: child.value for child in node.children}
        part = _part(message.type, values)
        if part is None:
            return
        if self._snapshots is None:
            self._snapshots = Snapshots(form_of(dissection.dialect).family)
        notes = [(_INCOMPLETE, text) for text in self._snapshots.given_up(part.tick)]
        found = self._snapshots.feed(part)
        if found.code is not None:
            notes.append((found.code, found.message))
        for code, text in notes:
            row = _ROWS[code]
            dissection.annotations.append(
                Annotation(
                    code, row.severity, row.group, text,
                    node.bit_offset, node.bit_length, node.buffer,
                )
            )  # fmt: skip
        rows = _rows(found, self._snapshots.namer)
        node.children += [_node(name, value, node) for name, value in rows.items()]
        fields = message.fields
        message.make_fields = lambda: fields | {
            name: value() if callable(value) else value for name, value in rows.items()
        }


@cache
def _columns(family: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Return (type, names of the integers) of each snapshot message by its first number."""
    return {
        head: (row.type, tuple(each["name"] for each in row.fields if each["type"] == "int"))
        for head, row in message_rows(family).items()
        if row.type in SNAPSHOTS
    }


def _parts(payload: bytes, form: Form) -> list[Part] | None:
    """Return the snapshot messages of a datagram; None if it is no intact packet of chunks."""
    start = form.head
    if not start <= len(payload) <= MAX_PACKET or payload[0] & (CONNLESS_FLAG | form.control):
        return None
    first, count = payload[0], payload[2]
    if first & form.token_flag:
        start += TOKEN_OCTETS
    found: list[Part] = []
    try:
        data = payload[start:]
        if first & form.compressed:
            data = decompress(data, form.limit)
        # DDNet's token stands at the end of the data, inside the compression.
        at, end = 0, len(data) - form.tail
        for _ in range(count):
            head = data[at]
            size = form.chunk_size(head, data[at + 1])
            at += 3 if head & VITAL else 2
            if at + size > end:
                return None
            part = _read_part(data, at, at + size, form.family)
            if part is not None:
                found.append(part)
            at += size
    except (HuffmanError, VarintError, IndexError):
        return None
    return found


def _read_part(data: bytes, at: int, end: int, family: str) -> Part | None:
    """Return the message data[at:end] if it is a snapshot message, else None.

    Raises:
        VarintError: the message is cut short.

    """
    head, at = read_teeworlds(data, at, end)
    kind, names = _columns(family).get(head, ("", ()))
    if not kind:
        return None
    values: dict[str, Any] = {}
    for name in names:
        values[name], at = read_teeworlds(data, at, end)
    size = values.get("part_size", 0)
    if not 0 <= size <= end - at:
        raise VarintError("the data of a snapshot")
    values["data"] = data[at : at + size]
    return _part(kind, values)


def _sequence(dissection: Dissection, message: MessageView) -> int | None:
    """Return the sequence number of the chunk that holds a message; None if it is not vital."""
    chunks = dissection.root.child("chunks")
    for chunk in chunks.children if chunks is not None else ():
        if any(child is message.node for child in chunk.children):
            return next((c.value for c in chunk.children if c.name == "sequence"), None)
    return None


def _part(kind: str, values: dict[str, Any]) -> Part | None:
    """Return the snapshot message with these fields; None if some could not be read."""
    try:
        if kind == "sys.snap_empty":
            return Part(values["tick"], values["delta"], None, b"")
        numbers = (values["part"], values["num_parts"]) if kind == "sys.snap" else (0, 1)
        return Part(values["tick"], values["delta"], values["crc"], values["data"], *numbers)
    except KeyError:
        return None


class _Named:
    """A function that returns the items of a snapshot by name; they are named on the first call."""

    __slots__ = ("_items", "_named", "_namer")

    def __init__(self, items: Items, namer: NamedItems) -> None:
        self._items = items
        self._namer = namer
        self._named: list[dict[str, Any]] | None = None

    def __call__(self) -> list[dict[str, Any]]:
        """Return the items."""
        if self._named is None:
            self._named = self._namer.of(self._items)
        return self._named


def _deleted(delta: Delta) -> list[dict[str, Any]]:
    return [{"item_type": kind, "item_id": number} for kind, number in delta.deleted]


def _rows(found: Snapshot, namer: NamedItems) -> dict[str, Any]:
    """Return what is added to a snapshot message, by name.

    That is its base, then all items, or only the changes where the base is missing. A list is
    represented by a function that returns it.
    """
    rows: dict[str, Any] = {"base": found.base}
    items, delta = found.items, found.delta
    if items is not None:
        rows["items"] = _Named(items, namer)
    elif delta is not None:
        rows["changes"] = _Named(delta.updated, namer)
        rows["deleted"] = partial(_deleted, delta)
    elif found.message:
        rows["state"] = found.message
    return rows


def _node(name: str, value: Any, around: FieldNode) -> FieldNode:
    if not callable(value):
        return concluded(name, value, around.bit_offset, around.buffer)
    holder = concluded(name, None, around.bit_offset, around.buffer)
    holder.is_list = True
    # The function must not refer to a node, or only the cyclic garbage collector could free it.
    holder.make_children = partial(_entries, value, around.bit_offset, around.buffer)
    return holder


def _entries(items: Callable[[], list[dict[str, Any]]], at: int, buffer: int) -> list[FieldNode]:
    """Return the nodes of the items, all at the bit offset of their message."""
    entries = []
    for item in items():
        name = str(item.get("object") or f"type {item['item_type']}")
        entry = concluded(name, None, at, buffer)
        entry.children = [concluded(key, value, at, buffer) for key, value in item.items()]
        entries.append(entry)
    return entries
