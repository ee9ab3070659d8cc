"""kNet (KristalliNet) over UDP and TCP."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from netdissect.model.annotations import code_rows
from netdissect.model.claims import Claim, Hints
from netdissect.model.events import Event
from netdissect.model.policy import Policy
from netdissect.protocols.base import DialectRow, Framer, Protocol
from netdissect.protocols.knet.fragments import fragment
from netdissect.protocols.knet.framing import VleFramer
from netdissect.protocols.knet.inspector import TransferInspector
from netdissect.protocols.knet.recognition import may_stand_alone, recognise
from netdissect.protocols.knet.rules import POLICIES
from netdissect.protocols.knet.scan import scan, scan_stream
from netdissect.protocols.knet.scanner import KnetScanner
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.protocols.knet.transfers import Transfers
from netdissect.wire.knet import (
    APPLICATIONS,
    CONTROLS,
    DIALECTS,
    PORTS,
    UNDECIDED,
)

_TITLES = {
    "knet-2.x": "reference implementation since 2011-02: tags 2.5 to 2.7, stable, master",
    "knet-2010": "reference implementation 2010-09 to 2011-02: control messages 0 to 3",
    UNDECIDED: "2010 or 2.x: no control message has told them apart",
    "knet-urho3d": "Urho3D 1.22 to 1.7.1: messages 5 to 22 by name",
    "knet-tundra": "realXtend Tundra: messages 100 to 124 by name",
    "knet-tcp": "any of them over TCP",
    "knet-spec": "the published document's own layout; never recognised, only on request",
}

_ESTABLISHED: Final = DecoderState(Phase.OPEN)
"""Stands for every state in which no connect datagram is expected."""


def _types(dialect: str) -> tuple[str, ...]:
    names = tuple(f"msg_{number}" for number in APPLICATIONS[dialect])
    return (*CONTROLS[dialect].values(), *names, "fragment")


class Knet(Protocol):
    """kNet. Source: docs/protocols/knet.md."""

    name = "knet"
    title = "kNet (KristalliNet)"
    dialects = tuple(DialectRow(name, _TITLES[name], _types(name)) for name in DIALECTS)
    transports = ("udp", "tcp")
    default_ports = PORTS
    codes = code_rows("knet")
    policies = POLICIES
    schema_formats = MappingProxyType({".xml": "netdissect.dissect.finishers.knet_xml:xml_schema"})
    wireshark = "netdissect.protocols.knet.wireshark"
    drivers = MappingProxyType(
        {
            "udp": "netdissect.fuzz.drivers.knet:KnetDriver",
            "tcp": "netdissect.fuzz.drivers.knet_tcp:KnetTcpDriver",
        }
    )
    servers = MappingProxyType(
        {
            "udp": "netdissect.fuzz.servers.knet:KnetServer",
            "tcp": "netdissect.fuzz.servers.knet_tcp:KnetTcpServer",
        }
    )
    recognise = staticmethod(recognise)
    may_stand_alone = staticmethod(may_stand_alone)

    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        """Return the events of one datagram, or of one TCP message in the dialect knet-tcp."""
        if hints.dialects[direction] == "knet-tcp":
            return scan_stream(payload, direction, hints)
        return scan(payload, direction, hints)

    scanner = staticmethod(KnetScanner)

    def framer(self, dialect: str, direction: int) -> Framer:
        """Return the framer of a stream; all dialects share it."""
        del dialect, direction
        return VleFramer()

    assembler = staticmethod(Transfers)

    def over(self, transport: str) -> Protocol:
        """Return the protocol as it is tracked over a transport, whatever its dialect."""
        return _OVER_TCP if transport == "tcp" else self

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints of a new connection; the claim may know its first datagram."""
        first, second = (name or UNDECIDED for name in claim.dialects)
        silent = (False, False) if claim.forced else claim.doubtful
        if claim.client == 1:
            first, second, silent = second, first, silent[::-1]
        phase = Phase.CONNECT_FIRST if claim.attempt else Phase.START
        return Hints((first, second), DecoderState(phase, silent=silent))

    def unproven(self, hints: Hints, direction: int) -> str | None:
        """Return a code if no control message has told the dialect."""
        undecided = hints.dialects[direction] == UNDECIDED
        return "knet-ambiguous-dialect" if undecided else None

    def for_layers(self, extra: Any) -> Any:
        """Return what tells layers whether a datagram is a connect datagram."""
        if extra is None or extra.is_new or extra.expects_connect:
            return extra
        return _ESTABLISHED

    inspector = staticmethod(TransferInspector)
    fragment = staticmethod(fragment)


class _KnetOverTcp(Knet):
    """kNet over TCP: the messages of a stream have no numbers of their own."""

    def policy(self, dialect: str) -> Policy:
        """Return the rules of a stream."""
        del dialect
        return POLICIES["knet-tcp"]

    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        """Return the events of one TCP message."""
        return scan_stream(payload, direction, hints)


_OVER_TCP = _KnetOverTcp()
PROTOCOL = Knet()
