"""Whether a flow is kNet, which dialect, and which side is the client.

kNet has no magic: structure, consistency, the server's opening and PacketIDs that rise by one speak
for it. Source: docs/protocols/knet.md section 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Claim, Sample
from netdissect.protocols.knet.datagrams import READERS, Reader
from netdissect.wire.knet import (
    DISCONNECT,
    DISCONNECT_ACK,
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
TCP_OPENING: Final = 64
TCP_PINGS: Final = 85
"""Scores of the evidence in section 13; see `model.claims.STRONG`."""
_MODULUS: Final = 1 << PACKET_ID_BITS
_STEP: Final = 64
"""PacketIDs of one sender advance by less than this from one captured datagram to the next."""
_ATTEMPTS_NEEDED: Final = 3
_MAX_STREAM: Final = 64 * 1024
_CONTROL_SIZES: Final = {PING_REQUEST: 1, PING_REPLY: 1, PACKET_ACK: 7, DISCONNECT: 0,
                         DISCONNECT_ACK: 0}  # fmt: skip
_ACK_WINDOW_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Datagram:
    """A datagram that passes all tests."""

    side: int
    time_ns: int
    number: int
    reliable: bool
    base: int | None
    controls: list[tuple[str, bytes]]
    """(name, payload) of its control messages."""
    messages: int


@dataclass(slots=True)
class _Sides:
    """What one dialect makes of a sample."""

    datagrams: list[_Datagram] = field(default_factory=list)
    odd: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(position, side, octets) of what did not pass."""


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the best claim on a flow, or None. Pure."""
    if transport == "tcp":
        return _stream(sample)
    best: Claim | None = None
    for dialect in ("knet-2.x", LEGACY):
        how = READERS[dialect]
        sides = _Sides()
        for position, (side, time_ns, octets) in enumerate(sample):
            found = _read(octets, how, side, time_ns)
            if found is None:
                sides.odd.append((position, side, octets))
            else:
                sides.datagrams.append(found)
        claim = _judge(sides, len(sample), how, final=final)
        if claim is not None and (best is None or claim.score > best.score):
            best = claim
    return best


def _read(octets: bytes, how: Reader, side: int, time_ns: int) -> _Datagram | None:
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
    return _Datagram(side, time_ns, number, bool(reliable), base, controls, len(messages))


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


def _judge(sides: _Sides, size: int, how: Reader, *, final: bool) -> Claim | None:
    """Return the claim that one dialect's reading of the sample supports."""
    score, client = 0, None
    reasons: list[str] = []
    roles = "protocol"
    for rule in (_opening, _acknowledged, _conversation):
        points, reason, who = rule(sides, size, how)
        if points:
            score = max(score, points)
            reasons.append(reason)
            client = who if client is None else client
    if not score and final:
        score, reason, client = _attempts(sides, size, how)
        reasons.append(reason)
        roles = "first_frame"
    if not score:
        return None
    if any(place == 0 and side == client for place, side, _ in sides.odd):
        roles = "handshake"
    if client is None:
        # Both sides send the same kinds of messages: ports may tell.
        roles = "first_frame"
    return Claim(
        protocol="knet",
        score=score,
        dialects=(how.dialect, how.dialect),
        client=client,
        roles_from=roles,
        reasons=tuple(reasons),
    )


def _opening(sides: _Sides, size: int, how: Reader) -> tuple[int, str, int | None]:
    """Look for a server's first datagram with pings 1 and 2, perhaps both answered."""
    del size
    for found in sides.datagrams:
        asked = [payload for name, payload in found.controls if name == PING_REQUEST]
        first = found.number == how.first_id or (not how.legacy and found.number == 0)
        if not first or asked[:2] != [b"\x01", b"\x02"]:
            continue
        client = 1 - found.side
        answers = {
            payload
            for other in sides.datagrams
            if other.side == client
            for name, payload in other.controls
            if name == PING_REPLY
        }
        if answers >= {b"\x01", b"\x02"}:
            return OPENING_ANSWERED, "the server's pings 1 and 2 are answered", client
        return OPENING, f"PacketID {found.number} holds pings 1 and 2", client
    return 0, "", None


