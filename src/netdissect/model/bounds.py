"""What is unknown about a connection once a bound of the tracker is reached."""

from __future__ import annotations

from typing import Final

LOST_BY: Final = {
    "MAX_OUTSTANDING": "what became of the units that waited longest is unknown",
    "MAX_UNITS": "what became of the bytes that waited longest is unknown",
    "MAX_MISSING": "a late first copy of the oldest missing numbers counts as a further copy",
    "MAX_COVERED": "segments that repeat many units are not listed with all of them",
    "MAX_HOLES": "late bytes of the oldest gaps count as a retransmission",
    "memory": "copies of older numbers cannot be classified",
    "MAX_BEFORE": "repeated bytes from before the capture count as new",
    "MAX_BURSTS": "shorter runs of missing numbers are not reported",
    "MAX_GAPS": "late numbers of the oldest gaps still count as missing",
    "MAX_LISTED": "further datagrams that carried a message are not listed with it",
    "MAX_SKIPS": "whether datagrams before the oldest gaps were lost is not reported",
    "MAX_UNREAD": "whether datagrams before the oldest malformed ones were lost is not reported",
    "MAX_OPENINGS": "further copies stay duplicates if another sender turns out to use the numbers",
    "MAX_MARKS": "a different datagram with the number of an old one counts as its copy",
    "MAX_EPOCHS": "the numbers of the oldest epoch are forgotten",
    "MAX_STRAYS": "acknowledgements of the oldest stray numbers are not reported",
    "MAX_DOUBTFUL": "further copies keep the verdict from before the vantage was known",
    "MAX_BESIDE": "further findings that hold only next to the receiver are not reported",
    "MAX_HELD": "a retransmission just behind the oldest delayed copies counts as a duplicate",
    "MAX_ANCHORS": "a retransmission soon after a network copy of the oldest units may be unknown",
    "MAX_LATE": "transmissions after the acknowledgement are counted for some units only",
    "MAX_AGAIN": "copies of the oldest messages sent again are not counted",
    "MAX_RANGES": "some numbers never seen count as seen",
    "MAX_SPACES": "the units of further spaces are ignored",
    "MAX_SPANS": "further spans of silence are not listed",
    "MAX_TYPES": "messages of further types are counted as `other`",
    "MAX_COUNTERS": "further counters, and times that a side states, are not recorded",
    "MAX_OPEN_PROBES": "answers to the oldest probes are not recognised",
    "MAX_COUNTED": "which further copies between two new numbers the network made is unknown",
    "MAX_STAMPED": "which copy of the oldest units an answer names, and who made it, is unknown",
    "MAX_STAMPS": "which of the later copies of a unit an answer names is unknown",
    "MAX_RESENT": "waits for retransmitted bytes count from their first transmission",
    "MAX_GAPS_TIMED": "how long the bytes of the oldest gaps were missing is unknown",
    "MAX_PENDING": "copies and acknowledgements after a unit was listed are not listed with it",
    "MAX_CODES": "findings of further codes are not counted in the report",
    "MAX_ARRIVALS": "when the oldest bytes of long messages came, and whether again, is unknown",
    "MAX_IDENTITIES": "a network copy of older bytes counts as a retransmission",
    "MAX_SYNS": "which SYN was answered is known for the first ones only",
    "MAX_IDENTITY": "further facts of the connection are not recorded",
}
"""Bound of the tracker -> what is unknown once it is reached."""


def reached(bound: str, times: int) -> str:
    """Return how often a bound was reached, and what is unknown since."""
    often = "once" if times == 1 else f"{times} times"
    return f"{often}: {LOST_BY.get(bound, 'what it counts is a lower bound')}"
