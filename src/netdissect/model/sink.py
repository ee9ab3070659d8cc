"""What takes the events of a datagram one by one, as they are read: no object is made of the usual
ones.
"""

from __future__ import annotations

from typing import Any

from netdissect.model.events import Event
from netdissect.model.native import i64

__all__ = ["Sink"]


class Sink:
    """Takes the events of one datagram in wire order, the usual ones by calls; see `Ev` for what
    they mean. Types and spaces are places in lists that both sides know (`Scanner`).
    """

    __slots__ = ()

    def begin(self) -> None:
        """Take that the events of the datagram at hand follow; none begins a connection."""
        raise NotImplementedError

    def message(self, type_: i64) -> None:
        """Take a MESSAGE."""
        raise NotImplementedError

    def unit(
        self, type_: i64, space: i64, wire_seq: i64, labelled: bool | None, content: Any  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Take a UNIT; type -1 counts as no message."""
        raise NotImplementedError

    def plain_unit(self, type_: i64, space: i64, wire_seq: i64, content: Any) -> None:
        """Take a PLAIN_UNIT; type as above."""
        raise NotImplementedError

    def run(self, space: i64, wire_seq: i64, types: list[str]) -> None:
        """Take a RUN."""
        raise NotImplementedError

    def numbered(self, type_: i64, space: i64, wire_seq: i64) -> None:
        """Take a NUMBERED."""
        raise NotImplementedError

    def ack(self, space: i64, base: i64, bits: i64) -> None:
        """Take an ACK."""
        raise NotImplementedError

    def nack(self, space: i64, base: i64, bits: i64) -> None:
        """Take a NACK."""
        raise NotImplementedError

    def event(self, event: Event) -> None:
        """Take an event of any kind."""
        raise NotImplementedError
