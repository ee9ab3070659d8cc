"""`scan` of EOUDP: one datagram to its events. Layout comes from the derived readers alone."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from netdissect.dissect.readers import eoudp as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.eoudp.dialects import ROWS, Row, row_of
from netdissect.protocols.eoudp.recognition import decided
from netdissect.protocols.eoudp.rules import SPACE
from netdissect.protocols.eoudp.state import DecoderState
from netdissect.wire.eoudp import TEXTS, legal, number_order, text_reading
from netdissect.wire.eoudp_names import (
    FAR_ID,
    FOREIGN,
    RECEIVE_LIMIT,
    WALL_CLOCK_MS,
    command_name,
    oversize,
    size_mismatch,
    type_name,
    wrong_size,
)

__all__ = ["scan"]


_Reader = Callable[[bytes, int, int], Any]
_READ_PAIR: _Reader = read.read_EoudpPair
_READ_ACK: _Reader = read.read_EoudpAck
_READ_ACCEPT: _Reader = read.read_EoudpConnectAccept
_READ_DIGITS: _Reader = read.read_EoudpConnectAcceptText

_LOW: Final = 0xFFFFFFFF
"""What of an id is compared: over the top of a 32-bit counter the low bits go on."""
_BELOW_ZERO: Final = (1 << 64) - FAR_ID
"""How such a counter looks behind its top."""
_NEAR: Final = 1 << 16  # beyond, an id goes on from none of before
_STRAY: Final = -1
"""Stands for an id that goes on from no other: it may be one byte gone wrong."""
_STRANGERS: Final = 8
"""Datagrams of one other dialect from which on a direction speaks that one."""
_CLOCK_LOW, _CLOCK_HIGH = WALL_CLOCK_MS
_PACKET_INFO: Final = 0x00
_ACKNOWLEDGE: Final = 0x01
_ACCEPT: Final = 0x02
_REJECT: Final = 0x03
_COMPONENT: Final = 0x0C
_CONNECT: Final = 0x81
_DISCONNECT: Final = 0x82
_EVENT: Final = 0x8B
_IMPORTANT_EVENT: Final = 0x10
_PAIR: Final = 8  # bytes of what one side has received and sent
_USUAL_SIZES: Final = {_PACKET_INFO: 8, _ACKNOWLEDGE: 8, _EVENT: 5}
"""Legal content sizes of the commonest commands, to spare them the full check."""
_LOST: Final = b""
"""Stands for the first message of an epoch where that is not in the capture."""
_U32: Final = Struct("<I").unpack_from


_RFC01_ONLY: Final = frozenset({_IMPORTANT_EVENT, 0x11, 0x8A, 0x8C})
"""Commands that may show a flow to be RFC_01's."""
_MEANINGS: Final = frozenset(
    {"ACK", "CONNECT_ACCEPT", "PACKET_INFO", "CONNECT", "CONNECT_REJECT", "DISCONNECT"}
)
"""Commands of the documents that say more than their own number."""


