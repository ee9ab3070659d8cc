"""The network interfaces of this machine."""

from __future__ import annotations

import fcntl
import socket
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from struct import pack, unpack_from

from netdissect.model.errors import AccessError
from netdissect.model.text import quoted

_GET_FLAGS, _GET_ADDRESS, _GET_HARDWARE = 0x8913, 0x8915, 0x8927
"""SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFHWADDR. Source: Linux include/uapi/linux/sockios.h. Not read
from /sys, which may show the interfaces of another network namespace.
"""
_REQUEST_OCTETS, _NAME_OCTETS = 40, 16
"""Size of struct ifreq, and of the name that it begins with. Source: as _UP."""
_UP, _LOOPBACK = 0x1, 0x8
"""IFF_UP, IFF_LOOPBACK. Source: Linux include/uapi/linux/if.h."""
_PROC_IPV6 = Path("/proc/net/if_inet6")


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface."""

    index: int
    """The system's number, from 1; 0 for all interfaces together."""
    name: str
    up: bool
    loopback: bool
    hardware: int
    """Kind of hardware address (ARPHRD): 1 Ethernet, 772 loopback, 65534 none."""
    addresses: tuple[str, ...] = ()
    """Addresses as text: the first IPv4 one, and every IPv6 one."""


ANY = Interface(0, "any", up=True, loopback=False, hardware=-1)
"""All interfaces together, as libpcap offers them."""


def interfaces() -> list[Interface]:
    """Return the interfaces in order of their numbers, and `any` at the end."""
    found = []
    ipv6 = _ipv6_addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for index, name in sorted(socket.if_nameindex()):
            flags = _asked(probe, name, _GET_FLAGS)
            hardware = _asked(probe, name, _GET_HARDWARE)
            address = _asked(probe, name, _GET_ADDRESS)
            bits = unpack_from("H", flags)[0] if flags else 0
            kind = unpack_from("H", hardware)[0] if hardware else -1
            # struct sockaddr_in: family, port, address.
            ipv4 = (socket.inet_ntoa(address[4:8]),) if address else ()
            addresses = (*ipv4, *ipv6.get(name, ()))
            up, loopback = bool(bits & _UP), bool(bits & _LOOPBACK)
            found.append(Interface(index, name, up, loopback, kind, addresses))
    return [*found, ANY]


def find_interface(text: str) -> Interface:
    """Return the interface with a name, or with a number as printed by `-D`.

    Raises:
        AccessError: there is none; the message lists the existing ones.

    """
    known = interfaces()
    for interface in known:
        if text == interface.name or (interface.index and text == str(interface.index)):
            return interface
    names = ", ".join(interface.name for interface in known)
    raise AccessError(f"no interface named {quoted(text)}; there are: {names}")


def _asked(probe: socket.socket, name: str, what: int) -> bytes:
    """Return the kernel's answer to an ioctl about an interface; b"" on an error."""
    request = pack(f"{_REQUEST_OCTETS}s", name.encode()[: _NAME_OCTETS - 1])
    try:
        return bytes(fcntl.ioctl(probe, what, request))[_NAME_OCTETS:]
    except OSError:
        return b""


def _ipv6_addresses() -> dict[str, tuple[str, ...]]:
    try:
        lines = _PROC_IPV6.read_text().splitlines()
    except OSError:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        address, *_, name = line.split()
        found[name] = (*found.get(name, ()), str(IPv6Address(bytes.fromhex(address))))
    return found
