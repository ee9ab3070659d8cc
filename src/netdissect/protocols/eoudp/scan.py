"""`scan` of EOUDP: one datagram to its events. Layouts come from the derived readers alone."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias, TypeVar

from netdissect.dissect.readers import eoudp as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.eoudp.dialects import ROWS, Row, row_of
from netdissect.protocols.eoudp.recognition import decided
from netdissect.protocols.eoudp.rules import SPACE
from netdissect.protocols.eoudp.state import DecoderState
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp import TEXTS, legal, number_order, text_reading
from netdissect.wire.eoudp_names import (
    END_CLOCK_MS,
    FAR_ID,
    FIRST_CLOCK_MS,
    FOREIGN,
    RECEIVE_LIMIT,
    command_name,
    oversize,
    size_mismatch,
    type_name,
    wrong_size,
)

_T = TypeVar("_T")
_Reader = Callable[[bytes, int, int], Any]
_READ_ACK: _Reader = read.read_EoudpAck
_READ_ACCEPT: _Reader = read.read_EoudpConnectAccept
_READ_DIGITS: _Reader = read.read_EoudpConnectAcceptText

_LOW: Final = 0xFFFFFFFF
"""Bits of an id that are compared: they continue when a sender's 32-bit counter overflows."""
_NEGATIVE: Final = (1 << 64) - FAR_ID
"""Smallest id of a signed 32-bit counter that has overflowed, extended to 64 bits."""
_NEAR: Final = 1 << 16
"""Distance from the last wide id within which an id continues from it."""
_AT_START: Final = 16
"""The first message of an epoch may be late, and come after as many others."""
_STRAY: Final = -1
"""Stands for an id that continues from no other, for instance because a byte is damaged."""
_MIN_FOREIGN: Final = 8
"""Consecutive datagrams of another dialect after which a direction is taken to speak it."""
_USUAL_SIZES: Final = {eoudp.PACKET_INFO: 8, eoudp.ACK: 8, eoudp.EVENT: 5}
"""Frequent command -> legal size of its content, bytes. It saves the full check."""
_NOT_CAPTURED: Final = b""
"""Stands for the first message of an epoch that is not in the capture."""
_U32: Final = Struct("<I").unpack_from

_RFC01_SIGNS: Final = eoudp.RFC01_ONLY | {eoudp.IMPORTANT_EVENT}
"""Commands that may show that a flow is in the dialect of RFC_01."""
_MEANINGS: Final = frozenset(
    {"ACK", "CONNECT_ACCEPT", "PACKET_INFO", "CONNECT", "CONNECT_REJECT", "DISCONNECT"}
)
"""Commands of the documents that mean more than their own number."""

