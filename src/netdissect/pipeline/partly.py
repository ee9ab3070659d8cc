"""What counts of the events of a datagram that is not taken as it stands."""

from __future__ import annotations

from typing import Final

from netdissect.model.events import Ev, Event

__all__ = ["messages_alone", "no_faults", "nothing_new"]

_NOTE: Final = Ev.NOTE
_RESTART: Final = Ev.RESTART
_MESSAGE: Final = Ev.MESSAGE
_TYPED: Final = frozenset({_MESSAGE, Ev.UNIT, Ev.PLAIN_UNIT, Ev.NUMBERED})
"""Events that count as a message, their type second."""


def messages_alone(events: list[Event]) -> list[Event]:
    """Return the messages of a second sight: nothing else of it counts."""
    return [(_MESSAGE, event[1]) for event in events if event[0] in _TYPED and event[1]]


def nothing_new(events: list[Event]) -> list[Event]:
    """Return the events of a datagram that began no connection after all."""
    return [event for event in events if event[0] != _RESTART or event[1] != "?"]


def no_faults(events: list[Event]) -> list[Event]:
    """Return the events of a datagram that the capture has cut: what is missing is no fault."""
    return [event for event in events if event[0] not in (_NOTE, _RESTART)]
