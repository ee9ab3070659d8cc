"""Numbers and names that `scan` needs. Source: docs/protocols/riptide.md sections 1 and 3."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import code_rows

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
    "UNDECIDED_BYTES",
]

BYTES_20: Final = "riptide-2.0"
BYTES_21DEV: Final = "riptide-2.1dev"
BITS: Final = ("riptide-2.1", "riptide-2.2")
UNDECIDED: Final = "riptide-2.1/2.2"
"""Bit packing, before an ack has told 2.1 from 2.2."""
UNDECIDED_BYTES: Final = "riptide-2.0/2.1dev"
"""Byte packing, before a type that the two number differently has told them apart."""

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

CODES: Final = code_rows("riptide")
"""Findings of `scan`; the layers report the same codes for one datagram alone."""
