"""kNet's reliability rules. Source: docs/protocols/knet.md sections 5 and 6."""

from __future__ import annotations

from typing import Final

from netdissect.model.policy import (
    BOTH,
    AckRule,
    Policy,
    ProbeRule,
    ResendRule,
    SpaceRule,
    StateMachine,
    TimeoutRule,
    state_words,
    transition_table,
)
from netdissect.wire.knet import (
    ACK_BITS,
    DIALECTS,
    FIRST_IDS,
    PACKET_ID_BITS,
    PING_MS,
    SPECIFICATION,
)

TIMEOUT_MS: Final = 5000.0
"""A sender forgets a reliable datagram that is unacknowledged after this time, and sends its
messages again in a new one. Source: section 6.4;
kNet `UDPMessageConnection::ProcessPacketTimeouts`.
"""
RESTART_GUARD_MS: Final = 1000.0
"""A server's first datagram that is repeated within this time is a duplicate, or comes from a ghost
connection object that early datagrams have created. Source: section 5.6; captures
`udp_early_data_ghost*`.
"""
RELIABLE_BITS: Final = 31
"""Size of a reliable number, bits."""
DOCUMENT_TIMEOUT_MS: Final = 2000.0
"""`DatagramTimeOut` of the published document. Source: section 6.9."""
DOCUMENT_ACK_BITS: Final = 34
"""Sequence bits of the document's PacketAck, two of them above the PacketID. Source: section 11,
item 7.
"""

PENDING, OK = "ConnectionPending", "ConnectionOK"
DISCONNECTING, PEER_CLOSED, CLOSED = (
    "ConnectionDisconnecting", "ConnectionPeerClosed", "ConnectionClosed",
)  # fmt: skip
_NEW = "not connected"
_LIVE = (OK, PEER_CLOSED)

MACHINE: Final = StateMachine(
    initial=_NEW,
    states=state_words(
        unknown=(_NEW, PENDING), open=(OK, PEER_CLOSED), closed=(DISCONNECTING, CLOSED)
    ),
    transitions=transition_table(
        (_NEW, "connect", 0, PENDING),
        (_NEW, "speaks", BOTH, OK),
        ((_NEW, PENDING), "accept", 1, OK),
        (PENDING, "established", 0, OK),
        ((PENDING, *_LIVE), "disconnect", BOTH, DISCONNECTING),
        ((PENDING, *_LIVE, DISCONNECTING), "disconnect-ack", BOTH, CLOSED),
        # A client takes an empty datagram for the end of the stream. Section 5.6.
        (OK, "empty", 1, PEER_CLOSED),
        # Port unreachable closes a client at once; a server ignores it. Sections 5.3 and 5.4.
        ((PENDING, *_LIVE), "unreachable", 0, CLOSED),
    ),
    handshake=state_words(unanswered=PENDING, accepted=OK),
    answers=frozenset({"disconnect-ack"}),
    begins=frozenset({"connect"}),
)
"""The states of section 5, by the library's names: that of the side whose state changed last."""

_TIMED_OUT, _REFUSED = "ConnectionClosed (silence)", "refused"
_STREAMING = (_NEW, PENDING, OK)

TCP_MACHINE: Final = StateMachine(
    initial=_NEW,
    states=state_words(
        unknown=(_NEW, PENDING),
        open=(OK, DISCONNECTING, PEER_CLOSED),
        closed=CLOSED,
        timed_out=_TIMED_OUT,
        rejected=_REFUSED,
    ),
    transitions=transition_table(
        (_NEW, "syn", 0, PENDING),
        (_NEW, "data", BOTH, OK),
        ((_NEW, PENDING), "established", 0, OK),
        ((_NEW, PENDING), ("speaks", "message"), BOTH, OK),
        (_STREAMING, "fin", BOTH, DISCONNECTING),
        (_STREAMING, "timeout", BOTH, _TIMED_OUT),
        (DISCONNECTING, ("fin", "timeout"), BOTH, CLOSED),
        ((_NEW, PENDING, OK, DISCONNECTING), "reset", BOTH, CLOSED),
        (PENDING, "reset", 1, _REFUSED),
    ),
    handshake=state_words(unanswered=PENDING, accepted=OK, rejected=_REFUSED),
    begins=frozenset({"speaks"}),
)
"""The states of section 8. Without a Disconnect each side closes its half of the stream: the side
that sends FIN is in ConnectionDisconnecting, its peer in ConnectionPeerClosed until it sends FIN.
"""

