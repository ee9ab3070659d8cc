"""A capture as rows for a screen: a few numbers a datagram in memory, its bytes in a file without
a name. A record is made of a row when it is shown, and only then.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from netdissect.dissect.engine import Request, dissect
from netdissect.model.annotations import Severity
from netdissect.model.packets import flow_endpoints
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import UnitRecord
from netdissect.pipeline.held import MAX_HELD_RECORDS
from netdissect.pipeline.messages import records_of, whole_message
from netdissect.pipeline.observer import Seen
from netdissect.pipeline.records import Records
from netdissect.protocols.base import Protocol

__all__ = ["ACKED", "AGAIN", "COPY", "FINDING", "GONE", "LOST", "MAX_ROWS", "Index", "Party"]

MAX_ROWS = 20_000_000
"""Datagrams that are listed; those beyond are tracked, and counted as left out."""
MAX_SPOOL = 4_000_000_000
"""Bytes of payload that are kept; rows beyond are listed without their bytes."""
MAX_PARTIES = 400_000
"""Directions of connections, and flows of no known protocol, that are told apart."""
MAX_HITS = 1_000_000
"""Frames of findings that are remembered, of all codes together."""
MAX_JOINED = 200_000
"""Datagrams of several frames whose frames are remembered."""
MAX_LATE = 100_000
"""Copies whose rows are not listed yet."""

_WRITE_OCTETS = 1 << 18
_PIECE = 4096
"""Rows that are moved at a time: a moment in which no other thread runs."""
_COLUMNS = ("frames", "times", "owners", "starts", "sizes", "marks", "acked", "firsts")

ACKED, AGAIN, COPY, LOST, FINDING, GONE = 1, 2, 4, 8, 16, 32
"""What is known of the units of a row, as bits: acknowledged, sent again, copied by the network,
never acknowledged; whether something worth a note or more is found on it; and told to be lost,
where by design nobody sends it again.
"""


@dataclass(slots=True)
class Party:
    """Who sends the datagrams of a row: one direction of a connection, or of an unknown flow."""

    connection: int | None
    direction: int | None
    transport: str
    src: str
    dst: str
    protocol: Protocol | None = None
    dialect: str | None = None
    """As far as it is known by now."""
    rows: int = 0
    """Datagrams so far."""
    hints: list[tuple[int, Any]] = field(default_factory=list)
    """(frame, what the decoder needs to know from there on)."""


class _Ordered(NamedTuple):
    """Rows that are to change their places."""

    first: int
    """The first place."""
    order: array[int]
    """Rows in order of their frames, from that place on."""
    columns: dict[str, array[int]]
    """What is known of them, in that order."""
    joined: dict[int, tuple[int, ...]]


class Index(Records):
    """Lists every datagram that a pipeline takes, in order of frames: an `Observer`.

    One thread fills it while another reads: rows are only added, and `rows` grows when all of a row
    is there. Datagrams of a flow that is recognised late stand where it was, until the one that
    reads has all of them put in order with `settle`.
    """

    def __init__(self, **options: Any) -> None:
        """Take what `Records` takes."""
        super().__init__(**options)
        self.rows = 0
        """How many rows are listed."""
        self.frames = array("I")
        self.times = array("Q")
        self.keys = array("I")
        """The highest frame so far: grows, where a row of an earlier frame stands too late."""
        self.owners = array("I")
        """Index into `parties`."""
        self.starts = array("Q")
        """Where the bytes of each row begin."""
        self.sizes = array("I")
        self.marks = array("B")
        self.acked = array("I")
        """Frame of the first acknowledgement of the row's first unit; 0 = none known."""
        self.firsts = array("I")
        """Frame of the first copy, where the row is a further one; else 0."""
        self.parties: list[Party] = []
        self.joined: dict[int, tuple[int, ...]] = {}
        """Row -> the frames that its bytes came from, where they are several."""
        self.hits: dict[str, array[int]] = {}
        """Code of a finding -> its frames."""
        self.first_hits: dict[str, int] = {}
        """Code of a finding -> its first frame."""
        self.left_out = 0
        """Datagrams beyond MAX_ROWS."""
        self._hit_count = 0
        self._known: dict[tuple[int, int] | bytes, int] = {}
        self._late: list[tuple[int, int, int, int]] = []
        self._strays: dict[int, int] = {}
        """Frame -> its first row, of those that stand too late."""
        self._ordered: _Ordered | None = None
        self._tail = (0, bytearray())
        """(bytes in the file, those that follow them): one value, as two threads use it."""
        self._file = tempfile.TemporaryFile(prefix="netdissect-", buffering=0)  # noqa: SIM115 - as long as this
        weakref.finalize(self, self._file.close)

    def close(self) -> None:
        """Give the bytes back."""
        self._file.close()

    # -- filling -----------------------------------------------------------------------------------

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take a finding on the datagram that is about to be seen."""
        super().finding(code, severity, frame)
        if frame is not None:
            self.hit(code, severity, frame)

    def hit(self, code: str, severity: Severity, frame: int) -> None:
        """Take a finding on a frame, also one that was concluded later."""
        if self._hit_count < MAX_HITS:
            self._hit_count += 1
            self.hits.setdefault(code, array("I")).append(frame)
            self.first_hits[code] = min(frame, self.first_hits.get(code, frame))
        if severity >= Severity.NOTE:
            self._mark(frame, FINDING, 0, 0)

    def list_until(self, oldest_frame: int | None) -> None:
        """List what may be listed.

        Args:
            oldest_frame: frame that waits for its flow to be recognised; later ones stay behind it,
                as far as there is room for them. None = all.

        """
        held = self.held
        while held and (
            oldest_frame is None
            or held.first().frame <= oldest_frame
            or len(held) > MAX_HELD_RECORDS
        ):
            self._list(held.pop())
        if self._late:
            late, self._late = self._late, []
            for known in late:
                self._mark(*known)

    def unit(self, unit: UnitRecord) -> None:
        """Take what became of a unit."""
        if not unit.copies:
            return
        first = unit.extra.get("continued", unit.copies[0].frame) or 0
        fate = ACKED if unit.outcome == "acked" else 0
        if unit.missed:
            fate = GONE if unit.by_design else LOST
        for copy in unit.copies:
            kind = {"retransmission": AGAIN, "duplicate": COPY}.get(copy.kind, 0)
            self._mark(copy.frame, fate | kind, unit.acked_frame or 0, first if kind else 0)

    def _mark(self, frame: int, bits: int, acked: int, first: int) -> None:
        row = self.row_of(frame)
        if row is None:
            if len(self._late) < MAX_LATE:
                self._late.append((frame, bits, acked, first))
            return
        self.marks[row] |= bits
        self.acked[row] = self.acked[row] or acked
        self.firsts[row] = self.firsts[row] or first

    def _list(self, item: Seen) -> None:
        if self.rows >= MAX_ROWS:
            self.left_out += 1
            return
        number = self._party(item)
        party = self.parties[number]
        if item.connection is not None:
            party.dialect = item.connection.hints.dialects[item.direction]
            extra = None if item.hints is None else item.hints.extra
            if not party.hints or party.hints[-1][1] is not extra:
                party.hints.append((item.frame, extra))
        party.rows += 1
        if len(item.frames) > 1 and len(self.joined) < MAX_JOINED:
            self.joined[self.rows] = item.frames
        last = self.keys[-1] if self.keys else 0
        if item.frame < last:
            self._strays.setdefault(item.frame, self.rows)
        self.frames.append(item.frame)
        self.keys.append(max(item.frame, last))
        self.times.append(item.time_ns)
        self.owners.append(number)
        self.marks.append(0)
        self.acked.append(0)
        self.firsts.append(0)
        self._keep(item.payload)
        self.rows += 1

    def _keep(self, payload: bytes) -> None:
        written, buffer = self._tail
        start = written + len(buffer)
        self.starts.append(start)
        if start + len(payload) > MAX_SPOOL:
            self.sizes.append(0)
            return
        buffer += payload
        self.sizes.append(len(payload))
        if len(buffer) > _WRITE_OCTETS:
            os.pwrite(self._file.fileno(), buffer, written)
            self._tail = (written + len(buffer), bytearray())

    def _party(self, item: Seen) -> int:
        connection, packet = item.connection, item.packet
        name: tuple[int, int] | bytes
        if connection is not None:
            name = (connection.number, item.direction)
        else:
            name = b"" if packet is None else packet[3]
        number = self._known.get(name)
        if number is None:
            full = len(self.parties) >= MAX_PARTIES
            if connection is not None:
                ends = connection.endpoints
                party = Party(
                    connection.number,
                    item.direction,
                    connection.transport,
                    ends[item.direction],
                    ends[1 - item.direction],
                    item.protocol,
                )
            else:
                source, sink = (
                    ("?", "?") if full or packet is None else map(str, flow_endpoints(packet[3]))
                )
                tcp = packet is not None and packet[5] is not None
                party = Party(None, None, "tcp" if tcp else "udp", source, sink)
            if full:
                return self._known.setdefault(b"", len(self.parties) - 1)
            number = self._known[name] = len(self.parties)
            self.parties.append(party)
        return number

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`; nothing is listed after it."""
        for party in self.parties:
            if party.connection is not None:
                party.connection = numbers[party.connection - 1]

    def finish(self) -> None:
        """Find out in which order the rows belong, once all are listed and marked."""
        self.list_until(None)
        if not self._strays:
            return
        frames, keys = self.frames, self.keys
        first = bisect_right(keys, min(self._strays), 0, self.rows)
        late = {row for row in range(first, self.rows) if frames[row] != keys[row]}
        waiting = sorted(late, key=frames.__getitem__, reverse=True)
        order = array("I")
        for row in range(first, max(late) + 1):
            if row in late:
                continue
            while waiting and frames[waiting[-1]] < frames[row]:
                order.append(waiting.pop())
            order.append(row)
        columns = {}
        for name in _COLUMNS:
            old = getattr(self, name)
            columns[name] = new = array(old.typecode)
            for start in range(0, len(order), _PIECE):
                new.extend(map(old.__getitem__, order[start : start + _PIECE]))
        joined = self.joined
        if joined:
            places = {row: first + place for place, row in enumerate(order)}
            joined = {places.get(row, row): part for row, part in joined.items()}
        self._ordered = _Ordered(first, order, columns, joined)

    # -- reading -----------------------------------------------------------------------------------

    def settle(self) -> Callable[[int], int] | None:
        """Put all rows in order where they are not, once all are listed; for the thread that reads.

        Returns:
            What tells the new place of a row; None where nothing moved.

        """
        ordered, self._ordered = self._ordered, None
        if ordered is None:
            return None
        first, order = ordered.first, ordered.order
        for name, column in ordered.columns.items():
            getattr(self, name)[first : first + len(order)] = column
        self.keys, self.joined = self.frames, ordered.joined
        self._strays.clear()

        def moved(row: int) -> int:
            return first + order.index(row) if first <= row < first + len(order) else row

        return moved

    def row_of(self, frame: int) -> int | None:
        """Return the first row of a frame; None where it has none (yet)."""
        row = self._first(frame)
        return row if row < self.rows and self.frames[row] == frame else None

    def near(self, frame: int) -> int:
        """Return the row of a frame, else the next one, else the last."""
        return max(0, min(self.rows - 1, self._first(frame)))

    def _first(self, frame: int) -> int:
        """Return the first row of a frame, else of the next one; `rows` behind the last."""
        row = self._strays.get(frame)
        return bisect_left(self.keys, frame, 0, self.rows) if row is None else row

    def at_time(self, time_ns: int) -> int:
        """Return the first row at a time or after it."""
        row = bisect_left(self.times, time_ns, 0, self.rows)
        return min(row, max(0, self.rows - 1))

    def rows_of(self, connection: int, first: int, end: int) -> array[int]:
        """Return the rows of a connection, of those from `first` to before `end`."""
        mine = {
            number for number, party in enumerate(self.parties) if party.connection == connection
        }
        owners = self.owners[first:end]
        return array("I", [row for row, owner in enumerate(owners, first) if owner in mine])

    def length(self, row: int) -> int:
        """Return how many bytes a row has."""
        return self.sizes[row]

    def payload(self, row: int) -> bytes:
        """Return the bytes of a row."""
        start, end = self.starts[row], self.starts[row] + self.sizes[row]
        written, buffer = self._tail
        if start >= written:
            return bytes(buffer[start - written : end - written])
        return os.pread(self._file.fileno(), end - start, start)

    def record(self, row: int) -> DatagramRecord:
        """Return the record of a row, decoded now. What became of its units stands in `marks`."""
        party = self.parties[self.owners[row]]
        payload = self.payload(row)
        record = DatagramRecord(
            frame=self.frames[row],
            time_ns=self.times[row],
            connection=party.connection,
            direction=party.direction,
            transport=party.transport,
            src=party.src,
            dst=party.dst,
            protocol=None,
            dialect=party.dialect,
            length=len(payload),
            frames=self.joined.get(row, ()),
            payload=payload,
        )
        protocol = party.protocol
        if protocol is None or party.dialect is None:
            return record
        place = bisect_right(party.hints, record.frame, key=lambda known: known[0]) - 1
        request = Request(
            party.dialect,
            party.direction,
            party.transport,
            unframed=party.transport == "tcp",
            schema=self.schemas.get(protocol.name),
            hints=party.hints[max(0, place)][1],
            bounds=self.bounds,
        )
        tree = dissect(
            protocol.name, payload, request, module=protocol.layer_module, strict=self.strict
        )
        record.protocol, record.dissection = protocol.name, tree
        views = tree.messages or [whole_message(tree, payload)]
        record.messages = records_of(tree, views, [None] * len(views))
        return record
