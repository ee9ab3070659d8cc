"""Tiny as a protocol of netdissect: how to recognise it, and what a datagram means."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from netdissect.dissect.cache import readers
from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.claims import Claim, Hints, Sample
from netdissect.model.events import Ev, Event
from netdissect.model.policy import AckRule, Policy, ResendRule, SpaceRule
from netdissect.protocols.base import DialectRow, Protocol

__all__ = ["CODES", "PROTOCOL", "Tiny"]

MAGIC = b"\x54\x59"
CODES = (
    CodeRow(
        "tiny-magic", Severity.ERROR, "malformed", "not the magic number",
        "A datagram of Tiny begins with 0x5459; receivers drop any other.",
    ),
    CodeRow(
        "tiny-empty", Severity.WARN, "protocol", "data of no bytes",
        "It is acknowledged like any other, and says nothing.",
    ),
)  # fmt: skip
"""Findings of the layers and of `scan`: code, severity, group, title, meaning."""
POLICY = Policy(
    dialect="tiny-1",
    spaces=(
        SpaceRule(
            name="data", bits=16, ack=AckRule.EXACT, first_seq=1,
            resend=ResendRule(initial_ms=200.0, guard_ms=20.0),
        ),
    ),
)  # fmt: skip
"""One space of numbered data. Each number is acknowledged alone, and retransmitted after 200 ms."""


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram. Never raises: a reader returns None if bytes are missing."""
    del hints
    read = readers("netdissect_tiny.layers")
    if payload[:3] == MAGIC + b"\x01":
        found = read.read_TinyData(payload, 0, len(payload))
        if found is not None:
            _, _, number, _, data, _ = found
            events: list[Event] = [(Ev.UNIT, "data", "data", number, None, data)]
            read.odd_TinyData(found, direction, events)
            return events
    if payload[:3] == MAGIC + b"\x02":
        found = read.read_TinyAck(payload, 0, len(payload))
        if found is not None:
            return [(Ev.MESSAGE, "ack"), (Ev.ACK, "data", found[2], 0)]
    return [(Ev.MESSAGE, "unknown")]


class Tiny(Protocol):
    """What netdissect needs to know about the protocol."""

    name = "tiny"
    title = "Tiny"
    dialects = (DialectRow("tiny-1", "the only version", ("data", "ack")),)
    codes = CODES
    policies = MappingProxyType({"tiny-1": POLICY})
    transports = ("udp",)
    layer_module = "netdissect_tiny.layers"
    drivers = MappingProxyType({"udp": "netdissect_tiny.driver:TinyDriver"})
    servers = MappingProxyType({"udp": "netdissect_tiny.driver:TinyServer"})
    scan = staticmethod(scan)

    def recognise(self, sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
        """Claim a flow whose datagrams all begin with the magic number."""
        del transport, final
        if not all(octets.startswith(MAGIC) for _, _, octets in sample):
            return None
        return Claim(
            "tiny", 70, ("tiny-1", "tiny-1"), 0, "protocol", ("all begin with the magic number",)
        )


PROTOCOL = Tiny()
