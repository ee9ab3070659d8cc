"""Whether a flow is kNet, which dialect, and which side is the client.

kNet has no magic: structure, consistency, the server's opening and PacketIDs that rise by one speak
for it. Source: docs/protocols/knet.md section 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.knet.datagrams import READERS, Reader
from netdissect.wire.knet import (
    DISCONNECT,
    DISCONNECT_ACK,
    FLOW_CONTROL,
    LEGACY,
    NULL_CONNECT,
    PACKET_ACK,
    PACKET_ID_BITS,
    PING_REPLY,
    PING_REQUEST,
)
from netdissect.wire.varint import KNET_7_7_16

__all__ = ["recognise"]

OPENING: Final = 84
OPENING_ANSWERED: Final = 96
CONVERSATION: Final = 66
ACKNOWLEDGED: Final = 80
ATTEMPTS: Final = 62
NUMBERED: Final = 61
TCP_OPENING: Final = 64
TCP_MIDDLE: Final = 64
TCP_PINGS: Final = 85
"""Scores of the evidence in section 13; see `model.claims.STRONG`."""
WEIGHTS: Final = {
    PING_REQUEST: 1, PING_REPLY: 1, PACKET_ACK: 3, DISCONNECT: 3, DISCONNECT_ACK: 3,
}  # fmt: skip
"""What a well-formed control message weighs: one of eight bytes is less often chance than two."""
_RELIABLE_WEIGHT: Final = 1
_ENOUGH: Final = 4
_FEWEST: Final = 3
"""Weight and consistent datagrams of a conversation: two are chance too often."""
_DIALECTS: Final = ("knet-2.x", LEGACY)
_MODULUS: Final = 1 << PACKET_ID_BITS
_STEP: Final = 64
"""PacketIDs of one sender advance by less than this from one captured datagram to the next."""
_PING_STEP: Final = 8
_ATTEMPTS_NEEDED: Final = 3
_GOES_ON: Final = 8
"""Datagrams that begin with the reliable message after those of the one before."""
_MAX_STREAM: Final = 128 * 1024
_PING_NS: Final = 3_500_000_000
"""How often a side asks. Section 8."""
_TIMED_NEEDED: Final = 3
_PINGS: Final = (b"\x02\x01", b"\x02\x02")
"""Length and ID of a ping and of its reply in a stream."""
_CONTROL_SIZES: Final = {PING_REQUEST: 1, PING_REPLY: 1, PACKET_ACK: 7, DISCONNECT: 0,
                         DISCONNECT_ACK: 0, FLOW_CONTROL: 2}  # fmt: skip
_ACK_WINDOW_NS: Final = 1_000_000_000


# Written out: what a dataclass makes is not compiled.
class _Datagram:
    """A datagram that passes all tests."""

    __slots__ = ("base", "controls", "first", "next", "number", "octets", "position", "reliable",
                 "side", "time_ns")  # fmt: skip

    def __init__(
        self, position: int, side: int, time_ns: int, number: int,
        first: bool, reliable: bool,  # noqa: FBT001 - as in the attributes
        base: int | None, following: int, controls: list[tuple[str, bytes]], octets: bytes,
    ) -> None:  # fmt: skip
        self.position = position
        self.side = side
        self.time_ns = time_ns
        self.number = number
        self.first = first
        """Whether it has the number with which a sender begins."""
        self.reliable = reliable
        self.base = base
        self.next = following
        """Reliable message after its last one."""
        self.controls = controls
        """(name, payload) of its control messages."""
        self.octets = octets


class _Side:
    """What one dialect makes of what one side has sent."""

    __slots__ = ("datagrams", "how", "odd", "signs")

    def __init__(self, how: Reader) -> None:
        self.how = how
        self.datagrams: list[_Datagram] = []
        self.odd: list[tuple[int, int, bytes]] = []
        """(position, side, bytes) of what did not pass."""
        self.signs = 0
        """Control messages that no other dialect numbers so."""


class _Both:
    """What both sides have sent, each read in its own dialect."""

    __slots__ = ("datagrams", "doubtful", "hows", "odd")

    def __init__(
        self, hows: tuple[Reader, Reader], datagrams: list[_Datagram],
        odd: list[tuple[int, int, bytes]], doubtful: tuple[bool, bool],
    ) -> None:  # fmt: skip
        self.hows = hows
        self.datagrams = datagrams
        self.odd = odd
        self.doubtful = doubtful


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure."""
    if transport == "tcp":
        return _stream(sample, final=final)
    found = _dialects(sample)
    if found is None:
        return None
    claim = _judge(found, len(sample), final=final)
    if claim is not None and claim.client is not None:
        _note_attempt(claim, found, final=final)
    return claim


