"""Adds the reassembled message to the tree of the datagram whose fragment completes it."""

from __future__ import annotations

from typing import Any

from netdissect.model.dissection import Buffer, Dissection, FieldNode, MessageView
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.protocols.knet.receiver import SHARED
from netdissect.protocols.knet.transfers import Transfers
from netdissect.wire.knet import APPLICATIONS, LEGACY, MIN_FRAGMENTS, PERHAPS_2010, message_type
from netdissect.wire.varint import KNET_7_7_16, VarintError

_PART = Ev.PART


class TransferInspector:
    """The inspector of one connection. Datagrams come in the order of the capture."""

    asks_scanner = True

    def __init__(self) -> None:
        self._transfers = Transfers()

    def wants(self, events: list[Event]) -> bool:
        """Return whether a datagram has a fragment, or may have one at a fault."""
        for event in events:
            kind: i64 = event[0]
            if kind == Ev.PART or kind == Ev.NOTE:  # noqa: PLR1714 - compiled, two comparisons
                return True
        return False

    def follow(
        self, payload: bytes, dialect: str, direction: int, events: list[Event]
    ) -> bool:
        """Process the fragments of a datagram without its tree.

        Return False where the datagram has a fault, or is one of 2010, or was scanned as such
        before its dialect was known.
        """
        del payload
        parts = [event for event in events if event[0] == _PART]
        legacy = dialect == LEGACY or any(part[4] == SHARED for part in parts)
        if legacy or any(event[0] == Ev.NOTE for event in events):
            return False
        for part in parts:
            self._transfers.feed(direction, 0, 0, [_as_in_tree(part)])
        return True

    def inspect(self, dissection: Dissection) -> None:
        """Add `reassembled` to the fragment that completes a transfer, with a buffer of its own."""
        direction = dissection.direction or 0
        for view in dissection.messages:
            part = _part(view.fields, dissection.dialect)
            if part is None:
                continue
            self._transfers.feed(direction, 0, 0, [part])
            for octets in self._transfers.last:
                _add(dissection, view, octets)


def _as_in_tree(part: Event) -> Event:
    """Return a PART as `_part` returns it, with the message ID in its shortest form."""
    _, transfer, index, count, number, content = part
    if index is not None:
        return part
    message_id, start = KNET_7_7_16.read(content, 0, len(content))
    return (_PART, transfer, None, count, number, KNET_7_7_16.write(message_id) + content[start:])


def _part(fields: dict[str, Any], dialect: str) -> tuple[Any, ...] | None:
    """Return the PART of a fragment with these fields; None for any other message."""
    transfer, octets = fields.get("transfer_id"), fields.get("payload")
    if transfer is None or not isinstance(octets, bytes):
        return None
    number = SHARED if dialect in PERHAPS_2010 else fields.get("reliable_number")
    if not fields.get("fragment_start"):
        return (_PART, transfer, fields.get("fragment_number"), None, number, octets)
    count = fields.get("fragment_count") or 0
    if count < MIN_FRAGMENTS:
        return None
    # The tree has the message ID as a field of its own; on the wire it is a part of the fragment.
    content = KNET_7_7_16.write(fields.get("message_id") or 0) + octets
    return (_PART, transfer, None, count, number, content)


def _add(dissection: Dissection, view: MessageView, octets: bytes) -> None:
    """Add a reassembled message: its message ID, the names of that, and its payload."""
    try:
        message_id, start = KNET_7_7_16.read(octets, 0, len(octets))
    except VarintError:
        return
    dialect = dissection.dialect
    index = len(dissection.buffers)
    dissection.buffers.append(Buffer("reassembled", octets))
    values: dict[str, Any] = {"type": message_type(message_id, dialect), "message_id": message_id}
    name = APPLICATIONS[dialect].get(message_id)
    if name is not None:
        values["application_name"] = name
    node = FieldNode("reassembled", None, 0, 8 * len(octets), buffer=index, generated=True)
    for key, value in values.items():
        on_wire = key == "message_id"
        size = 8 * start if on_wire else 0
        node.children.append(
            FieldNode(key, value, 0, size, buffer=index, generated=not on_wire)
        )
    payload = octets[start:]
    node.children.append(
        FieldNode("payload", payload, 8 * start, 8 * len(payload), payload.hex(), buffer=index)
    )
    view.fields["reassembled"] = {**values, "payload": payload}
    if view.node is not None:
        view.node.children.append(node)
    text = f", completes {values.get('application_name', values['type'])} of {len(payload)} B"
    view.summary += text
    dissection.summary += text
