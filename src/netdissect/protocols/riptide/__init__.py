"""Riptide Networking over UDP and TCP, dialects 2.0, 2.1dev, 2.1 and 2.2."""

from __future__ import annotations

from types import MappingProxyType

from netdissect.model.annotations import code_rows
from netdissect.model.claims import Claim, Hints
from netdissect.model.policy import Policy
from netdissect.protocols.base import DialectRow, Framer, Protocol
from netdissect.protocols.framing import LengthPrefixed
from netdissect.protocols.riptide.framing import PREFIXES
from netdissect.protocols.riptide.recognition import recognise
from netdissect.protocols.riptide.rules import POLICIES
from netdissect.protocols.riptide.scanner import RiptideScanner, scan
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    PORTS,
    TYPES_20,
    TYPES_21,
    UNDECIDED,
    UNDECIDED_BYTES,
)


class Riptide(Protocol):
    """Riptide Networking. Source: docs/protocols/riptide.md."""

    name = "riptide"
    title = "Riptide Networking"
    dialects = (
        DialectRow(BITS[1], "2.2.0 and later: bit packing, 5-byte acks", TYPES_21),
        DialectRow(BITS[0], "2.1.0 to 2.1.2: bit packing, 7-byte acks", TYPES_21),
        DialectRow(BYTES_20, "2.0.0: whole bytes, AckExtra, no Notify", TYPES_20),
        DialectRow(BYTES_21DEV, "2.1 snapshots of 2023: whole bytes, Notify", TYPES_21),
        DialectRow(UNDECIDED, "2.1 or 2.2: no ack has told them apart", TYPES_21),
        DialectRow(
            UNDECIDED_BYTES, "2.0 or 2.1dev: no type has told them apart", (*TYPES_20, "Notify")
        ),
    )
    transports = ("udp", "tcp")
    default_ports = PORTS
    codes = code_rows("riptide")
    drivers = MappingProxyType(
        {
            "udp": "netdissect.fuzz.drivers.riptide:RiptideDriver",
            "tcp": "netdissect.fuzz.drivers.riptide_tcp:RiptideTcpDriver",
        }
    )
    servers = MappingProxyType(
        {
            "udp": "netdissect.fuzz.servers.riptide:RiptideServer",
            "tcp": "netdissect.fuzz.servers.riptide_tcp:RiptideTcpServer",
        }
    )
    recognise = staticmethod(recognise)

    def may_stand_alone(self, payload: bytes) -> bool:
        """Return False: all evidence needs an answer or a repetition."""
        del payload
        return False

    scan = staticmethod(scan)
    scanner = staticmethod(RiptideScanner)

    def policy(self, dialect: str) -> Policy:
        """Return the rules of a dialect."""
        return POLICIES.get(dialect, POLICIES[UNDECIDED])

    def framer(self, dialect: str, direction: int) -> Framer:
        """Return the framer: lengths are u16 in 2.0, i32 from 2.1dev on. Source: section 5."""
        del direction
        packing = dialect if dialect in PREFIXES else UNDECIDED
        return LengthPrefixed(PREFIXES[packing], fault="riptide-tcp-length")

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints of a new connection; its dialect is undecided unless the claim says."""
        first, second = claim.dialects[0] or UNDECIDED, claim.dialects[1] or UNDECIDED
        return Hints((second, first) if claim.client == 1 else (first, second))

    def next_hints(self, hints: Hints) -> Hints:
        """Return fresh hints: another release may use the same address and port."""
        first, second = (UNDECIDED if name in BITS else name for name in hints.dialects)
        return Hints((first, second))


PROTOCOL = Riptide()
