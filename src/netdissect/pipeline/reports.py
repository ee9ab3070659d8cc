"""The reports of an analysis, in the order of their first frames. If there are many, each is
pickled into a few hundred bytes, first in memory and then in a temporary file, and unpickled when
it is used. Memory therefore does not grow with the capture.
"""

from __future__ import annotations

import marshal
import pickle
import shutil
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from io import BytesIO
from operator import eq
from threading import Lock
from typing import IO, NamedTuple, overload

from netdissect.diagnosis import About, Neighbours
from netdissect.model.closing import Closing
from netdissect.model.diagnosis import Cause, Diagnosis
from netdissect.model.pickling import field_values
from netdissect.model.reports import ConnectionReport

MAX_PLAIN = 256
"""Reports kept as objects. Beyond that, all are pickled."""
MAX_IN_MEMORY = 1_000_000
"""Bytes of pickled reports in memory. Beyond that, they are in a temporary file."""

_PIECE = 65_536
"""Bytes copied at a time."""


class Lines(NamedTuple):
    """Functions that format reports as lines of ASCII text, each beginning with a brace."""

    whole: Callable[[ConnectionReport], str]
    """A line."""
    parts: Callable[[ConnectionReport, Diagnosis], tuple[str, str, str]]
    """A line but for what other connections may change of the diagnosis."""
    joined: Callable[[tuple[str, str, str], Cause, tuple[str, ...]], str]
    """A line of its parts: the cause, and what is ruled out, lie between them."""
    renumbered: Callable[[str, int], str]
    """A line with another number of its connection."""


_cause_values = field_values(Cause)


