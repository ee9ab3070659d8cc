"""Scanners: they read the datagrams of one direction and report the events to a sink by calls."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.sinks import EventSink

_MESSAGE: Final = Ev.MESSAGE
_UNIT: Final = Ev.UNIT
_ACK: Final = Ev.ACK
_NACK: Final = Ev.NACK


@cache
def _messages(types: tuple[str, ...]) -> list[Event]:
    """Return the MESSAGE event of each type.

    All connections share them, because events never change. A protocol can have hundreds of types:
    one list per connection would take most of a connection's memory.
    """
    return [(_MESSAGE, name) for name in types]


class Events(EventSink):
    """Collects the reported events in a list, for callers that look at events."""

    __slots__ = ("_messages", "_spaces", "_types", "listed")

    def __init__(self, types: tuple[str, ...], spaces: tuple[str, ...]) -> None:
        self._types = types
        self._spaces = spaces
        self._messages = _messages(types)
        self.listed: list[Event] = []

    def begin(self) -> None:
        """Start a new list."""
        self.listed = []

    def message(self, type_: i64) -> None:
        """Append a MESSAGE."""
        self.listed.append(self._messages[type_])

    def unit(
        self, type_: i64, space: i64, wire_seq: i64, labelled: bool | None, content: Any  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Append a UNIT."""
        name = self._types[type_] if type_ >= 0 else None
        self.listed.append((_UNIT, name, self._spaces[space], wire_seq, labelled, content))

    def plain_unit(self, type_: i64, space: i64, wire_seq: i64, content: Any) -> None:
        """Append a PLAIN_UNIT."""
        name = self._types[type_] if type_ >= 0 else None
        self.listed.append((Ev.PLAIN_UNIT, name, self._spaces[space], wire_seq, content))

    def run(self, space: i64, wire_seq: i64, types: list[str]) -> None:
        """Append a RUN."""
        self.listed.append((Ev.RUN, self._spaces[space], wire_seq, types))

    def same_run(self, type_: i64, space: i64, wire_seq: i64, count: i64) -> None:
        """Append a RUN."""
        self.run(space, wire_seq, [self._types[type_]] * int(count))

    def numbered(self, type_: i64, space: i64, wire_seq: i64) -> None:
        """Append a NUMBERED."""
        self.listed.append((Ev.NUMBERED, self._types[type_], self._spaces[space], wire_seq))

    def ack(self, space: i64, base: i64, bits: i64) -> None:
        """Append an ACK."""
        self.listed.append((_ACK, self._spaces[space], base, bits))

    def nack(self, space: i64, base: i64, bits: i64) -> None:
        """Append a NACK."""
        self.listed.append((_NACK, self._spaces[space], base, bits))

    def event(self, event: Event) -> None:
        """Append an event of any other kind."""
        self.listed.append(event)


class Scanner:
    """Reads the datagrams of one direction of a connection.

    What a scanner remembers of the connection's hints only saves time: any scanner of the same
    direction returns the same events for the same datagram and hints.
    """

    __slots__ = ("_events", "follows", "parts", "spaces", "types")

    def __init__(self, types: tuple[str, ...], spaces: tuple[str, ...]) -> None:
        self.types = types
        self.spaces = spaces
        """Names of the types and spaces that a sink receives as indices."""
        self.parts: list[Event] = []
        """For the assembler: the UNIT of the last reported datagram, then its PARTs, which are not
        reported to the sink. Empty where there is no PART.
        """
        self.follows = False
        """Whether an inspector that asks the scanner wants the last reported datagram, also without
        PARTs.
        """
        self._events: Events | None = None
        """Created on first use: few connections have their events listed."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Report the events of an ordinary datagram to the sink and return None.

        Of any other datagram return the events and report none. Those that may begin a connection
        (`StateMachine.begins`, RESTART) are always returned.
        """
        raise NotImplementedError

    def events(self, payload: bytes, hints: Hints) -> list[Event]:
        """Return the events of a datagram as a list."""
        sink = self.lister()
        found = self.scan(sink, payload, hints)
        # The first entry of `parts` is the UNIT, which the sink has listed.
        return sink.listed + self.parts[1:] if found is None else found

    def lister(self) -> Events:
        """Return the sink that lists events instead of reporting them."""
        sink = self._events
        if sink is None:
            sink = self._events = Events(self.types, self.spaces)
        return sink


def report_all(sink: EventSink, events: list[Event]) -> None:
    """Report events to a sink one by one."""
    for event in events:
        sink.event(event)
