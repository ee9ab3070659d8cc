"""The backend of `browse` for a running capture, which is also written to a file."""

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

KEPT_MB = 4000
"""Default number of megabytes of a capture that are kept."""
FILES = 8
"""Files that share these megabytes: when the newest is full, the oldest is deleted."""
MAX_LISTED = 100_000
"""Maximum number of connections in the list; beyond that, the oldest are evicted."""
MAX_JUDGED = 1000
"""Connections whose full report is kept while the capture runs: the latest ones."""

_UNLISTED = 1 << 30
"""Offset of the numbers of connections that are not in the list yet."""
_LAST_S = 3.0
"""Seconds to wait for captured packets that are still to be processed at the end."""
_UPDATE_S = 1.0
"""Minimum time between two updates of the list, in seconds; updates take at most 10% of the time.
"""
_LATE = (
    "netdissect.cli.plot_data",
    "netdissect.filters",
    "netdissect.cli.report",
    "netdissect.browse.app",
    "netdissect.edit.merging",
    "netdissect.edit.notes",
    "netdissect.edit.plain",
    "netdissect.edit.slicing",
    "netdissect.join",
    "netdissect.report.document",
    "netdissect.report.redact",
    "textual.drivers.linux_driver",
)
"""Modules that are needed only once the capture runs, beside those of `live.load`."""


class _Snapshot(Session):
    """The packets kept so far of a running capture; connections keep their live numbers."""

    def __init__(self, running: LiveBackend) -> None:
        """Open the packets that are kept now."""
        self._running = running
        self._kept = None if running.folder is None else Segments(running.folder)
        reader = None
        if self._kept is not None:
            reader = open_capture(BufferedReader(self._kept), first=self._kept.first)
        super().__init__(running.file, running.choices, quiet=True, reader=reader)

    def reopen(self, *, quiet: bool = False) -> Session:
        """Open a newer snapshot."""
        del quiet
        return _Snapshot(self._running)

    def first_look(self, **hooks: Any) -> Reports:
        """Return the current reports of the running capture."""
        del hooks
        found = Reports()
        for report in self._running.judged():
            found.append(report)
        return found

    def with_first_look(self, options: Options, most: int | None = None) -> Options:
        """Return the options with the live numbers of connections."""
        del most
        return replace(options, named=self._running.named, only=self.only)

    @property
    def first_ns(self) -> int | None:
        """Return the time of the first frame, even if that is no longer kept."""
        return self._running.loaded.first_ns or super().first_ns

    def close(self) -> None:
        """Close the packets as well."""
        if self._kept is not None:
            self._kept.close()
        super().close()


class LiveBackend(FileBackend):
    """A running capture for `browse`."""

    def __init__(
        self,
        file: str,
        choices: Choices,
        session: LiveSession,
        *,
        folder: Path | None = None,
        keep: int = KEPT_MB * 1_000_000,
    ) -> None:
        """Take a running capture.

        Args:
            file: the file that it is written to.
            choices: how datagrams are decoded.
            session: the running capture.
            folder: folder of the ring of files that it is written to instead; None = one file.
            keep: bytes that can be browsed, the newest ones.

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
        """Number -> latest report; the connection that was updated last is at the end."""
        self._reports = Reports()
        self._began = time.monotonic()
        self._due = 0.0
        self._seen = (self._began, 0)
        self.finished = Event()
        """Set when all captured packets have been processed."""

    def stop(self) -> None:
        """End the capture."""
        super().stop()
        self.feed.stop()

    def must_exit(self) -> bool:
        """Return whether a signal has arrived, or the terminal is closed."""
        self._live.end_if_unseen()
        return self._live.ended

    def status(self) -> int:
        """Return the exit status, as `sniff` does."""
        return self._live.status()

    def read(self) -> None:
        """Process the capture until it ends."""
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

    def again(self, rule: str) -> FileBackend:
        """Refuse, because the packets so far are decoded already.

        Raises:
            UsageError: always.

        """
        del rule
        raise UsageError("a running capture cannot be read again: start it with -d")

    def connection(self, number: int) -> ConnectionReport | None:
        """Return the report of a connection, the current one if it is still open."""
        return super().connection(number) or self._judged.get(number)

    def judged(self) -> list[ConnectionReport]:
        """Return the current reports of the connections that were updated last."""
        return list(self._judged.values())

    def named(self, endpoints: tuple[str, str], frame: int, number: int) -> int:
        """Return the live number of a connection found in a snapshot, which may lack its start."""
        lives = self._lives.get(frozenset(endpoints))
        if lives is None:
            return _UNLISTED + number
        # The last connection that begins at or before this frame.
        return lives[max(0, bisect_right(lives, (frame, _UNLISTED)) - 1)][1]

    @contextmanager
    def _again(self) -> Iterator[Session]:
        with _Snapshot(self) as session:
            yield session

    def _fits(self, path: str) -> None:
        super()._fits(path)
        folder = Path(path).absolute().parent
        if self.feed.note and folder.is_dir() and not os.access(folder, os.W_OK):
            raise UsageError(
                "start with --user NAME to write there, or name another folder: this program has "
                "given up root's rights"
            )

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
        """Update a connection's report and its entry in the list."""
        ends = frozenset((report.client, report.server))
        if report.connection not in self._entries:
            insort(self._lives.setdefault(ends, []), (report.first_frame, report.connection))
        self._entries[report.connection] = connection_entry(report)
        if len(self._entries) > MAX_LISTED:
            # The oldest entry is the first key of the dict.
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
        """List new datagrams; update the connections if that is due."""
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
        self._due = now + max(_UPDATE_S, 10 * (time.monotonic() - now))

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
            notes.append(f"The oldest {gone:,} datagrams are only in the file (--keep).")
        elif gone:
            notes.append(f"The oldest {gone:,} packets were dropped; {size} are kept (--keep).")
        if self.feed.own_drops:
            notes.append(
                f"{self.feed.own_drops:,} packets came too fast to analyse; the file has them."
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
    """Capture on an interface until the context ends.

    Args:
        interface: name or number.
        choices: how datagrams are decoded.
        capture_filter: libpcap filter; "" = everything.
        write: file to keep; None = temporary files that are deleted at the end.
        keep: megabytes of the capture that can be browsed, the newest ones; None = KEPT_MB.
        user: the user to parse as if run by root; None = the caller of sudo, otherwise nobody.
        quiet: print only errors on standard error.

    Raises:
        UsageError: root would parse as nobody, who cannot read the file again.
        NetdissectError: as `LiveFeed`.

    """
    account = successor(user)
    if write is not None and account is not None and not account.owns_files:
        raise UsageError(
            "as root, -w needs --user NAME: the file is read again, which `nobody` may not do"
        )
    load(choices, _LATE)
    folder = None
    try:
        if write is None:
            folder = tempfile.mkdtemp(prefix="netdissect-")
            if account is not None:
                # The parsing user removes the oldest files, and reads the others again.
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
