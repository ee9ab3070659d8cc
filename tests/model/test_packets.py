from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.packets import (
    Direction,
    Endpoint,
    endpoint_text,
    flow_endpoints,
    reverse_key,
)

_PORTS = st.integers(0, 65535)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), _PORTS, _PORTS)
def test_an_ipv4_key_holds_both_ends(source: int, destination: int, there: int, back: int) -> None:
    key = (
        source.to_bytes(4, "big")
        + destination.to_bytes(4, "big")
        + there.to_bytes(2, "big")
        + back.to_bytes(2, "big")
    )
    ends = flow_endpoints(key)
    assert ends == (
        Endpoint(str(IPv4Address(source)), there),
        Endpoint(str(IPv4Address(destination)), back),
    )
    assert flow_endpoints(reverse_key(key)) == ends[::-1]
    assert reverse_key(key + b"\0\1") == reverse_key(key) + b"\0\1"


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1), _PORTS, _PORTS)
def test_an_ipv6_key_holds_both_ends(source: int, destination: int, there: int, back: int) -> None:
    key = (
        source.to_bytes(16, "big")
        + destination.to_bytes(16, "big")
        + there.to_bytes(2, "big")
        + back.to_bytes(2, "big")
    )
    assert flow_endpoints(key)[0] == Endpoint(str(IPv6Address(source)), there)
    assert reverse_key(reverse_key(key)) == key


@pytest.mark.parametrize(
    ("address", "text"),
    [("10.0.0.1", "10.0.0.1:7777"), ("::1", "[::1]:7777"), ("fe80::2", "[fe80::2]:7777")],
)
def test_endpoints_are_written_as_the_contract_says(address: str, text: str) -> None:
    assert endpoint_text(address, 7777) == text == str(Endpoint(address, 7777))


def test_directions_have_labels() -> None:
    assert [way.label for way in Direction] == ["c2s", "s2c"]
