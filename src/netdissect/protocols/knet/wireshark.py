"""Compares with Wireshark's dissector of kNet, and knows what that misreads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from netdissect.model.annotations import Severity
from netdissect.model.records import DatagramRecord

_HEADER = ("packet_id", "in_order", "reliable", "reliable_base")
"""Compared fields of a datagram."""
_PER_MESSAGE = ("reliable_delta", "message_id", "ping_id")
"""Compared fields of its messages."""
_IN_STREAM = ("content_length", "message_id", "ping_id")
"""Compared fields of a message in a stream."""
_CONNECT = "Wireshark takes the connect datagram for one with messages"
_ASTRAY = "Wireshark has lost its place in the stream"
_OLD = "Wireshark does not read the pings of 2010"
_BASE = "Wireshark misreads numbers from 32768 on"
_DELTA = "Wireshark misreads numbers from 128 on"
_FRAGMENT = "Wireshark misreads fragments, counts as message ids"
_FIRST_LONG_BASE, _FIRST_LONG_DELTA = 0x8000, 0x80
"""Smallest numbers that take more bytes than Wireshark reads."""


class Comparer:
    """Our fields of datagrams and of messages in streams, for comparison with Wireshark's."""

    NAME: ClassVar[str] = "knet"
    """Name of the protocol in Wireshark."""
    FIELDS: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "content_length": "length",
            "packet_id": "datagram_packetid",
            "in_order": "datagram_inorder",
            "reliable": "datagram_reliable",
            "reliable_base": "datagram_rmib",
            "reliable_delta": "msg_reliable_number",
            "message_id": "payload_messageid",
            "ping_id": "payload_pingid",
        }
    )
    """Our name of a field -> its name in pyshark's layer."""

    def __init__(self, single: set[int]) -> None:
        """Create a comparer; `single` has the frames of segments of one byte, which Wireshark
        misreads.
        """
        self._single = single
        self.ours: dict[int, dict[str, Any]] = {}
        """Frame -> our fields, until it is compared."""
        self.ports: dict[str, set[int]] = {"udp": set(), "tcp": set()}
        """Transport -> ports of servers."""
        self._astray: set[tuple[int | None, int | None]] = set()
        """(connection, direction) of the streams in which Wireshark has lost its place."""

    def take(self, record: DatagramRecord) -> None:
        """Add a datagram, or a message of a stream."""
        tree = record.dissection
        if tree is None:
            return
        server = record.dst if record.direction == 0 else record.src
        self.ports[record.transport].add(int(server.rpartition(":")[2]))
        side = record.connection, record.direction
        if record.transport == "tcp" and (
            _misleads(tree.fields) or not self._single.isdisjoint(record.frames)
        ):
            self._astray.add(side)
        if any(note.severity >= Severity.WARN for note in tree.annotations):
            return  # Both stop inside a malformed datagram, but not at the same place.
        if record.transport == "udp":
            self.ours[record.frame] = {**tree.fields, "dialect": record.dialect}
        else:
            held = self.ours.setdefault(record.frame, {"kind": "stream", "messages": []})
            held["messages"].append(tree.fields)
            held["astray"] = side in self._astray

    def compared(
        self, frame: int, theirs: Mapping[str, list[int]]
    ) -> Iterator[tuple[str, list[int], list[int], str]]:
        """Yield (field, our values, Wireshark's values, known fault of Wireshark or "")."""
        fields = self.ours.pop(frame, None)
        if fields is None:
            return
        messages = fields.get("messages") or []
        stream = fields.get("kind") == "stream"
        for name in _IN_STREAM if stream else (*_HEADER, *_PER_MESSAGE):
            sources = [fields] if name in _HEADER else messages
            mine = [int(value[name]) for value in sources if value.get(name) is not None]
            yield name, mine, theirs[name], _known_fault(name, mine, fields)

    def left(self) -> Iterator[tuple[int, str, object, str]]:
        """Yield (frame, fact, our value, known fault) of messages that Wireshark does not have."""
        for frame, fields in self.ours.items():
            if fields.get("kind") == "stream":
                known = _known_fault("messages", [], fields)
                yield frame, "messages", len(fields["messages"]), known


def _misleads(fields: Mapping[str, Any]) -> bool:
    """Return whether Wireshark misjudges the size of a message in a stream.

    It adds the size of the message id where it should add that of the length field.
    Source: Wireshark epan/dissectors/packet-knet.c, get_knet_pdu_len.
    """
    length, message = fields.get("content_length"), fields.get("message_id")
    return length is not None and message is not None and _octets(length) != _octets(message)


def _octets(value: int) -> int:
    """Return the size of a number in kNet's variable-length encoding, bytes."""
    return 1 if value < 1 << 7 else 2 if value < 1 << 14 else 4


def _known_fault(name: str, mine: list[int], fields: Mapping[str, Any]) -> str:
    """Return the known fault of Wireshark that explains a difference; "" for none.

    Source: docs/protocols/knet.md, the section on Wireshark's dissector.
    """
    kind = fields.get("kind")
    if kind in {"stream", "connect"}:
        return _CONNECT if kind == "connect" else _ASTRAY if fields["astray"] else ""
    if name == "ping_id" and fields.get("dialect") == "knet-2010":
        return _OLD
    if name == "reliable_base" and mine and mine[0] >= _FIRST_LONG_BASE:
        return _BASE
    messages = fields.get("messages") or []
    if any(message.get("fragment") or message.get("fragment_start") for message in messages):
        return _FRAGMENT
    if name != "reliable_base" and any(value >= _FIRST_LONG_DELTA for value in mine):
        return _DELTA
    return ""
