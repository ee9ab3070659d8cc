"""A running capture as `browse` asks for it: written to a file, and taken as it comes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from netdissect.browse.backend import Entry
from netdissect.capture.blocks import BlockReader
from netdissect.capture.live.segments import Segments, first_kept
from netdissect.cli.file_backend import FileBackend, connection_entry
from netdissect.cli.live import LiveSession, load
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import UsageError
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import Options, Pipeline, open_capture
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.live import LiveFeed, LiveRequest, RingRule, standings, successor
from netdissect.pipeline.reports import Reports
from netdissect.render.safe import safe

__all__ = ["LiveBackend", "live_backend"]

KEPT_MB = 4000
"""Megabytes of a capture that are kept, where the user says nothing."""
FILES = 8
"""Files that these lie in: when the newest is full, the oldest is removed."""
MAX_LISTED = 100_000
"""Connections that are listed; beyond, the oldest leave."""
MAX_JUDGED = 1000
"""Connections whose verdict is kept in full while the capture runs, those judged last."""

_NOBODY = 1 << 30
"""From here on connections are numbered that are read again and were not judged yet."""
_LAST_S = 3.0
"""How long is waited for what was captured and not taken yet, when all is seen."""
_TAKEN_S = 1.0
"""How often connections are judged, at most; a tenth of the time at most goes into it."""
_LATE = (
    "netdissect.cli.capture_output",
    "netdissect.cli.plot_data",
    "netdissect.cli.filter_names",
    "netdissect.cli.report",
    "netdissect.browse.app",
    "textual.drivers.linux_driver",
)
"""Modules that are needed only once the capture runs, beside those of `live.load`."""


class _SoFar(Session):
    """What is kept of a capture that runs: its connections have the numbers that they got as they
    came.
    """

    def __init__(self, running: LiveBackend) -> None:
        """Open what there is by now."""
        self._running = running
        self._kept = None if running.folder is None else Segments(running.folder)
        reader = None
        if self._kept is not None:
            reader = open_capture(BufferedReader(self._kept), first=self._kept.first)
        super().__init__(running.file, running.choices, quiet=True, reader=reader)

    def reopen(self, *, quiet: bool = False) -> Session:
        """Open it once more."""
        del quiet
        return _SoFar(self._running)

    def first_look(self, **hooks: Any) -> Reports:
        """Return the reports as they stand: what was judged last."""
        del hooks
        found = Reports()
        for report in self._running.judged():
            found.append(report)
        return found

    def with_first_look(self, options: Options, most: int | None = None) -> Options:
        """Return the options with the numbers that there are."""
        del most
        return replace(options, named=self._running.named, only=self.only)

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first frame, also where that is no longer kept."""
        return self._running.loaded.first_ns or super().first_ns

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close it."""
        if self._kept is not None:
            self._kept.close()
        return super().__exit__(kind, error, trace)


class LiveBackend(FileBackend):
    """A capture that is browsed while it runs."""

    def __init__(
        self,
        file: str,
        choices: Choices,
        session: LiveSession,
        *,
        folder: Path | None = None,
        keep: int = KEPT_MB * 1_000_000,
    ) -> None:
        """Take a running capture that is written to a file, or to a ring of files in a folder of
        its own; `keep` is how many bytes of it can be browsed.
        """
        super().__init__(file, choices, session, ring=keep)
        self.folder = folder
        self._keep = keep
        self._lives: dict[frozenset[str], list[tuple[int, int]]] = {}
        """Endpoints -> (first frame, number) of the connections between them, in order."""
        self.feed = session.feed
        self.name = safe(self.feed.info.path, 60)
        self.loaded.share = None
        self._live = session
        self._entries: dict[int, Entry] = {}
        self._judged: dict[int, ConnectionReport] = {}
        """Connections by number, those judged last at the end."""
        self._reports = Reports()
        self._began = time.monotonic()
        self._due = 0.0
        self._seen = (self._began, 0)
        self.finished = Event()
        """Set when all that was captured has been taken."""

    def stop(self) -> None:
        """End the capture."""
        super().stop()
        self.feed.stop()

    def must_exit(self) -> bool:
        """Return whether a signal asks the program to end, or its terminal has gone."""
        self._live.end_if_unseen()
        return self._live.ended

    def status(self) -> int:
        """Return the exit status, as that of `sniff`."""
        return self._live.status()

    def read(self) -> None:
        """Take the capture to its end."""
        try:
            self._read()
        finally:
            self.finished.set()

    def _read(self) -> None:
        from netdissect.flow import Decapsulator  # noqa: PLC0415

        feed = self.feed
        options = self.choices.options(
            on_anomaly=self._found, on_late=self._late, on_report=self._over
        )
        pipeline = Pipeline(options, recorder=self.index.recorder, observer=self.index)
        feed.on_tick = lambda: self._tick(pipeline)
        self._tick(pipeline)
        with rare_collections():
            for packet in Decapsulator().packets(feed):
                pipeline.feed(packet)
            self._end(pipeline)
        self._conclude(pipeline, self._reports)

    def decoded_as(self, rule: str) -> FileBackend:
        """Refuse: the packets that came are decoded.

        Raises:
            UsageError: always.

        """
        del rule
        raise UsageError("a capture that runs is decoded as it comes: start it with -d")

    def connection(self, number: int) -> ConnectionReport | None:
        """Return the report of a connection, as it stands where it goes on."""
        return super().connection(number) or self._judged.get(number)

    def judged(self) -> list[ConnectionReport]:
        """Return the connections that were judged last, as they stand."""
        return list(self._judged.values())

    def named(self, endpoints: tuple[str, str], frame: int, number: int) -> int:
        """Return the number of a connection that is read again, maybe without its beginning."""
        lives = self._lives.get(frozenset(endpoints))
        if lives is None:
            return _NOBODY + number
        # Behind all that begin with this very frame.
        return lives[max(0, bisect_right(lives, (frame, _NOBODY)) - 1)][1]

    def _again(self) -> Session:
        return _SoFar(self)

    @contextmanager
    def _blocks(self) -> Iterator[BlockReader]:
        if self.folder is None:
            with super()._blocks() as reader:
                yield reader
        else:
            with Segments(self.folder) as kept:
                yield BlockReader(BufferedReader(kept), first=kept.first)

    def _over(self, report: ConnectionReport) -> None:
        self._reports.append(report)
        self._judge(report)

    def _judge(self, report: ConnectionReport) -> None:
        """Keep what is known of a connection now, and where it stands in the list."""
        ends = frozenset((report.client, report.server))
        if report.connection not in self._entries:
            insort(self._lives.setdefault(ends, []), (report.first_frame, report.connection))
        self._entries[report.connection] = connection_entry(report)
        if len(self._entries) > MAX_LISTED:
            # The oldest: a dict keeps the order in which keys came.
            old = self._entries.pop(next(iter(self._entries)))
            ends = frozenset((old.client, old.server))
            left = [life for life in self._lives[ends] if life[1] != old.number]
            self._lives[ends] = left
            if not left:
                del self._lives[ends]
        self._judged.pop(report.connection, None)
        self._judged[report.connection] = report
        if len(self._judged) > MAX_JUDGED:
            del self._judged[next(iter(self._judged))]

    def _tick(self, pipeline: Pipeline) -> None:
        """List what has come; from time to time say how it goes."""
        index, loaded = self.index, self.loaded
        index.list_until(None)
        if self.folder is not None:
            index.forget_frames(first_kept(self.folder))
        self._take(index.recorder.settled(pipeline.now_ns))
        loaded.first_ns = self.feed.info.first_time_ns or 0
        now = time.monotonic()
        if now < self._due:
            return
        for report in standings(pipeline):
            self._judge(report)
        loaded.entries = list(self._entries.values())
        loaded.anomalies = list(self._examples.values())
        loaded.notes = self._losses()
        loaded.live = self._words(now)
        loaded.version += 1
        self._due = now + max(_TAKEN_S, 10 * (time.monotonic() - now))

    def _words(self, now: float) -> str:
        before, packets = self._seen
        self._seen = now, self.feed.packets
        rate = (self.feed.packets - packets) / max(0.1, now - before)
        minutes, seconds = divmod(int(now - self._began), 60)
        return f"● {minutes}:{seconds:02} {rate:,.0f}/s dropped {self.feed.own_drops:,}"

    def _notes(self, session: Session) -> list[str]:
        return [*super()._notes(session), *self._losses()]

    def _losses(self) -> list[str]:
        notes, size = [], f"{self._keep / 1e6:,.0f} MB"
        gone = self.index.first if self.folder is None else first_kept(self.folder) - 1
        if gone and self.folder is None:
            notes.append(f"{gone:,} oldest datagrams left the view (--keep); the file has them.")
        elif gone:
            notes.append(f"{gone:,} oldest packets dropped: the newest {size} are kept (--keep).")
        if self.feed.own_drops:
            notes.append(
                f"{self.feed.own_drops:,} packets came too fast to be analysed; the file has them."
            )
        return notes


@contextmanager
def live_backend(
    interface: str,
    choices: Choices,
    *,
    capture_filter: str,
    write: str | None,
    keep: int | None,
    user: str | None,
    quiet: bool,
) -> Iterator[LiveBackend]:
    """Capture on an interface, and end that when all is seen.

    Args:
        interface: name or number.
        choices: how datagrams are understood.
        capture_filter: in libpcap's language; "" = everything.
        write: file that is kept; None = files that are deleted at the end.
        keep: megabytes of the capture that can be browsed, the newest; None = KEPT_MB.
        user: whom root becomes; None = who called sudo, else nobody.
        quiet: nothing on standard error but errors.

    Raises:
        UsageError: root is to become nobody, who could not read the file that is kept.
        NetdissectError: as `LiveFeed` says.

    """
    account = successor(user)
    if write is not None and account is not None and not account.owns_files:
        raise UsageError(
            "root wants --user NAME with -w: who parses reads the file again, and nobody may not"
        )
    load(choices, _LATE)
    folder = None
    try:
        if write is None:
            folder = tempfile.mkdtemp(prefix="netdissect-")
            if account is not None:
                # Who parses has to remove the oldest files, and to read the others again.
                os.chown(folder, account.user, account.group)
                account = account._replace(owns_files=True)
        target = write or os.path.join(str(folder), "live.pcapng")  # noqa: PTH118 - a text is wanted
        request = LiveRequest(
            interface=interface, capture_filter=capture_filter, recorded=True, account=account
        )
        size = (keep or KEPT_MB) * 1_000_000
        ring = None if write else RingRule(octets=size // FILES, files=FILES, by_frame=True)
        feed = LiveFeed(request, write=target, ring=ring)
        session = LiveSession(feed, choices, write=write, quiet=quiet)
        with session:
            kept = None if folder is None else Path(folder)
            running = LiveBackend(target, choices, session, folder=kept, keep=size)
            yield running
            # The last packets are still on their way from the capturing program.
            running.finished.wait(_LAST_S)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
