"""What happened in one direction in one span of time: a row of `stats`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Interval"]


@dataclass(slots=True)
class Interval:
    """Counts of one direction over one span."""

    start_ns: int
    """Start of the span, ns since the Unix epoch."""
    span_ns: int
    """Its length, ns."""
    direction: int
    """`Direction`."""
    datagrams: int = 0
    octets: int = 0
    """Payload bytes."""
    repeated_octets: int = 0
    """Bytes of datagrams that carried nothing but copies already seen."""
    units: int = 0
    """Units first seen in this span."""
    copies: int = 0
    """Copies of units seen in this span."""
    retransmissions: int = 0
    """Copies sent again by their sender."""
    reliable_copies: int = 0
    """Those of `copies` whose space sends again what is lost."""
    unacked: int = 0
    """Units first seen in this span that were never acknowledged or were given up."""
    lost: int = 0
    """Units of this span that never came, as far as the vantage proves it: next to their receiver
    numbers of which no copy ever came, elsewhere what the receiver has said was lost and what the
    sender gave up.
    """
    decided: int = 0
    """Units of this span of which it can be told whether they came, `lost` ones included."""
    rtt_ms: float | None = None
    """Median of the unambiguous round trips of units first seen in this span; None without any, as
    next to their receiver, where only the time to its answer can be seen.
    """
    rtt_samples: int = 0
    observed: bool = False
    """Whether a second capture shows what was lost: then `lost` and `decided` count datagrams."""
    delay_ms: float | None = None
    """Median one-way delay of the datagrams sent in this span; None without a second capture."""

    @property
    def goodput(self) -> float:
        """Return the bytes per second that were not mere repetition."""
        return (self.octets - self.repeated_octets) * 1e9 / self.span_ns

    @property
    def resend_share(self) -> float | None:
        """Return retransmissions / copies of what is sent again at all; None without any."""
        return self.retransmissions / self.reliable_copies if self.reliable_copies else None

    @property
    def loss_share(self) -> float | None:
        """Return units that never came / those of which that can be told; None without any."""
        return self.lost / self.decided if self.decided else None
