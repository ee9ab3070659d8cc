"""Which dialect a datagram can be, and whether a flow is EOUDP at all. Pure; needs no port.

There is no magic number. What makes it certain is an 8-byte size that equals the datagram's, a
content that has the size its command needs, and a time stamp that a sender could have written.
Source: docs/protocols/eoudp.md, "Recognition".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.eoudp.rows import REAL_COMMANDS, ROWS, Row
from netdissect.wire.eoudp import legal
from netdissect.wire.eoudp_names import COMMANDS, FOREIGN, command_name, plausible_timestamp

__all__ = ["candidates", "decided", "recognise"]

_LAST_SAMPLE: Final = 16
"""Size of the largest sample that recognition is asked about."""
_STARTS: Final = tuple(sorted({row.start for row in ROWS.values()}))
_SHORTEST: Final = _STARTS[0]
_LONG32_STEP: Final = 1 << 24
"""An id of long32 read as one of exodia-late is a multiple of this."""

_FROM_CLIENT: Final = frozenset({0x8A, 0x8B, 0x8C})
_FROM_SERVER: Final = frozenset({0x03, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11})


def _known(row: Row, command: int) -> bool:
    return command in (COMMANDS if row.document else REAL_COMMANDS)


def candidates(payload: bytes) -> tuple[str, ...]:
    """Return the dialects that a datagram may be, in the order of `ROWS`."""
    if len(payload) < _SHORTEST or payload[0] not in COMMANDS:
        return ()
    for start in _STARTS:
        # The last byte of the size stands somewhere in the header: few others have it there.
        if ((len(payload) - start) & 0xFF) in payload[:start]:
            break
    else:
        return ()
    return tuple(row.name for row in ROWS.values() if _possible(row, payload))


def _possible(row: Row, payload: bytes) -> bool:
    if ((len(payload) - row.start) & 0xFF) not in payload[: row.start]:  # as above
        return False
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
        connect = payload[0] == 0x81 and "exodia-early" in names  # noqa: PLR2004
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
        self.sure: Counter[str] = Counter()
        self.likely: Counter[str] = Counter()
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
        (self.sure if sure else self.likely)[dialect] += 1
        command = payload[0]
        if command in (0x81, 0x02):
            self.handshake = self.handshake or (1 if command == 0x81 else -1)  # noqa: PLR2004
        event = command_name(dialect, command, len(payload) - row.start) == "EVENT"
        self.leaning += command in _FROM_CLIENT or event
        self.leaning -= command in _FROM_SERVER

    @property
    def dialect(self) -> str | None:
        """Return the dialect that most of its datagrams are, None where none fits."""
        for votes in (self.sure, self.likely):
            if votes:
                return votes.most_common(1)[0][0]
        return None


def _client(sides: Sequence[_Side]) -> tuple[int | None, str]:
    tests: tuple[tuple[str, Callable[[_Side], int]], ...] = (
        ("handshake", lambda side: side.handshake),
        ("protocol", lambda side: side.leaning),
    )
    for basis, measure in tests:
        difference = measure(sides[0]) - measure(sides[1])
        if difference:
            return (0 if difference > 0 else 1), basis
    return None, "first_frame"


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, None where not one datagram fits a dialect.

    A claim that leaves the client or a dialect open waits while more may tell, so that what was
    undecided is read again with what is then known.
    """
    del transport
    sides = (_Side(), _Side())
    for endpoint, _time, payload in sample:
        sides[endpoint].take(payload)
    fitting = sum(side.fitting for side in sides)
    if not fitting:
        return None
    total = sum(side.total for side in sides)
    strong = fitting - sum(side.weak for side in sides)
    if strong:
        score = 95 if fitting == total else 80 if 2 * fitting >= total else 40
    else:
        # A document's empty message is a size of zero and any small float: one alone is no proof.
        score = 70 if fitting > 1 and fitting == total else 40
    client, basis = _client(sides)
    doubtful = (not sides[0].sure, not sides[1].sure)
    open_ = client is None or any(
        doubt and side.fitting for doubt, side in zip(doubtful, sides, strict=True)
    )
    return Claim(
        "eoudp",
        score,
        (sides[0].dialect, sides[1].dialect),
        client,
        basis,
        _reasons(sides, total),
        doubtful,
        waits=open_ and not final and total < _LAST_SAMPLE,
    )


def _reasons(sides: Sequence[_Side], total: int) -> tuple[str, ...]:
    fitting = sum(side.fitting for side in sides)
    reasons = [
        f"{fitting} of {total} datagrams have a size field, content size and time stamp that fit"
    ]
    for index, side in enumerate(sides):
        if side.dialect is not None:
            sure = side.sure[side.dialect]
            doubt = f"{sure} beyond doubt" if sure else "not decided, the likelier one"
            reasons.append(f"endpoint {index} sends {side.dialect}: {doubt}")
    return tuple(reasons)
