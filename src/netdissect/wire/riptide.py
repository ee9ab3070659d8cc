"""Numbers and names of Riptide: dialects, message types, reasons, sizes.

Source: docs/protocols/riptide.md sections 1 and 3.
"""

from __future__ import annotations

from typing import Final

PORTS: Final = (7777,)
"""Port of all demos and guides. Section 5."""
BYTES_20: Final = "riptide-2.0"
BYTES_21DEV: Final = "riptide-2.1dev"
BITS: Final = ("riptide-2.1", "riptide-2.2")
"""Dialects that pack bits: 2.1, then 2.2."""
UNDECIDED: Final = "riptide-2.1/2.2"
"""Bit packing, until the size of an Ack tells 2.1 from 2.2."""
UNDECIDED_BYTES: Final = "riptide-2.0/2.1dev"
"""Byte packing, until a type comes that 2.0 and 2.1dev number differently."""

RELIABLE_CLASS: Final = ("Reliable", "Welcome", "ClientConnected", "ClientDisconnected")
"""Types that carry a sequence id and are acknowledged."""
TYPES_20: Final = (
    "Unreliable", "Ack", "AckExtra", "Connect", "Reject", "Heartbeat", "Disconnect",
    *RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name in release 2.0.0. Source: Riptide 2.0.0 `Transports/MessageHeader`."""
TYPES_21: Final = (
    "Unreliable", "Ack", "Connect", "Reject", "Heartbeat", "Disconnect", "Notify",
    *RELIABLE_CLASS,
)  # fmt: skip
"""Type number -> name since the 2.1 snapshots. Source: Riptide 2.1.0 `Transports/MessageHeader`."""

REJECT_REASONS_20: Final = (
    "NoConnection", "AlreadyConnected", "Pending", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
"""Number -> reason of a Reject. Source: Riptide 2.0.0 `RejectReason`."""
REJECT_REASONS: Final = (
    "NoConnection", "AlreadyConnected", "ServerFull", "Rejected", "Custom",
)  # fmt: skip
"""Number -> reason of a Reject. Source: Riptide 2.1.0 `RejectReason`, which lacks Pending."""
DISCONNECT_REASONS: Final = (
    "NeverConnected", "ConnectionRejected", "TransportError", "TimedOut", "Kicked",
    "ServerStopped", "Disconnected", "PoorConnection",
)  # fmt: skip
"""Number -> reason of a Disconnect. Only 4 and 5 are sent. Source: Riptide 2.1.0
`DisconnectReason`.
"""
MISENCODED_STOP: Final = 80
"""Reason that the bytes 05 05 of a stopping server of 2.1.0 to 2.2.0 read as (defect D5)."""

SIZE_LIMIT_20: Final = 1230
"""Size of the largest message of the byte packings, bytes. Programs can change it.
Source: Riptide 2.0.0 `Message.MaxSize`.
"""
SIZE_LIMIT_21: Final = 1231
"""The same for the bit packings. Source: Riptide 2.1.0 `Message.MaxSize`."""


def size_limit(dialect: str) -> int:
    """Return the size of the largest message that programs of a dialect send by default, bytes."""
    return SIZE_LIMIT_20 if dialect in (BYTES_20, BYTES_21DEV) else SIZE_LIMIT_21


def size_fault(size: int, limit: int) -> tuple[str, str] | None:
    """Return (code, sentence) for a size that no message has, None for a legal one."""
    if not size:
        return "riptide-empty-datagram", "no bytes: no message"
    return ("riptide-oversize", f"{size} bytes, the limit is {limit}") if size > limit else None


def type_name(number: int, names: tuple[str, ...]) -> str:
    """Return the name of a type number, `Invalid<n>` for one that no release defines."""
    return names[number] if number < len(names) else f"Invalid{number}"
