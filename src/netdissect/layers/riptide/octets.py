"""Riptide 2.0 and the 2.1 development snapshots: whole octets, little endian.

The layouts of the two differ only in type numbers, reasons, AckExtra and Notify.
Source: docs/protocols/riptide.md sections 3.1 and 3.3; Riptide 2.0.0 `Message`.
"""

from __future__ import annotations

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
from netdissect.layers.fields import IfLeft, UserTail
from netdissect.layers.riptide import common
from netdissect.layers.riptide.names import REJECT_REASONS, REJECT_REASONS_20, TYPES, TYPES_20

__all__ = [
    "BYTE_LAYERS_20",
    "BYTE_LAYERS_21DEV",
    "Riptide20Ack",
    "Riptide20AckExtra",
    "Riptide20ClientConnected",
    "Riptide20ClientDisconnected",
    "Riptide20Connect",
    "Riptide20Disconnect",
    "Riptide20Heartbeat",
    "Riptide20Invalid",
    "Riptide20Reject",
    "Riptide20Reliable",
    "Riptide20Unreliable",
    "Riptide20Welcome",
    "Riptide21devAck",
    "Riptide21devClientConnected",
    "Riptide21devClientDisconnected",
    "Riptide21devConnect",
    "Riptide21devDisconnect",
    "Riptide21devHeartbeat",
    "Riptide21devInvalid",
    "Riptide21devNotify",
    "Riptide21devReject",
    "Riptide21devReliable",
    "Riptide21devUnreliable",
    "Riptide21devWelcome",
]


def _type(number: int, names: dict[int, str]) -> Any:
    return ByteEnumField("type_id", number, names)


_SEQUENCE = LEShortField("sequence_id", 1)
_RECEIVED = LEShortField("last_received", 1)
_CLIENT_ID = LEShortField("client_id", 1)
_MESSAGE_ID = IfLeft(LEShortField("message_id", 0), 16)
_MESSAGE_ID.default = 0
_DATA = UserTail("data")


# --- riptide-2.0 ------------------------------------------------------------------------------


class Riptide20(common.RiptideMessage):
    """Any message of riptide-2.0."""

    name = "Riptide 2.0"
    type_names = TYPES_20
    fields_desc = [_type(0, TYPES_20), _DATA]


