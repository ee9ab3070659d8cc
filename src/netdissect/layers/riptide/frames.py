"""Riptide over TCP: every message follows its length, which does not count itself.

*Source:* docs/protocols/riptide.md section 5; Riptide `Transports/Tcp/TcpConnection`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import LEShortField, LESignedIntField

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.binding import StreamLayer
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded
from netdissect.layers.riptide import bits, octets
from netdissect.wire.riptide import SIZE_LIMIT_21, UNDECIDED_BYTES

_BITS = (bits.BIT_LAYERS, 0xF, bits.RiptideInvalid)
_OCTETS_20 = (octets.BYTE_LAYERS_20, 0xFF, octets.INVALID_20)
_LAYERS: dict[str, tuple[dict[int, type[Layer]], int, type[Layer]]] = {
    "riptide-2.0": _OCTETS_20, UNDECIDED_BYTES: _OCTETS_20,
    "riptide-2.1dev": (octets.BYTE_LAYERS_21DEV, 0xFF, octets.INVALID_21DEV),
}  # fmt: skip
"""Dialect in whole bytes -> (layers by type, bits of the type in the first byte, layer of other
types).
"""


def message_layer(data: bytes, dialect: str) -> type[Layer]:
    """Return the layer of the message in `data`.

    An undecided dialect is read as 2.2 if in bits, as 2.0 if in whole bytes.
    """
    if not data:
        return bits.RiptideEmpty
    layers, mask, other = _LAYERS.get(dialect, _BITS)
    return layers.get(data[0] & mask, other)


def _fields(length: Any, dialect: str) -> list[Any]:
    """Return the fields of a frame. With a negative length, the message is empty."""

    def message(_fields: Any, data: bytes) -> type[Layer]:
        return message_layer(data, dialect)

    inner = Embedded(
        "data",
        message,
        E("length if length > 0 else 0"),
        shown="message",
        start=message_layer(bytes(1), dialect),
    )
    return [length, inner]


class _Frame(StreamLayer):
    """Base class of frames: a length and a message."""

    name = "Riptide frame"
    is_item = True
    pairing = b"riptide"
    prefix_octets: ClassVar[int]
    checks = (
        Check(
            E(f"not 1 <= length <= {SIZE_LIMIT_21}"),
            "riptide-tcp-length",
            "length",
            "frame length {length}",
        ),
    )

    @classmethod
    def complete_length(cls, data: bytes) -> int:
        """Return the length of the first frame if it is complete, else 0."""
        head = cls.prefix_octets
        size = head + int.from_bytes(data[:head], "little")
        return size if head < size <= len(data) else 0

    def answers(self, other: Any) -> bool:
        """Return whether the message answers that in `other`."""
        if not isinstance(other, _Frame) or not (self.data and other.data):
            return False
        return bool(self.message.answers(other.message))

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`, with that of the message."""
        message = self.message
        return f"{self.name}: {message.summary() if isinstance(message, Layer) else '?'}"

    @property
    def message(self) -> Any:
        """Return the message as a packet, even if it was given as bytes."""
        data = self.data or b""
        choose = self.get_field("data").choose
        return choose(self, data)(data) if isinstance(data, bytes) else data

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length unless it was given."""
        if self.fields.get("length") is None:
            size = len(pkt) - self.prefix_octets + len(pay)
            pkt = size.to_bytes(self.prefix_octets, "little") + pkt[self.prefix_octets :]
        return pkt + pay


class RiptideFrame20(_Frame):
    """A frame of riptide-2.0; the length is u16."""

    name = "Riptide 2.0 frame"
    prefix_octets = 2
    fields_desc = _fields(LEShortField("length", None), "riptide-2.0")
    generated = (Gen("length_prefix_bytes", lambda _fields: 2),)


class RiptideFrame(_Frame):
    """A frame of 2.1 and 2.2; the length is i32."""

    prefix_octets = 4
    fields_desc = _fields(LESignedIntField("length", None), "riptide-2.2")
    generated = (Gen("length_prefix_bytes", lambda _fields: 4),)


class RiptideFrame21dev(RiptideFrame):
    """A frame of the 2.1 development snapshots."""

    fields_desc = _fields(LESignedIntField("length", None), "riptide-2.1dev")


FRAMES: dict[str, type[_Frame]] = {
    "riptide-2.0": RiptideFrame20, "riptide-2.1dev": RiptideFrame21dev,
    "riptide-2.1": RiptideFrame, "riptide-2.2": RiptideFrame,
}  # fmt: skip
"""Dialect -> layer of a frame."""
