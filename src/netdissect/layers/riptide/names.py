"""Numbers and names of Riptide: message types, reasons, sizes. Source: docs/protocols/riptide.md
sections 1 and 3.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "DISCONNECT_REASONS",
    "MISENCODED_STOP",
    "REJECT_REASONS",
    "REJECT_REASONS_20",
    "SIZE_LIMITS",
    "TYPES",
    "TYPES_20",
    "type_name",
]

_RELIABLE_CLASS: Final = {
    7: "Reliable",
    8: "Welcome",
    9: "ClientConnected",
    10: "ClientDisconnected",
}

TYPES_20: Final = {
    0: "Unreliable", 1: "Ack", 2: "AckExtra", 3: "Connect", 4: "Reject", 5: "Heartbeat",
    6: "Disconnect", **_RELIABLE_CLASS,
}  # fmt: skip
"""Types of release 2.0.0. Source: Riptide 2.0.0 `Transports/MessageHeader`."""

TYPES: Final = {
    0: "Unreliable", 1: "Ack", 2: "Connect", 3: "Reject", 4: "Heartbeat", 5: "Disconnect",
    6: "Notify", **_RELIABLE_CLASS,
}  # fmt: skip
"""Types since the 2.1 snapshots. Source: Riptide 2.1.0 `Transports/MessageHeader`."""

REJECT_REASONS_20: Final = {
    0: "NoConnection", 1: "AlreadyConnected", 2: "Pending", 3: "ServerFull", 4: "Rejected",
    5: "Custom",
}  # fmt: skip
"""Source: Riptide 2.0.0 `RejectReason`."""

REJECT_REASONS: Final = {
    0: "NoConnection", 1: "AlreadyConnected", 2: "ServerFull", 3: "Rejected", 4: "Custom",
}  # fmt: skip
"""Source: Riptide 2.1.0 `RejectReason` (no Pending)."""

DISCONNECT_REASONS: Final = {
    0: "NeverConnected", 1: "ConnectionRejected", 2: "TransportError", 3: "TimedOut", 4: "Kicked",
    5: "ServerStopped", 6: "Disconnected", 7: "PoorConnection",
}  # fmt: skip
"""Source: Riptide 2.1.0 `DisconnectReason`; only 4 and 5 travel."""

MISENCODED_STOP: Final = 80
"""What the raw bytes 05 05 of a stopping 2.1.0 .. 2.2.0 server read as (defect D5)."""

SIZE_LIMITS: Final = {
    "riptide-2.0": 1230, "riptide-2.1dev": 1230, "riptide-2.1": 1231, "riptide-2.2": 1231,
}  # fmt: skip
"""Largest message in octets by default; an application can change it. Source: `Message.MaxSize`."""


def type_name(number: int, names: dict[int, str]) -> str:
    """Return the name of a type number, `Invalid<n>` for one that no release defines."""
    return names.get(number, f"Invalid{number}")
