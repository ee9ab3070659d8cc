"""ENet 1.3, the reliable-UDP library of many games, as a protocol of netdissect."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from netdissect.model.claims import Claim, Hints, Sample
from netdissect.protocols.base import DialectRow, Protocol
from netdissect_enet.recognise import claimed
from netdissect_enet.rules import ALL_CODES, CRC, NAMES, PLAIN, POLICIES
from netdissect_enet.scan import Learnt, scan

__all__ = ["PROTOCOL", "Enet"]


class Enet(Protocol):
    """ENet 1.3. Source: docs/enet.md."""

    name = "enet"
    title = "ENet"
    dialects = (
        DialectRow(PLAIN, "1.3 without a checksum", tuple(NAMES.values())),
        DialectRow(CRC, "1.3 with a CRC-32 in each datagram", tuple(NAMES.values())),
    )
    transports = ("udp",)
    codes = ALL_CODES
    policies = POLICIES
    lives = 2
    layer_module = "netdissect_enet.layers"
    drivers = MappingProxyType({"udp": "netdissect_enet.driver:EnetDriver"})
    scan = staticmethod(scan)

    def recognise(self, sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
        """Return the claim on a flow, which any datagram may prove."""
        del transport, final
        return claimed(self, sample)

    def next_hints(self, hints: Hints) -> Hints:
        """Return the hints of the next connection; they include peers and sessions of this one."""
        learnt = hints.extra or Learnt()
        return Hints(hints.dialects, Learnt(earlier=(learnt._replace(earlier=()),)))


PROTOCOL = Enet()
