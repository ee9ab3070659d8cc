"""How a protocol is recognised, and what a connection has taught its decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from netdissect.model.apart import take_apart

__all__ = ["STRONG", "Claim", "Hints", "Sample"]

Sample: TypeAlias = tuple[int, int, bytes]
"""(0 or 1: which endpoint sent it, 0 = the sender of the flow's first packet; time_ns; payload
bytes).
"""

STRONG = 60
"""A claim of at least this score takes a flow without a port or decode-as hint."""


@dataclass(slots=True, init=False)
class Claim:
    """A protocol's answer to "is this flow yours?". Nobody changes one; it is not frozen, for to
    fill a frozen value takes ten times as long.
    """

    protocol: str
    """Name of the protocol."""
    score: int
    """0 (impossible) to 100 (certain); STRONG and above claims a flow unasked."""
    dialects: tuple[str | None, str | None]
    """Dialect of what endpoint 0 and endpoint 1 send; None = not told apart yet."""
    client: int | None
    """Which endpoint (0 or 1) is the client; None = not known."""
    roles_from: str
    """`handshake`, `protocol`, `port` or `first_frame`: what `client` rests on."""
    reasons: tuple[str, ...]
    """The evidence, one sentence each, for `--explain`."""
    doubtful: tuple[bool, bool]
    """Endpoints whose dialect is only the likeliest of several that fit what it has sent so far."""
    forced: bool
    """True where the user names the dialects: nothing that is seen changes them."""
    waits: bool
    """True where what comes next may tell more: it takes no flow while more may come."""
    attempt: bool
    """True where the flow's first datagram asks for a connection, whatever its bytes look like."""
    late: bool
    """True where other bytes stand before the first message: it takes no stream whose beginning was
    captured.
    """

    def __init__(
        self, protocol: str, score: int, dialects: tuple[str | None, str | None],
        client: int | None, roles_from: str, reasons: tuple[str, ...],
        doubtful: tuple[bool, bool] = (False, False),
        forced: bool = False, waits: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        attempt: bool = False, late: bool = False,  # noqa: FBT001, FBT002 - as in the fields
    ) -> None:  # fmt: skip
        self.protocol = protocol
        self.score = score
        self.dialects = dialects
        self.client = client
        self.roles_from = roles_from
        self.reasons = reasons
        self.doubtful = doubtful
        self.forced = forced
        self.waits = waits
        self.attempt = attempt
        self.late = late


@dataclass(slots=True, init=False)
class Hints:
    """What a connection has taught its decoder so far. As a claim, nobody changes one: `scan` hands
    back a new one (an `Ev.HINTS` event) when it learns.
    """

    dialects: tuple[str, str]
    """Dialect of each direction, indexed by `Direction`."""
    extra: Any
    """Protocol-owned frozen value: tokens, negotiated limits, last numbers."""

    def __init__(self, dialects: tuple[str, str], extra: Any = None) -> None:
        self.dialects = dialects
        self.extra = extra


take_apart([Claim, Hints])