Scanner: TypeAlias = Callable[[list[Event], bytes, int, int, Hints], Hints | None]
"""Handler of a command: (events, payload, start of the content, direction, hints) -> new hints."""


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:  # noqa: C901, PLR0912
    """Return the events of one datagram. One function: a call costs as much as what it would do."""
    dialect = hints.dialects[direction]
    row, reader, odd, flagged, must, lengths_at = _FAST.get(dialect) or _FAST[row_of(dialect).name]
    size = len(payload)
    head = reader(payload, 0, size)
    if head is None:
        text = f"{size} bytes, the header of {row.name} has {row.start}"
        return _mismatch(row, [(Ev.NOTE, "truncated", text)], payload, direction, hints)
    if head[-2] + head[-1] != size:
        notes: list[Event] = [(Ev.NOTE, *size_mismatch(head[-2], size - row.start))]
        if size > RECEIVE_LIMIT:
            notes.append((Ev.NOTE, *oversize(size)))
        return _mismatch(row, notes, payload, direction, hints)
    if flagged:
        command, _, number, flag, _, start = head
    else:
        command, _, number, _, start = head
        flag = command in must
    if not lengths_at:
        return _document(row, head, payload, direction, hints)
    events: list[Event] = []
    learnt = None
    odd(head, direction, events)
    if size > RECEIVE_LIMIT:
        events.append((Ev.NOTE, *oversize(size)))
    if number >= FAR_ID:
        number, learnt = _counted(number, direction, hints)
    if (number <= 1 or hints.extra.openers[direction] is None) and command != _ACCEPT:
        learnt = _epoch(events, row, payload, number, direction, learnt or hints) or learnt
    name = _NAMES[command] if command != _DISCONNECT else type_name(row.name, command, size - start)
    if command == _ACCEPT or number < 0:
        # The server accepts with the id 0 of a counter that it then throws away.
        events.append((Ev.MESSAGE, name))
    elif not flag:
        events.append((Ev.NUMBERED, name, SPACE, number))
    elif row.acked is None or command in row.acked:
        events.append((Ev.UNIT, name, SPACE, number, None, payload))
    else:
        events.append((Ev.PLAIN_UNIT, name, SPACE, number, payload))
    if command == _COMPONENT:
        # Most of all datagrams are components: the two lengths must lead to the end.
        if (
            size < lengths_at + 8
            or size < (after := lengths_at + 4 + _U32(payload, lengths_at)[0]) + 4
            or after + 4 + _U32(payload, after)[0] != size
        ):
            events.append((Ev.NOTE, *wrong_size(name, size - start)))
        if learnt is None:
            return events
    else:
        handler = _HANDLERS.get(command)
        if handler is not None:
            learnt = handler(events, payload, start, direction, learnt or hints) or learnt
        if size - start != _USUAL_SIZES.get(command):
            name = command_name(row.name, command, size - start)
            if legal(row.name, name, payload[start:]) is False:
                events.append((Ev.NOTE, *wrong_size(name, size - start)))
    if learnt is not None:
        events.append((Ev.HINTS, learnt))
    return events


_FAST: Final = {
    name: (row, row.read, row.odd, row.flagged, row.must, row.lengths_at)
    for name, row in ROWS.items()
}
"""What `scan` needs of a row, in one look."""
_NAMES: Final = [type_name("exodia-late", command, 0) for command in range(256)]
"""Command -> name under which it is counted, but for 0x82, which v1.0 uses for keys."""


# -- findings --------------------------------------------------------------------------------------


