"""The vocabulary between `protocols` (what was on the wire) and `track` (what it means).

It names no protocol. `scan()` returns a list of events, each a plain tuple whose first item is an
`Ev` constant: tuples because this is the hot path. One datagram (or one framed TCP message) gives
the events of its messages in wire order. The layout of each tuple stands below its constant.

A UNIT counts as a message of its type: do not add a MESSAGE for it. A message that sits in two
spaces (a numbered datagram, and the numbered message inside it) gives the outer UNIT with type None
(it counts as no message), then the inner ones. The rule of the inner space names the outer space in
`acked_with`: an acknowledgement of the outer unit is one of the inner units that it carried.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

__all__ = ["Ev", "Event"]

Event: TypeAlias = tuple[Any, ...]
"""One reliability event, laid out as its `Ev` constant says."""


class Ev:
    """Kinds of events, and how their tuples are laid out."""

    MESSAGE: Final = 0
    """(MESSAGE, type): a message without a sequence number of its own."""
    UNIT: Final = 1
    """(UNIT, type, space, wire_seq, labelled, content): one copy of a unit.

    `labelled`: the sender itself marks it as sent again (None where the format has no such mark).
    `content`: any hashable that is equal for copies of one unit (a slice of the payload, or its
    hash), or None.
    """
    ACK: Final = 2
    """(ACK, space, base, bits): acknowledges units of the OTHER direction, by the `AckRule`."""
    NACK: Final = 3
    """(NACK, space, base, bits): feedback which of the other direction's units were delivered.

    The units are never repaired (notify-style), and each is told once: a base that is not newer
    than the last one is ignored. Of the units since then the last `SpaceRule.ack_bits` before the
    base are told by their bit (bit i stands for base - 1 - i); earlier ones are assumed lost.
    """
    RESEND_REQUEST: Final = 4
    """(RESEND_REQUEST, space): asks the other side to send again."""
    PROBE: Final = 5
    """(PROBE, probe, id): a question that is answered at once (ping, heartbeat)."""
    REPLY: Final = 6
    """(REPLY, probe, id): the answer to the other direction's probe."""
    RTT: Final = 7
    """(RTT, ms): a round trip that the sender of this datagram declares; both sides work with it.
    """
    STATE: Final = 8
    """(STATE, input, detail): an input of the state machine; detail: a reason or None."""
    IDENTITY: Final = 9
    """(IDENTITY, key, value): a fact that the protocol states about the connection."""
    COUNTER: Final = 10
    """(COUNTER, name, amount): a protocol's own counter, shown in the report under `counters`."""
    RESTART: Final = 11
    """(RESTART, scope): the sender of this datagram begins anew.

    Scope a space name: it numbers that space afresh from here. Scope "*": a new connection begins
    with this datagram on the same address pair (its own report). Scope "?": it may begin here; the
    datagram is held and goes to the new connection if a "*" follows before anything else comes
    from the same sender. Scope "<": the datagram belongs to the connection before the present one,
    which its peer still takes for alive; only where `Protocol.lives` says that they overlap. "*",
    "?" and "<" must be the first event of their datagram.
    """
    NOTE: Final = 12
    """(NOTE, code, detail): an annotation code of the catalogue found while scanning."""
    HINTS: Final = 13
    """(HINTS, hints): the connection's hints from now on."""
    PLAIN_UNIT: Final = 14
    """(PLAIN_UNIT, type, space, wire_seq, content): a unit that nobody will acknowledge.

    It counts as a unit of the space, never as `unacked`.
    """
    NUMBER: Final = 15
    """(NUMBER, space, wire_seq): a number of the space used by something that is no unit of it.

    It keeps the number out of `never_seen` and counts nothing.
    """
    TALLY: Final = 16
    """(TALLY, name, sent, received, taken): datagrams that the sender of this one counted itself
    since its last TALLY, or the last one that it took. The tracker sets its own count beside it.

    `taken`: False where its receiver will not take it.
    """
    CLOCK: Final = 17
    """(CLOCK, ms, fresh): the sender's clock, ms since the Unix epoch; fresh: when it sent this
    datagram, else perhaps when it made a first copy.

    Capture time less this is the way from the sender plus the offset of its clock.
    """
    NUMBERED: Final = 18
    """(NUMBERED, type, space, wire_seq): a MESSAGE and the NUMBER that it uses, in one."""
    RUN: Final = 20
    """(RUN, space, wire_seq, types): UNITs of a space with `acked_with`, numbered one after the
    other from `wire_seq` on, one of each type in the list `types`. Only a scanner gives it.
    """
    RATE: Final = 21
    """(RATE, per_second, taken): the sender of this datagram asks the other side for so many
    datagrams a second.

    `taken`: False where the other side will not obey.
    """
    TIMING: Final = 22
    """(TIMING, name, ms): a time that the sender states, such as how early an input came; may be
    negative. The report sums them up under `timings`.
    """
    ORDERED: Final = 23
    """(ORDERED, space, wire_seqs, count): so many messages of this datagram ask to be delivered in
    the order of sending, those with these numbers of the space among them.

    It stands before their UNITs, and says nothing of whether a receiver keeps the order.
    """
    PART: Final = 19
    """(PART, ...): a part of something that spans datagrams, as the protocol's assembler takes it.

    The tracker passes it over. Parts are the last events of their datagram.
    """
