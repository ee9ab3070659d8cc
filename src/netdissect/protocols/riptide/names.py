"""Numbers and names that `scan` needs. Source: docs/protocols/riptide.md sections 1 and 3."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import CodeRow, Severity

__all__ = [
    "BITS",
    "BYTES_20",
    "BYTES_21DEV",
    "CODES",
    "DISCONNECT_REASONS",
    "REJECT_REASONS",
    "REJECT_REASONS_20",
    "SIZE_LIMIT_20",
    "SIZE_LIMIT_21",
    "TYPES_20",
    "TYPES_21",
    "UNDECIDED",
]

BYTES_20: Final = "riptide-2.0"
BYTES_21DEV: Final = "riptide-2.1dev"
BITS: Final = ("riptide-2.1", "riptide-2.2")
UNDECIDED: Final = "riptide-2.1/2.2"
"""Bit packing, before an ack has told 2.1 from 2.2."""

_RELIABLE_CLASS: Final = ("Reliable", "Welcome", "ClientConnected", "ClientDisconnected")
TYPES_20: Final = (
    "Unreliable", "Ack", "AckExtra", "Connect", "Reject", "Heartbeat", "Disconnect",
    *_RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name in release 2.0.0."""
TYPES_21: Final = (
    "Unreliable", "Ack", "Connect", "Reject", "Heartbeat", "Disconnect", "Notify",
    *_RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name since the 2.1 snapshots."""

REJECT_REASONS_20: Final = (
    "NoConnection", "AlreadyConnected", "Pending", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
REJECT_REASONS: Final = (
    "NoConnection", "AlreadyConnected", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
DISCONNECT_REASONS: Final = (
    "NeverConnected", "ConnectionRejected", "TransportError", "TimedOut", "Kicked",
    "ServerStopped", "Disconnected", "PoorConnection",
)  # fmt: skip

SIZE_LIMIT_20: Final = 1230
SIZE_LIMIT_21: Final = 1231
"""Largest message in octets by default. Source: section 3."""


def _row(code: str, severity: Severity, group: str, title: str, meaning: str) -> CodeRow:
    return CodeRow(code, severity, group, title, meaning)


CODES: Final = (
    _row("riptide-invalid-type", Severity.ERROR, "malformed", "undefined Riptide message type",
         "No release defines this type. Real receivers acknowledge every type from 7 up as a"
         " reliable message, then discard it with a warning."),
    _row("riptide-missing-message-id", Severity.WARN, "malformed",
         "user message without message id",
         "The message ends before its message id. Real receivers read id 0 and log an error; a"
         " Reliable one is acknowledged."),
    _row("riptide-wrong-direction", Severity.WARN, "protocol", "message from the wrong side",
         "This message, or this part of it, is sent by the other side only. Real receivers warn;"
         " reliable ones are acknowledged."),
    _row("riptide-heartbeat-form", Severity.WARN, "protocol", "heartbeat in the other side's form",
         "A client's heartbeat has 4 octets (ping id, RTT), a server's answer 2 (ping id)."),
    _row("riptide-implausible-rtt", Severity.WARN, "protocol", "negative RTT in a heartbeat",
         "Only -1 (nothing measured yet) is a valid negative RTT. The server takes any value and"
         " clamps its smoothed RTT to 1 ms."),
    _row("riptide-misencoded-stop", Severity.NOTE, "protocol", "ServerStopped sent mis-encoded",
         "A stopping server of 2.1.0 to 2.2.0 sends the raw bytes 05 05, which read as reason 80."
         " It means ServerStopped (5)."),
    _row("riptide-oversize", Severity.WARN, "protocol", "message above the default size limit",
         "Larger than 1230 (2.0) or 1231 octets. Unless the application raised the limit, 2.0"
         " receivers raise an exception and later ones cut the message."),
    _row("riptide-empty-datagram", Severity.WARN, "security", "empty datagram to a Riptide port",
         "A zero-length datagram stops the receive loop of a peer for good (seen with every tested"
         " release on Mono/Linux)."),
    _row("riptide-tcp-length", Severity.ERROR, "malformed", "impossible TCP frame length",
         "A frame length below 1 or above the message limit. Releases up to 2.2.1 do not check it"
         " and lose synchronisation; later ones close the connection."),
    _row("riptide-connect-again", Severity.NOTE, "protocol", "Connect on a live connection",
         "A server ignores a Connect from an endpoint that is already connected. A Welcome with"
         " sequence id 1 after it would begin a new connection."),
    _row("riptide-welcome-again", Severity.NOTE, "protocol", "Welcome with another client id",
         "A Welcome after the handshake that names another client id is acknowledged and ignored."),
)  # fmt: skip
"""Findings of `scan`; the layers report the same codes for one datagram alone."""
