"""Finds out which dialect a side speaks that is undecided. Source: docs/protocols/knet.md,
"How a flow is recognised".
"""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    CONTROL_SIZES,
    CONTROLS,
    CURRENT,
    LEGACY,
    PACKET_ACK,
    PING_REPLY,
    UNDECIDED,
)

_PAIR: Final = (CURRENT, LEGACY)
_OF_BOTH: Final = [
    {(number, CONTROL_SIZES[name]): name for number, name in CONTROLS[dialect].items()}
    for dialect in _PAIR
]
"""(message ID, size of its payload in bytes) -> control message, of 2.x and of 2010."""
_SAME: Final = _OF_BOTH[0].keys() & _OF_BOTH[1].keys()
_TELLING: Final = {
    key: (dialect, name)
    for dialect, rows in zip(_PAIR, _OF_BOTH, strict=True)
    for key, name in rows.items()
    if key not in _SAME
}
"""(message ID, size) -> (the only dialect with such a control message, its name)."""
_REPLY_OF_2010: Final = next(key for key, name in _OF_BOTH[1].items() if name == PING_REPLY)
"""(message ID, size) of what is a ping in 2.x."""
_HALF_OF_PINGS: Final = 128
"""A ping whose number is less than this below another one was sent before that, or is the same."""


def decide(messages: list[tuple[Any, ...]], payload: bytes, direction: int, hints: Hints) -> Hints:
    """Return the hints after a datagram of an undecided or so far silent side; the same object if
    it tells nothing.

    Args:
        messages: its messages, as the derived reader returns them.
        payload: its bytes.
        direction: which side has sent it.
        hints: those of the connection.

    """
    state: DecoderState = hints.extra or DecoderState()
    # What a client sends first is of its application, and so are its copies.
    if not direction and (state.phase == Phase.CONNECT_FIRST or payload == state.connect):
        return hints
    told = _heard(direction, hints) if state.silent[direction] else hints
    if told.dialects[direction] != UNDECIDED:
        return told
    for start, _, _, is_reliable, *_, content, _ in messages:
        if start or is_reliable or not content:
            continue  # control messages are neither
        key = content[0], len(content) - 1
        dialect, name = _TELLING.get(key, (None, ""))
        if dialect is not None and not (name == PACKET_ACK and content[3] & 0xC0):
            return decided(dialect, direction, told)
        if key == _REPLY_OF_2010:
            told = _ping_or_reply(content[1], direction, told)
    dialect = by_fragments(messages)
    if dialect is None and _first_of_2010_client(payload, direction, told):
        dialect = LEGACY
    return told if dialect is None else decided(dialect, direction, told)


def _first_of_2010_client(payload: bytes, direction: int, hints: Hints) -> bool:
    """Return whether this is the first datagram that a client sends to a server of 2010 after its
    connect datagram, by a PacketID that only clients of 2010 begin with.
    """
    state: DecoderState | None = hints.extra
    if direction or state is None or state.connect is None or hints.dialects[1] != LEGACY:
        return False
    return not payload[0] & 0x3F and not payload[1] and not payload[2]


def _heard(direction: int, hints: Hints) -> Hints:
    """Return the hints once a direction speaks that was named like the other one."""
    first, second = hints.extra.silent
    silent = (first, False) if direction else (False, second)
    learned = Hints(hints.dialects, hints.extra.replace(silent=silent))
    # An application is that of both sides.
    known = hints.dialects[direction] not in _PAIR
    return learned if known else decided(UNDECIDED, direction, learned)


def by_fragments(messages: list[tuple[Any, ...]]) -> str | None:
    """Return the dialect that two fragments of one message in a datagram tell; None without them.

    In 2010 they share its number, later each has its own.
    """
    before: dict[int, tuple[int, int]] = {}
    for start, fragment, _, is_reliable, _, delta, _, transfer, index, *_ in messages:
        if not is_reliable or not (start or fragment):
            continue
        number, place = before.setdefault(transfer, (delta, index or 0))
        if place != (index or 0):
            return LEGACY if number == delta else CURRENT
    return None


def decided(dialect: str, direction: int, hints: Hints) -> Hints:
    """Return the hints with the dialect of a direction."""
    first, second = hints.dialects
    return Hints((first, dialect) if direction else (dialect, second), hints.extra)


def _ping_or_reply(number: int, direction: int, hints: Hints) -> Hints:
    """Return the hints after what is a ping of 2.x, or a reply of 2010 to a ping of 2010."""
    peer = hints.dialects[1 - direction]
    if peer not in (LEGACY, UNDECIDED):
        return decided(CURRENT, direction, hints)  # its peer sends no pings of 2010
    state: DecoderState = hints.extra or DecoderState()
    pinged = state.pings[0]
    early = -1 if number == pinged else number
    return Hints(hints.dialects, state.replace(pings=(pinged, early)))


def compare_ping(number: int, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a ping of 2010 whose peer is undecided.

    What came before its ping was no reply, and so is a ping of 2.x: its server is the first to send
    pings, and sends two at once. Sections 5.2 and 6.7.
    """
    state: DecoderState = hints.extra or DecoderState()
    early = state.pings[1]
    learned = Hints(hints.dialects, state.replace(pings=(number, early)))
    if early >= 0 and (early - number) % 256 < _HALF_OF_PINGS:
        learned = decided(CURRENT, 1 - direction, learned)
    return [(Ev.HINTS, learned)]
