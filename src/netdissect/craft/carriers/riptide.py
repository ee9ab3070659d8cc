"""Riptide: a message in a stream stands behind its length.

The layers of a stream hold a message as bytes, because `dissect` reads it in a buffer of its own.
Here the message is the payload of its frame: mutators reach the length and what is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import LEShortField, LESignedIntField
from scapy.packet import Raw

from netdissect.layers import riptide as layers
from netdissect.layers.base import Layer
from netdissect.layers.riptide.common import RiptideMessage

__all__ = ["FRAMED_RIPTIDE", "FramedRiptide", "root", "wrap"]


class FramedRiptide(Layer):
    """A Riptide message of 2.2 behind its length."""

    name = "Riptide in a stream"
    dialect: ClassVar[str] = "riptide-2.2"
    shows = "message"
    fields_desc: ClassVar[list[Any]] = [LESignedIntField("length", None)]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        """Return the layer of the message."""
        return layers.message_layer(payload, self.dialect)

    def payload_layer(self, _shown: Mapping[str, Any], octets: bytes) -> type[Any]:
        """Return the layer of the message; without bytes one that holds its type."""
        return self.guess_payload_class(octets or bytes(1))

    def take_shown(self, shown: Mapping[str, Any], build: Any) -> None:
        """Take what is too short to be a message."""
        del build
        if "message" not in shown and "data" in shown:
            self.add_payload(Raw(bytes.fromhex(shown["data"])))

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length unless it was given."""
        if self.fields.get("length") is None:
            pkt = len(pay).to_bytes(len(pkt), "little")
        return pkt + pay


class FramedRiptide21(FramedRiptide):
    """A Riptide message of 2.1 behind its length."""

    dialect = "riptide-2.1"


class FramedRiptide21dev(FramedRiptide):
    """A Riptide message of the 2.1 snapshots behind its length."""

    dialect = "riptide-2.1dev"


class FramedRiptide20(FramedRiptide):
    """A Riptide message of 2.0 behind its length, which has two bytes."""

    dialect = "riptide-2.0"
    fields_desc: ClassVar[list[Any]] = [LEShortField("length", None)]


FRAMED_RIPTIDE: dict[str, type[FramedRiptide]] = {
    layer.dialect: layer
    for layer in (FramedRiptide, FramedRiptide21, FramedRiptide21dev, FramedRiptide20)
}
"""Dialect -> layer."""


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    if transport != "tcp":
        return packet
    return _framed(dialect)() / packet if isinstance(packet, RiptideMessage) else None


def root(dialect: str, transport: str, octets: bytes) -> type[Layer]:
    """Return the layer that reads and writes one message with its framing."""
    return _framed(dialect) if transport == "tcp" else layers.message_layer(octets, dialect)


def _framed(dialect: str) -> type[FramedRiptide]:
    """Return the layer of a framed message; 2.1 and 2.2 are alike where it is not known which."""
    return FRAMED_RIPTIDE.get(dialect, FramedRiptide)
