"""The names that filters of this run know: those of the shipped table, of plug-ins, and other
tools' spellings.
"""

from __future__ import annotations

from functools import cache

from netdissect.filters import Names

__all__ = ["names"]

_ALIASES = {
    # libtw2's Wireshark plug-in.
    "tw.packet.ack": "teeworlds.ack",
    "tw.packet.flags.request_resend": "teeworlds.flags.resend_requested",
    "tw.packet.flags.compression": "teeworlds.flags.compressed",
    "tw.packet.num_chunks": "teeworlds.num_chunks",
    "tw.packet.token": "teeworlds.token",
    "tw.chunk.seq": "msg.wire_seq",
    # Common slips.
    "frame.time": "frame.time_epoch",
    "connection": "conn.id",
    "connection.id": "conn.id",
    "conn": "conn.id",
}
"""Other spelling -> our name."""


@cache
def names() -> Names:
    """Return the names; the table is read once."""
    from netdissect import lookup  # noqa: PLC0415

    return Names(lookup.field_table(), _ALIASES)
