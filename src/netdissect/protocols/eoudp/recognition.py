"""Whether a flow is EOUDP, in which dialect, and which side is the client.

EOUDP has no magic number. The evidence is an 8-byte size field that is right, a content of a size
that its command can have, and a time stamp that a sender could have written.
Source: docs/protocols/eoudp.md, "Recognition".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.eoudp.dialects import REAL_COMMANDS, ROWS, Row
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp import legal
from netdissect.wire.eoudp_names import COMMANDS, FOREIGN, command_name, plausible_timestamp

ALL: Final = 95
MOST: Final = 80
SOME: Final = 40
"""Scores by the share of datagrams that fit; see `model.claims.STRONG`."""
ALL_EMPTY: Final = 70
"""Score where all datagrams fit, but none has a content or a wall-clock time."""

_MAX_WAIT: Final = 16
"""Sample size from which on a claim no longer waits for more datagrams."""
_SHORTEST: Final = min(row.start for row in ROWS.values())
"""Size of the shortest header, bytes."""
_SIZE_CHECKS: Final = [(row, row.start, row.start - row.padding - 1) for row in ROWS.values()]
"""(dialect, offset of its content, offset of the low byte of its size field)."""
_LONG32_STEP: Final = 1 << 24
"""An id of 4 bytes that is read as one of 8 is a multiple of this, or 0."""

_FROM_CLIENT: Final = frozenset({eoudp.EVENT_8A, eoudp.EVENT, eoudp.IMPORTANT_EVENT_8C})
_FROM_SERVER: Final = frozenset({
    eoudp.CONNECT_REJECT, eoudp.SYSTEM_LOAD, eoudp.COMPONENT_OF, eoudp.GAME_EVENT,
    eoudp.DELETE_ENTITY, eoudp.DELETE_COMPONENT, eoudp.IMPORTANT_EVENT, eoudp.EVENT_11,
})  # fmt: skip
"""Commands that one side sends."""


# -- one datagram ----------------------------------------------------------------------------------


def candidates(payload: bytes) -> tuple[str, ...]:
    """Return the dialects that a datagram may be in, in the order of `ROWS`."""
    size = len(payload)
    if size < _SHORTEST or payload[0] not in COMMANDS:
        return ()
    found = []
    for row, start, low_byte in _SIZE_CHECKS:
        # This byte excludes nearly all dialects. Reading a header takes a hundred times as long.
        fits = size >= start and payload[low_byte] == (size - start) & 0xFF
        if fits and _is_possible(row, payload):
            found.append(row.name)
    return tuple(found)


def _is_possible(row: Row, payload: bytes) -> bool:
    """Return whether a sender of a dialect could have sent the datagram."""
    number = payload[0]
    if not row.document and number not in REAL_COMMANDS:
        return False
    head = row.read(payload, 0, len(payload))
    if head is None or head[-2] + row.start != len(payload):
        return False
    if row.flagged and head[3] > 1:
        return False
    if row.padding and any(payload[row.start - row.padding : row.start]):
        return False
    if not plausible_timestamp(row.name, head[1]):
        return False
    content = payload[row.start :]
    command = command_name(row.name, number, len(content))
    return _is_of_revision(row, number, command) and bool(legal(row.name, command, content))


def _is_of_revision(row: Row, number: int, command: str) -> bool:
    """Return whether a document defines a command."""
    if not row.document:
        return True
    is_rfc01_delete = number == eoudp.RFC01_DELETE_COMPONENT and command == "DELETE_COMPONENT"
    if row.name == "rfc01" and number == eoudp.RFC01_DELETE_COMPONENT:
        return is_rfc01_delete
    return number not in FOREIGN[row.name] and not is_rfc01_delete


@lru_cache(maxsize=256)  # `recognise` sees the same datagrams again in each larger sample
def decided(payload: bytes) -> tuple[str | None, bool]:
    """Return (dialect, is certain) of one datagram; None if it is no EOUDP.

    A datagram that means the same in several dialects gets the likeliest.
    """
    found = candidates(payload)
    if len(found) <= 1:
        return (found[0] if found else None), bool(found)
    names = set(found)
    if names == {"exodia-late", "exodia-late-long32"}:
        long32 = _long32("exodia-late", payload)
        return f"exodia-late{long32}", bool(long32)
    if names & {"exodia-early", "exodia-mid"}:
        long32 = _long32("exodia-mid", payload)
        early = f"exodia-early{long32}"
        if payload[0] == eoudp.CONNECT and early in names:
            # v1.1 sets the flag of its CONNECT, v1.0 has none. Other empty messages are equal in
            # both releases, and neither sends them. An id of 0 does not tell the size of a long.
            return early, bool(long32) or "exodia-early-long32" not in names
        return f"exodia-mid{long32}", bool(long32) and early not in names
    return found[0], False


def _long32(dialect: str, payload: bytes) -> str:
    """Return how the name of the dialect ends: a number of 8 bytes may hold one of 4 and a flag."""
    head = ROWS[dialect].read(payload, 0, len(payload))
    if head is None or not head[2] or head[2] % _LONG32_STEP or head[3]:
        return ""
    return "-long32"


# -- a flow ----------------------------------------------------------------------------------------


class _Side:
    """Counts of the datagrams that one endpoint sent in the sample."""

    def __init__(self) -> None:
        self.fitting = 0
        """Datagrams that fit a dialect."""
        self.weak = 0
        """Of these, datagrams of documents without content: they have no wall-clock time either."""
        self.certain: dict[str, int] = {}
        """Dialect -> datagrams that are certainly in it."""
        self.likely: dict[str, int] = {}
        """Dialect -> datagrams that are likely in it."""
        self.handshake = 0
        """1 if it asks for a connection first, -1 if it accepts one first, 0 for neither."""
        self.leaning = 0
        """Messages that clients send, less messages that servers send."""

    def add(self, payload: bytes) -> None:
        """Count one datagram."""
        dialect, is_certain = decided(payload)
        if dialect is None:
            return
        self.fitting += 1
        row = ROWS[dialect]
        self.weak += row.document and len(payload) == row.start
        votes = self.certain if is_certain else self.likely
        votes[dialect] = votes.get(dialect, 0) + 1
        command = payload[0]
        if command in (eoudp.CONNECT, eoudp.CONNECT_ACCEPT):
            self.handshake = self.handshake or (1 if command == eoudp.CONNECT else -1)
        event = command_name(dialect, command, len(payload) - row.start) == "EVENT"
        self.leaning += command in _FROM_CLIENT or event
        self.leaning -= command in _FROM_SERVER

    def dialect(self) -> str | None:
        """Return the dialect of most datagrams; None if none fits any."""
        best, most = None, 0
        for name, count in (self.certain or self.likely).items():
            if count > most:
                best, most = name, count
        return best

    def is_doubted(self, other: _Side) -> bool:
        """Return whether neither this side nor its peer shows the dialect beyond doubt."""
        return not self.certain and self.dialect() not in other.certain


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure.

    A claim without a client or a certain dialect waits for more datagrams, so that those of the
    sample are read with what is known then.
    """
    del transport
    first, second = _Side(), _Side()
    for endpoint, _time, payload in sample:
        (second if endpoint else first).add(payload)
    fitting = first.fitting + second.fitting
    if not fitting:
        return None
    total = len(sample)
    if fitting > first.weak + second.weak:
        score = ALL if fitting == total else MOST if 2 * fitting >= total else SOME
    else:
        # An empty message of a document is a size of zero and any small float: one proves nothing.
        score = ALL_EMPTY if fitting > 1 and fitting == total else SOME
    client, basis = _client(first, second)
    doubtful = first.is_doubted(second), second.is_doubted(first)
    fit = f"{fitting} of {total} datagrams have a size field, content size and time stamp that fit"
    dialects = first.dialect(), second.dialect()
    reasons = (fit, *_reason(0, first, dialects[0]), *_reason(1, second, dialects[1]))
    is_open = client is None or any(
        side.fitting and doubt for side, doubt in zip((first, second), doubtful, strict=True)
    )
    waits = is_open and not final and total < _MAX_WAIT
    return Claim("eoudp", score, dialects, client, basis, reasons, doubtful, waits=waits)


def _client(first: _Side, second: _Side) -> tuple[int | None, str]:
    """Return (which endpoint is the client, basis of that)."""
    if first.handshake != second.handshake:
        return (0 if first.handshake > second.handshake else 1), "handshake"
    if first.leaning != second.leaning:
        return (0 if first.leaning > second.leaning else 1), "protocol"
    return None, "first_frame"


def _reason(endpoint: int, side: _Side, dialect: str | None) -> tuple[str, ...]:
    if dialect is None:
        return ()
    certain = side.certain.get(dialect)
    doubt = f"{certain} beyond doubt" if certain else "not decided, the likelier one"
    return (f"endpoint {endpoint} sends {dialect}: {doubt}",)
