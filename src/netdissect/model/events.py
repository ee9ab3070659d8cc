"""Reliability events: how `protocols` reports what was on the wire to `track`, which concludes what
it means. No event is specific to a protocol.

`scan()` returns the events of one datagram (or one framed TCP message) in wire order. Each event is
a plain tuple, because this is the hot path. Its first item is an `Ev` constant; the docstring of
the constant describes the layout.

A UNIT counts as a message of its type: do not add a MESSAGE for it. If a message has numbers in two
spaces (that of the datagram and its own), the outer UNIT comes first and has type None, so that it
does not count as a message; the inner UNITs follow. The rule of the inner space names the outer
space in `acked_with`: an acknowledgement of the outer unit acknowledges the inner units too.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Event: TypeAlias = tuple[Any, ...]
"""One reliability event, laid out as its `Ev` constant says."""


class Ev:
    """Kinds of events. Each docstring starts with the layout of the tuple."""

    MESSAGE: Final = 0
    """(MESSAGE, type): a message without a sequence number of its own."""
    UNIT: Final = 1
    """(UNIT, type, space, wire_seq, labelled, content): one copy of a unit.

    `labelled`: whether the sender marks it as a retransmission; None if the format has no such
    mark. `content`: any hashable value that is equal for all copies of the unit (a slice of the
    payload, or its hash), or None.
    """
    ACK: Final = 2
    """(ACK, space, base, bits): acknowledges units of the OTHER direction, as `AckRule` defines."""
    NACK: Final = 3
    """(NACK, space, base, bits): reports which units of the other direction were delivered.

    The units are never repaired (notify style), and each is reported once: a base that is not newer
    than the last one is ignored. Of the units since the last base, the `SpaceRule.ack_bits` before
    the new one have a bit each (bit i is base - 1 - i); earlier ones are assumed lost.
    """
    RESEND_REQUEST: Final = 4
    """(RESEND_REQUEST, space): asks the other side to send again."""
    PROBE: Final = 5
    """(PROBE, probe, id): a request that the peer answers at once (ping, heartbeat)."""
    REPLY: Final = 6
    """(REPLY, probe, id): the answer to a probe of the other direction."""
    RTT: Final = 7
    """(RTT, ms): a round trip that the sender of this datagram states; both sides then use it."""
    STATE: Final = 8
    """(STATE, input, detail): an input of the state machine; detail: a reason or None."""
    IDENTITY: Final = 9
    """(IDENTITY, key, value): a fact that the protocol states about the connection."""
    COUNTER: Final = 10
    """(COUNTER, name, amount): increases a counter of the protocol, shown under `counters`."""
    RESTART: Final = 11
    """(RESTART, scope): the sender of this datagram starts again. The scope is one of:

    * the name of a space: its numbering starts again with this datagram;
    * "*": this datagram begins a new connection, with a report of its own, on the same addresses;
    * "?": it may begin one. The datagram is held back. It goes to the new connection if the next
      datagram of the same sender is a "*", otherwise to the present one;
    * "<": the datagram belongs to the previous connection, which the peer still considers alive.
      Only if `Protocol.lives` allows connections to overlap.

    "*", "?" and "<" must be the first event of their datagram.
    """
    NOTE: Final = 12
    """(NOTE, code, detail): a finding of the catalogue, made while scanning."""
    HINTS: Final = 13
    """(HINTS, hints): replaces the hints of the connection."""
    PLAIN_UNIT: Final = 14
    """(PLAIN_UNIT, type, space, wire_seq, content): a unit that nobody will acknowledge.

    It counts as a unit of the space, but never as `unacked`.
    """
    NUMBER: Final = 15
    """(NUMBER, space, wire_seq): a number of the space used by something that is not a unit of it.

    The number does not count as `never_seen`, and nothing else counts it.
    """
    TALLY: Final = 16
    """(TALLY, name, sent, received, taken): how many datagrams the sender of this one has counted
    itself, since its last TALLY or the last one that was accepted. The tracker shows its own count
    beside it.

    `taken`: False if the receiver will not accept this datagram.
    """
    CLOCK: Final = 17
    """(CLOCK, ms, fresh): the sender's clock, ms since the Unix epoch.

    `fresh`: True if it is the time of sending this datagram, False if it may be that of an earlier
    copy. Capture time minus this is the one-way delay plus the offset of the sender's clock.
    """
    NUMBERED: Final = 18
    """(NUMBERED, type, space, wire_seq): a MESSAGE and the NUMBER that it uses, in one event."""
    RUN: Final = 20
    """(RUN, space, wire_seq, types): UNITs with consecutive numbers from `wire_seq`, one for each
    item of the list `types`. The space has `acked_with`. Only scanners produce it.
    """
    RATE: Final = 21
    """(RATE, per_second, taken): the sender of this datagram asks the other side for a rate of
    datagrams.

    `taken`: False if the other side will not obey.
    """
    TIMING: Final = 22
    """(TIMING, name, ms[, space, number]): a duration that the sender states, such as how early an
    input arrived. May be negative. The report summarises them under `timings`.

    `space`, `number`: it ends when the sender's clock reaches this number of a space that has
    `tick_ms`.
    """
    ORDERED: Final = 23
    """(ORDERED, space, wire_seqs, count): `count` messages of this datagram request delivery in
    sending order. `wire_seqs` are the numbers of those that are units of the space.

    It precedes their UNITs. It does not say whether the receiver keeps the order.
    """
    PART: Final = 19
    """(PART, ...): a part of something that spans datagrams, in the format of the protocol's
    assembler.

    The tracker ignores it. Parts are the last events of their datagram.
    """
