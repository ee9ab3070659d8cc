"""The interface between the browser and the capture that it shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from netdissect.model.annotations import CodeRow
from netdissect.model.names import FieldInfo
from netdissect.model.reports import Anomaly, ConnectionReport
from netdissect.pipeline.index import Index
from netdissect.plot.history import History


@dataclass(frozen=True, slots=True)
class Entry:
    """A connection in the list."""

    number: int
    dialect: str
    client: str
    server: str
    severity: str = ""
    """Severity of its worst finding; "" = none, or not known yet."""
    again: int | None = None
    """Copies that were sent again; None = not known yet."""
    verdict: str = ""
    """One short line."""
    badness: int = 0
    """Sort key of "worst first": larger is worse."""
    first_ns: int = 0
    last_ns: int = 0
    datagrams: int = 0
    slowest_ms: float = 0.0
    """The largest delay of a unit beyond the round-trip time."""


@dataclass(slots=True)
class Loaded:
    """What is known of the capture so far. One thread writes it and increments `version` at each
    change.
    """

    version: int = 0
    share: float | None = 0.0
    """How much of the file has been read, 0 to 1; None = its size is unknown."""
    first_ns: int = 0
    done: bool = False
    live: str = ""
    """State of a running capture, for the title; "" for a file, and after the capture has ended."""
    entries: list[Entry] = field(default_factory=list)
    """Worst first. Of a file they are empty until all of it has been read."""
    anomalies: list[Anomaly] = field(default_factory=list)
    yield_until: float = 0.0
    """Until this time (monotonic clock, s), reading leaves the processor to the screen: a key was
    pressed.
    """
    notes: list[str] = field(default_factory=list)
    """Warnings shown above the list: a file that is cut short, a limit that was reached."""

    @property
    def ready(self) -> bool:
        """Whether there are connections to show: the file was read, or the capture is running."""
        return self.done or bool(self.live)


class Backend(Protocol):
    """The capture, and what can be done with it. `read`, `select`, `history`, `write` and `report`
    are slow and run in threads of their own; all other methods return at once.
    """

    name: str
    index: Index
    loaded: Loaded

    def read(self) -> None:
        """Read the capture to its end; fills `index` and `loaded`."""

    def must_exit(self) -> bool:
        """Return whether a signal ends the program, or its terminal is gone."""

    def status(self) -> int:
        """Return the exit status of the program."""

    def stop(self) -> None:
        """Make all slow methods return soon."""

    def halt(self) -> bool:
        """Stop reading but keep what was read; return False if there was nothing left to read."""

    def connection(self, number: int) -> ConnectionReport | None:
        """Return the report of a connection; None if it is not known yet."""

    def check(self, text: str) -> tuple[str, int] | None:
        """Return what is wrong with a filter, and at which character; None if nothing is."""

    def filters_later(self) -> bool:
        """Return whether `select` waits until all of a large file has been read."""

    def select(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the frames that match a filter, each with the index (from 0) of the matching
        datagram among those of its frame.
        """

    def history(self, number: int, only: Iterable[int] | None = None) -> History | None:
        """Return the data for the plots and units of a connection, or those of some frames."""

    def write(self, path: str, frames: Sequence[int], whole: Collection[int] = ()) -> str:
        """Write frames to a capture file, and what TCP sent without a message in the `whole`
        connections; return a message about it.
        """

    def report(self, path: str) -> str:
        """Write the HTML report; return a message about it."""

    def again(self, rule: str) -> Backend:
        """Return the same capture with one more rule of `-d` ("" = none), to be read from its
        beginning.

        Raises:
            NetdissectError: no such rule, or this cannot be done.

        """

    def protocols(self) -> Sequence[FieldInfo]:
        """Return the protocols and dialects that a port can be decoded as."""

    def fields(self) -> Sequence[FieldInfo]:
        """Return the fields that filters may contain."""

    def codes(self) -> dict[str, CodeRow]:
        """Return the catalogue of findings."""
