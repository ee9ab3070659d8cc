"""Flow keys: one direction of a conversation between two endpoints, packed into bytes."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING, TypeAlias

from netdissect.model.native import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

FlowKey: TypeAlias = bytes
"""Source address, destination address, source port and destination port as on the wire: 12 bytes
for IPv4, 36 for IPv6. Two more bytes distinguish flows of the same endpoints on several interfaces.
"""


def endpoint_text(address: str, port: int) -> str:
    """Return "address:port", with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _address_size(key: FlowKey) -> int:
    return 4 if len(key) < 36 else 16  # noqa: PLR2004 - the two layouts of FlowKey


def flow_addresses(key: FlowKey) -> tuple[str, str]:
    """Return (source address, destination address) of a flow key."""
    if _address_size(key) == 4:  # noqa: PLR2004 - IPv4
        # Ten times as fast as `IPv4Address`, and needed for each connection.
        return (
            f"{key[0]}.{key[1]}.{key[2]}.{key[3]}", f"{key[4]}.{key[5]}.{key[6]}.{key[7]}",
        )  # fmt: skip
    return str(IPv6Address(key[:16])), str(IPv6Address(key[16:32]))


def flow_ports(key: FlowKey) -> tuple[int, int]:
    """Return (source port, destination port) of a flow key."""
    at = 2 * _address_size(key)
    return key[at] << 8 | key[at + 1], key[at + 2] << 8 | key[at + 3]


def flow_texts(key: FlowKey) -> tuple[str, str]:
    """Return (source, destination) of a flow key, each as "address:port"."""
    addresses, ports = flow_addresses(key), flow_ports(key)
    return endpoint_text(addresses[0], ports[0]), endpoint_text(addresses[1], ports[1])


def ipv4_key(addresses: i64, ports: i64) -> FlowKey:
    """Return the IPv4 flow key whose first 8 bytes are the signed big-endian integer `addresses`
    and whose last 4 bytes are the integer `ports`.
    """
    return int(addresses).to_bytes(8, "big", signed=True) + int(ports).to_bytes(4, "big")


def flow_sides(key: FlowKey) -> tuple[bytes, bytes]:
    """Return (source, destination) of a flow key, each as address and port in bytes."""
    size = _address_size(key)
    ports = key[2 * size : 2 * size + 4]
    return key[:size] + ports[:2], key[size : 2 * size] + ports[2:]


def reverse_key(key: FlowKey) -> FlowKey:
    """Return the key of the opposite direction of the same flow."""
    size = _address_size(key)
    if size == 4:  # noqa: PLR2004 - IPv4: the result of the slices below, for an eighth of the cost
        out = BytesWriter()
        write_i32_be(out, read_i32_be(key, 4))
        write_i32_be(out, read_i32_be(key, 0))
        write_i16_be(out, read_i16_be(key, 10))
        write_i16_be(out, read_i16_be(key, 8))
        if len(key) > 12:  # noqa: PLR2004 - as above
            out.write(key[12:])
        return out.getvalue()
    ports = key[2 * size :]
    return key[size : 2 * size] + key[:size] + ports[2:4] + ports[:2] + ports[4:]
