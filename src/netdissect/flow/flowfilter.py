"""The flows that a `Decapsulator` skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.model.packets import FlowKey


class FlowFilter:
    """Decides which flows are skipped."""

    def skips_udp(self, key: FlowKey) -> bool:
        """Return whether a UDP flow is skipped."""
        raise NotImplementedError

    def skips_tcp(self, key: FlowKey) -> bool:
        """Return whether a TCP flow is skipped."""
        raise NotImplementedError

    def skips_ipv4_udp(self, addresses: i64, ports: i64) -> bool:
        """Return whether a UDP flow over IPv4 is skipped; see `PacketSink.ipv4_datagram`."""
        raise NotImplementedError


class SkipUdp(FlowFilter):
    """Skips all UDP flows."""

    def skips_udp(self, key: FlowKey) -> bool:
        """Return True."""
        del key
        return True

    def skips_tcp(self, key: FlowKey) -> bool:
        """Return False."""
        del key
        return False

    def skips_ipv4_udp(self, addresses: i64, ports: i64) -> bool:
        """Return True."""
        del addresses, ports
        return True