_SYN, _SYN_ACK, _CLOSING = "ConnectionSyn", "ConnectionSynAck", "ConnectionClosing"
DOCUMENT_MACHINE: Final = StateMachine(
    initial=_NEW,
    states=state_words(
        unknown=(_NEW, _SYN, _SYN_ACK), open=OK, closed=(_CLOSING, CLOSED), rejected=_REFUSED
    ),
    transitions=transition_table(
        (_NEW, "speaks", BOTH, OK),
        (_NEW, "connect-syn", 0, _SYN),
        ((_NEW, _SYN), "connect-syn-ack", 1, _SYN_ACK),
        ((_NEW, _SYN, _SYN_ACK), "connect-ack", 0, OK),
        (_SYN, "disconnect-ack", 1, _REFUSED),
        ((_NEW, _SYN, _SYN_ACK, OK), "disconnect", BOTH, _CLOSING),
        ((_NEW, _SYN_ACK, OK, _CLOSING), "disconnect-ack", BOTH, CLOSED),
    ),
    handshake=state_words(unanswered=(_SYN, _SYN_ACK), accepted=OK, rejected=_REFUSED),
    begins=frozenset({"connect-syn"}),
)
"""The states of the published document. Section 11, items 8, 10 to 12."""

_SILENCE: Final = TimeoutRule(15000.0, PING_MS, None, pings_ms=PING_MS)
"""A side gives up after more than 15 s without a datagram. It checks whenever its ping is due,
and sends pings until then. Source: section 5.5.
"""
_STREAM_SILENCE: Final = TimeoutRule(15000.0, PING_MS, None, announces="fin")
"""The same over TCP, where the side that gives up closes its half. Source: section 8."""
_ACK_HELD_MS: Final = 33.0
"""Acknowledgements are collected for 33 to 50 ms. Source: section 6.7."""
_NONE: Final = (None, None)
_PING: Final = ProbeRule("ping", 8, PING_MS)


def _spaces(dialect: str) -> tuple[SpaceRule, ...]:
    datagram = SpaceRule(
        name="datagram",
        bits=PACKET_ID_BITS,
        ack=AckRule.BITS_AFTER,
        ack_bits=ACK_BITS,
        ack_held_ms=_ACK_HELD_MS,
        first_seq=FIRST_IDS.get(dialect),
        timeout_ms=TIMEOUT_MS,
        restart_guard_ms=RESTART_GUARD_MS,
        renews=True,
        memory=1024,
        remarks={
            "numbers-restart": "the server had forgotten the client (silence, a malformed datagram,"
            " a repeated connect datagram) and made a new connection object of its next datagram",
            "number-reused": "data sent before the server had answered makes further connection"
            " objects for the same address pair (ghosts), each of which numbers from the start",
        },
    )
    reliable = SpaceRule(
        name="reliable",
        bits=RELIABLE_BITS,
        ack=AckRule.EXACT,
        ack_held_ms=_ACK_HELD_MS,
        resend=ResendRule(initial_ms=TIMEOUT_MS),
        first_seq=0,
        # Section 6.1: the numbers of messages that newer data replaced are never sent.
        consecutive=False,
        reach=1024,  # messages that one with priority can overtake
        acked_with="datagram",
        memory=1024,
        remarks={"sequence-jump": "what has priority overtakes the messages that wait"},
    )
    return datagram, reliable


def _policy(dialect: str) -> Policy:
    tcp = dialect == "knet-tcp"
    return Policy(
        dialect=dialect,
        spaces=() if tcp else _spaces(dialect),
        probes=(_PING,),
        timeouts=(_STREAM_SILENCE,) * 2 if tcp else (_SILENCE, _SILENCE),
        alive_ms=(_PING.interval_ms, _PING.interval_ms),
        machine=TCP_MACHINE if tcp else MACHINE,
        stream=tcp,
        state_timeouts=dict.fromkeys((_NEW, PENDING, DISCONNECTING, CLOSED), _NONE),
    )


_DOCUMENT = Policy(
    dialect=SPECIFICATION,
    spaces=(
        SpaceRule(
            name="datagram",
            bits=PACKET_ID_BITS,
            ack=AckRule.BITS_AFTER,
            ack_bits=DOCUMENT_ACK_BITS,
            first_seq=FIRST_IDS[SPECIFICATION],
            timeout_ms=DOCUMENT_TIMEOUT_MS,
            memory=1024,
        ),
    ),
    probes=(ProbeRule("ping", 8, 5000.0),),
    timeouts=(TimeoutRule(15000.0, 5000.0, None),) * 2,
    machine=DOCUMENT_MACHINE,
    state_timeouts=dict.fromkeys((_NEW, _SYN, _SYN_ACK, _CLOSING, CLOSED, _REFUSED), _NONE),
)
"""The published document, in which messages have no numbers. Its constants are in section 6.9."""
POLICIES: Final = {
    **{dialect: _policy(dialect) for dialect in DIALECTS},
    SPECIFICATION: _DOCUMENT,
}
"""Dialect -> its rules."""