class Store:
    """Reports in the order in which they were added; a place is an index into that order."""

    __slots__ = (
        "__weakref__",
        "_end",
        "_file",
        "_in_memory",
        "_lines",
        "_lock",
        "_places",
        "_plain",
        "_starts",
        "frames",
        "neighbours",
        "numbers",
    )

    def __init__(self, lines: Lines | None) -> None:
        self._lines = lines
        """How each is written, where only that is wanted: lines are kept then, and apart from them
        the diagnoses that others may leave in doubt.
        """
        self._lock = Lock()
        """Held while the file position is in use: several threads may read reports."""
        self._begin()

    def _begin(self) -> None:
        self.frames = array("q")
        """First frame of each report."""
        self.numbers = array("q")
        """Connection of each report. It overrides the number in a pickled report."""
        self.neighbours = Neighbours()
        self._plain: list[ConnectionReport] | None = [] if self._lines is None else None
        """The reports themselves; None once they are pickled."""
        self._places = array("q")
        """Places sorted by the numbers of their connections; created on first use."""
        self._starts = array("q")
        self._end = 0
        self._file: IO[bytes] = BytesIO()
        self._in_memory = True

    def append(self, report: ConnectionReport) -> None:
        """Add one report."""
        self.frames.append(report.first_frame)
        self.numbers.append(report.connection)
        self.neighbours.add(report)
        found = report.diagnosis
        lines = self._lines
        if lines is not None:
            if found is None or not self.neighbours.concern(found):
                self._write(lines.whole(report).encode())
                return
            # Plain values only: to pickle the diagnosis takes twenty times as many instructions.
            about, parts = tuple(About.of(report)), lines.parts(report, found)
            self._write(marshal.dumps((parts, about, _cause_values(found.cause), found.ruled_out)))
            return
        if self._plain is None:
            self._write(pickle.dumps(report, pickle.HIGHEST_PROTOCOL))
            return
        self._plain.append(report)
        if len(self._plain) > MAX_PLAIN:
            self.pack()

    def load(self, place: int) -> ConnectionReport:
        """Return the report at a place, with what its neighbours show by now."""
        if self._plain is not None:
            return self.neighbours.apply(self._plain[place])
        # Safe to unpickle: the file and the pipe belong to processes of our own.
        report: ConnectionReport = pickle.loads(self._read(place))  # noqa: S301
        report.connection = self.numbers[place]
        return self.neighbours.apply(report)

    def line(self, place: int, lines: Lines) -> str:
        """Return the line of the report at a place, with what its neighbours show by now."""
        if self._lines is None:
            return lines.whole(self.load(place))
        octets, number = self._read(place), self.numbers[place]
        # A line begins with a brace; marshalled parts begin with the type code of a tuple.
        if octets.startswith(b"{"):
            return lines.renumbered(octets.decode(), number)
        parts, about, cause, ruled_out = marshal.loads(octets)  # noqa: S302 - as above
        key = About(*about)._replace(number=number)
        revised = self.neighbours.revise(key, Cause(*cause), ruled_out)
        return lines.renumbered(lines.joined(parts, *revised), number)

    def _read(self, place: int) -> bytes:
        start = self._starts[place]
        end = self._starts[place + 1] if place + 1 < len(self._starts) else self._end
        with self._lock:
            self._file.seek(start)
            return self._file.read(end - start)

    def place(self, connection: int) -> int | None:
        """Return the place of a connection's report; None without one."""
        numbers, places = self.numbers, self._places
        if len(places) != len(numbers):
            order = sorted(range(len(numbers)), key=numbers.__getitem__)
            places = self._places = array("q", order)
        at = bisect_left(places, connection, key=numbers.__getitem__)
        if at < len(places) and numbers[places[at]] == connection:
            return places[at]
        return None

    def pack(self) -> None:
        """Pickle all reports, and from now on each one that is added."""
        plain, self._plain = self._plain, None
        for report in plain or ():
            self._write(pickle.dumps(report, pickle.HIGHEST_PROTOCOL))

    def renumber(self, numbers: Sequence[int]) -> None:
        """Change the number of each connection n to `numbers[n - 1]`."""
        self._places = array("q")
        for place, number in enumerate(self.numbers):
            self.numbers[place] = numbers[number - 1]
            if self._plain is not None:
                self._plain[place].connection = self.numbers[place]
        self.neighbours.renumber(numbers)

    def send(self, out: IO[bytes]) -> None:
        """Write everything to a stream for `receive`."""
        self.pack()
        head = (self.frames, self.numbers, self.neighbours.state(), self._starts, self._end)
        pickle.dump(head, out, pickle.HIGHEST_PROTOCOL)
        self._file.seek(0)
        shutil.copyfileobj(self._file, out)

    def receive(self, stream: IO[bytes], numbers: Sequence[int]) -> None:
        """Append everything that another store has sent; its connection n becomes
        `numbers[n - 1]`.

        Raises:
            EOFError: the stream ends too early.

        """
        self.pack()
        frames, theirs, near, starts, left = pickle.load(stream)  # noqa: S301 - a process of our own
        self.neighbours.extend(near, numbers)
        self.frames.extend(frames)
        self.numbers.extend(numbers[number - 1] for number in theirs)
        base = self._end
        self._starts.extend(base + start for start in starts)
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise EOFError
            left -= len(piece)
            self._add(piece)

    def learn(self, stream: IO[bytes], numbers: Sequence[int]) -> None:
        """From what another store has sent, use only what its connections show about others; its
        connection n becomes `numbers[n - 1]`.
        """
        _, _, near, *_ = pickle.load(stream)  # noqa: S301 - a process of our own
        self.neighbours.extend(near, numbers)

    def forget_neighbours(self) -> None:
        """Free what connections show about others, which reports no longer say from now on."""
        self.neighbours = Neighbours()

    def close(self) -> None:
        """Drop all reports and free their file."""
        self._file.close()
        self._begin()

    def _write(self, octets: bytes) -> None:
        self._starts.append(self._end)
        self._add(octets)

    def _add(self, octets: bytes) -> None:
        with self._lock:
            if self._file.tell() != self._end:  # each seek writes the buffer of the file
                self._file.seek(self._end)
            self._file.write(octets)
        self._end += len(octets)
        if self._in_memory and self._end > MAX_IN_MEMORY:
            self._to_file()

    def _to_file(self) -> None:
        """Move the bytes to a temporary file without a name. If that fails, they stay in memory."""
        from tempfile import TemporaryFile  # noqa: PLC0415 - few captures need it

        self._in_memory = False
        try:
            file = TemporaryFile()  # noqa: SIM115 - it lives as long as the reports
        except OSError:
            return
        weakref.finalize(self, file.close)
        with self._lock:
            self._file.seek(0)
            shutil.copyfileobj(self._file, file, _PIECE)
            self._file = file


