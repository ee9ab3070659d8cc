"""Netplay (nichnet/netplay) over TCP, dialects bin1, bin2, bin3 and text."""

from __future__ import annotations

from types import MappingProxyType

from netdissect.model.annotations import code_rows
from netdissect.model.claims import Hints
from netdissect.protocols.base import DialectRow, Framer, Protocol, Reading
from netdissect.protocols.netplay.framing import BinaryFramer, TextFramer
from netdissect.protocols.netplay.recognition import may_stand_alone, recognise
from netdissect.protocols.netplay.rules import POLICIES
from netdissect.protocols.netplay.scan import scan
from netdissect.wire.netplay import DIALECTS, PORTS

_TITLES = (
    "July 2025: u16 length, options, type; plain values",
    "29 July 2025: frames of bin1, a presence byte before every value",
    "October 2025: frames of bin2 cut into chunks of 1023 bytes",
    "since March 2026: class line and JSON line",
)
_BINARY_TYPES = ("0", "1", "2")
_TEXT_TYPES = ("NetworkMessageLogin", "NetworkMessageNotification", "NetworkMessageChat")


class Netplay(Protocol):
    """Netplay. Source: docs/protocols/netplay.md."""

    name = "netplay"
    title = "Netplay (nichnet)"
    dialects = tuple(
        DialectRow(name, title, _TEXT_TYPES if name == "netplay-text" else _BINARY_TYPES)
        for name, title in zip(DIALECTS, _TITLES, strict=True)
    )
    transports = ("tcp",)
    default_ports = PORTS
    codes = code_rows("netplay")
    policies = POLICIES
    privacy = "netdissect.protocols.netplay.privacy"
    drivers = MappingProxyType({"tcp": "netdissect.fuzz.drivers.netplay:NetplayDriver"})
    servers = MappingProxyType({"tcp": "netdissect.fuzz.servers.netplay:NetplayServer"})

    recognise = staticmethod(recognise)
    may_stand_alone = staticmethod(may_stand_alone)

    scan = staticmethod(scan)

    def framer(self, dialect: str, direction: int) -> Framer:
        """Return the framer of a dialect."""
        del direction
        if dialect == "netplay-text":
            return TextFramer()
        return BinaryFramer(dialect)

    def informed(self, hints: Hints, reading: Reading) -> Hints:
        """Return the hints with the user's bounds of inflation."""
        return Hints(hints.dialects, reading.bounds)


PROTOCOL = Netplay()
