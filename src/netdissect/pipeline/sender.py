"""The sender of the rows of an index."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    hints: list[tuple[int, Any]] = field(default_factory=list)
    """(first frame, hints for decoding from that frame on)."""
    learnt: Any = None
    """The newest `Hints.extra`."""
    name: tuple[int, int] | bytes = b""
    """(connection, direction), or the key of an unknown flow."""

    def learn(self, frame: int, dialect: str, extra: Any) -> None:
        """Note the dialect and the `Hints.extra` that hold from a frame on."""
        self.dialect = dialect
        if self.hints and self.learnt is extra:
            return
        self.learnt = extra
        read = extra if self.protocol is None else self.protocol.for_layers(extra)
        if not self.hints or self.hints[-1][1] is not read:
            self.hints.append((frame, read))