class Reports(Sequence[ConnectionReport], Closing):
    """Reports in the order of first frames, or some of them in another order.

    An immutable sequence for its users. If there are many, each access unpickles a report. Slices
    and selections share the file, so that `close` closes all of them. The file is freed when the
    last of them is, or at once by `with` or `close`.
    """

    __slots__ = ("_order", "_whole", "store")

    def __init__(
        self, reports: Iterable[ConnectionReport] = (), *, lines: Lines | None = None
    ) -> None:
        """Create a sequence with some reports; `lines`: see `Options.lines`."""
        self.store = Store(lines)
        """All reports; the pipeline renumbers them, and sends them between processes."""
        self._whole = True
        """True for all reports of the store, including those added later."""
        self._order = array("q")
        """Places in the store."""
        for report in reports:
            self.append(report)

    # -- for users ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.store.frames) if self._whole else len(self._order)

    @overload
    def __getitem__(self, index: int) -> ConnectionReport: ...
    @overload
    def __getitem__(self, index: slice) -> Reports: ...
    def __getitem__(self, index: int | slice) -> ConnectionReport | Reports:
        if isinstance(index, slice):
            return self._chosen(self._places()[index])
        return self.store.load(self._places()[index])

    def __iter__(self) -> Iterator[ConnectionReport]:
        return map(self.store.load, self._places())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Reports, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Reports of {len(self)} connections>"

    def __reduce__(self) -> tuple[type[Reports], tuple[list[ConnectionReport]]]:
        return Reports, (list(self),)

    def close(self) -> None:
        """Drop all reports and free their file."""
        self.store.close()
        self._order = array("q")

    def ordered(self, key: Callable[[ConnectionReport], float]) -> Reports:
        """Return the same reports sorted by a key; the sort is stable."""
        places = self._places()
        keys = list(map(key, self))
        ranks = sorted(range(len(keys)), key=keys.__getitem__)
        return self._chosen(array("q", (places[rank] for rank in ranks)))

    def of(self, connections: Container[int | None]) -> Reports:
        """Return the reports of these connections, by number."""
        numbers = self.store.numbers
        chosen = (place for place in self._places() if numbers[place] in connections)
        return self._chosen(array("q", chosen))

    def numbers(self) -> list[int]:
        """Return the numbers of these connections without unpickling their reports."""
        return [self.store.numbers[place] for place in self._places()]

    def by_number(self, connection: int) -> ConnectionReport | None:
        """Return the report of any connection in the store, even if it is not one of these."""
        place = self.store.place(connection)
        return None if place is None else self.store.load(place)

    def lines(self, lines: Lines) -> Iterator[str]:
        """Yield the line of each report."""
        return (self.store.line(place, lines) for place in self._places())

    # -- for the pipeline --------------------------------------------------------------------------

    def append(self, report: ConnectionReport) -> None:
        """Add a report; its first frame may be earlier than those of others."""
        self.store.append(report)

    def _chosen(self, places: array[int]) -> Reports:
        chosen = Reports()
        chosen.store, chosen._order, chosen._whole = self.store, places, False
        return chosen

    def _places(self) -> array[int]:
        """Return the places of the reports in their order."""
        frames = self.store.frames
        if self._whole and len(self._order) != len(frames):
            self._order = array("q", sorted(range(len(frames)), key=frames.__getitem__))
        return self._order
