"""An EOUDP client of the last releases: connects, acknowledges what is important, counts ids.

Source: docs/protocols/eoudp.md sections 3 to 5.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.layers.eoudp import (
    EoudpAck,
    EoudpLate,
    EoudpPacketInfo,
    EoudpPair,
)
from netdissect.wire.eoudp_names import command_name

__all__ = ["HEAD", "EoudpDriver", "datagram", "is_whole"]

HEAD = 26
"""Octets of the header. Source: engine `Network/Header`, exodia-late."""
PACKET_INFO, ACK, CONNECT_ACCEPT, CONNECT, DISCONNECT = 0x00, 0x01, 0x02, 0x81, 0x82
_TIMESTAMP, _ID, _IMPORTANT, _SIZE = slice(1, 9), slice(9, 17), 17, slice(18, 26)
_ID_SPAN = 1 << 64
INFO_SECONDS = 1.0
DIALECT = "exodia-late"


def datagram(number: int, command: int, content: Any = None, *, important: bool = False) -> bytes:
    """Return one message with the time of now."""
    stamp = float(time.time_ns() // 1_000_000)
    head = EoudpLate(cmd=command, timestamp=stamp, id=number, important=int(important))
    return bytes(head if content is None else head / content)


def is_whole(data: bytes) -> bool:
    """Return whether a datagram passes the size check of real receivers."""
    return len(data) >= HEAD and int.from_bytes(data[_SIZE], "big") == len(data) - HEAD


class EoudpDriver(Driver):
    """One connection, as the client of v1.2 and v1.3 keeps it."""

    protocol = "eoudp"
    dialects = (DIALECT,)
    traits = Traits(
        live_fields={"id": "sequence", "timestamp": "time", "acked_id": "ack"},
        span=1 << 32,
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset({"EVENT"}),
        closing=frozenset({"DISCONNECT"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._number = 0
        self._newest = 0
        self._probed = -1
        self._pongs = 0
        self._due = 0.0

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def begin(self) -> None:
        """Send CONNECT; it is repeated until it is accepted."""
        self._connect(self.clock())

    def _connect(self, now: float) -> None:
        self._due = now + INFO_SECONDS
        self.link.send(datagram(self._next(), CONNECT, important=True))

    def ends(self, octets: bytes) -> bool:
        """Return whether this is a DISCONNECT, or a CONNECT: ids start again."""
        return is_whole(octets) and octets[0] in (CONNECT, DISCONNECT)

    def handle(self, data: bytes, now: float) -> None:
        """Acknowledge what is important; take note of what is acknowledged."""
        del now
        if not is_whole(data):
            self.received["unreadable", self.state] += 1
            return
        number, command, content = int.from_bytes(data[_ID], "big"), data[0], data[HEAD:]
        self.answered(command_name(DIALECT, command, len(content)))
        self._newest = number
        if data[_IMPORTANT]:
            self.link.send(datagram(self._next(), ACK, EoudpAck(acked_id=number)))
        if command == CONNECT_ACCEPT and self.state == "connecting":
            self.state = CONNECTED
        elif command == ACK and len(content) == 8:  # noqa: PLR2004 - one little-endian id
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
            self.link.send(datagram(self._next(), PACKET_INFO, _counters()))

    def probe(self, now: float) -> None:
        """Send an important PACKET_INFO: whatever is important is acknowledged."""
        if self.state != CONNECTED:
            self._connect(now)
            return
        self._probed = self._next()
        self.link.send(datagram(self._probed, PACKET_INFO, _counters(), important=True))

    def proofs(self) -> int:
        """Return how many probes were acknowledged."""
        return self._pongs if self.state == CONNECTED else self.answers

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Put in id and time, and the newest id received into acknowledgements."""
        data = bytearray(step.octets)
        shift = dict(step.shift)
        if len(data) < HEAD:
            return bytes(data), None
        if "time" not in step.hold:
            data[_TIMESTAMP] = struct.pack(">d", float(time.time_ns() // 1_000_000))
        if data[0] == ACK and "ack" not in step.hold and len(data) == HEAD + 8:
            data[HEAD:] = ((self._newest + shift.get("ack", 0)) % _ID_SPAN).to_bytes(8, "little")
        if "sequence" in step.hold:
            return bytes(data), None
        number = (self._number + shift.get("sequence", 0)) % _ID_SPAN
        self._number += step.advance
        data[_ID] = number.to_bytes(8, "big")
        if (
            step.octets[0] != ACK
            and not step.hold
            and is_whole(bytes(data))
            and not data[_IMPORTANT]
        ):
            # Only important messages are acknowledged; as such it is what the server takes anyway.
            data[_IMPORTANT] = 1
        expected = data[_IMPORTANT] == 1 and is_whole(bytes(data)) and not step.shift
        return bytes(data), number if expected else None

    def leave(self) -> None:
        """Send DISCONNECT, once, as clients do when their window is closed."""
        self.link.send(datagram(self._next(), DISCONNECT))


def _counters() -> EoudpPacketInfo:
    return EoudpPacketInfo(pairs=[EoudpPair(received=0, sent=0)])