def _mismatch(
    row: Row, notes: list[Event], payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Take a datagram that is cut or whose size field does not fit: another dialect, or a broken
    one, of which `notes` say what is wrong.

    Receivers drop it and count nothing. A guessed dialect gives way to the one that fits.
    """
    found, sure = decided(payload)
    begun = None if found is None else _other_release(found, payload, direction, hints, sure=sure)
    if begun is not None:
        return [(Ev.RESTART, "*"), (Ev.HINTS, begun)]
    if found is not None and hints.extra.undecided[direction] and found != row.name:
        dialects = list(hints.dialects)
        dialects[direction] = found
        undecided = list(hints.extra.undecided)
        undecided[direction] = not sure
        learnt = Hints(
            (dialects[0], dialects[1]),
            hints.extra._replace(undecided=(undecided[0], undecided[1])),
        )
        events = scan(payload, direction, learnt)
        # The new dialect's rules must be in force before its units are counted.
        return events if events[-1][0] == Ev.HINTS else [(Ev.HINTS, learnt), *events]
    if found is not None:
        notes.append((Ev.NOTE, "eoudp-other-dialect", f"it is a datagram of {found}"))
        if sure:
            notes.append((Ev.HINTS, _stranger(found, direction, hints)))
    return notes


def _other_release(
    found: str, payload: bytes, direction: int, hints: Hints, *, sure: bool
) -> Hints | None:
    """Return the hints of a new connection where another release has taken over the addresses: it
    asks for a connection, or many datagrams and no PACKET_INFO between them are of it.
    """
    name, count = hints.extra.foreign[direction]
    asks = payload[0] == _CONNECT and not direction and hints.extra.openers[0] is not None
    if not asks and not (sure and name == found and count + 1 >= _STRANGERS):
        return None
    pair = (hints.dialects[0], found) if direction else (found, found)
    # Nothing of the other side's has been heard yet.
    return Hints(pair, DecoderState(undecided=(bool(direction), not direction)))


def _stranger(found: str, direction: int, hints: Hints) -> Hints:
    """Return the hints after one more datagram of another dialect."""
    name, count = hints.extra.foreign[direction]
    strangers = list(hints.extra.foreign)
    strangers[direction] = (found, count + 1 if name == found else 1)
    learnt = hints.extra._replace(foreign=(strangers[0], strangers[1]))
    return Hints(hints.dialects, learnt)


# -- epochs ----------------------------------------------------------------------------------------


def _epoch(
    events: list[Event], row: Row, payload: bytes, number: int, direction: int, hints: Hints
) -> Hints | None:
    """Tell whether the sender numbers afresh with this datagram; return what was learnt.

    A server does so after every CONNECT, a client when its program is started anew. A network copy
    of the first message, and one that comes late, begin nothing.
    """
    extra: DecoderState = hints.extra
    opener = extra.openers[direction]
    first = number == row.first_id
    key = payload[:1] + payload[row.stamp_end :] if row.document else payload
    server = direction == 1
    restart = False
    if opener is None:
        if payload[0] not in (_CONNECT, _REJECT):
            events.append((Ev.STATE, "alive", None))
        if extra.undecided[direction] and not row.document and not decided(payload)[1]:
            events.append((Ev.NOTE, "eoudp-ambiguous-dialect", f"read as {row.name}"))
        opener = key if first else _LOST
    elif first and key != opener:
        begins = extra.pending if server else payload[0] == _CONNECT
        restart = begins or opener != _LOST
        opener = key
    elif server and extra.pending and number == row.first_id + 1:
        restart = True
        opener = _LOST
    else:
        return None
    if restart:
        events.append((Ev.RESTART, SPACE))
    openers = (extra.openers[0], opener) if server else (opener, extra.openers[1])
    pending = extra.pending and not server
    return Hints(hints.dialects, extra._replace(openers=openers, pending=pending))


# -- commands --------------------------------------------------------------------------------------


def _packet_info(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    row = row_of(hints.dialects[direction])
    size = len(payload) - start
    if size < _PAIR:
        return None
    last = len(payload) - size % _PAIR - _PAIR
    for at in range(start, last + 1, _PAIR):
        pair = _READ_PAIR(payload, at, len(payload))
        read.odd_EoudpPair(pair, direction, events)
    received, sent, _ = pair
    number = row.read(payload, 0, len(payload))[2]  # type: ignore[index]
    events.append((Ev.PROBE, "packet_info", number & 0xFFFFFFFF))
    if received >= 0 and sent >= 0:
        # Real receivers take no PACKET_INFO but one of 8 bytes.
        events.append((Ev.TALLY, "packet_info", sent, received, size == _PAIR))
    if size > _PAIR and direction:
        text = f"counters of {size // _PAIR} clients, its own come last"
        events.append((Ev.NOTE, "eoudp-pairs", text))
    elif size > _PAIR and size % _PAIR == 0:
        events.append((Ev.NOTE, *wrong_size("PACKET_INFO", size)))
    stamp = row.read(payload, 0, len(payload))[1]  # type: ignore[index]
    if row.wide_stamp and not row.document and _CLOCK_LOW <= stamp < _CLOCK_HIGH:
        events.append((Ev.CLOCK, stamp, True))
    learnt = _informed(events, direction, hints)
    if not hints.extra.foreign[direction][1]:
        return learnt
    # What speaks its dialect every second has not been replaced.
    strangers = list(hints.extra.foreign)
    strangers[direction] = ("", 0)
    extra = (learnt or hints).extra
    return Hints(hints.dialects, extra._replace(foreign=(strangers[0], strangers[1])))


def _informed(events: list[Event], direction: int, hints: Hints) -> Hints | None:
    """Take a PACKET_INFO or a key: a client that asked sends none before it was accepted, whether
    or not the capture has that.
    """
    if direction or hints.extra.accepted or not hints.extra.connect:
        return None
    events.append((Ev.STATE, "informs", None))
    return Hints(hints.dialects, hints.extra._replace(accepted=True))


def _key(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    del payload, start
    return _informed(events, direction, hints)


def _acknowledge(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    values = _READ_ACK(payload, start, len(payload))
    if values is not None:
        events += _acks(values, direction, hints)
    return None


def _counted(number: int, direction: int, hints: Hints) -> tuple[int, Hints | None]:
    """Return an id as it is compared with others, or _STRAY, and what was learnt of it."""
    if number < FAR_ID or number >= _BELOW_ZERO:
        return number & _LOW, None
    far = hints.extra.far
    first = hints.extra.openers[direction] is None
    near = number <= _LOW or first or abs(number - far[direction]) < _NEAR
    far = (far[0], number) if direction else (number, far[1])
    learnt = Hints(hints.dialects, hints.extra._replace(far=far))
    return (number & _LOW if near else _STRAY), learnt


def _acks(values: tuple[Any, ...], direction: int, hints: Hints) -> list[Event]:
    """Return the events of an acknowledged id, the first of the values."""
    number = values[0]
    if number < FAR_ID:
        return [(Ev.ACK, SPACE, number, 0)]
    events: list[Event] = []
    read.odd_EoudpAck(values, direction, events)
    named, _ = _counted(number, 1 - direction, hints)
    if named >= 0:
        events.append((Ev.ACK, SPACE, named, 0))
    return events


def _accept(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    if not direction:
        events.append((Ev.NOTE, "eoudp-wrong-direction", "CONNECT_ACCEPT from the client"))
        return None
    index = None
    values = _READ_ACCEPT(payload, start, len(payload))
    if values is not None and values[-1] == len(payload):
        index = values[0]
    elif hints.dialects[direction].startswith("exodia-early"):
        digits = _READ_DIGITS(payload, start, len(payload))
        index = None if digits is None else digits[0]
    return _accepted(events, index, hints)


def _accepted(events: list[Event], index: int | None, hints: Hints) -> Hints | None:
    events.append((Ev.STATE, "accept", None))
    if index is not None:
        events.append((Ev.IDENTITY, "client_index", index))
    if hints.extra.accepted:
        return None
    return Hints(hints.dialects, hints.extra._replace(accepted=True))


def _reject(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    del payload, start, direction
    events.append((Ev.STATE, "reject", "CONNECT_REJECT"))
    if hints.extra.accepted:
        events.append((Ev.NOTE, "eoudp-reject-ignored", ""))
    return None


def _connect(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    del start
    if direction:
        return None
    extra: DecoderState = hints.extra
    if payload != extra.connect and extra.connect:
        found, sure = decided(payload)
        if sure and found is not None and found != row_of(hints.dialects[0]).name:
            events.insert(0, (Ev.RESTART, "*"))
            return _other_release(found, payload, direction, hints, sure=True)
    _stamped(events, payload, hints, direction)
    events.append((Ev.STATE, "connect", None))
    if payload == extra.connect:
        return None
    if extra.connect:
        events.append((Ev.NOTE, "eoudp-connect-again", ""))
    return Hints(hints.dialects, extra._replace(connect=payload, pending=True))


def _stamped(events: list[Event], payload: bytes, hints: Hints, direction: int) -> None:
    """Take the stamp by which a server tells who is silent; a CONNECT keeps that of its first."""
    row = row_of(hints.dialects[direction])
    stamp = row.read(payload, 0, len(payload))[1]  # type: ignore[index]
    if row.wide_stamp and not row.document and _CLOCK_LOW <= stamp < _CLOCK_HIGH:
        events.append((Ev.CLOCK, stamp, False))


def _disconnect(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    if len(payload) > start and hints.dialects[direction].startswith("exodia-early"):
        return _informed(events, direction, hints)  # the key event of v1.0
    _stamped(events, payload, hints, direction)
    events.append((Ev.STATE, "disconnect", "DISCONNECT"))
    if direction:
        events.append((Ev.NOTE, "eoudp-timeout-notice", ""))
    elif hints.extra.accepted:
        return Hints(hints.dialects, hints.extra._replace(accepted=False))
    return None


_HANDLERS: Final[dict[int, Scanner]] = {
    _PACKET_INFO: _packet_info,
    _ACKNOWLEDGE: _acknowledge,
    _ACCEPT: _accept,
    _REJECT: _reject,
    _CONNECT: _connect,
    _DISCONNECT: _disconnect,
    _EVENT: _key,
}
"""Command -> what it says beyond its own number."""


# -- documents -------------------------------------------------------------------------------------


def _document(
    row: Row, head: tuple[Any, ...], payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a datagram in the form of the texts."""
    command, number = head[0], head[2]
    flag = head[3] if row.flagged else command in row.must
    size = len(payload)
    content = payload[row.start :]
    name = command_name(row.name, command, len(content))
    events: list[Event] = []
    row.odd(head, direction, events)
    if size > RECEIVE_LIMIT:
        events.append((Ev.NOTE, *oversize(size)))
    extra = hints.extra
    number, learnt = _counted(number, direction, hints)
    if command in _RFC01_ONLY:
        learnt = _revision(row, command, name, learnt or hints) or learnt
    if extra.order is None and name in TEXTS:
        learnt = _order(name, content, learnt or hints) or learnt
    if number <= row.first_id + 1 or extra.openers[direction] is None:
        learnt = _epoch(events, row, payload, number, direction, learnt or hints) or learnt
    type_ = name.removeprefix("UNKNOWN_")
    if number < 0:
        events.append((Ev.MESSAGE, type_))
    elif flag:
        # Server copies carry a fresh time stamp, so it is no part of what is compared.
        key = payload[:1] + payload[row.stamp_end :]
        events.append((Ev.UNIT, type_, SPACE, number, None, key))
    else:
        events.append((Ev.NUMBERED, type_, SPACE, number))
    if name in _MEANINGS:
        learnt = _meaning(events, name, payload, row, direction, learnt or hints) or learnt
    if len(content) != _USUAL_SIZES.get(command) and legal(row.name, name, content) is False:
        events.append((Ev.NOTE, *wrong_size(name, len(content))))
    if learnt is not None:
        events.append((Ev.HINTS, learnt))
    return events


def _revision(row: Row, command: int, name: str, hints: Hints) -> Hints | None:
    """Learn that a flow numbers its commands as RFC_01 does."""
    if row.name != "rfc02":
        return None
    rfc01 = command in FOREIGN["rfc02"] or (
        command == _IMPORTANT_EVENT and name == "DELETE_COMPONENT"
    )
    return Hints(("rfc01", "rfc01"), hints.extra) if rfc01 else None


def _order(name: str, content: bytes, hints: Hints) -> Hints | None:
    """Learn the byte order of a flow from a content that has strings."""
    kind = TEXTS.get(name)
    if kind is None or hints.extra.order is not None:
        return None
    found = text_reading(kind, content, None)
    return None if found is None else Hints(hints.dialects, hints.extra._replace(order=found[0]))


def _meaning(
    events: list[Event], name: str, payload: bytes, row: Row, direction: int, hints: Hints
) -> Hints | None:
    """Add what a message of the documents says beyond its own number."""
    content = payload[row.start :]
    order = hints.extra.order or number_order(name, content, None)
    if name == "ACK" and len(content) == 8:  # noqa: PLR2004 - one id
        events += _acks(Struct(f"{order}Q").unpack_from(content), direction, hints)
    elif name == "CONNECT_ACCEPT" and not direction:
        events.append((Ev.NOTE, "eoudp-wrong-direction", "CONNECT_ACCEPT from the client"))
    elif name == "CONNECT_ACCEPT":
        index = Struct(f"{order}Q").unpack(content)[0] if len(content) == 8 else None  # noqa: PLR2004
        return _accepted(events, index, hints)
    elif name == "PACKET_INFO" and len(content) >= _PAIR:
        at = (len(content) // _PAIR - 1) * _PAIR
        for each in range(0, at + 1, _PAIR):
            pair = Struct(f"{order}ii").unpack_from(content, each)
            read.odd_EoudpPair(pair, direction, events)
        received, sent = pair
        number = row.read(payload, 0, len(payload))[2]  # type: ignore[index]
        events.append((Ev.PROBE, "packet_info", number & 0xFFFFFFFF))
        if received >= 0 and sent >= 0:
            # "Since last second" or "since last call": receiving one resets nothing here.
            events.append((Ev.TALLY, "packet_info", sent, received, False))
        return _informed(events, direction, hints)
    elif name == "CONNECT":
        return _connect(events, payload, row.start, direction, hints)
    elif name in ("CONNECT_REJECT", "DISCONNECT"):
        state = "reject" if name == "CONNECT_REJECT" else "disconnect"
        events.append((Ev.STATE, state, name))
    return None