Handler: TypeAlias = Callable[[list[Event], bytes, int, int, Hints], Hints | None]
"""(events to add to, payload, offset of the content, direction, hints) -> new hints, if any."""


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:  # noqa: C901, PLR0912
    """Return the events of one datagram.

    It is not split into functions, because a call would cost as much as what the function does.
    """
    dialect = hints.dialects[direction]
    row, reader, odd, flagged, must, lengths_at = _FAST.get(dialect) or _FAST[row_of(dialect).name]
    size = len(payload)
    head = reader(payload, 0, size)
    if head is None:
        text = f"{size} bytes, the header of {row.name} has {row.start}"
        return _mismatch(row, [(Ev.NOTE, "truncated", text)], payload, direction, hints)
    # The size field counts the content alone; the last value is where that begins.
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
    learned = None
    odd(head, direction, events)
    if size > RECEIVE_LIMIT:
        events.append((Ev.NOTE, *oversize(size)))
    if number >= FAR_ID:
        number, learned = _comparable_id(number, direction, hints)
    if (number <= 1 or hints.extra.openers[direction] is None) and command != eoudp.CONNECT_ACCEPT:
        learned = _epoch(events, row, payload, number, direction, learned or hints) or learned
    ambiguous = command == eoudp.DISCONNECT
    name = type_name(row.name, command, size - start) if ambiguous else _NAMES[command]
    if command == eoudp.CONNECT_ACCEPT or number < 0:
        # The server accepts with the id 0 of a counter that it then discards.
        events.append((Ev.MESSAGE, name))
    elif not flag:
        events.append((Ev.NUMBERED, name, SPACE, number))
    elif row.acked is None or command in row.acked:
        events.append((Ev.UNIT, name, SPACE, number, None, payload))
    else:
        events.append((Ev.PLAIN_UNIT, name, SPACE, number, payload))
    if command == eoudp.COMPONENT_OF:
        # Most datagrams are components. The lengths of name and data must lead to the end.
        if (
            size < lengths_at + 8
            or size < (after := lengths_at + 4 + _U32(payload, lengths_at)[0]) + 4
            or after + 4 + _U32(payload, after)[0] != size
        ):
            events.append((Ev.NOTE, *wrong_size(name, size - start)))
        if learned is None:
            return events
    else:
        handler = _HANDLERS.get(command)
        if handler is not None:
            learned = handler(events, payload, start, direction, learned or hints) or learned
        if size - start != _USUAL_SIZES.get(command):
            name = command_name(row.name, command, size - start)
            if legal(row.name, name, payload[start:]) is False:
                events.append((Ev.NOTE, *wrong_size(name, size - start)))
    if learned is not None:
        events.append((Ev.HINTS, learned))
    return events


_FAST: Final = {
    name: (row, row.read, row.odd, row.flagged, row.must, row.lengths_at)
    for name, row in ROWS.items()
}
"""Dialect -> what `scan` needs of its row, in one look-up."""
_NAMES: Final = [type_name("exodia-late", command, 0) for command in range(256)]
"""Command -> type, except for DISCONNECT, which v1.0 uses for key events."""


def _replaced(pair: tuple[_T, _T], direction: int, value: _T) -> tuple[_T, _T]:
    """Return a pair with the value of one direction replaced."""
    return (pair[0], value) if direction else (value, pair[1])


# -- other dialects --------------------------------------------------------------------------------


