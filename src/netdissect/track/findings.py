"""Counts the findings of one connection; reports the 1st, 10th, 100th ... of each code."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from netdissect.model.annotations import CodeRow, Severity, code_rows
from netdissect.model.diagnosis import Limits
from netdissect.model.reports import Anomaly, MalformedData
from netdissect.model.units import NO_GAPS, CopyGaps

MAX_CODES = 256
"""Codes counted per connection; findings of further codes count by severity only."""
MAX_UNREAD: Final = 64
"""The newest malformed datagrams of a connection whose times are remembered."""

REPORTED: Final = frozenset(10**power for power in range(19))
"""The occurrences of a code that are reported."""
_LABELS: Final = [(severity.label, int(severity)) for severity in Severity]


class _Kind:
    """A code, the index of its severity in counts, whether its datagrams are malformed, and
    whether they are so badly that a receiver cannot read them.
    """

    __slots__ = ("broken", "malformed", "place", "row")

    def __init__(self, row: CodeRow) -> None:
        self.row = row
        self.place = int(row.severity)
        self.malformed = row.group == "malformed"
        self.broken = row.severity is Severity.ERROR and row.group in ("malformed", "security")


class _Tally:
    """A code that a connection has, and how often."""

    __slots__ = ("kind", "times")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.times = 0


_KINDS: Final = {row.code: _Kind(row) for row in code_rows("track")}


class LastPacket(Protocol):
    """Anything that knows the newest packet of one direction."""

    last_ns: int
    last_frame: int


class Bound:
    """A bound that was reached: how often, and where first."""

    __slots__ = ("frame", "time_ns", "times")

    def __init__(self, time_ns: int, frame: int) -> None:
        self.times = 0
        self.time_ns = time_ns
        self.frame = frame


class Findings:
    """The findings of one connection (None: of data outside all connections)."""

    __slots__ = (
        "_connection", "_longest_held_ns", "_rows", "_sink", "_tallies", "bounds", "by_severity",
        "copy_gaps", "directions", "every", "gaps_known", "held_ns", "late", "late_ms", "misses",
        "newest_malformed", "unread",
    )  # fmt: skip

    def __init__(
        self,
        connection: int | None,
        rows: Mapping[str, CodeRow],
        sink: Callable[[Anomaly], None] | None,
        limits: Limits | None = None,
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._sink = sink
        self.every: Callable[[str, Severity, int | None], None] | None = None
        """Called with (code, severity, frame) for every finding, including unreported ones."""
        self.late: Callable[[str, Severity, int], None] | None = None
        """Called with the same for findings that are concluded after their frame has passed."""
        self.late_ms = (limits or Limits()).late_delivery
        """A unit that is delayed by more than this is late, milliseconds."""
        self._tallies: dict[str, _Tally] = {}
        """Code -> occurrences."""
        self.misses = False
        """Whether the capture is known to miss frames, so that "not seen" proves nothing: something
        is acknowledged that it does not have, or numbers are missing next to their sender.
        """
        self.unread: deque[tuple[int, int | None]] | None = None
        """(time, direction) of the newest malformed datagrams; None = there are none."""
        self.newest_malformed: list[MalformedData | None] = [None, None]
        """Direction -> its newest malformed data of severity `error`."""
        self.held_ns = [0, 0]
        """Direction -> the second longest time that the network has held a datagram back."""
        self._longest_held_ns = [0, 0]
        """Direction -> the longest such time, which may be an outlier."""
        self.copy_gaps: tuple[CopyGaps, CopyGaps] = NO_GAPS
        """Direction -> what gaps tell of the copies that the network made."""
        self.gaps_known = False
        """Whether a first pass over the whole capture has found them."""
        self.directions: Sequence[LastPacket] = ()
        """The connection's directions, to find the current frame."""
        self.bounds: dict[tuple[int, str, str], Bound] = {}
        """(direction, space or "", name) -> bound that was reached."""
        self.by_severity = [0, 0, 0, 0]
        """Occurrences, indexed by `Severity`."""

    @property
    def repeats(self) -> dict[str, int]:
        """Return code -> occurrences."""
        return {code: tally.times for code, tally in self._tallies.items()}

    def hold(self, direction: int, held_ns: int) -> None:
        """Note that the network has held a datagram back for this long."""
        longest_ns = self._longest_held_ns[direction]
        self._longest_held_ns[direction] = max(longest_ns, held_ns)
        # The smaller of the two longest: one outlier alone would excuse every early copy.
        self.held_ns[direction] = max(self.held_ns[direction], min(longest_ns, held_ns))

    def read_all(self, direction: int, start_ns: int, end_ns: int) -> bool:
        """Return whether no datagram of a direction was malformed in a span of time."""
        unread = self.unread
        if unread is None:
            return True
        if len(unread) == MAX_UNREAD and start_ns <= unread[0][0]:
            self.hit("MAX_UNREAD", direction)
            return False
        return not any(start_ns <= at <= end_ns and way == direction for at, way in unread)

    def gaps_of(self, direction: int) -> CopyGaps:
        """Return what gaps tell of the copies that the network made in a direction."""
        client, server = self.copy_gaps
        return server if direction else client

    def learn_gaps(self, direction: int, gaps: CopyGaps) -> None:
        """Note what gaps tell of the copies that the network made in a direction."""
        client, server = self.copy_gaps
        self.copy_gaps = (client, gaps) if direction else (gaps, server)

    def note_copied(self) -> None:
        """Note that there is a network that copies datagrams, in whatever direction."""
        client, server = self.copy_gaps
        if not client.copied:
            self.copy_gaps = client._replace(copied=True), server._replace(copied=True)

    def reclassify(self, before: str, after: str, count: int = 1) -> None:
        """Count findings under another code of the same severity, now that more is known."""
        tally = self._tallies.get(before)
        if tally is None or tally.times < count:
            return
        tally.times -= count
        if not tally.times:
            del self._tallies[before]
        self._tally(after).times += count

    def _tally(self, code: str) -> _Tally:
        """Return the occurrences of a code, which may be the first."""
        tally = self._tallies.get(code)
        if tally is None:
            kind = _KINDS.get(code)
            tally = self._tallies[code] = _Tally(_Kind(self._rows[code]) if kind is None else kind)
        return tally

    def hit(self, limit: str, direction: int, space: str = "", times: int = 1) -> None:
        """Count that a bound was reached at the current packet."""
        bound = self.bounds.get((direction, space, limit))
        if bound is None:
            at = max(((each.last_ns, each.last_frame) for each in self.directions), default=(0, 0))
            bound = self.bounds[direction, space, limit] = Bound(*at)
        bound.times += times

    def limits(self) -> dict[str, int]:
        """Return how often each bound was reached, over all directions and spaces."""
        found: dict[str, int] = {}
        for (_, _, limit), bound in self.bounds.items():
            found[limit] = found.get(limit, 0) + bound.times
        return found

    @property
    def repeated(self) -> bool:
        """Return whether any unit may have come more than once."""
        repeats = self._tallies
        return (
            "retransmission" in repeats
            or "duplicate" in repeats
            or "unknown-copy" in repeats
            or len(repeats) >= MAX_CODES
        )

    def totals(self) -> dict[str, int]:
        """Return the number of findings of each severity."""
        return {label: self.by_severity[place] for label, place in _LABELS}

    def only_counts(self, code: str, frame: int, time_ns: int, direction: int) -> bool:
        """Add a finding without a text if it will not be reported; return whether it was added."""
        if self._sink is not None and self._tally(code).times + 1 in REPORTED:
            return False
        self.add(code, frame, time_ns, direction)
        return True

    def add(
        self,
        code: str,
        frame: int | None,
        time_ns: int | None,
        direction: int | None,
        message: str = "",
        evidence: dict[str, Any] | None = None,
        *,
        concluded_ns: int | None = None,
        always: bool = False,
    ) -> None:
        """Count one finding, and report it if its number is a power of ten.

        Args:
            code: code of the finding.
            frame: frame of its cause; None if no frame shows it.
            time_ns: time of that frame.
            direction: direction of the cause.
            message: text for the user; the title of the code by default.
            evidence: details for programs.
            concluded_ns: when the conclusion was drawn; None = at the frame.
            always: report it whatever its number is.

        """
        tally = self._tally(code)
        row = tally.kind.row
        self.by_severity[tally.kind.place] += 1
        if self.every is not None:
            self.every(code, row.severity, frame)
        if concluded_ns is not None and frame is not None and self.late is not None:
            self.late(code, row.severity, frame)
        if tally.kind.malformed and time_ns is not None:
            if self.unread is None:
                self.unread = deque(maxlen=MAX_UNREAD)
            self.unread.append((time_ns, direction))
        if tally.kind.broken and frame is not None and direction is not None:
            data = MalformedData(direction, code, frame, time_ns or 0)
            self.newest_malformed[direction] = data
        tally.times += 1
        repeats = tally.times
        # Counted by severity above; only the code is forgotten.
        if repeats == 1 and len(self._tallies) > MAX_CODES:
            del self._tallies[code]
            self.hit("MAX_CODES", direction or 0)
        if self._sink is None or not (always or repeats in REPORTED):
            return
        self._sink(
            Anomaly(
                code=code,
                severity=row.severity,
                group=row.group,
                frame=frame,
                time_ns=time_ns,
                concluded_ns=time_ns if concluded_ns is None else concluded_ns,
                connection=self._connection,
                direction=direction,
                message=message or row.title,
                evidence=evidence or {},
                repeats=repeats,
            )
        )
