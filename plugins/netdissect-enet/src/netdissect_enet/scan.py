"""The events of an ENet datagram: units and acknowledgements by channel, and its connection."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect_enet import rules as enet
from netdissect_enet.commands import Head, read_datagram

_RELIABLE: Final = tuple(f"reliable[{channel}]" for channel in range(256))
_UNRELIABLE: Final = tuple(f"unreliable[{channel}]" for channel in range(256))
_ALIVE: Final = (int(Ev.STATE), "alive", None)
_CLIENT, _SERVER = 0, 1


class Learnt(NamedTuple):
    """What the handshake of a connection has established."""

    connect_id: int | None = None
    peers: tuple[int | None, int | None] = (None, None)
    """Peer numbers in the datagrams of client and server."""
    sessions: tuple[int | None, int | None] = (None, None)
    """Sessions in the datagrams of client and server."""
    earlier: tuple[Learnt, ...] = ()
    """The previous connection on the same addresses."""

    def matches(self, direction: int, head: Head) -> bool | None:
        """Return whether a datagram belongs to this connection; None if unknown."""
        peer, session = self.peers[direction], self.sessions[direction]
        if peer is None or session is None:
            return None
        return (peer, session) == (head.peer, head.session)


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    read = read_datagram(payload, hints.dialects[0])
    if read is None:
        return []
    head, commands, fault = read
    learnt: Learnt = hints.extra or Learnt()
    events: list[Event] = []
    first = commands[0][3] if commands else 0
    connects = (first, direction) == (enet.CONNECT, _CLIENT)
    # With another connectID, it answers a CONNECT of the previous connection.
    verifies = (first, direction) == (enet.VERIFY, _SERVER) and (
        learnt.connect_id in {None, commands[0][-2]}
    )
    if connects or verifies:
        updated = _learn(learnt, head, commands[0])
        if updated is None:
            return [(Ev.RESTART, "*")]
        learnt = updated
    else:
        owner = _owner(learnt, direction, head)
        if owner is None:
            return [(Ev.NOTE, "enet-wrong-peer", f"peer {head.peer}, session {head.session}")]
        if owner is not learnt:
            events.append((Ev.RESTART, "<"))
    for command in commands:
        _command(command, direction, head, events)
    if fault:
        events.append((Ev.NOTE, fault, None))
    if learnt != hints.extra:
        events.append((Ev.HINTS, Hints(hints.dialects, learnt)))
    if first not in {enet.CONNECT, enet.VERIFY}:
        events.append(_ALIVE)
    return events


def _learn(learnt: Learnt, head: Head, command: Any) -> Learnt | None:
    """Return what is known after a command of the handshake; None if it begins a new connection."""
    if command[3] == enet.CONNECT:
        connect_id = command[-3]
        if learnt.connect_id not in {None, connect_id}:
            return None
        return learnt._replace(connect_id=connect_id, peers=(None, command[6]))
    # The fields are named from the receiver's view: peer and session that it sends, and receives.
    return learnt._replace(
        connect_id=command[-2], peers=(command[6], head.peer), sessions=(command[8], command[7])
    )


def _owner(learnt: Learnt, direction: int, head: Head) -> Learnt | None:
    """Return the connection that a datagram belongs to; None if it is neither of the two."""
    matches = learnt.matches(direction, head)
    for earlier in learnt.earlier if not matches else ():
        if earlier.matches(direction, head):
            return earlier
    return learnt if matches is not False or head.peer == enet.NOBODY else None


def _command(command: Any, direction: int, head: Head, events: list[Event]) -> None:
    """Append the events of a command."""
    requests_ack, _, _, number, channel, seq, *body, _end = command
    name = enet.NAMES[number]
    space = "control" if channel == enet.PEER else _RELIABLE[channel]
    if number == enet.ACK:
        # Its channel is that of the command that it acknowledges.
        events += [(Ev.MESSAGE, name), (Ev.ACK, space, body[0], body[1])]
    elif requests_ack:
        content = (head.sent_time, (number, *body))
        if number == enet.VERIFY:
            events.append((Ev.ACK, "control", 1, -1))
        events.append((Ev.UNIT, name, space, seq, None, content))
    elif number == enet.SEND_UNSEQUENCED:
        events.append((Ev.PLAIN_UNIT, name, "unsequenced", body[0], body[-1]))
    elif number == enet.SEND_UNRELIABLE or (number == enet.UNRELIABLE_FRAGMENT and not body[3]):
        # All fragments of a message have its number: only the first one is the unit.
        full = seq << 16 | body[0]
        events.append((Ev.PLAIN_UNIT, name, _UNRELIABLE[channel], full, body[-1]))
    elif number == enet.DISCONNECT:
        events.append((Ev.PLAIN_UNIT, name, space, seq, (head.sent_time, body[0])))
    else:
        events.append((Ev.MESSAGE, name))
    _facts(number, body, direction, events)


def _facts(number: int, body: list[Any], direction: int, events: list[Event]) -> None:
    """Append the events about the connection itself."""
    if number == enet.CONNECT:
        events += [(Ev.STATE, "connect", None), (Ev.IDENTITY, "connect_id", f"{body[-2]:08x}"),
                   (Ev.IDENTITY, "data", body[-1])]  # fmt: skip
    if number == enet.VERIFY:
        events.append((Ev.STATE, "verify", None))
    if number in {enet.CONNECT, enet.VERIFY}:
        side = "server" if direction == _SERVER else "client"
        names = (f"{side}_peer", "", "", "mtu", "window_size", "channels", f"{side}_bandwidth_in",
                 f"{side}_bandwidth_out", "throttle_interval")  # fmt: skip
        events += [
            (Ev.IDENTITY, key, value) for key, value in zip(names, body, strict=False) if key
        ]
    if number == enet.VERIFY:
        events.append((Ev.IDENTITY, "sessions", f"{body[2]}/{body[1]}"))
    if number == enet.DISCONNECT:
        events.append((Ev.STATE, "disconnect", f"data {body[0]}"))
