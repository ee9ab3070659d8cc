"""Riptide 2.0 and the 2.1 development snapshots: whole bytes, little-endian.

The two differ only in type numbers, reasons, AckExtra and Notify. The classes of all dialects, such
as `Riptide20Reliable` and `Riptide21devReliable`, are made from the table in `common`.
*Source:* docs/protocols/riptide.md sections 3.1 and 3.3; Riptide 2.0.0 `Message`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from scapy.fields import (
    ByteEnumField,
    ByteField,
    LEShortField,
    LESignedShortField,
    XByteField,
    XLEShortField,
)

from netdissect.layers.base import Gen
from netdissect.layers.fields import IfLeft, Tail
from netdissect.layers.riptide import common
from netdissect.wire.riptide import REJECT_REASONS, REJECT_REASONS_20, TYPES_20, TYPES_21


def _type(number: int, names: tuple[str, ...]) -> Any:
    return ByteEnumField("type_id", number, dict(enumerate(names)))


class Riptide20(common.RiptideMessage):
    """Any message of riptide-2.0."""

    name = "Riptide 2.0"
    type_names = TYPES_20
    fields_desc = [_type(0, TYPES_20), Tail("data")]


class Riptide21dev(common.RiptideMessage):
    """Any message of riptide-2.1dev."""

    name = "Riptide 2.1dev"
    type_names = TYPES_21
    fields_desc = [_type(0, TYPES_21), Tail("data")]


def _acked(fields: Mapping[str, Any]) -> Any:
    named = fields["acked_sequence_id"]
    return fields["last_received"] if named is None else named


_MESSAGE_ID = IfLeft(LEShortField("message_id", 0), 16)
_MESSAGE_ID.default = 0
_FIELDS = {
    "sequence_id": LEShortField("sequence_id", 1),
    "any_sequence_id": IfLeft(LEShortField("sequence_id", None), 16),
    "last_received": LEShortField("last_received", 1),
    "ack_bits": XLEShortField("ack_bits", 1),
    "few_ack_bits": XByteField("ack_bits", 1),
    "acked_sequence_id": LEShortField("acked_sequence_id", 0),
    "any_acked_sequence_id": IfLeft(LEShortField("acked_sequence_id", None), 16),
    "client_id": LEShortField("client_id", 1),
    "message_id": _MESSAGE_ID,
    "ping_id": ByteField("ping_id", 0),
    "rtt_ms": IfLeft(LESignedShortField("rtt_ms", None), 16),
    "end": IfLeft(ByteField("reason", None), 8),
    "data": Tail("data"),
}


def _layers(
    base: type[common.RiptideMessage], reasons: tuple[str, ...], own: Any
) -> dict[int, type[common.RiptideMessage]]:
    reject = ByteEnumField("reason", reasons.index("ServerFull"), dict(enumerate(reasons)))
    fields = {**_FIELDS, "type": partial(_type, names=base.type_names), "reject": reject}
    return common.message_layers(globals(), base, fields, own, reasons)


BYTE_LAYERS_20 = _layers(Riptide20, REJECT_REASONS_20, {
    "Ack": (
        "Acknowledges `last_received`; bit i of `ack_bits` acknowledges last_received - 1 - i.",
        "last_received ack_bits",
        {"generated": (Gen("acked", lambda fields: fields["last_received"]),)},
    ),
    "AckExtra": (
        "Acknowledges `acked_sequence_id`, which is older than `last_received`.",
        "last_received ack_bits acked_sequence_id",
        {"generated": (Gen("acked", lambda fields: fields["acked_sequence_id"]),)},
    ),
})  # fmt: skip
"""Type in riptide-2.0 -> layer. Any other number is `INVALID_20`."""
INVALID_20 = BYTE_LAYERS_20.pop(common.UNDEFINED)
BYTE_LAYERS_21DEV = _layers(Riptide21dev, REJECT_REASONS, {
    "Ack": (
        "Acknowledges `acked_sequence_id` if present, else `last_received`.",
        "last_received ack_bits any_acked_sequence_id", {"generated": (Gen("acked", _acked),)},
    ),
})  # fmt: skip
"""Type in riptide-2.1dev -> layer. Any other number is `INVALID_21DEV`."""
INVALID_21DEV = BYTE_LAYERS_21DEV.pop(common.UNDEFINED)

_MADE = (*BYTE_LAYERS_20.values(), INVALID_20, *BYTE_LAYERS_21DEV.values(), INVALID_21DEV)
__all__ = ["BYTE_LAYERS_20", "BYTE_LAYERS_21DEV", *sorted(layer.__name__ for layer in _MADE)]  # noqa: PLE0604
