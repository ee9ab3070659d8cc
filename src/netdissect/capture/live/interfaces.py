"""The network interfaces of this machine."""

from __future__ import annotations

import fcntl
import socket
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from struct import pack

from netdissect.model.errors import AccessError

__all__ = ["ANY", "Interface", "find_interface", "interfaces"]

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR. Source: Linux include/uapi/linux/sockios.h."""
_UP, _LOOPBACK = 0x1, 0x8
"""IFF_UP, IFF_LOOPBACK. Source: Linux include/uapi/linux/if.h."""
_SYS = Path("/sys/class/net")
_PROC_IPV6 = Path("/proc/net/if_inet6")


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface."""

    index: int
    """Number of the system, from 1; 0 for all interfaces together."""
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
    for index, name in sorted(socket.if_nameindex()):
        flags = int(_attribute(name, "flags") or "0", 16)
        found.append(
            Interface(
                index,
                name,
                up=bool(flags & _UP),
                loopback=bool(flags & _LOOPBACK),
                hardware=int(_attribute(name, "type") or -1),
                addresses=(*_ipv4_address(name), *ipv6.get(name, ())),
            )
        )
    return [*found, ANY]


def find_interface(text: str) -> Interface:
    """Return the interface of a name, or of a number as `-D` prints it.

    Raises:
        AccessError: there is none; the message lists those that there are.

    """
    known = interfaces()
    for interface in known:
        if text == interface.name or (interface.index and text == str(interface.index)):
            return interface
    names = ", ".join(interface.name for interface in known)
    raise AccessError(f"no interface named {text!r}; there are: {names}")


def _attribute(name: str, what: str) -> str:
    """Return a fact of an interface; "" where the system does not tell."""
    try:
        return (_SYS / name / what).read_text().strip()
    except OSError:
        return ""


def _ipv4_address(name: str) -> tuple[str, ...]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _GET_ADDRESS, pack("256s", name.encode()[:15]))
        except OSError:
            return ()
    return (socket.inet_ntoa(answer[20:24]),)


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
