"""Whether a flow is Teeworlds, in which dialect, and which side is the client.

A handshake proves it. Without one, every packet takes the strict test of every dialect, and two
packets that pass that of the same single dialect prove it too.
Source: docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.protocols.teeworlds.strict import Accepted, accepts, connless
from netdissect.wire.teeworlds_forms import (
    ACCEPTED,
    CLOSE,
    D06,
    D065,
    D07,
    DDNET,
    TOKEN,
    padded,
)

REQUEST: Final = 85
ANSWERED: Final = 98
TWO_PACKETS: Final = 75
FOUR_PACKETS: Final = 90
CONNLESS: Final = 80
CONNLESS_ANSWERED: Final = 95
UNANSWERED: Final = 62
"""Scores of the evidence; see `model.claims.STRONG`."""
TOKEN_ANSWER: Final = 52
"""Score of a token answer without its request: too weak unless a port is a default port."""

_DIALECTS: Final = (D07, DDNET, D06, D065)
_TWO: Final = 2
"""Packets of one dialect, or equal connects, that prove a flow."""
_FOUR: Final = 4
"""Packets of one dialect that prove it beyond doubt."""
_TOKEN_ANSWER_OCTETS: Final = 12
"""Size of a 0.7 token answer, bytes."""
_FIRST_PACKETS: Final = (
    # size, first bytes, dialect, title
    (520, bytes.fromhex("040000ffffffff05"), D07, "0.7 token request, 512 bytes"),
    (12, bytes.fromhex("10000001544b454effffffff"), DDNET, "0.6 connect with TKEN"),
    (516, bytes.fromhex("10000001"), D065, "0.6.5 connect with a client token"),
)
"""First packets that no other protocol sends. Source: table of first packets."""
_FIRST_STARTS: Final = tuple(start for _, start, *_ in _FIRST_PACKETS)
_UNANSWERED: Final = {
    (title, side): Claim("teeworlds", REQUEST, (dialect, dialect), side, "handshake", (title,))
    for _, _, dialect, title in _FIRST_PACKETS for side in (0, 1)
}  # fmt: skip
"""(title, client) -> claim of an unanswered first packet. A flood consists of such packets, so
these claims are created once.
"""
_PADDING_START: Final = 12
"""Offset at which the padding of a first packet has begun; a short capture may cut it."""
_CANDIDATE_SIZES: Final = frozenset(
    {_TOKEN_ANSWER_OCTETS, *(length for length, *_ in _FIRST_PACKETS)}
)
"""Sizes of a single packet that can prove a flow without being connectionless."""
_PLAIN_CONNECT: Final = bytes.fromhex("10000001")
"""The connect of 0.6: a header and the control id."""


def recognise(sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
    """Return the claim on a flow, or None. Pure."""
    del transport
    if not sample:
        return None
    found = _handshake(sample, final=final) or _packets(sample) or _connless(sample)
    return found or (_token_answers(sample) if final else None)


def may_stand_alone(payload: bytes) -> bool:
    """Return whether one datagram may be a first packet, a token answer or connectionless."""
    if len(payload) in _CANDIDATE_SIZES and (
        payload.startswith(_FIRST_STARTS) or accepts(payload, D07) is not None
    ):
        return True
    return connless(payload) is not None


def _claim(score: int, dialect: str, client: int | None, basis: str, reason: str) -> Claim:
    """Return a claim of one dialect in both directions; its roles are unknown without a client."""
    roles_from = "first_frame" if client is None else basis
    return Claim("teeworlds", score, (dialect, dialect), client, roles_from, (reason,))


def _only(clients: set[int]) -> int | None:
    """Return the client that all messages name; None where they name none or disagree."""
    return next(iter(clients)) if len(clients) == 1 else None


# -- handshakes ------------------------------------------------------------------------------------


def _handshake(sample: Sequence[Sample], *, final: bool) -> Claim | None:
    """Look for a first packet, and for the answer of the other side."""
    side, _, first = sample[0]
    for length, start, dialect, title in _FIRST_PACKETS:
        if not first.startswith(start):
            continue
        whole = len(first) == length and accepts(first, dialect) is not None
        if whole or (len(first) < length and padded(first[_PADDING_START:])):
            return _requested(sample, side, dialect, title)
    if first != _PLAIN_CONNECT:
        return None
    # Four bytes alone could be anything: an answer, or a repetition, makes them a connect.
    answer = next((octets for who, _, octets in sample if who != side), None)
    if answer is not None:
        found = accepts(answer, D06)
        if found is not None and found.control in (ACCEPTED, CLOSE):
            reason = "0.6 connect, answered by the server"
            return _claim(ANSWERED, D06, side, "handshake", reason)
        return None
    if final and len(sample) >= _TWO and all(octets == first for _, _, octets in sample):
        reason = f"{len(sample)} equal 0.6 connects without an answer"
        return _claim(UNANSWERED, D06, side, "handshake", reason)
    return None


def _requested(sample: Sequence[Sample], side: int, dialect: str, title: str) -> Claim:
    """Return the claim of a known first packet, and of the answer to it."""
    answer = next((octets for who, _, octets in sample if who != side), None)
    if answer is None:
        return _UNANSWERED[title, side]
    reasons = [title]
    if accepts(answer, dialect):
        reasons.append("the answer is of the same dialect")
    elif dialect != D07 and accepts(answer, D06):
        reasons.append("the server declines the token: 0.6")
    else:
        return _UNANSWERED[title, side]
    return Claim("teeworlds", ANSWERED, (dialect, dialect), side, "handshake", tuple(reasons))


# -- packets mid-connection ------------------------------------------------------------------------


def _packets(sample: Sequence[Sample]) -> Claim | None:
    """Count the packets that pass the strict test of exactly one dialect."""
    passed: dict[str, int] = dict.fromkeys(_DIALECTS, 0)
    with_content: dict[str, int] = dict.fromkeys(_DIALECTS, 0)
    clients: set[int] = set()
    failed = 0
    for side, _, octets in sample:
        if connless(octets) is not None:
            continue
        found = _accepted(octets)
        if not found:
            failed += 1
            if failed * 4 > len(sample) - failed:
                return None  # too many, whatever the rest of the sample is
            continue
        if len(found) == 1:
            ((name, what),) = found.items()
            passed[name] += 1
            # A packet without chunks passes almost any test. 12: header and token.
            with_content[name] += octets[2] > 0 or len(octets) > 12  # noqa: PLR2004
            clients |= {side if sender == 0 else 1 - side for sender in what.senders}
    dialect = max(passed, key=lambda name: passed[name])
    count = passed[dialect]
    others = sum(passed.values()) - count + failed
    if count < _TWO or not with_content[dialect] or others * 4 > count:
        return None
    score = FOUR_PACKETS if count >= _FOUR else TWO_PACKETS
    reason = f"{count} packets that only {dialect} sends: chunks fill them, every id is known"
    return _claim(score, dialect, _only(clients), "protocol", reason)


@lru_cache(maxsize=256)  # `recognise` sees the same packets again in each larger sample
def _accepted(octets: bytes) -> dict[str, Accepted]:
    """Return what a packet is in each dialect whose strict test it passes."""
    return {name: what for name in _DIALECTS if (what := accepts(octets, name)) is not None}


def _token_answers(sample: Sequence[Sample]) -> Claim | None:
    """Claim a flow of nothing but 0.7 token answers: the request went to a broadcast address."""
    side = sample[0][0]
    for who, _, octets in sample:
        found = accepts(octets, D07)
        size = len(octets)
        if who != side or found is None or found.control != TOKEN or size != _TOKEN_ANSWER_OCTETS:
            return None
    return _claim(TOKEN_ANSWER, D07, 1 - side, "protocol", "0.7 token answer, 12 bytes")


# -- connectionless --------------------------------------------------------------------------------


def _connless(sample: Sequence[Sample]) -> Claim | None:
    """Claim a flow of connectionless messages: server info, master servers."""
    found = [(side, octets, connless(octets)) for side, _, octets in sample]
    known = [(side, what) for side, _, what in found if what is not None]
    if not known:
        return None
    dialect = known[0][1][0]
    # The tokens that 0.7 exchanges first are in control packets.
    if any(what is None and accepts(octets, dialect) is None for _, octets, what in found):
        return None
    clients = {side if what[1] == 0 else 1 - side for side, what in known if what[1] is not None}
    answered = len({side for side, _ in known}) > 1
    title = known[0][1][2].removeprefix("connless.")
    reason = f"connectionless message {title} with its 8 bytes"
    score = CONNLESS_ANSWERED if answered else CONNLESS
    return _claim(score, dialect, _only(clients), "protocol", reason)
