"""Rows of the catalogue of findings for what goes wrong below the protocols."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import CodeRow, Severity

__all__ = [
    "CAPTURE_DUPLICATE",
    "FLOW_CODES",
    "FRAGMENT_OVERLAP",
    "IP_LENGTH",
    "SNAPPED",
    "TCP_OUT_OF_WINDOW",
    "TCP_OVERLAP",
    "UDP_LENGTH",
    "joined",
]

SNAPPED: Final = "snapped"
"""Row of `model.annotations.COMMON_CODES`."""
CAPTURE_DUPLICATE: Final = "capture-duplicate"
FRAGMENT_OVERLAP: Final = "ip-fragment-overlap"
IP_LENGTH: Final = "ip-length"
UDP_LENGTH: Final = "udp-length"
TCP_OVERLAP: Final = "tcp-overlap"
TCP_OUT_OF_WINDOW: Final = "tcp-out-of-window"

FLOW_CODES: tuple[CodeRow, ...] = (
    CodeRow(
        CAPTURE_DUPLICATE,
        Severity.CHAT,
        "sequence",
        "same packet captured on another interface",
        "A capture on all interfaces sees one packet wherever it passes. This is a further "
        "sight of a packet already seen, not a packet that was sent or delivered twice: it counts "
        "among datagrams and messages, and for nothing else.",
    ),
    CodeRow(
        FRAGMENT_OVERLAP,
        Severity.WARN,
        "reassembly",
        "IP fragments overlap",
        "Fragments of this datagram cover some octets twice. The first copy captured was used; a "
        "receiver may use the other or drop the datagram (RFC 5722). Senders never do this.",
    ),
    CodeRow(
        IP_LENGTH,
        Severity.WARN,
        "malformed",
        "IP packet longer than its frame",
        "The IP header states more octets than the frame had on the wire. Receivers drop it.",
    ),
    CodeRow(
        UDP_LENGTH,
        Severity.WARN,
        "malformed",
        "UDP length disagrees with IP length",
        "The UDP header states another length than IP leaves for it. A receiver drops the datagram "
        "where UDP states more, and ignores the octets beyond where it states less.",
    ),
    CodeRow(
        TCP_OVERLAP,
        Severity.WARN,
        "reassembly",
        "TCP octets sent again with other content",
        "A segment covers octets of the stream that were captured before with other values. The "
        "first copy was used; the receiver may have used the other.",
    ),
    CodeRow(
        TCP_OUT_OF_WINDOW,
        Severity.NOTE,
        "sequence",
        "TCP segment far outside the stream",
        "Its sequence number lies further ahead than any window reaches (2^30). It is not part of "
        "the stream: a stray of another connection, or forged.",
    ),
)
"""Codes that `Packet` tuples carry, besides `snapped`."""


def joined(faults: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """Return fault codes with some added, each once, in order of discovery."""
    return tuple(dict.fromkeys((*faults, *more)))
