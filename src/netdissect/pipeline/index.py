"""A capture as rows for a screen: a few numbers per datagram in memory, and its bytes in a
temporary file. A record is created only when its row is shown.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from netdissect.dissect.engine import Request, dissect
from netdissect.model.annotations import Severity
from netdissect.model.events import Event
from netdissect.model.packets import flow_endpoints
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import UnitRecord
from netdissect.model.units import MESSAGES
from netdissect.model.units import STREAM as SEGMENT
from netdissect.pipeline.column import PIECE, Column, Tuples
from netdissect.pipeline.messages import records_of, whole_message
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.passwords import mask_lines
from netdissect.pipeline.records import Records
from netdissect.pipeline.sender import Sender
from netdissect.track.recorder import Recorder

MAX_ROWS = 20_000_000
"""Datagrams that are listed. Further ones of a file are tracked and counted as left out; of a
running capture the oldest rows are dropped.
"""
MAX_SPOOL = 4_000_000_000
"""Bytes of payload that are kept. Further rows of a file are listed without their bytes; of a
running capture the oldest rows are dropped.
"""
MAX_FRAME = (1 << 32) - 1
"""Largest frame number that is listed: columns have 32 bits."""
MAX_PARTIES = 400_000
"""Directions of connections, and flows of unknown protocols, that are distinguished."""
MAX_HITS = 1_000_000
"""Frames with findings that are remembered, for all codes together."""
MAX_JOINED = 1_000_000
"""Frames that are remembered of datagrams that came in several."""
MAX_WAITING = 2048
"""Datagrams that wait for an earlier one whose flow is not recognised yet. Beyond that, they are
listed before it, and the rows are reordered at the end.
"""
MAX_BEGUN = 1024
"""Frames whose messages are counted, to tell which of them was retransmitted."""
MAX_LATE = 16_384
"""Frames without a row yet for which marks are remembered, the newest ones. Most of them never get
one: they hold no end of a message over TCP.
"""

_WRITE_OCTETS = 1 << 18
"""Bytes that are collected before they are written to the file."""
_LEAST_RING = 4 * _WRITE_OCTETS
"""Smallest ring of a running capture, bytes."""
_NO_EVENTS: list[Event] = []
_UNMARKED = (0, 0, 0)

ACKED, AGAIN, COPY, LOST, FINDING, GONE, UNKNOWN, RESENT = 1, 2, 4, 8, 16, 32, 64, 128
"""Bits of `Index.marks`, what is known about the units of a row: acknowledged; a retransmission; a
duplicate; never acknowledged; the row has a finding of severity note or higher; lost by the report
of the receiver, in a space without retransmission; unknown from this capture; and a message
of which TCP has retransmitted bytes, in a frame without a row because it brings nothing new.
"""
_KINDS = {"retransmission": AGAIN, "duplicate": COPY, "unknown": UNKNOWN}
"""Kind of a further copy -> its bit."""


class Index(Records):
    """Lists every datagram that a pipeline shows, in the order of frames: an `Observer`.

    One thread adds rows while another reads them. `rows` grows only when a row is complete.
    Datagrams of a flow that is recognised late are listed late; the reading thread reorders the
    rows with `settle` in the end.
    """

    def __init__(self, *, ring: int = 0, **options: Any) -> None:
        """Create an index.

        Args:
            ring: bytes of payload kept of a running capture; 0 for a file, of which the first
                MAX_SPOOL are kept.
            options: arguments of `Records`.

        """
        # Messages of one datagram have the same marks, so that their units share a record until
        # one of them is seen again.
        super().__init__(recorder=Recorder(counted=True, keeps=True), **options)
        self._ring = min(max(ring, _LEAST_RING), MAX_SPOOL) if ring else 0
        self.first = 0
        """First row that was not dropped."""
        self.rows = 0
        """Number of rows, including those that were dropped."""
        self.frames = Column("I")
        self.times = Column("Q")
        self.keys = Column("I")
        """The highest frame up to each row. Unlike `frames`, it is sorted even if a row is late."""
        self.owners = Column("I")
        """Index into `parties`."""
        self.starts = Column("Q" if self._ring else "I")  # MAX_SPOOL fits into 32 bits
        """Offset of the first byte of each row among all bytes so far."""
        self.marks = Column("B")
        """See ACKED and the other bits."""
        self.acked = Column("I")
        """Frame of the first acknowledgement of the row's first unit; 0 = none known."""
        self.firsts = Column("I")
        """Frame of the first copy, if the row is a further one; of the first retransmission, if it
        is marked RESENT; otherwise 0."""
        self._columns = (
            self.frames, self.times, self.owners, self.starts, self.marks, self.acked, self.firsts,
            self.keys,
        )  # fmt: skip
        self._oldest = 0
        """Frame of the first row that was not dropped."""
        self.parties: list[Sender] = []
        self._free: list[int] = []
        """Indexes into `parties` whose rows were all dropped."""
        self._joined = Tuples()
        """Position at which a row was listed -> its frames, if there are several."""
        self.hits: dict[str, array[int]] = {}
        """Code of a finding -> its frames."""
        self.first_hits: dict[str, int] = {}
        """Code of a finding -> its first frame."""
        self.left_out = 0
        """Datagrams beyond MAX_ROWS."""
        self._known: dict[tuple[int, int] | bytes, int] = {}
        """`Sender.name` -> index into `parties`."""
        self._late: dict[int, tuple[int, int, int]] = {}
        """Frame without a row yet -> (marks, acknowledgement, first copy)."""
        self._begun: dict[int, int] = {}
        """Recent frame -> number of the first message that ends in it, over TCP."""
        self._strays: dict[int, int] = {}
        """Frame whose rows are late -> its first row."""
        self._ordered: tuple[array[int], array[int]] | None = None
        """Arguments of `Column.order` that put all rows in order."""
        self._last_key = self._hit_count = 0
        self._tail = (0, bytearray())
        """(number of bytes in the file, the bytes after them). A single value, because two threads
        use it.
        """
        self._file = tempfile.TemporaryFile(prefix="netdissect-", buffering=0)  # noqa: SIM115 - as long as this
        weakref.finalize(self, self._file.close)

    def close(self) -> None:
        """Free the file."""
        self._file.close()

    # -- filling -----------------------------------------------------------------------------------

    def seen(self, item: Datagram) -> None:
        """Add a datagram. Its events and units, which take most of its memory while it waits, are
        dropped: a row does not need them.
        """
        super().seen(item)
        item.events, item.touched, item.findings = _NO_EVENTS, (), ()

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Note a finding about the datagram that `seen` gets next."""
        super().finding(code, severity, frame)
        if frame is not None:
            self.hit(code, severity, frame)

    def hit(self, code: str, severity: Severity, frame: int) -> None:
        """Note a finding about a frame, also one that is made later."""
        if self._hit_count < MAX_HITS and frame <= MAX_FRAME:
            self._hit_count += 1
            self.hits.setdefault(code, array("I")).append(frame)
            self.first_hits[code] = min(frame, self.first_hits.get(code, frame))
        if severity >= Severity.NOTE:
            self._mark(frame, FINDING, 0, 0)

    def list_until(self, oldest_frame: int | None) -> None:
        """List the datagrams that do not have to wait.

        Args:
            oldest_frame: oldest frame whose flow is not recognised yet; up to MAX_WAITING later
                datagrams wait for it. None = list all.

        """
        held = self.held
        while held and (
            oldest_frame is None
            or held.first().frame <= oldest_frame
            or len(held) > MAX_WAITING
        ):
            self._list(held.pop())

    def unit(self, unit: UnitRecord) -> None:
        """Mark the rows of a unit with its outcome."""
        if not unit.copies:
            return
        first = unit.extra.get("continued", unit.copies[0].frame) or 0
        fate = ACKED if unit.outcome == "acked" else 0
        if unit.failed:
            fate = GONE if unit.best_effort else UNKNOWN if unit.outcome == "unknown" else LOST
        for copy in unit.copies:
            kind = _KINDS.get(copy.kind, 0)
            self._mark(copy.frame, fate | kind, unit.acked_frame or 0, first if kind else 0)
        if unit.space == SEGMENT:
            self._mark_segment(unit.copies[0].frame, fate, unit.acked_frame or 0)
        elif unit.space == MESSAGES:
            self._mark_message(unit)

    def _mark_segment(self, frame: int, fate: int, acked: int) -> None:
        """Mark all messages that end in a TCP segment."""
        self._mark(frame, fate, acked, 0)
        row = self.row_of(frame)
        while row is not None and (row := row + 1) < self.rows and self.frames[row] == frame:
            self.marks[row] |= fate
            self.acked[row] = self.acked[row] or min(acked, MAX_FRAME)

    def _mark_message(self, unit: UnitRecord) -> None:
        """Mark a message over TCP if some of it was retransmitted."""
        frame, begun = unit.copies[0].frame, self._begun
        nth = unit.seq - begun.setdefault(frame, unit.seq)
        if len(begun) > MAX_BEGUN:
            del begun[next(iter(begun))]
        again = unit.extra.get("retransmitted_in")
        if again is None:
            return
        row = self.row_of(frame)
        if row is None or row + nth >= self.rows or self.frames[row + nth] != frame:
            self._mark(frame, RESENT, 0, again)
        else:
            self.marks[row + nth] |= RESENT
            self.firsts[row + nth] = self.firsts[row + nth] or min(again, MAX_FRAME)

    def _mark(self, frame: int, bits: int, acked: int, first: int) -> None:
        row = self.row_of(frame)
        if acked > MAX_FRAME:
            acked = 0
        if row is None:
            late = self._late
            if self._oldest <= frame <= MAX_FRAME:
                known = late.get(frame, _UNMARKED)
                late[frame] = known[0] | bits, known[1] or acked, known[2] or first
                if len(late) > MAX_LATE:  # many at once: a dict finds its first item slowly then
                    for old in list(islice(late, max(1, MAX_LATE // 10))):
                        del late[old]
            return
        self.marks[row] |= bits
        self.acked[row] = self.acked[row] or acked
        self.firsts[row] = self.firsts[row] or first

    def _list(self, item: Datagram) -> None:
        if self._ring and self.rows - self.first >= MAX_ROWS:
            self.forget(self.first + max(PIECE, MAX_ROWS // 64))
        if self.rows - self.first >= MAX_ROWS or item.frame > MAX_FRAME:
            self.left_out += 1
            return
        # All columns have the same number of rows, so that they grow together.
        if not self.rows % PIECE and self.rows:
            for column in self._columns:
                column.grow()
            self.keys.share(self.frames)
        number = self._party(item)
        party = self.parties[number]
        if item.connection is not None:
            extra = None if item.hints is None else item.hints.extra
            party.learn(item.frame, item.connection.hints.dialects[item.direction], extra)
        party.rows += 1
        several = len(item.frames) > 1 and max(item.frames) <= MAX_FRAME
        if several and self._joined.size + len(item.frames) <= MAX_JOINED:
            self._joined.add(self.rows, item.frames)
        last = self._last_key
        if item.frame < last:
            self._strays.setdefault(item.frame, self.rows)
        else:
            self._last_key = last = item.frame
        self.frames.last.append(item.frame)
        self.keys.last.append(last)
        self.times.last.append(item.time_ns)
        self.owners.last.append(number)
        bits, acked, first = self._late.pop(item.frame, _UNMARKED)
        self.marks.last.append(bits)
        self.acked.last.append(acked)
        self.firsts.last.append(first)
        self._keep(item.payload)
        self.rows += 1

    def _keep(self, payload: bytes) -> None:
        written, buffer = self._tail
        start = written + len(buffer)
        self.starts.last.append(start)
        kept = start + len(payload) - (self._ring or MAX_SPOOL)
        if kept > 0 and self._ring and self.starts[self.first] < kept:
            self.forget(self.starts.find(kept + self._ring // 8, self.first, self.rows))
        elif kept > 0 and not self._ring:
            return
        buffer += payload
        if len(buffer) > _WRITE_OCTETS:
            self._store(buffer, written)
            # A new buffer: the reading thread may still hold the old one.
            self._tail = (written + len(buffer), bytearray())

    def _store(self, data: bytearray, start: int) -> None:
        """Write to the file, which is a ring buffer for a running capture."""
        at = start % self._ring if self._ring else start
        room = self._ring - at if self._ring else len(data)
        self._write(data[:room], at)
        self._write(data[room:], 0)

    def _write(self, data: bytearray, at: int) -> None:
        """Write all bytes; a disk that becomes full may accept only a part of them at first."""
        while data:
            done = os.pwrite(self._file.fileno(), data, at)
            data, at = data[done:], at + done

    def forget(self, row: int) -> None:
        """Drop the rows before a row. Called by the thread that adds rows."""
        row = min(row, self.rows)
        if row <= self.first:
            return
        for number in self.owners[self.first : row]:
            party = self.parties[number]
            party.rows -= 1
            if not party.rows and party.name:
                self._known.pop(party.name, None)
                self._free.append(number)
        oldest = self.keys[row] if row < self.rows else self._last_key
        self.first, self._oldest = row, oldest
        for column in self._columns:
            column.forget(row)
        self._joined.forget(row)
        self._strays = {frame: place for frame, place in self._strays.items() if place >= row}
        self._late = {frame: known for frame, known in self._late.items() if frame >= oldest}
        hits = {
            code: array("I", [frame for frame in frames if frame >= oldest])
            for code, frames in self.hits.items()
        }
        self.hits = {code: frames for code, frames in hits.items() if frames}
        self.first_hits = {code: min(frames) for code, frames in self.hits.items()}
        self._hit_count = sum(map(len, self.hits.values()))
        for party in self.parties:
            party.forget(oldest)

    def forget_frames(self, frame: int) -> None:
        """Drop the rows of the frames before a frame."""
        if frame > self._oldest:
            self.forget(self.keys.find(frame, self.first, self.rows))

    def _party(self, item: Datagram) -> int:
        connection, packet = item.connection, item.packet
        name: tuple[int, int] | bytes
        if connection is not None:
            name = (connection.number, item.direction)
        else:
            name = b"" if packet is None else packet[3]
        number = self._known.get(name)
        if number is not None:
            return number
        # If there are too many senders, all further ones share the last.
        if len(self.parties) >= MAX_PARTIES and not self._free:
            return self._known.setdefault(b"", len(self.parties) - 1)
        party = _sender(item)
        party.name = name
        if self._free:
            number = self._known[name] = self._free.pop()
            self.parties[number] = party
        else:
            number = self._known[name] = len(self.parties)
            self.parties.append(party)
        return number

    def renumber(self, numbers: Sequence[int]) -> None:
        """Change the number of each connection n to `numbers[n - 1]`, after the last row."""
        for party in self.parties:
            if party.connection is not None:
                party.connection = numbers[party.connection - 1]

    def finish(self) -> None:
        """List the remaining datagrams, and work out the order of the rows for `settle`."""
        self.list_until(None)
        if not self._strays:
            return
        frames, keys = self.frames, self.keys
        late = [
            row
            for number, pieces in enumerate(zip(frames.pieces(), keys.pieces(), strict=True))
            if pieces[0] is not pieces[1]
            for row, (frame, key) in enumerate(zip(*pieces, strict=True), number * PIECE)
            if frame != key and row >= self.first
        ]
        # Each late row goes before the first row of a later frame; equal frames keep their order.
        moves = [
            (keys.find(frames[row] + 1, self.first, self.rows), 0, frames[row], row) for row in late
        ]
        moves += [(row, 1, 0, row) for row in late]
        moves.sort()
        rows, shifts = array("I", [0]), array("q", [0])
        at = to = 0
        for place, leaves, _, row in moves:
            to += place - at
            at = place
            if leaves:
                at += 1
            else:
                rows.append(to)
                shifts.append(row - to)
                to += 1
            rows.append(to)
            shifts.append(at - to)
        self._ordered = rows, shifts

    # -- reading -----------------------------------------------------------------------------------

    def settle(self) -> Callable[[int], int] | None:
        """Put all rows in order after `finish`. Called by the thread that reads.

        Returns:
            A function from the old number of a row to its new one; None if no row moved.

        """
        ordered, self._ordered = self._ordered, None
        if ordered is None:
            return None
        for column in self._columns:
            column.order(*ordered)
        self.keys = self.frames
        self._strays.clear()

        def moved(row: int) -> int:
            rows, shifts = ordered
            ends = [*rows[1:], self.rows]
            return next(
                row - shift
                for first, shift, end in zip(rows, shifts, ends, strict=True)
                if first <= row - shift < end
            )

        return moved

    def row_of(self, frame: int) -> int | None:
        """Return the first row of a frame; None if it has none so far."""
        row = self._first(frame)
        return row if self.first <= row < self.rows and self.frames[row] == frame else None

    def near(self, frame: int) -> int:
        """Return the row of a frame, or else the next row, or else the last one."""
        return max(self.first, min(self.rows - 1, self._first(frame)))

    def _first(self, frame: int) -> int:
        """Return the first row of a frame or a later one; `rows` if there is none."""
        row = self._strays.get(frame)
        return self.keys.find(frame, self.first, self.rows) if row is None else row

    def at_time(self, time_ns: int) -> int:
        """Return the first row at or after a time."""
        row = self.times.find(time_ns, self.first, self.rows)
        return max(self.first, min(row, self.rows - 1))

    def rows_of(self, connection: int, first: int, end: int) -> array[int]:
        """Return the rows of a connection in the range [first, end)."""
        mine = {
            number for number, party in enumerate(self.parties) if party.connection == connection
        }
        first = max(first, self.first)
        owners = self.owners[first:end]
        # Not a list, which would take 40 MB for a million rows.
        return array("I", (row for row, owner in enumerate(owners, first) if owner in mine))

    def party(self, row: int) -> Sender:
        """Return who sent the datagram of a row."""
        return self.parties[self.owners[row]]

    def length(self, row: int) -> int:
        """Return the payload length of a row."""
        start, end = self._span(row)
        return end - start

    def _span(self, row: int) -> tuple[int, int]:
        """Return the offsets of the first byte of a row, and of the byte after its last one."""
        written, buffer = self._tail
        end = written + len(buffer)  # read first: meanwhile the other thread may add rows
        place = self.starts.place(row)
        pieces = self.starts.pieces()
        number, rest = divmod(place + 1, PIECE)
        if number < len(pieces) and rest < len(pieces[number]):
            end = pieces[number][rest]
        return self.starts[row], end

    def joined(self, row: int) -> tuple[int, ...]:
        """Return the frames of a row that came in several; () if it came in one."""
        return self._joined.of(self.frames.place(row))

    def frames_of(self, rows: Iterable[int]) -> Iterator[int]:
        """Yield all frames of some rows."""
        for row in rows:
            yield self.frames[row]
            yield from self.joined(row)

    def payload(self, row: int) -> bytes:
        """Return the payload of a row."""
        start, end = self._span(row)
        written, buffer = self._tail
        if start >= written:
            return bytes(buffer[start - written : end - written])
        if not self._ring:
            return os.pread(self._file.fileno(), end - start, start)
        at = start % self._ring
        found = os.pread(self._file.fileno(), min(end - start, self._ring - at), at)
        return found + os.pread(self._file.fileno(), end - start - len(found), 0)

    def record(self, row: int) -> DatagramRecord:
        """Decode a row and return its record. The outcome of its units is only in `marks`."""
        party = self.party(row)
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
            frames=self.joined(row),
            payload=payload,
        )
        protocol = party.protocol
        if protocol is None or party.dialect is None:
            return record
        request = Request(
            party.dialect,
            party.direction,
            party.transport,
            unframed=party.transport == "tcp",
            schema=self.schemas.get(protocol.name),
            hints=party.hints_at(record.frame),
            bounds=self.bounds,
        )
        tree = dissect(
            protocol.name, payload, request, module=protocol.layer_module, strict=self.strict
        )
        mask_lines(tree, protocol.secrets)
        record.protocol, record.dissection = protocol.name, tree
        views = tree.messages or [whole_message(tree, payload)]
        record.messages = records_of(tree, views, [None] * len(views))
        return record


def _sender(item: Datagram) -> Sender:
    """Return the sender of a datagram."""
    connection, packet = item.connection, item.packet
    if connection is not None:
        ends, way = connection.endpoints, item.direction
        number, transport = connection.number, connection.transport
        return Sender(number, way, transport, ends[way], ends[1 - way], item.protocol)
    source, sink = ("?", "?") if packet is None else map(str, flow_endpoints(packet[3]))
    tcp = packet is not None and packet[5] is not None
    return Sender(None, None, "tcp" if tcp else "udp", source, sink)