def _dialects(sample: Sequence[Sample]) -> _Both | None:
    """Return the sample with each side read in the dialect that fits it best; None where next to
    nothing fits any.
    """
    usual, legacy = (READERS[name] for name in _DIALECTS)
    chosen = [_side(sample, side, usual) for side in (0, 1)]
    doubtful = [False, False]
    other: list[_Side | None] = [None, None]
    for side, found in enumerate(chosen):
        if found.odd or not found.signs:
            second = other[side] = _side(sample, side, legacy)
            doubtful[side] = _fit(second) == _fit(found)
            if _fit(second) > _fit(found):
                chosen[side] = second
    for side, mine in enumerate(other):
        # A side that says nothing of its own speaks as the other does.
        sure = doubtful[side] and not doubtful[1 - side]
        if mine is not None and sure and chosen[1 - side].how is legacy:
            chosen[side] = mine
    datagrams = sorted(chosen[0].datagrams + chosen[1].datagrams, key=_position)
    if not datagrams:
        return None
    odd = sorted(chosen[0].odd + chosen[1].odd)
    return _Both((chosen[0].how, chosen[1].how), datagrams, odd, (doubtful[0], doubtful[1]))


def _side(sample: Sequence[Sample], side: int, how: Reader) -> _Side:
    """Return what a dialect makes of one side."""
    made = _Side(how)
    for position, (sender, time_ns, octets) in enumerate(sample):
        if sender != side:
            continue
        found = _read(octets, how, position, side, time_ns)
        if found is None:
            made.odd.append((position, side, octets))
            continue
        made.datagrams.append(found)
        sign = PING_REQUEST if how.legacy else PING_REPLY
        made.signs += sum(name in (sign, PACKET_ACK) for name, _ in found.controls)
    return made


def _fit(side: _Side) -> tuple[int, int]:
    """Return how well a dialect fits."""
    return len(side.datagrams), side.signs


def _position(found: _Datagram) -> int:
    return found.position


def _note_attempt(claim: Claim, found: _Both, *, final: bool) -> None:
    """Note with the claim what the first datagram is: before the server has spoken, the client's is
    its connect datagram, also where it parses as messages. Section 5.1.
    """
    if any(place == 0 and side == claim.client for place, side, _ in found.odd):
        claim.attempt = True
        return
    mine = [one for one in found.datagrams if one.side == claim.client]
    if not mine or mine[0].position:
        return
    first = mine[0].octets
    claim.attempt = any(one.first and one.octets != first for one in mine[1:])
    if claim.attempt:
        return
    speaks = any(one.side != claim.client and one.first for one in found.datagrams)
    # The next one will tell whether the numbers go on from this one.
    claim.waits = speaks and len(mine) == 1 and not final


def _read(
    octets: bytes, how: Reader, position: int, side: int, time_ns: int
) -> _Datagram | None:
    """Return a datagram that is well formed and consistent in itself, else None."""
    values = how.datagram(octets, 0, len(octets))
    if values is None or not values[5]:
        return None
    in_order, reliable, low, high, base, messages, _ = values
    flags = any(message[3] for message in messages), any(message[2] for message in messages)
    deltas = [message[5] for message in messages if message[3]]
    if flags[0] != bool(reliable) or (deltas and min(deltas) != 0):
        return None
    if not how.legacy and flags[1] != bool(in_order):
        return None
    controls: list[tuple[str, bytes]] = []
    for message in messages:
        control = _message(message, how)
        if control is None:
            return None
        if control:
            controls.append(control)
    number = high << 6 | low
    first = number == how.first_id or not (how.legacy or number)
    following = (base or 0) + max(deltas, default=-1) + 1
    return _Datagram(
        position, side, time_ns, number, first, bool(reliable), base, following, controls, octets
    )


def _message(message: tuple[Any, ...], how: Reader) -> tuple[str, bytes] | tuple[()] | None:
    """Return (name, payload) of a control message, () for others, None for what is not kNet's."""
    start, fragment, _, is_reliable, unused, _, count, transfer, index, content, _ = message
    if unused:
        return None
    if start or (fragment and not (how.legacy and not is_reliable)):
        whole = is_reliable and transfer and fragment and (not start or count)
        return () if whole and (start or index) else None
    number, after = KNET_7_7_16.read(content, 0, len(content))
    name = how.controls.get(number)
    if name is None:
        return ()
    payload = content[after:]
    size = _CONTROL_SIZES.get(name)
    if size is not None and len(payload) != size:
        return None
    if name == PACKET_ACK and payload[2] & 0xC0:
        return None
    return name, payload


