"""Numbers and names of Riptide: dialects, message types, reasons, sizes.

Source: docs/protocols/riptide.md sections 1 and 3.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BITS",
    "BYTES_20",
    "BYTES_21DEV",
    "DISCONNECT_REASONS",
    "MISENCODED_STOP",
    "REJECT_REASONS",
    "REJECT_REASONS_20",
    "RELIABLE_CLASS",
    "SIZE_LIMIT_20",
    "SIZE_LIMIT_21",
    "TYPES_20",
    "TYPES_21",
    "UNDECIDED",
    "UNDECIDED_BYTES",
    "misfit",
    "size_limit",
    "type_name",
]

BYTES_20: Final = "riptide-2.0"
BYTES_21DEV: Final = "riptide-2.1dev"
BITS: Final = ("riptide-2.1", "riptide-2.2")
UNDECIDED: Final = "riptide-2.1/2.2"
"""Bit packing, before an ack has told 2.1 from 2.2."""
UNDECIDED_BYTES: Final = "riptide-2.0/2.1dev"
"""Byte packing, before a type that the two number differently has told them apart."""

RELIABLE_CLASS: Final = ("Reliable", "Welcome", "ClientConnected", "ClientDisconnected")
TYPES_20: Final = (
    "Unreliable", "Ack", "AckExtra", "Connect", "Reject", "Heartbeat", "Disconnect",
    *RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name in release 2.0.0. Source: Riptide 2.0.0 `Transports/MessageHeader`."""
TYPES_21: Final = (
    "Unreliable", "Ack", "Connect", "Reject", "Heartbeat", "Disconnect", "Notify",
    *RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name since the 2.1 snapshots. Source: Riptide 2.1.0, the same."""

REJECT_REASONS_20: Final = (
    "NoConnection", "AlreadyConnected", "Pending", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
"""Source: Riptide 2.0.0 `RejectReason`."""
REJECT_REASONS: Final = (
    "NoConnection", "AlreadyConnected", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
"""Source: Riptide 2.1.0 `RejectReason` (no Pending)."""
DISCONNECT_REASONS: Final = (
    "NeverConnected", "ConnectionRejected", "TransportError", "TimedOut", "Kicked",
    "ServerStopped", "Disconnected", "PoorConnection",
)  # fmt: skip
"""Source: Riptide 2.1.0 `DisconnectReason`; only 4 and 5 travel."""
MISENCODED_STOP: Final = 80
"""What the raw bytes 05 05 of a stopping 2.1.0 .. 2.2.0 server read as (defect D5)."""

SIZE_LIMIT_20: Final = 1230
SIZE_LIMIT_21: Final = 1231
"""Largest message in bytes by default; a program can change it. Source: `Message.MaxSize`."""


def size_limit(dialect: str) -> int:
    """Return the bytes of the largest message that programs of a dialect send by default."""
    return SIZE_LIMIT_20 if dialect in (BYTES_20, BYTES_21DEV) else SIZE_LIMIT_21


def misfit(size: int, limit: int) -> tuple[str, str] | None:
    """Return (code, message) of a size that no message has, None for others."""
    if not size:
        return "riptide-empty-datagram", "no bytes: no message"
    return ("riptide-oversize", f"{size} bytes, the limit is {limit}") if size > limit else None


def type_name(number: int, names: tuple[str, ...]) -> str:
    """Return the name of a type number, `Invalid<n>` for one that no release defines."""
    return names[number] if number < len(names) else f"Invalid{number}"
