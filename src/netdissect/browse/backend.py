"""What the browser asks of the rest of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from netdissect.model.annotations import CodeRow
from netdissect.model.names import FieldInfo
from netdissect.model.reports import Anomaly, ConnectionReport
from netdissect.pipeline.index import Index
from netdissect.plot.history import History

__all__ = ["Backend", "Entry", "Loaded"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One connection in the list."""

    number: int
    dialect: str
    client: str
    server: str
    severity: str = ""
    """Of its worst finding; "" = none, or not known yet."""
    again: int | None = None
    """Copies that were sent again; None = not known yet."""
    verdict: str = ""
    """In few words."""
    badness: int = 0
    first_ns: int = 0
    last_ns: int = 0
    datagrams: int = 0
    slowest_ms: float = 0.0
    """By how much its slowest unit was late."""


@dataclass(slots=True)
class Loaded:
    """What is known of the capture so far. One thread writes it; `version` grows as it changes."""

    version: int = 0
    share: float | None = 0.0
    """How much of the file is read; None = its size is not known."""
    first_ns: int = 0
    done: bool = False
    live: str = ""
    """How a capture that runs goes, for the title; "" for a file, and once it has ended."""
    entries: list[Entry] = field(default_factory=list)
    """Worst first; empty until the capture is read, unless it runs."""
    anomalies: list[Anomaly] = field(default_factory=list)
    asked_until: float = 0.0
    """Until when (monotonic clock) the reading gives way to the answer to a key."""
    notes: list[str] = field(default_factory=list)
    """What must be said above the list: a file cut short, a bound that was hit."""

    @property
    def ready(self) -> bool:
        """Whether more than a list may be made of it: all is there, or all that there is yet."""
        return self.done or bool(self.live)


class Backend(Protocol):
    """The capture, and what can be done with it. Every method but `read`, `select`, `history`,
    `write` and `report` is quick; those run in threads of their own.
    """

    name: str
    index: Index
    loaded: Loaded

    def read(self) -> None:
        """Read the capture once: fills `index` and `loaded`."""

    def told_to_end(self) -> bool:
        """Return whether a signal asks the program to end, or its terminal has gone."""

    def status(self) -> int:
        """Return the exit status of the program, once all is seen."""

    def stop(self) -> None:
        """Have what runs end soon."""

    def halt(self) -> bool:
        """Read no further, and keep what was read; return whether anything is left to read."""

    def connection(self, number: int) -> ConnectionReport | None:
        """Return the report of a connection; None while it is not known."""

    def check(self, text: str) -> str | None:
        """Return what is wrong with a filter; None where it is right."""

    def select(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield frames that match a filter, and which of a frame's rows each is, from 0."""

    def history(self, number: int) -> History | None:
        """Return everything that is drawn of a connection."""

    def write(self, path: str, frames: Sequence[int]) -> str:
        """Write frames to a file and return what to say."""

    def report(self, path: str) -> str:
        """Write the report and return what to say."""

    def decoded_as(self, rule: str) -> Backend:
        """Return the same capture, to be read from its beginning with one more rule of `-d`.

        Raises:
            NetdissectError: no such rule, or this cannot be done.

        """

    def protocols(self) -> Sequence[FieldInfo]:
        """Return what a port may be decoded as."""

    def fields(self) -> Sequence[FieldInfo]:
        """Return the fields that a filter may name."""

    def codes(self) -> dict[str, CodeRow]:
        """Return the catalogue of findings."""
