"""Riptide 2.0 and the 2.1 development snapshots: whole bytes, little-endian.

The two differ only in type numbers, reasons, AckExtra and Notify. The classes of both, such as
`Riptide20Reliable` and `Riptide21devReliable`, are therefore made from one table.
*Source:* docs/protocols/riptide.md sections 3.1 and 3.3; Riptide 2.0.0 `Message`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapy.fields import (
    ByteEnumField,
    ByteField,
    LEShortField,
    LESignedShortField,
    XByteField,
    XLEShortField,
)

from netdissect.layers.base import Gen, make_layer
from netdissect.layers.fields import IfLeft, Tail
from netdissect.layers.riptide import common
from netdissect.wire.riptide import REJECT_REASONS, REJECT_REASONS_20, TYPES_20, TYPES_21

_INVALID = 11
"""A type that neither dialect defines."""
_SEQUENCE = LEShortField("sequence_id", 1)
_RECEIVED = LEShortField("last_received", 1)
_ACK_BITS = XLEShortField("ack_bits", 1)
_CLIENT_ID = LEShortField("client_id", 1)
_MESSAGE_ID = IfLeft(LEShortField("message_id", 0), 16)
_DATA = Tail("data")

_Row = tuple[str, list[Any], dict[str, Any]]
"""(docstring, fields behind the type, further class attributes)"""


def _type(number: int, names: tuple[str, ...]) -> Any:
    return ByteEnumField("type_id", number, dict(enumerate(names)))


class Riptide20(common.RiptideMessage):
    """Any message of riptide-2.0."""

    name = "Riptide 2.0"
    type_names = TYPES_20
    fields_desc = [_type(0, TYPES_20), _DATA]


class Riptide21dev(common.RiptideMessage):
    """Any message of riptide-2.1dev."""

    name = "Riptide 2.1dev"
    type_names = TYPES_21
    fields_desc = [_type(0, TYPES_21), _DATA]


_BOTH: dict[str, _Row] = {
    "Unreliable": (
        "A user message that is sent once.",
        [_MESSAGE_ID, _DATA], {"checks": (common.missing_message_id,)},
    ),
    "Connect": (
        'Requests a connection. The server\'s empty echo means "pending".',
        [_DATA], {"checks": (common.connect_from_server,)},
    ),
    "Heartbeat": (
        "A client's ping with its last round-trip time, or the server's answer without one.",
        [ByteField("ping_id", 0), IfLeft(LESignedShortField("rtt_ms", None), 16)],
        {"checks": common.HEARTBEAT_CHECKS},
    ),
    "Disconnect": (
        "Ends a connection. Only servers give a reason, and only Kicked has `data`.",
        [IfLeft(ByteField("reason", None), 8), _DATA],
        {"generated": common.DISCONNECT_GEN, "checks": common.DISCONNECT_CHECKS[:1]},
    ),
    "Reliable": (
        "A user message that is retransmitted until it is acknowledged.",
        [_SEQUENCE, _MESSAGE_ID, _DATA], {"checks": (common.missing_message_id,)},
    ),
    "Welcome": (
        "Accepts a client; the client's copy of it confirms.",
        [_SEQUENCE, _CLIENT_ID], {},
    ),
    "ClientConnected": (
        "Informs the other clients of a new one.", [_SEQUENCE, _CLIENT_ID],
        {"checks": common.servers_only("ClientConnected")},
    ),
    "ClientDisconnected": (
        "Informs the other clients that one has left.", [_SEQUENCE, _CLIENT_ID],
        {"checks": common.servers_only("ClientDisconnected")},
    ),
    "Invalid": (
        "A message of a type that no release defines. Receivers acknowledge it.",
        [IfLeft(LEShortField("sequence_id", None), 16), _DATA], {"checks": (common.invalid_type,)},
    ),
}  # fmt: skip
"""Messages that are alike in both dialects."""


def _reject(reasons: tuple[str, ...]) -> _Row:
    names = dict(enumerate(reasons))
    field = ByteEnumField("reason", reasons.index("ServerFull"), names)
    text = "Refuses a connection. Only the reason Custom has `data`."
    checks = common.servers_only("Reject")
    return text, [field, _DATA], {"generated": (common.reason(names),), "checks": checks}


def _acked(fields: Mapping[str, Any]) -> Any:
    named = fields["acked_sequence_id"]
    return fields["last_received"] if named is None else named


_ONLY_20: dict[str, _Row] = {
    "Ack": (
        "Acknowledges `last_received`; bit i of `ack_bits` acknowledges last_received - 1 - i.",
        [_RECEIVED, _ACK_BITS],
        {"generated": (Gen("acked", lambda fields: fields["last_received"]),)},
    ),
    "AckExtra": (
        "Acknowledges `acked_sequence_id`, which is older than `last_received`.",
        [_RECEIVED, _ACK_BITS, LEShortField("acked_sequence_id", 0)],
        {"generated": (Gen("acked", lambda fields: fields["acked_sequence_id"]),)},
    ),
    "Reject": _reject(REJECT_REASONS_20),
}  # fmt: skip
_ONLY_21DEV: dict[str, _Row] = {
    "Ack": (
        "Acknowledges `acked_sequence_id` if present, else `last_received`.",
        [_RECEIVED, _ACK_BITS, IfLeft(LEShortField("acked_sequence_id", None), 16)],
        {"generated": (Gen("acked", _acked),)},
    ),
    "Notify": (
        "A message that is never retransmitted. Its header acknowledges the other direction.",
        [_RECEIVED, XByteField("ack_bits", 1), _SEQUENCE, _DATA], {},
    ),
    "Reject": _reject(REJECT_REASONS),
}  # fmt: skip


def _layers(base: Any, rows: Mapping[str, _Row]) -> dict[int, type[common.RiptideMessage]]:
    """Return type -> class, with `_INVALID` for undefined types."""
    names = base.type_names
    found = {}
    for kind, (text, fields, more) in rows.items():
        number = names.index(kind) if kind in names else _INVALID
        title, described = f"{base.__name__}{kind}", [_type(number, names), *fields]
        found[number] = make_layer(globals(), title, base, text, fields_desc=described, **more)
    return dict(sorted(found.items()))


BYTE_LAYERS_20 = _layers(Riptide20, _BOTH | _ONLY_20)
"""Type in riptide-2.0 -> layer. Any other number is `INVALID_20`."""
INVALID_20 = BYTE_LAYERS_20.pop(_INVALID)
BYTE_LAYERS_21DEV = _layers(Riptide21dev, _BOTH | _ONLY_21DEV)
"""Type in riptide-2.1dev -> layer. Any other number is `INVALID_21DEV`."""
INVALID_21DEV = BYTE_LAYERS_21DEV.pop(_INVALID)

_MADE = (*BYTE_LAYERS_20.values(), INVALID_20, *BYTE_LAYERS_21DEV.values(), INVALID_21DEV)
__all__ = ["BYTE_LAYERS_20", "BYTE_LAYERS_21DEV", *sorted(layer.__name__ for layer in _MADE)]  # noqa: PLE0604
