"""Counts of one direction over one interval of time: a row of `stats`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Interval:
    """Counts of one direction over one interval."""

    start_ns: int
    """Start, ns since the Unix epoch."""
    span_ns: int
    """Length, ns."""
    direction: int
    """`Direction`."""
    datagrams: int = 0
    octets: int = 0
    """Payload bytes."""
    repeated_octets: int = 0
    """Payload bytes of datagrams in which every unit had been seen before."""
    units: int = 0
    """Units first seen in this interval."""
    copies: int = 0
    """Copies of units seen in this interval."""
    retransmissions: int = 0
    """Copies that are retransmissions."""
    reliable_copies: int = 0
    """Copies of units that their sender retransmits when they are lost."""
    unacked: int = 0
    """Units first seen in this interval that were never acknowledged or were given up."""
    lost: int = 0
    """Units of this interval that were not delivered, as far as the vantage proves it. Next to the
    receiver these are numbers without any copy; elsewhere those that the receiver reports as lost
    and those that the sender gave up.
    """
    decided: int = 0
    """Units of this interval for which it is known whether they were delivered, including `lost`.
    """
    rtt_ms: float | None = None
    """Median of the unambiguous round trips of units first seen in this interval. None without any;
    next to the receiver there are none, because only its response time is visible there.
    """
    rtt_samples: int = 0
    observed: bool = False
    """True if a second capture shows what was lost: `lost` and `decided` then count datagrams."""
    delay_ms: float | None = None
    """Median one-way delay of the datagrams sent in this interval; None without a second capture.
    """

    @property
    def goodput(self) -> float:
        """Return the payload bytes per second without `repeated_octets`."""
        return (self.octets - self.repeated_octets) * 1e9 / self.span_ns

    @property
    def resend_share(self) -> float | None:
        """Return retransmissions / reliable copies; None without any."""
        return self.retransmissions / self.reliable_copies if self.reliable_copies else None

    @property
    def loss_share(self) -> float | None:
        """Return lost / decided units; None without any."""
        return self.lost / self.decided if self.decided else None