def _acknowledged(sides: _Sides, size: int, how: Reader) -> tuple[int, str, int | None]:
    """PacketAcks that name reliable datagrams of the other side soon after they were sent."""
    del how
    if 3 * len(sides.datagrams) < 2 * size:
        return 0, "", None
    named = 0
    for found in sides.datagrams:
        for name, payload in found.controls:
            if name == PACKET_ACK:
                base = int.from_bytes(payload[:3], "little")
                named += any(
                    other.side != found.side and other.reliable and other.number == base
                    and 0 <= found.time_ns - other.time_ns < _ACK_WINDOW_NS
                    for other in sides.datagrams
                )  # fmt: skip
    if named and _rising(sides.datagrams):
        return ACKNOWLEDGED, f"{named} PacketAcks name datagrams of the other side", None
    return 0, "", None


def _conversation(sides: _Sides, size: int, how: Reader) -> tuple[int, str, int | None]:
    """Two consistent datagrams or more, one with a control message, PacketIDs in small steps."""
    del how
    datagrams = sides.datagrams
    controls = sum(bool(found.controls) for found in datagrams)
    doubtful = [found for found in sides.odd if found[2] != NULL_CONNECT and found[0] > 0]
    runs = _runs(datagrams)
    if len(datagrams) < 2 or not controls or not runs or 4 * len(doubtful) > size:  # noqa: PLR2004
        return 0, "", None
    if not _rising(datagrams):
        return 0, "", None
    reason = f"{len(datagrams)} consistent datagrams, {controls} with control messages"
    return CONVERSATION, reason, None


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


def _attempts(sides: _Sides, size: int, how: Reader) -> tuple[int, str, int | None]:
    """Look for an unanswered client: a connect datagram, then datagrams from the first ID on."""
    datagrams = sides.datagrams
    senders = {found.side for found in datagrams}
    numbers = [found.number for found in datagrams]
    wanted = list(range(how.first_id, how.first_id + len(numbers)))
    if len(senders) != 1 or len(numbers) < _ATTEMPTS_NEEDED or numbers != wanted:
        return 0, "", None
    reliable = [found.base for found in datagrams if found.reliable]
    others = [found for found in sides.odd if found[1] != datagrams[0].side or found[0] > 0]
    if others or not reliable or reliable[0] != 0 or size - len(datagrams) > 1:
        return 0, "", None
    reason = f"{len(numbers)} datagrams numbered from the first PacketID on"
    return ATTEMPTS, reason, datagrams[0].side


# -- TCP -------------------------------------------------------------------------------------------


def _stream(sample: Sequence[Sample]) -> Claim | None:
    """Look for a ping or its reply at the start of both directions, and plausible messages."""
    streams = (bytearray(), bytearray())
    for side, _, octets in sample:
        streams[side].extend(octets[: _MAX_STREAM - len(streams[side])])
    read_sides = [_tcp_messages(bytes(stream)) for stream in streams]
    first, second = read_sides
    if first is None or second is None or not first or not second:
        return None
    pings = [dict.fromkeys(found, 0) for found in read_sides if found is not None]
    mutual = sum(
        (2, payload) in pings[1 - side] for side in (0, 1) for (number, payload) in pings[side]
        if number == 1
    )  # fmt: skip
    openings = all(found[0] in ((1, b"\x01"), (2, b"\x01")) for found in (first, second))
    if not openings or not mutual:
        return None
    score = TCP_PINGS if mutual > 1 else TCP_OPENING
    return Claim(
        protocol="knet",
        score=score,
        dialects=("knet-tcp", "knet-tcp"),
        client=None,
        roles_from="first_frame",
        reasons=(f"both streams begin with ping 1 or its reply; {mutual} pings answered",),
    )


def _tcp_messages(stream: bytes) -> list[tuple[int, bytes]] | None:
    """Return (message ID, payload) of the whole messages; None where one is no message."""
    found: list[tuple[int, bytes]] = []
    place = 0
    while place < len(stream):
        values = read.read_KnetTcpMessage(stream, place, len(stream))
        if values is None:
            break
        content = values[1]
        number, after = KNET_7_7_16.read(content, 0, len(content))
        if number in (1, 2) and len(content) - after != 1:
            return None
        found.append((number, content[after:]))
        place = values[-1]
    return found
