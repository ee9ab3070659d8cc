"""The sender of the rows of an index."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from netdissect.protocols.base import Protocol


@dataclass(slots=True)
class Sender:
    """The sender of the datagram of a row: one direction of a connection, or an unknown flow."""

    connection: int | None
    direction: int | None
    transport: str
    src: str
    dst: str
    protocol: Protocol | None = None
    dialect: str | None = None
    """The present dialect; it may change."""
    rows: int = 0
    """Datagrams so far."""
    _hints: list[tuple[int, Any]] | None = None
    """(first frame, hints for decoding from that frame on); None for most senders, who have none.
    """
    learnt: Any = None
    """The newest `Hints.extra`."""
    name: tuple[int, int] | bytes = b""
    """(connection, direction), or the key of an unknown flow."""

    def learn(self, frame: int, dialect: str, extra: Any) -> None:
        """Note the dialect and the `Hints.extra` that hold from a frame on."""
        self.dialect = dialect
        if self.rows and self.learnt is extra:
            return
        self.learnt = extra
        read = extra if self.protocol is None else self.protocol.for_layers(extra)
        if self._hints is None and read is not None:
            self._hints = [(0, None)] if self.rows else []
        if self._hints is not None and not (self._hints and self._hints[-1][1] is read):
            self._hints.append((frame, read))

    def hints_at(self, frame: int) -> Any:
        """Return the hints that hold at a frame; None if there are none."""
        known = self._hints
        return None if known is None else known[_newest(known, frame)][1]

    def forget(self, frame: int) -> None:
        """Drop the hints that no longer hold at a frame."""
        if self._hints is not None:
            self._hints = self._hints[_newest(self._hints, frame) :]


def _newest(known: list[tuple[int, Any]], frame: int) -> int:
    """Return the index of the newest hints up to a frame, or else of the first ones."""
    return max(0, bisect_right(known, frame, key=lambda each: each[0]) - 1)
