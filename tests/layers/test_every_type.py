"""Every message type of every dialect in its datagram: rebuilt, and cut at each byte."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest
from scapy.config import conf
from scapy.packet import fuzz

from netdissect.craft.layers import message_types, read_types
from netdissect.craft.wrapping import root, wrap
from netdissect.dissect.engine import Request
from netdissect.layers import PROTOCOLS

DIALECTS = [
    (protocol, dialect)
    for protocol in PROTOCOLS
    for dialect in import_module(f"netdissect.layers.{protocol}").DIALECTS
]


@pytest.mark.parametrize(("protocol", "dialect"), DIALECTS)
def test_every_type_is_rebuilt_and_kept_when_cut(
    protocol: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With default values, and with values drawn by chance, of which the start has to suffice."""
    monkeypatch.setattr(conf, "debug_dissector", True)
    request = Request(dialect)

    def read(octets: bytes) -> Any:
        return root(protocol, octets, request)(octets)

    types = {
        (name, transport): layer
        for transport in ("udp", "tcp")
        for name, layer in message_types(protocol, dialect, transport).items()
    }
    assert types
    known: set[bytes] = set()
    for number, ((name, transport), layer) in enumerate(types.items()):
        request.transport = transport
        random.seed(number)
        whole = bytes(wrap(protocol, dialect, layer(), transport))
        assert read_types(protocol, whole, request)[0] == name
        packet = read(whole)
        packet.clear_cache()
        assert bytes(packet) == whole
        drawn = wrap(protocol, dialect, fuzz(layer()), transport)
        cut = {each[:length] for each in (whole, bytes(drawn or b"")[:48]) for length in range(1, len(each))}
        for octets in cut - known:
            assert bytes(read(octets)) == octets
        known |= cut
