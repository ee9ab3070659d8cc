"""What reads the datagrams of one direction and tells a sink their events by calls."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.sinks import EventSink

__all__ = ["Events", "Scanner"]

_MESSAGE: Final = Ev.MESSAGE
_UNIT: Final = Ev.UNIT
_ACK: Final = Ev.ACK
_NACK: Final = Ev.NACK


@cache
def _messages(types: tuple[str, ...]) -> list[Event]:
    """Return the MESSAGE of each type: shared by all connections, as events are never changed. With
    hundreds of types it would be most of what a connection takes.
    """
    return [(_MESSAGE, name) for name in types]


class Events(EventSink):
    """Makes a list of what it is told: for whoever looks at events."""

    __slots__ = ("_messages", "_spaces", "_types", "listed")

    def __init__(self, types: tuple[str, ...], spaces: tuple[str, ...]) -> None:
        self._types = types
        self._spaces = spaces
        self._messages = _messages(types)
        self.listed: list[Event] = []

    def begin(self) -> None:
        """Begin a list."""
        self.listed = []

    def message(self, type_: i64) -> None:
        """List a MESSAGE."""
        self.listed.append(self._messages[type_])

    def unit(
        self, type_: i64, space: i64, wire_seq: i64, labelled: bool | None, content: Any  # noqa: FBT001
    ) -> None:  # fmt: skip
        """List a UNIT."""
        name = self._types[type_] if type_ >= 0 else None
        self.listed.append((_UNIT, name, self._spaces[space], wire_seq, labelled, content))

    def plain_unit(self, type_: i64, space: i64, wire_seq: i64, content: Any) -> None:
        """List a PLAIN_UNIT."""
        name = self._types[type_] if type_ >= 0 else None
        self.listed.append((Ev.PLAIN_UNIT, name, self._spaces[space], wire_seq, content))

    def run(self, space: i64, wire_seq: i64, types: list[str]) -> None:
        """List a RUN."""
        self.listed.append((Ev.RUN, self._spaces[space], wire_seq, types))

    def numbered(self, type_: i64, space: i64, wire_seq: i64) -> None:
        """List a NUMBERED."""
        self.listed.append((Ev.NUMBERED, self._types[type_], self._spaces[space], wire_seq))

    def ack(self, space: i64, base: i64, bits: i64) -> None:
        """List an ACK."""
        self.listed.append((_ACK, self._spaces[space], base, bits))

    def nack(self, space: i64, base: i64, bits: i64) -> None:
        """List a NACK."""
        self.listed.append((_NACK, self._spaces[space], base, bits))

    def event(self, event: Event) -> None:
        """List any other one."""
        self.listed.append(event)


class Scanner:
    """Reads the datagrams of one direction; what it keeps of their hints saves time alone."""

    __slots__ = ("_events", "parts", "spaces", "types")

    def __init__(self, types: tuple[str, ...], spaces: tuple[str, ...]) -> None:
        self.types = types
        self.spaces = spaces
        """What the numbers that a sink is told stand for."""
        self.parts: list[Event] = []
        """Of a datagram that was told and is for the assembler: its own event, and its PARTs, which
        no sink is told.
        """
        self._events: Events | None = None
        """Made when it is first needed: hardly any connection has its events looked at here."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Tell the events of a usual datagram, and return None. Of others, those that begin a
        connection (`StateMachine.begins`, RESTART) among them, return the events and tell none.
        """
        raise NotImplementedError

    def events(self, payload: bytes, hints: Hints) -> list[Event]:
        """Return the events of a datagram."""
        sink = self._events
        if sink is None:
            sink = self._events = Events(self.types, self.spaces)
        found = self.scan(sink, payload, hints)
        return sink.listed + self.parts[1:] if found is None else found
