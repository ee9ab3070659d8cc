"""Which dialect a datagram can be, and whether a flow is EOUDP at all. Pure; needs no port.

There is no magic number. What makes it certain is an 8-byte size that equals the datagram's, a
content that has the size its command needs, and a time stamp that a sender could have written.
Source: docs/protocols/eoudp.md, "Recognition".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.eoudp.dialects import REAL_COMMANDS, ROWS, Row
from netdissect.wire.eoudp import legal
from netdissect.wire.eoudp_names import COMMANDS, FOREIGN, command_name, plausible_timestamp

__all__ = ["candidates", "decided", "recognise"]

_LAST_SAMPLE: Final = 16
"""Size of the largest sample that recognition is asked about."""
_SHORTEST: Final = min(row.start for row in ROWS.values())
_LOOKS: Final = [(row, row.start, row.start - row.padding - 1) for row in ROWS.values()]
"""Dialect, where its content starts, and where the last byte of its size stands, the lowest."""
_LONG32_STEP: Final = 1 << 24
"""An id of long32 read as one of exodia-late is a multiple of this."""

_FROM_CLIENT: Final = frozenset({0x8A, 0x8B, 0x8C})
_FROM_SERVER: Final = frozenset({0x03, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11})


def _known(row: Row, command: int) -> bool:
    return command in (COMMANDS if row.document else REAL_COMMANDS)


def candidates(payload: bytes) -> tuple[str, ...]:
    """Return the dialects that a datagram may be, in the order of `ROWS`."""
    size = len(payload)
    if size < _SHORTEST or payload[0] not in COMMANDS:
        return ()
    found = []
    for row, start, last in _LOOKS:
        # One byte throws out nearly all: to read a header takes a hundred times as long.
        fits = size >= start and payload[last] == (size - start) & 0xFF
        if fits and _possible(row, payload):
            found.append(row.name)
    return tuple(found)


def _possible(row: Row, payload: bytes) -> bool:
    head = row.read(payload, 0, len(payload))
    if head is None or head[-2] + row.start != len(payload) or not _known(row, head[0]):
        return False
    if row.flagged and head[3] > 1:
        return False
    if any(payload[row.start - row.padding : row.start]):
        return False
    if not plausible_timestamp(row.name, head[1]):
        return False
    content = payload[row.start :]
    command = command_name(row.name, head[0], len(content))
    return _revision(row, head[0], command) and bool(legal(row.name, command, content))


def _revision(row: Row, number: int, command: str) -> bool:
    """Return whether a command belongs to this revision of the documents."""
    if not row.document:
        return True
    deletes_in_rfc01 = number == 0x10 and command == "DELETE_COMPONENT"  # noqa: PLR2004
    if row.name == "rfc01" and number == 0x10:  # noqa: PLR2004
        return deletes_in_rfc01
    return number not in FOREIGN[row.name] and not deletes_in_rfc01


@lru_cache(maxsize=256)  # a flow is asked about again whenever a few more are there
def decided(payload: bytes) -> tuple[str | None, bool]:
    """Return (dialect, whether it is beyond doubt) of one datagram; None for no EOUDP.

    Where bytes mean the same in several dialects the likelier one is named.
    """
    found = candidates(payload)
    if len(found) <= 1:
        return (found[0] if found else None), bool(found)
    names = set(found)
    if names == {"exodia-late", "exodia-late-long32"}:
        return _late_or_long32(payload)
    if names & {"exodia-early", "exodia-mid"}:
        # v1.1 flags its CONNECT; an unflagged one is v1.0's. The other empty messages of the two
        # are the same bytes, and neither release sends them.
        connect = payload[0] == 0x81 and "exodia-early" in names  # noqa: PLR2004 - CONNECT
        return ("exodia-early", True) if connect else ("exodia-mid", False)
    return found[0], False


def _late_or_long32(payload: bytes) -> tuple[str, bool]:
    head = ROWS["exodia-late"].read(payload, 0, len(payload))
    number = head[2] if head else 0
    if number and number % _LONG32_STEP == 0 and head and not head[3]:
        return "exodia-late-long32", True
    return "exodia-late", False


class _Side:
    """What one endpoint has sent in the sample."""

    def __init__(self) -> None:
        self.total = 0
        self.fitting = 0
        self.weak = 0
        """Fitting ones that carry no content and no wall clock."""
        self.sure: dict[str, int] = {}
        self.likely: dict[str, int] = {}
        self.handshake = 0
        """1 where it asks for a connection, -1 where it accepts one, 0 where neither was seen."""
        self.leaning = 0
        """Messages of clients less messages of servers."""

    def take(self, payload: bytes) -> None:
        """Count one datagram."""
        self.total += 1
        dialect, sure = decided(payload)
        if dialect is None:
            return
        self.fitting += 1
        row = ROWS[dialect]
        self.weak += row.document and len(payload) == row.start
        votes = self.sure if sure else self.likely
        votes[dialect] = votes.get(dialect, 0) + 1
        command = payload[0]
        if command in (0x81, 0x02):
            self.handshake = self.handshake or (1 if command == 0x81 else -1)  # noqa: PLR2004
        event = command_name(dialect, command, len(payload) - row.start) == "EVENT"
        self.leaning += command in _FROM_CLIENT or event
        self.leaning -= command in _FROM_SERVER

    def dialect(self) -> str | None:
        """Return the dialect that most of its datagrams are, None where none fits."""
        best, most = None, 0
        for name, count in (self.sure or self.likely).items():
            if count > most:
                best, most = name, count
        return best


def _client(first: _Side, second: _Side) -> tuple[int | None, str]:
    if first.handshake != second.handshake:
        return (0 if first.handshake > second.handshake else 1), "handshake"
    if first.leaning != second.leaning:
        return (0 if first.leaning > second.leaning else 1), "protocol"
    return None, "first_frame"


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, None where not one datagram fits a dialect.

    A claim that leaves the client or a dialect open waits while more may tell, so that what was
    undecided is read again with what is then known.
    """
    del transport
    first, second = _Side(), _Side()
    for endpoint, _time, payload in sample:
        (second if endpoint else first).take(payload)
    fitting = first.fitting + second.fitting
    if not fitting:
        return None
    total = len(sample)
    strong = fitting - first.weak - second.weak
    if strong:
        score = 95 if fitting == total else 80 if 2 * fitting >= total else 40
    else:
        # A document's empty message is a size of zero and any small float: one alone is no proof.
        score = 70 if fitting > 1 and fitting == total else 40
    client, basis = _client(first, second)
    doubtful = (not first.sure, not second.sure)
    open_ = client is None or (not first.sure and first.fitting > 0)
    open_ = open_ or (not second.sure and second.fitting > 0)
    fit = f"{fitting} of {total} datagrams have a size field, content size and time stamp that fit"
    dialects = first.dialect(), second.dialect()
    reasons = (fit, *_reason(0, first, dialects[0]), *_reason(1, second, dialects[1]))
    waits = open_ and not final and total < _LAST_SAMPLE
    return Claim("eoudp", score, dialects, client, basis, reasons, doubtful, waits=waits)


def _reason(endpoint: int, side: _Side, dialect: str | None) -> tuple[str, ...]:
    if dialect is None:
        return ()
    sure = side.sure.get(dialect)
    doubt = f"{sure} beyond doubt" if sure else "not decided, the likelier one"
    return (f"endpoint {endpoint} sends {dialect}: {doubt}",)
