"""Tiny for the fuzzer: a client that keeps a valid session, and a minimal server."""

from __future__ import annotations

from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.fuzz.servers.base import Address, PlantedBugError, Replies, Server
from netdissect_tiny.layers import MAGIC, TinyAck, TinyData

__all__ = ["TinyDriver", "TinyServer"]

HEAD = 5
"""Bytes before the length."""


class TinyDriver(Driver):
    """A session. Tiny has no handshake: the first acknowledgement makes it connected."""

    protocol = "tiny"
    dialects = ("tiny-1",)
    traits = Traits(live_fields={"number": "sequence"}, controls=frozenset({"data"}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._number = 0
        self._due = 0.0

    def begin(self) -> None:
        """Send the first piece of data."""
        self.probe(self.clock())

    def handle(self, octets: bytes, now: float) -> None:
        """Process an acknowledgement."""
        del now
        if len(octets) >= HEAD and octets[2] == 2:  # noqa: PLR2004 - an ack
            self.answered("ack")
            self.acknowledged(int.from_bytes(octets[3:5], "big"))
            self.state = CONNECTED

    def tick(self, now: float) -> None:
        """Keep the session alive."""
        if now >= self._due:
            self.probe(now)

    def probe(self, now: float) -> None:
        """Send something that a living server acknowledges."""
        self._number = (self._number + 1) % self.traits.span
        self._due = now + 0.5
        self.link.send(bytes(TinyData(number=self._number)))

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Set the next number, unless the mutant must keep its own."""
        data = bytearray(step.octets)
        if len(data) < HEAD or "sequence" in step.hold:
            return bytes(data), None
        live = self._number + 1 + dict(step.shift).get("sequence", 0)
        self._number += step.advance
        data[3:5] = (live % self.traits.span).to_bytes(2, "big")
        good = data[:3] == MAGIC.to_bytes(2, "big") + b"\x01" and not step.shift
        return bytes(data), live % self.traits.span if good else None

    def leave(self) -> None:
        """Do nothing: Tiny has no message that ends a session."""


class TinyServer(Server):
    """Acknowledges data. With the planted bug `length`, a length beyond the end kills it."""

    DIALECT = "tiny-1"
    BUGS = ("length",)

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the acknowledgement of one datagram."""
        del now
        packet = TinyData(data)
        if packet.magic != MAGIC or packet.kind != 1:
            return []
        if packet.fault is not None:
            if "length" in self.bugs:
                raise PlantedBugError("length")
            return []
        return [(bytes(TinyAck(number=packet.number)), peer)]

    def tick(self, now: float) -> Replies:
        """Return nothing: the server never sends by itself."""
        del now
        return []
