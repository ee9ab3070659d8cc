"""Riptide over TCP: every message is preceded by its length, which does not count itself.

Source: docs/protocols/riptide.md section 5; Riptide `Transports/Tcp/TcpConnection`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import LEShortField, LESignedIntField

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.fields import SizedBytes

__all__ = ["RiptideFrame", "RiptideFrame20"]

_LIMIT = 1231


def _length(packet: Any) -> int:
    """Return the stated length; a negative one reads as nothing."""
    value = packet["length"] if isinstance(packet, dict) else packet.length
    return max(0, value or 0)


class _Frame(Layer):
    """A length and one message."""

    prefix_octets: ClassVar[int]
    checks = (
        Check(
            lambda fields: not 1 <= fields["length"] <= _LIMIT,
            "riptide-tcp-length",
            "length",
            "frame length {length}",
        ),
    )

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
    fields_desc = [LEShortField("length", None), SizedBytes("data", b"", _length)]
    generated = (Gen("length_prefix_bytes", lambda _fields: 2),)


class RiptideFrame(_Frame):
    """A frame since the 2.1 snapshots: i32 length."""

    name = "Riptide frame"
    prefix_octets = 4
    fields_desc = [LESignedIntField("length", None), SizedBytes("data", b"", _length)]
    generated = (Gen("length_prefix_bytes", lambda _fields: 4),)
