"""Teeworlds and DDNet over UDP: dialects 0.6, 0.6.5, ddnet-0.6 and 0.7."""

from __future__ import annotations

from types import MappingProxyType

from netdissect.model.annotations import code_rows
from netdissect.protocols.base import DialectRow, Protocol
from netdissect.protocols.teeworlds.fragments import fragment
from netdissect.protocols.teeworlds.inspector import SnapshotInspector
from netdissect.protocols.teeworlds.recognition import may_stand_alone, recognise
from netdissect.protocols.teeworlds.rules import POLICIES
from netdissect.protocols.teeworlds.scanner import TeeworldsScanner, scan
from netdissect.wire.teeworlds import secrets, type_names
from netdissect.wire.teeworlds_forms import D06, D065, D07, DDNET, PORTS


class Teeworlds(Protocol):
    """Teeworlds. Source: docs/protocols/teeworlds.md."""

    name = "teeworlds"
    title = "Teeworlds and DDNet"
    dialects = (
        DialectRow(D07, "0.7.0 to 0.7.5, and 0.7 clients at DDNet servers", type_names("0.7")),
        DialectRow(D06, "0.6.0 to 0.6.4, and whoever declines tokens", type_names("0.6")),
        DialectRow(D065, "0.6.5: a token in the header", type_names("0.6")),
        DialectRow(DDNET, "DDNet: a token at the end of the payload", type_names("0.6")),
    )
    transports = ("udp",)
    default_ports = PORTS
    codes = code_rows("teeworlds")
    policies = POLICIES
    field_aliases = MappingProxyType(
        {
            "tw.packet.ack": "teeworlds.ack",
            "tw.packet.flags.request_resend": "teeworlds.flags.resend_requested",
            "tw.packet.flags.compression": "teeworlds.flags.compressed",
            "tw.packet.num_chunks": "teeworlds.num_chunks",
            "tw.packet.token": "teeworlds.token",
            "tw.chunk.seq": "msg.wire_seq",
        }
    )
    """Field names of libtw2's Wireshark plug-in."""
    secrets = MappingProxyType(secrets())
    privacy = "netdissect.protocols.teeworlds.privacy"
    drivers = MappingProxyType({"udp": "netdissect.fuzz.drivers.teeworlds:TeeworldsDriver"})
    servers = MappingProxyType({"udp": "netdissect.fuzz.servers.teeworlds:TeeworldsServer"})

    recognise = staticmethod(recognise)
    may_stand_alone = staticmethod(may_stand_alone)

    scan = staticmethod(scan)
    scanner = staticmethod(TeeworldsScanner)

    inspector = staticmethod(SnapshotInspector)
    fragment = staticmethod(fragment)


PROTOCOL = Teeworlds()