def _judge(found: _Both, size: int, *, final: bool) -> Claim | None:
    """Return the claim that the reading of the sample supports."""
    score, client = 0, None
    reasons: list[str] = []
    roles = "protocol"
    for rule in (_opening, _acknowledged, _conversation):
        points, reason, who = rule(found, size)
        if points:
            score = max(score, points)
            reasons.append(reason)
            client = who if client is None else client
    if not score and final:
        score, reason, client = _attempts(found, size)
        if not score:
            score, reason = _numbered(found, size)
        reasons.append(reason)
        roles = "first_frame"
    if not score:
        return None
    if any(place == 0 and side == client for place, side, _ in found.odd):
        roles = "handshake"
    if client is None:
        # Both sides send the same kinds of messages: ports may tell.
        roles = "first_frame"
    first, second = found.hows
    return Claim(
        protocol="knet",
        score=score,
        dialects=(first.dialect, second.dialect),
        client=client,
        roles_from=roles,
        reasons=tuple(reasons),
        doubtful=found.doubtful,
    )


def _opening(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Look for a server's first datagram with pings 1 and 2, perhaps both answered."""
    del size
    for one in found.datagrams:
        asked = [payload for name, payload in one.controls if name == PING_REQUEST]
        if not one.first or asked[:2] != [b"\x01", b"\x02"]:
            continue
        client = 1 - one.side
        answers = {
            payload
            for other in found.datagrams
            if other.side == client
            for name, payload in other.controls
            if name == PING_REPLY
        }
        if answers >= {b"\x01", b"\x02"}:
            return OPENING_ANSWERED, "the server's pings 1 and 2 are answered", client
        if not one.number and not found.hows[one.side].legacy:
            continue  # In 2010 these are a client's replies to pings 1 and 2.
        return OPENING, f"PacketID {one.number} holds pings 1 and 2", client
    return 0, "", None


def _acknowledged(found: _Both, size: int) -> tuple[int, str, int | None]:
    """PacketAcks that name reliable datagrams of the other side soon after they were sent."""
    if 3 * len(found.datagrams) < 2 * size:
        return 0, "", None
    sent = {(one.side, one.number): one.time_ns for one in found.datagrams if one.reliable}
    named = 0
    for one in found.datagrams:
        for name, payload in one.controls:
            if name == PACKET_ACK:
                at = sent.get((1 - one.side, int.from_bytes(payload[:3], "little")))
                named += at is not None and 0 <= one.time_ns - at < _ACK_WINDOW_NS
    if named and _rising(found.datagrams):
        return ACKNOWLEDGED, f"{named} PacketAcks name datagrams of the other side", None
    return 0, "", None


def _conversation(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Consistent datagrams, control messages among them, PacketIDs and pings in small steps."""
    datagrams = found.datagrams
    controls = sum(bool(one.controls) for one in datagrams)
    if len(datagrams) < _FEWEST or not controls:
        return 0, "", None
    doubtful = [one for one in found.odd if one[2] != NULL_CONNECT and one[0] > 0]
    weight = sum(
        _RELIABLE_WEIGHT * one.reliable + sum(WEIGHTS.get(name, 0) for name, _ in one.controls)
        for one in datagrams
    )
    if weight < _ENOUGH or not _runs(datagrams) or 4 * len(doubtful) > size:
        return 0, "", None
    if not _rising(datagrams) or not _pings_rise(datagrams):
        return 0, "", None
    reason = f"{len(datagrams)} consistent datagrams, {controls} with control messages"
    return CONVERSATION, reason, None


def _pings_rise(datagrams: list[_Datagram]) -> bool:
    """Return whether the pings that a side asks are numbered in small steps."""
    last: list[int | None] = [None, None]
    for one in datagrams:
        for name, payload in one.controls:
            if name != PING_REQUEST:
                continue
            before, number = last[one.side], payload[0]
            if before is not None and _PING_STEP < (number - before) % 256 < 256 - _PING_STEP:
                return False
            last[one.side] = number
    return True


def _rising(datagrams: list[_Datagram]) -> bool:
    """Return whether the PacketIDs of each side move in small steps only."""
    last: list[int | None] = [None, None]
    for found in datagrams:
        before = last[found.side]
        if before is not None:
            step = (found.number - before) % _MODULUS
            if _STEP < step < _MODULUS - _STEP:
                return False
            if step > _STEP:
                continue
        last[found.side] = found.number
    return True


def _runs(datagrams: list[_Datagram]) -> int:
    """Return how often a side's next PacketID is a little higher than its last."""
    last: list[int | None] = [None, None]
    runs = 0
    for found in datagrams:
        before = last[found.side]
        runs += before is not None and 0 < (found.number - before) % _MODULUS <= _STEP
        last[found.side] = found.number
    return runs


def _attempts(found: _Both, size: int) -> tuple[int, str, int | None]:
    """Look for an unanswered client: a connect datagram, then datagrams from the first ID on."""
    datagrams = found.datagrams
    sender = datagrams[0].side
    numbers = [one.number for one in datagrams]
    first = found.hows[sender].first_id
    alone = all(one.side == sender for one in datagrams)
    if not alone or len(numbers) < _ATTEMPTS_NEEDED or numbers != list(
        range(first, first + len(numbers))
    ):
        return 0, "", None
    reliable = [one.base for one in datagrams if one.reliable]
    others = [one for one in found.odd if one[1] != sender or one[0] > 0]
    if others or not reliable or reliable[0] != 0 or size - len(datagrams) > 1:
        return 0, "", None
    reason = f"{len(numbers)} datagrams numbered from the first PacketID on"
    return ATTEMPTS, reason, sender


def _numbered(found: _Both, size: int) -> tuple[int, str]:
    """Datagrams of one side whose reliable messages go on where those of the one before ended: an
    application's own messages, of which control messages need not be heard.
    """
    if 3 * len(found.datagrams) < 2 * size or not _rising(found.datagrams):
        return 0, ""
    last: list[_Datagram | None] = [None, None]
    on, elsewhere = 0, 0
    for one in found.datagrams:
        before = last[one.side]
        if not one.reliable:
            continue
        if before is not None and (one.number - before.number) % _MODULUS <= _STEP:
            on += one.base == before.next
            elsewhere += one.base != before.next
        last[one.side] = one
    if on < _GOES_ON or on < 2 * elsewhere:
        return 0, ""
    return NUMBERED, f"{on} datagrams whose reliable messages go on from those before"


# -- TCP -------------------------------------------------------------------------------------------


def _stream(sample: Sequence[Sample], *, final: bool) -> Claim | None:
    """Look for ping 1 or its reply at the start of both directions; in the middle of a stream for
    two pings that were answered; where one direction is heard alone, for pings on a timer.
    """
    streams = (bytearray(), bytearray())
    pieces: list[tuple[int, int, int, int]] = []
    for side, time_ns, octets in sample:
        start = len(streams[side])
        streams[side].extend(octets[: _MAX_STREAM - start])
        pieces.append((side, time_ns, start, len(streams[side])))
    answered, is_timer = _answered(pieces, streams)
    if all(_pings(stream, 0, 1) in ([(1, 1)], [(2, 1)]) for stream in streams) and answered:
        score = TCP_PINGS if answered > 1 else TCP_OPENING
        reason = f"both streams begin with ping 1 or its reply; {answered} pings answered"
    elif answered > 1 and is_timer:
        score, reason = TCP_MIDDLE, f"{answered} pings answered"
    elif final and not all(streams) and (timed := _timed(pieces, streams)) >= _TIMED_NEEDED:
        score, reason = TCP_MIDDLE, f"one side alone, {timed} pings and replies on their timer"
    else:
        return None
    return Claim(
        protocol="knet",
        score=score,
        dialects=("knet-tcp", "knet-tcp"),
        client=None,
        roles_from="first_frame",
        reasons=(reason,),
    )


def _answered(
    pieces: list[tuple[int, int, int, int]], streams: tuple[bytearray, bytearray]
) -> tuple[int, bool]:
    """Return how many pings with which pieces begin were answered, and whether each side asks as
    seldom as a timer does. `pieces`: (side, time, start, end in the stream).
    """
    asked: dict[tuple[int, int], int] = {}
    newest: list[int | None] = [None, None]
    answered, is_timer = 0, True
    for side, time_ns, start, end in pieces:
        for kind, number in _pings(streams[side], start, end):
            if kind == 1:
                last = newest[side]
                is_timer &= last is None or time_ns - last > _PING_NS // 2
                asked[side, number] = newest[side] = time_ns
            else:
                at = asked.pop((1 - side, number), None)
                answered += at is not None and 0 <= time_ns - at < _PING_NS
    return answered, is_timer


def _timed(
    pieces: list[tuple[int, int, int, int]], streams: tuple[bytearray, bytearray]
) -> int:
    """Return how many pings, and replies, have the next number after the time between two."""
    last: dict[int, tuple[int, int]] = {}
    timed = 0
    for side, time_ns, start, end in pieces:
        for kind, number in _pings(streams[side], start, end):
            before, at = last.get(kind, (number, time_ns))
            gap_ns = time_ns - at
            timed += (number - before) % 256 == 1 and 0.8 * _PING_NS < gap_ns < 1.3 * _PING_NS
            last[kind] = number, time_ns
    return timed


def _pings(stream: bytearray, place: int, end: int) -> list[tuple[int, int]]:
    """Return (message ID, number) of the pings and replies in a row that begin between two places;
    none where an impossible length follows them. Section 8.
    """
    found = []
    while place < end and place + 2 < len(stream) and bytes(stream[place : place + 2]) in _PINGS:
        found.append((stream[place + 1], stream[place + 2]))
        place += 3
    return [] if place < end and stream[place : place + 1] == b"\0" else found
