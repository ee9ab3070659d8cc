"""The vocabulary between `protocols` (what was on the wire) and `track` (what it means). It names no protocol.

`scan()` returns a list of events, each a plain tuple whose first item is an `Ev` constant. One datagram (or one framed TCP
message) gives the events of its messages in wire order. Tuples because this is the hot path; the layouts:

=============  ==========================================================  ===================================================
kind           tuple                                                       meaning
=============  ==========================================================  ===================================================
MESSAGE        (MESSAGE, type)                                             a message without a sequence number of its own
UNIT           (UNIT, type, space, wire_seq, labelled, content)            one copy of a unit. `labelled`: the sender itself marks it
                                                                           as sent again (None where the format has no such mark).
                                                                           `content`: any hashable that is equal for copies of one
                                                                           unit (a slice of the payload, or its hash), or None
ACK            (ACK, space, base, bits)                                    acknowledges units of the OTHER direction, read by the
                                                                           space's `AckRule`
NACK           (NACK, space, base, bits)                                   feedback that says which of the other direction's units
                                                                           are lost or delivered, never repaired (notify-style)
RESEND_REQUEST (RESEND_REQUEST, space)                                     asks the other side to send again
PROBE          (PROBE, probe, id)                                          a question that is answered at once (ping, heartbeat)
REPLY          (REPLY, probe, id)                                          the answer to the other direction's probe
RTT            (RTT, ms)                                                   a round trip that the sender of this datagram declares
STATE          (STATE, input, detail)                                      an input of the connection's state machine; detail: reason
                                                                           text or None
IDENTITY       (IDENTITY, key, value)                                      a fact that the protocol states about the connection
COUNTER        (COUNTER, name, amount)                                     a protocol's own counter, shown in the report under
                                                                           `counters` (fragments, bytes of a map ...)
RESTART        (RESTART, scope)                                            the sender numbers afresh from here; scope: a space name,
                                                                           or "*" for the whole connection
NOTE           (NOTE, code, detail)                                        an annotation code of the catalogue found while scanning
HINTS          (HINTS, hints)                                              the connection's hints from now on
=============  ==========================================================  ===================================================

A UNIT counts as a message of its type; do not add a MESSAGE for it. A message that sits in two spaces (kNet: a datagram and
the reliable message inside it) gives the outer UNIT with type None (counts no message), then the inner ones.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeAlias

__all__ = ["Ev", "Event"]

Event: TypeAlias = tuple[Any, ...]
"""One reliability event, laid out as the module's table says."""


class Ev(IntEnum):
    """Kinds of events."""

    MESSAGE = 0
    UNIT = 1
    ACK = 2
    NACK = 3
    RESEND_REQUEST = 4
    PROBE = 5
    REPLY = 6
    RTT = 7
    STATE = 8
    IDENTITY = 9
    COUNTER = 10
    RESTART = 11
    NOTE = 12
    HINTS = 13