def _mismatch(
    row: Row, notes: list[Event], payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a datagram that is cut or whose size field does not fit.

    It is in another dialect, or damaged, as `notes` say. Receivers drop it and count nothing. If
    the dialect of the direction was undecided, it is now the one that fits.
    """
    found, is_certain = decided(payload)
    if found is None:
        return notes
    restarted = _other_release(found, payload, direction, hints, is_certain=is_certain)
    if restarted is not None:
        return [(Ev.RESTART, "*"), (Ev.HINTS, restarted)]
    state: DecoderState = hints.extra
    if state.undecided[direction] and found != row.name:
        learned = Hints(
            _replaced(hints.dialects, direction, found),
            state.replace(undecided=_replaced(state.undecided, direction, not is_certain)),
        )
        events = scan(payload, direction, learned)
        # The rules of the new dialect must be in force before its units are counted.
        return events if events[-1][0] == Ev.HINTS else [(Ev.HINTS, learned), *events]
    notes.append((Ev.NOTE, "eoudp-other-dialect", f"it is a datagram of {found}"))
    if is_certain:
        name, count = state.foreign[direction]
        seen = (found, count + 1 if name == found else 1)
        state = state.replace(foreign=_replaced(state.foreign, direction, seen))
        notes.append((Ev.HINTS, Hints(hints.dialects, state)))
    return notes


def _other_release(
    found: str, payload: bytes, direction: int, hints: Hints, *, is_certain: bool
) -> Hints | None:
    """Return the hints of a new connection if another release now uses the addresses, else None.

    That is so if it asks for a connection, or if many datagrams, without a PACKET_INFO of the old
    dialect between them, are in its dialect.
    """
    name, count = hints.extra.foreign[direction]
    asks = payload[0] == eoudp.CONNECT and not direction and hints.extra.openers[0] is not None
    if not asks and not (is_certain and name == found and count + 1 >= _MIN_FOREIGN):
        return None
    pair = (hints.dialects[0], found) if direction else (found, found)
    # The dialect of the other side is undecided until it sends something.
    return Hints(pair, DecoderState(undecided=(bool(direction), not direction)))


# -- epochs ----------------------------------------------------------------------------------------


def _epoch(
    events: list[Event], row: Row, payload: bytes, number: int, direction: int, hints: Hints
) -> Hints | None:
    """Add a RESTART if the sender restarts its numbers with this datagram; return new hints.

    A server restarts them after every CONNECT, a client when its program is started again. A
    duplicate of the first message, and one that comes late, restart nothing.
    """
    extra: DecoderState = hints.extra
    opener = extra.openers[direction]
    first = number == row.first_id
    # Servers of the documents stamp each copy afresh, so that the stamp does not identify a
    # message.
    key = payload[:1] + payload[row.stamp_end :] if row.document else payload
    server = direction == 1
    second = key if server and number == row.first_id + 1 else extra.second
    restart = earlier = False
    if opener is None:
        if payload[0] not in (eoudp.CONNECT, eoudp.CONNECT_REJECT):
            events.append((Ev.STATE, "alive", None))
        # Of the documents, the first two have all but a few commands in common.
        may_differ = not row.document or row.name == "rfc02"
        if extra.undecided[direction] and may_differ and not decided(payload)[1]:
            events.append((Ev.NOTE, "eoudp-ambiguous-dialect", f"read as {row.name}"))
        opener = key if first else _NOT_CAPTURED
        # What is left of the answer to a CONNECT before the last one.
        earlier = number > row.first_id + _AT_START
    elif first and key != opener:
        begins = extra.pending if server else payload[0] == eoudp.CONNECT
        restart = begins or opener != _NOT_CAPTURED
        opener = key
    # The first message is not in the capture, but the second one shows that numbers have restarted.
    # It does not if it is the second message of the epoch before, sent again.
    elif server and second != extra.second:
        if extra.pending:
            restart = True
            opener = _NOT_CAPTURED
    else:
        return None
    if restart:
        events.append((Ev.RESTART, SPACE))
    openers = _replaced(extra.openers, direction, opener)
    pending = extra.pending and (earlier or not server)
    state = extra.replace(openers=openers, second=second, pending=pending)
    return Hints(hints.dialects, state)


# -- commands --------------------------------------------------------------------------------------


def _packet_info(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    row = row_of(hints.dialects[direction])
    size = len(payload) - start
    if size < eoudp.PAIR_OCTETS:
        return None
    order = "<"
    if row.document:
        order = hints.extra.order or number_order("PACKET_INFO", payload[start:], None)
    whole = payload[start : len(payload) - size % eoudp.PAIR_OCTETS]
    for pair in Struct(f"{order}ii").iter_unpack(whole):
        read.odd_EoudpPair(pair, direction, events)
    # A server that states the counters of several clients puts those of the addressed one last.
    received, sent = pair
    _, stamp, number, *_ = row.read(payload, 0, len(payload))  # type: ignore[misc]
    events.append((Ev.PROBE, "packet_info", number & 0xFFFFFFFF))
    if received >= 0 and sent >= 0:
        # Receivers accept no PACKET_INFO but one of 8 bytes. The documents count "since last
        # second" or "since last call": no receiver resets the counters.
        is_total = size == eoudp.PAIR_OCTETS and not row.document
        events.append((Ev.TALLY, "packet_info", sent, received, is_total))
    if row.document:
        return _accepted_client(events, direction, hints)
    if size > eoudp.PAIR_OCTETS and direction:
        text = f"counters of {size // eoudp.PAIR_OCTETS} clients, its own come last"
        events.append((Ev.NOTE, "eoudp-pairs", text))
    elif size > eoudp.PAIR_OCTETS and size % eoudp.PAIR_OCTETS == 0:
        events.append((Ev.NOTE, *wrong_size("PACKET_INFO", size)))
    if row.wide_stamp and FIRST_CLOCK_MS <= stamp < END_CLOCK_MS:
        events.append((Ev.CLOCK, stamp, True))
    learned = _accepted_client(events, direction, hints)
    if not hints.extra.foreign[direction][1]:
        return learned
    # A PACKET_INFO every second shows that the old release still uses the addresses.
    extra = (learned or hints).extra
    foreign = _replaced(hints.extra.foreign, direction, ("", 0))
    return Hints(hints.dialects, extra.replace(foreign=foreign))


def _accepted_client(events: list[Event], direction: int, hints: Hints) -> Hints | None:
    """Add that the client was accepted, given its PACKET_INFO or key event; return new hints.

    A client sends them only after it was accepted, even if the capture lacks the CONNECT_ACCEPT.
    """
    if direction or hints.extra.accepted or not hints.extra.connect:
        return None
    events.append((Ev.STATE, "informs", None))
    return Hints(hints.dialects, hints.extra.replace(accepted=True))


def _key(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    del payload, start
    return _accepted_client(events, direction, hints)


def _acknowledge(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    values = _READ_ACK(payload, start, len(payload))
    if values is not None:
        events += _acks(values, direction, hints)
    return None


def _comparable_id(number: int, direction: int, hints: Hints) -> tuple[int, Hints | None]:
    """Return (an id as it is compared with others, or _STRAY; new hints, if any)."""
    if number < FAR_ID or number >= _NEGATIVE:
        return number & _LOW, None
    state: DecoderState = hints.extra
    first = state.openers[direction] is None
    near = number <= _LOW or first or abs(number - state.far[direction]) < _NEAR
    state = state.replace(far=_replaced(state.far, direction, number))
    return (number & _LOW if near else _STRAY), Hints(hints.dialects, state)


def _acks(values: tuple[Any, ...], direction: int, hints: Hints) -> list[Event]:
    """Return the events of an acknowledged id, which is the first of the values."""
    number = values[0]
    if number < FAR_ID:
        return [(Ev.ACK, SPACE, number, 0)]
    events: list[Event] = []
    read.odd_EoudpAck(values, direction, events)
    named, _ = _comparable_id(number, 1 - direction, hints)
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
    return Hints(hints.dialects, hints.extra.replace(accepted=True))


def _reject(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    del payload, start, direction
    if not hints.extra.accepted:
        events.append((Ev.STATE, "reject", "CONNECT_REJECT"))
        return None
    # Accepted clients treat both alike: those of the documents leave, those of the programs do not.
    events.append((Ev.STATE, "disconnect", "CONNECT_REJECT"))
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
        found, is_certain = decided(payload)
        if is_certain and found is not None and found != row_of(hints.dialects[0]).name:
            events.insert(0, (Ev.RESTART, "*"))
            return _other_release(found, payload, direction, hints, is_certain=True)
    _stamped(events, payload, hints, direction)
    events.append((Ev.STATE, "connect", None))
    if payload == extra.connect:
        return None
    if extra.connect:
        events.append((Ev.NOTE, "eoudp-connect-again", ""))
    return Hints(hints.dialects, extra.replace(connect=payload, pending=True))


def _stamped(events: list[Event], payload: bytes, hints: Hints, direction: int) -> None:
    """Add the time stamp by which a server measures silence. Copies of a CONNECT share one."""
    row = row_of(hints.dialects[direction])
    stamp = row.read(payload, 0, len(payload))[1]  # type: ignore[index]
    if row.wide_stamp and not row.document and FIRST_CLOCK_MS <= stamp < END_CLOCK_MS:
        events.append((Ev.CLOCK, stamp, False))


def _disconnect(
    events: list[Event], payload: bytes, start: int, direction: int, hints: Hints
) -> Hints | None:
    if len(payload) > start and hints.dialects[direction].startswith("exodia-early"):
        return _accepted_client(events, direction, hints)  # It is a key event of v1.0.
    _stamped(events, payload, hints, direction)
    events.append((Ev.STATE, "disconnect", "DISCONNECT"))
    if direction:
        events.append((Ev.NOTE, "eoudp-timeout-notice", ""))
    elif hints.extra.accepted:
        return Hints(hints.dialects, hints.extra.replace(accepted=False))
    return None


_HANDLERS: Final[dict[int, Handler]] = {
    eoudp.PACKET_INFO: _packet_info,
    eoudp.ACK: _acknowledge,
    eoudp.CONNECT_ACCEPT: _accept,
    eoudp.CONNECT_REJECT: _reject,
    eoudp.CONNECT: _connect,
    eoudp.DISCONNECT: _disconnect,
    eoudp.EVENT: _key,
}
"""Command -> handler of what it means beyond its own number."""


# -- documents -------------------------------------------------------------------------------------


def _document(
    row: Row, head: tuple[Any, ...], payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a datagram in a dialect of the documents."""
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
    number, learned = _comparable_id(number, direction, hints)
    if command in _RFC01_SIGNS:
        learned = _revision(row, command, name, learned or hints) or learned
    if extra.order is None and name in TEXTS:
        learned = _order(name, content, learned or hints) or learned
    if number <= row.first_id + 1 or extra.openers[direction] is None:
        learned = _epoch(events, row, payload, number, direction, learned or hints) or learned
    type_ = name.removeprefix("UNKNOWN_")
    if number < 0:
        events.append((Ev.MESSAGE, type_))
    elif flag:
        # Copies of a server carry a fresh time stamp, which is not compared.
        key = payload[:1] + payload[row.stamp_end :]
        events.append((Ev.UNIT, type_, SPACE, number, None, key))
    else:
        events.append((Ev.NUMBERED, type_, SPACE, number))
    if name in _MEANINGS:
        learned = _meaning(events, name, payload, row, direction, learned or hints) or learned
    if len(content) != _USUAL_SIZES.get(command) and legal(row.name, name, content) is False:
        events.append((Ev.NOTE, *wrong_size(name, len(content))))
    if learned is not None:
        events.append((Ev.HINTS, learned))
    return events


def _revision(row: Row, command: int, name: str, hints: Hints) -> Hints | None:
    """Return hints with the dialect of RFC_01 if the command shows it."""
    if row.name != "rfc02":
        return None
    rfc01 = command in FOREIGN["rfc02"] or (
        command == eoudp.RFC01_DELETE_COMPONENT and name == "DELETE_COMPONENT"
    )
    return Hints(("rfc01", "rfc01"), hints.extra) if rfc01 else None


def _order(name: str, content: bytes, hints: Hints) -> Hints | None:
    """Return hints with the byte order of the flow if the strings of a content show it."""
    kind = TEXTS.get(name)
    if kind is None or hints.extra.order is not None:
        return None
    found = text_reading(kind, content, None)
    return None if found is None else Hints(hints.dialects, hints.extra.replace(order=found[0]))


def _meaning(
    events: list[Event], name: str, payload: bytes, row: Row, direction: int, hints: Hints
) -> Hints | None:
    """Add what a message of the documents means beyond its own number; return new hints."""
    content = payload[row.start :]
    order = hints.extra.order or number_order(name, content, None)
    if name == "ACK" and len(content) == eoudp.ID_OCTETS:
        events += _acks(Struct(f"{order}Q").unpack_from(content), direction, hints)
    elif name == "CONNECT_ACCEPT" and not direction:
        events.append((Ev.NOTE, "eoudp-wrong-direction", "CONNECT_ACCEPT from the client"))
    elif name == "CONNECT_ACCEPT":
        index = Struct(f"{order}Q").unpack(content)[0] if len(content) == eoudp.ID_OCTETS else None
        return _accepted(events, index, hints)
    elif name == "PACKET_INFO":
        return _packet_info(events, payload, row.start, direction, hints)
    elif name == "CONNECT":
        return _connect(events, payload, row.start, direction, hints)
    elif name in ("CONNECT_REJECT", "DISCONNECT"):
        state = "reject" if name == "CONNECT_REJECT" else "disconnect"
        events.append((Ev.STATE, state, name))
    return None
