"""Riptide over TCP: every message is preceded by its length, which does not count itself.

Source: docs/protocols/riptide.md section 5; Riptide `Transports/Tcp/TcpConnection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import LEShortField, LESignedIntField

from netdissect.layers.base import Check, Gen
from netdissect.layers.binding import StreamLayer
from netdissect.layers.fields import SizedBytes
from netdissect.layers.riptide.bits import BIT_LAYERS
from netdissect.layers.riptide.common import RiptideMessage
from netdissect.layers.riptide.octets import BYTE_LAYERS_20
from netdissect.wire.riptide import SIZE_LIMIT_21

__all__ = ["RiptideFrame", "RiptideFrame20"]


def _length(packet: Any) -> int:
    """Return the stated length; a negative one reads as nothing."""
    value = packet["length"] if isinstance(packet, dict) else packet.length
    return max(0, value or 0)


class _Frame(StreamLayer):
    """A length and one message."""

    prefix_octets: ClassVar[int]
    messages: ClassVar[Mapping[int, type[RiptideMessage]]]
    """Type number -> layer of the message."""
    type_mask: ClassVar[int]
    """The bits of a message's first byte that hold its type."""
    checks = (
        Check(
            lambda fields: not 1 <= fields["length"] <= SIZE_LIMIT_21,
            "riptide-tcp-length",
            "length",
            "frame length {length}",
        ),
    )

    @classmethod
    def whole(cls, data: bytes) -> int:
        """Return the bytes of the first frame once it is whole."""
        head = cls.prefix_octets
        size = head + int.from_bytes(data[:head], "little")
        return size if head < size <= len(data) else 0

    def hashret(self) -> bytes:
        """Return a constant: an answer is told by the message."""
        return b"riptide"

    def answers(self, other: Any) -> bool:
        """Return whether the message answers that of `other`."""
        if not isinstance(other, _Frame) or not (self.data and other.data):
            return False
        return bool(self.message.answers(other.message))

    @property
    def message(self) -> Any:
        """Return the message as a packet."""
        data = bytes(self.data or b"")
        return self.messages.get(data[0] & self.type_mask if data else -1, RiptideMessage)(data)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length unless it was given."""
        if self.fields.get("length") is None:
            size = len(pkt) - self.prefix_octets + len(pay)
            pkt = size.to_bytes(self.prefix_octets, "little") + pkt[self.prefix_octets :]
        return pkt + pay


class RiptideFrame20(_Frame):
    """A frame of riptide-2.0: u16 length."""

    name = "Riptide 2.0 frame"
    prefix_octets = 2
    messages, type_mask = BYTE_LAYERS_20, 0xFF
    fields_desc = [LEShortField("length", None), SizedBytes("data", b"", _length)]
    generated = (Gen("length_prefix_bytes", lambda _fields: 2),)


class RiptideFrame(_Frame):
    """A frame since the 2.1 snapshots: i32 length."""

    name = "Riptide frame"
    prefix_octets = 4
    messages, type_mask = BIT_LAYERS, 0xF
    fields_desc = [LESignedIntField("length", None), SizedBytes("data", b"", _length)]
    generated = (Gen("length_prefix_bytes", lambda _fields: 4),)
