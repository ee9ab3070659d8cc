"""Which flows a `Decapsulator` leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.model.packets import FlowKey

__all__ = ["Choice", "NoUdp"]


class Choice:
    """Says of each flow whether it is left out."""

    def leaves_udp(self, key: FlowKey) -> bool:
        """Return whether a UDP flow is left out."""
        raise NotImplementedError

    def leaves_tcp(self, key: FlowKey) -> bool:
        """Return whether a TCP flow is left out."""
        raise NotImplementedError

    def leaves(self, addresses: i64, ports: i64) -> bool:
        """Return whether a UDP flow over IPv4 is left out; see `PacketSink.ipv4_datagram`."""
        raise NotImplementedError


class NoUdp(Choice):
    """Leaves UDP out."""

    def leaves_udp(self, key: FlowKey) -> bool:
        """Return True."""
        del key
        return True

    def leaves_tcp(self, key: FlowKey) -> bool:
        """Return False."""
        del key
        return False

    def leaves(self, addresses: i64, ports: i64) -> bool:
        """Return True."""
        del addresses, ports
        return True