class Riptide20Unreliable(Riptide20):
    """A user message sent once: `type | message id u16 | payload`."""

    fields_desc = [_type(0, TYPES_20), _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class Riptide20Ack(Riptide20):
    """Acknowledges `last_received`; bit i of `ack_bits` stands for last_received - 1 - i."""

    fields_desc = [_type(1, TYPES_20), _RECEIVED, XLEShortField("ack_bits", 1)]
    generated = (Gen("acked", lambda fields: fields["last_received"]),)


class Riptide20AckExtra(Riptide20):
    """Acknowledges `acked_sequence_id`, which is not the newest one."""

    fields_desc = [
        _type(2, TYPES_20),
        _RECEIVED,
        XLEShortField("ack_bits", 1),
        LEShortField("acked_sequence_id", 0),
    ]
    generated = (Gen("acked", lambda fields: fields["acked_sequence_id"]),)


class Riptide20Connect(Riptide20):
    """Asks for a connection; the server's empty echo means "pending"."""

    fields_desc = [_type(3, TYPES_20), _DATA]
    checks = (common.connect_from_server,)


class Riptide20Reject(Riptide20):
    """Refuses a connection; `data` only with reason Custom."""

    fields_desc = [_type(4, TYPES_20), ByteEnumField("reason", 3, REJECT_REASONS_20), _DATA]
    generated = (common.reason(REJECT_REASONS_20),)
    checks = (common.wrong_direction,)


class Riptide20Heartbeat(Riptide20):
    """A client's ping with its last round trip, or (without it) the server's answer."""

    fields_desc = [
        _type(5, TYPES_20),
        ByteField("ping_id", 0),
        IfLeft(LESignedShortField("rtt_ms", None), 16),
    ]
    checks = common.HEARTBEAT_CHECKS


class Riptide20Disconnect(Riptide20):
    """Ends a connection; only servers give a reason, and `data` only with Kicked."""

    fields_desc = [_type(6, TYPES_20), IfLeft(ByteField("reason", None), 8), _DATA]
    generated = common.DISCONNECT_GEN
    checks = common.DISCONNECT_CHECKS[:1]


class Riptide20Reliable(Riptide20):
    """A user message that is sent until it is acknowledged."""

    fields_desc = [_type(7, TYPES_20), _SEQUENCE, _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class Riptide20Welcome(Riptide20):
    """The server's acceptance, and the client's confirmation of it."""

    fields_desc = [_type(8, TYPES_20), _SEQUENCE, _CLIENT_ID]


class Riptide20ClientConnected(Riptide20):
    """Tells the other clients about a new one."""

    fields_desc = [_type(9, TYPES_20), _SEQUENCE, _CLIENT_ID]
    checks = (common.wrong_direction,)


class Riptide20ClientDisconnected(Riptide20):
    """Tells the other clients that one has gone."""

    fields_desc = [_type(10, TYPES_20), _SEQUENCE, _CLIENT_ID]
    checks = (common.wrong_direction,)


class Riptide20Invalid(Riptide20):
    """A type that no release defines; receivers treat it as reliable class."""

    fields_desc = [_type(11, TYPES_20), IfLeft(LEShortField("sequence_id", None), 16), _DATA]
    checks = (common.invalid_type,)


# --- riptide-2.1dev ---------------------------------------------------------------------------


class Riptide21dev(common.RiptideMessage):
    """Any message of riptide-2.1dev."""

    name = "Riptide 2.1dev"
    type_names = TYPES
    fields_desc = [_type(0, TYPES), _DATA]


class Riptide21devUnreliable(Riptide21dev):
    """A user message sent once."""

    fields_desc = [_type(0, TYPES), _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class Riptide21devAck(Riptide21dev):
    """Acknowledges `acked_sequence_id` where it is there, else `last_received`."""

    fields_desc = [
        _type(1, TYPES),
        _RECEIVED,
        XLEShortField("ack_bits", 1),
        IfLeft(LEShortField("acked_sequence_id", None), 16),
    ]
    generated = (
        Gen(
            "acked",
            lambda fields: (
                fields["last_received"]
                if fields["acked_sequence_id"] is None
                else fields["acked_sequence_id"]
            ),
        ),
    )


class Riptide21devConnect(Riptide21dev):
    """Asks for a connection; the server's empty echo means "pending"."""

    fields_desc = [_type(2, TYPES), _DATA]
    checks = (common.connect_from_server,)


class Riptide21devReject(Riptide21dev):
    """Refuses a connection; `data` only with reason Custom."""

    fields_desc = [_type(3, TYPES), ByteEnumField("reason", 2, REJECT_REASONS), _DATA]
    generated = (common.reason(REJECT_REASONS),)
    checks = (common.wrong_direction,)


class Riptide21devHeartbeat(Riptide21dev):
    """A client's ping with its last round trip, or (without it) the server's answer."""

    fields_desc = [
        _type(4, TYPES),
        ByteField("ping_id", 0),
        IfLeft(LESignedShortField("rtt_ms", None), 16),
    ]
    checks = common.HEARTBEAT_CHECKS


class Riptide21devDisconnect(Riptide21dev):
    """Ends a connection; only servers give a reason."""

    fields_desc = [_type(5, TYPES), IfLeft(ByteField("reason", None), 8), _DATA]
    generated = common.DISCONNECT_GEN
    checks = common.DISCONNECT_CHECKS[:1]


class Riptide21devNotify(Riptide21dev):
    """A message that is not repeated; its header carries the feedback for the other direction."""

    fields_desc = [_type(6, TYPES), _RECEIVED, XByteField("ack_bits", 1), _SEQUENCE, _DATA]


class Riptide21devReliable(Riptide21dev):
    """A user message that is sent until it is acknowledged."""

    fields_desc = [_type(7, TYPES), _SEQUENCE, _MESSAGE_ID, _DATA]
    checks = (common.missing_message_id,)


class Riptide21devWelcome(Riptide21dev):
    """The server's acceptance, and the client's confirmation of it."""

    fields_desc = [_type(8, TYPES), _SEQUENCE, _CLIENT_ID]


class Riptide21devClientConnected(Riptide21dev):
    """Tells the other clients about a new one."""

    fields_desc = [_type(9, TYPES), _SEQUENCE, _CLIENT_ID]
    checks = (common.wrong_direction,)


class Riptide21devClientDisconnected(Riptide21dev):
    """Tells the other clients that one has gone."""

    fields_desc = [_type(10, TYPES), _SEQUENCE, _CLIENT_ID]
    checks = (common.wrong_direction,)


class Riptide21devInvalid(Riptide21dev):
    """A type that no release defines; receivers treat it as reliable class."""

    fields_desc = [_type(11, TYPES), IfLeft(LEShortField("sequence_id", None), 16), _DATA]
    checks = (common.invalid_type,)


BYTE_LAYERS_20: dict[int, type[Riptide20]] = {
    0: Riptide20Unreliable, 1: Riptide20Ack, 2: Riptide20AckExtra, 3: Riptide20Connect,
    4: Riptide20Reject, 5: Riptide20Heartbeat, 6: Riptide20Disconnect, 7: Riptide20Reliable,
    8: Riptide20Welcome, 9: Riptide20ClientConnected, 10: Riptide20ClientDisconnected,
}  # fmt: skip
"""Layer of each type of riptide-2.0; any other number is `Riptide20Invalid`."""

BYTE_LAYERS_21DEV: dict[int, type[Riptide21dev]] = {
    0: Riptide21devUnreliable, 1: Riptide21devAck, 2: Riptide21devConnect, 3: Riptide21devReject,
    4: Riptide21devHeartbeat, 5: Riptide21devDisconnect, 6: Riptide21devNotify,
    7: Riptide21devReliable, 8: Riptide21devWelcome, 9: Riptide21devClientConnected,
    10: Riptide21devClientDisconnected,
}  # fmt: skip
"""Layer of each type of riptide-2.1dev; any other number is `Riptide21devInvalid`."""
