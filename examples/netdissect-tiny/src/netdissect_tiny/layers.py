"""The wire format of Tiny. Scapy, `decode` and the reader of `scan` all use this description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapy.fields import ByteEnumField, FieldLenField, ShortField, XShortField

from netdissect.layers.base import Check, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import SizedBytes
from netdissect_tiny import CODES

__all__ = ["CODES", "READERS", "TinyAck", "TinyData", "TinyUnknown", "root"]

MAGIC = 0x5459
KINDS = {1: "data", 2: "ack"}


class TinyUnknown(Layer):
    """The head of all messages, and a message of another kind."""

    name = "tiny"
    fields_desc = [
        XShortField("magic", MAGIC),
        ByteEnumField("kind", 0, KINDS),
        ShortField("number", 0),
    ]
    checks = (Check(E(f"magic != {MAGIC}"), "tiny-magic", "magic", "{magic:#x} is not the magic"),)

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the type under which the message is counted."""
        return KINDS.get(fields["kind"], "unknown")


class TinyData(TinyUnknown):
    """Numbered data, which the receiver acknowledges."""

    fields_desc = [
        XShortField("magic", MAGIC),
        ByteEnumField("kind", 1, KINDS),
        ShortField("number", 1),
        FieldLenField("length", None, length_of="data", fmt="!H"),
        SizedBytes("data", b"", E("length")),
    ]
    checks = (
        *TinyUnknown.checks,
        Check(E("not length"), "tiny-empty", "length", "number {number} carries nothing"),
    )


class TinyAck(TinyUnknown):
    """Acknowledges the data with this number."""

    fields_desc = [
        XShortField("magic", MAGIC),
        ByteEnumField("kind", 2, KINDS),
        ShortField("number", 1),
    ]


def root(payload: bytes, _request: Any) -> type[Layer]:
    """Return the layer that reads a datagram."""
    kinds = {1: TinyData, 2: TinyAck}
    return kinds.get(payload[2], TinyUnknown) if len(payload) > 2 else TinyUnknown  # noqa: PLR2004


READERS = [(TinyData, ()), (TinyAck, ())]
"""(layer, fields to skip) for the derived readers that `scan` calls."""
