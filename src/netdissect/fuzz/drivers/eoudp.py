"""An EOUDP client of any dialect: connects, acknowledges what is to be acknowledged, counts ids.

Source: docs/protocols/eoudp.md.
"""

from __future__ import annotations

from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.drivers.eoudp_form import FORMS
from netdissect.fuzz.generator import Traits
from netdissect.layers.eoudp import EoudpAck, EoudpPacketInfo, EoudpPair
from netdissect.wire.eoudp_names import (
    ACK,
    CONNECT,
    CONNECT_ACCEPT,
    DISCONNECT,
    PACKET_INFO,
    type_name,
)

INFO_SECONDS = 1.0
_ACK_OCTETS = 8
_USUAL = "exodia-late"
_ENDS = ("CONNECT", "DISCONNECT")


class EoudpDriver(Driver):
    """One connection, as the client of v1.2 and v1.3 keeps it; other dialects likewise."""

    protocol = "eoudp"
    dialects = (_USUAL, *(name for name in FORMS if name != _USUAL))
    traits = Traits(
        live_fields={"id": "sequence", "timestamp": "time", "acked_id": "ack"},
        span=1 << 32,
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset({"EVENT*", "IMPORTANT_EVENT*", "COMPONENT_OF"}),
        closing=frozenset({"CONNECT", "DISCONNECT"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._form = FORMS[self.dialect]
        self._number = 0
        self._newest = 0
        self._probed = -1
        self._pongs = 0
        self._accepts = 0
        self._due = 0.0

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def begin(self) -> None:
        """Send CONNECT; it is repeated until it is accepted."""
        self._connect(self.clock())

    def _connect(self, now: float) -> None:
        self._due = now + INFO_SECONDS
        self._send(CONNECT, flagged=True)

    def _send(self, command: int, content: Any = None, *, flagged: bool = False) -> int:
        number = self._next()
        self.link.send(self._form.build(number, command, content, flagged=flagged))
        return number

    def ends(self, octets: bytes) -> bool:
        """Return whether this is a DISCONNECT, or a CONNECT: ids start again."""
        content = self._form.content(octets)
        return content is not None and type_name(self.dialect, octets[0], len(content)) in _ENDS

    def handle(self, data: bytes, now: float) -> None:
        """Acknowledge what is important; take note of what is acknowledged."""
        del now
        form = self._form
        content = form.content(data)
        if content is None:
            self.received["unreadable", self.state] += 1
            return
        number, command = form.number(data), data[0]
        self.answered(type_name(self.dialect, command, len(content)))
        self._newest = number
        if form.is_acknowledged(data):
            self._send(ACK, EoudpAck(acked_id=number))
        if command == CONNECT_ACCEPT:
            self._accepts += 1
            self.state = CONNECTED if self.state == "connecting" else self.state
        elif command == ACK and len(content) == _ACK_OCTETS:
            acked = int.from_bytes(content, "little")
            self._pongs += acked == self._probed
            self.acknowledged(acked)
        elif command == DISCONNECT:
            # Servers say this to all clients when one is gone; they go on answering.
            self._due = 0.0

    def tick(self, now: float) -> None:
        """Repeat CONNECT; send PACKET_INFO every second."""
        if self.state == "connecting" and now >= self._due:
            self._connect(now)
        elif self.state == CONNECTED and now >= self._due:
            self._due = now + INFO_SECONDS
            self._send(PACKET_INFO, _counters())

    def probe(self, now: float) -> None:
        """Send a flagged PACKET_INFO, where flagged messages are acknowledged; else a CONNECT: a
        server answers it whenever it comes.
        """
        if self.state != CONNECTED or not self._form.by_flag:
            self._connect(now)
            return
        self._probed = self._send(PACKET_INFO, _counters(), flagged=True)

    def proofs(self) -> int:
        """Return how many probes were acknowledged or accepted."""
        if self.state != CONNECTED:
            return self.answers
        return self._pongs if self._form.by_flag else self._accepts

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Insert id and time, and the newest received id into acknowledgements."""
        form, data, shift = self._form, bytearray(step.octets), dict(step.shift)
        if len(data) < form.head:
            return bytes(data), None
        if "time" not in step.hold:
            form.put_time(data)
        if data[0] == ACK and "ack" not in step.hold and len(data) == form.head + _ACK_OCTETS:
            acked = (self._newest + shift.get("ack", 0)) % (1 << 8 * _ACK_OCTETS)
            data[form.head :] = acked.to_bytes(_ACK_OCTETS, "little")
        if "sequence" in step.hold:
            return bytes(data), None
        number = (self._number + shift.get("sequence", 0)) % form.span
        self._number += step.advance
        form.put_number(data, number)
        whole = form.content(bytes(data)) is not None
        if form.by_flag and form.flag is not None and whole and not step.hold and data[0] != ACK:
            # Only flagged messages are acknowledged; as such it is what the server takes anyway.
            data[form.flag] = data[form.flag] or 1
        expected = whole and not step.shift and form.is_acknowledged(bytes(data))
        return bytes(data), number if expected else None

    def leave(self) -> None:
        """Send DISCONNECT, once, as clients do when their window is closed."""
        self._send(DISCONNECT)


def _counters() -> EoudpPacketInfo:
    return EoudpPacketInfo(pairs=[EoudpPair(received=0, sent=0)])
