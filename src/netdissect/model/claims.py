"""The result of recognition (`Claim`), and what decoding a connection depends on (`Hints`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from netdissect.model.pickling import pickle_by_fields

Sample: TypeAlias = tuple[int, int, bytes]
"""(sending endpoint, time_ns, payload). Endpoint 0 is the sender of the flow's first packet."""

STRONG = 60
"""A claim with at least this score takes the flow on the strength of its bytes alone, without a
known port or `--decode-as`.
"""


@dataclass(slots=True, init=False)
class Claim:
    """A protocol's answer to "is this flow yours?".

    Nobody changes one. It is not frozen, because creating a frozen dataclass takes ten times as
    long.
    """

    protocol: str
    """Name of the protocol."""
    score: int
    """0 (impossible) to 100 (certain); see `STRONG`."""
    dialects: tuple[str | None, str | None]
    """Dialects that endpoints 0 and 1 speak; None = not decided yet."""
    client: int | None
    """Endpoint (0 or 1) that is the client; None = unknown."""
    roles_from: str
    """Basis of `client`: `handshake`, `protocol`, `port` or `first_frame`."""
    reasons: tuple[str, ...]
    """The evidence, one sentence each, for `--explain`."""
    doubtful: tuple[bool, bool]
    """By endpoint: whether it has sent nothing that tells its dialect: `dialects` has a guess."""
    forced: bool
    """True if the user chose the dialects: no datagram changes them."""
    waits: bool
    """True if later datagrams may improve the claim: it takes no flow until they cannot come."""
    attempt: bool
    """True if the flow's first datagram asks for a connection, whatever its bytes look like."""
    late: bool
    """True if other bytes come before the first message: the claim takes no stream whose beginning
    was captured.
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
    """What decoding depends on and earlier datagrams of the connection have shown.

    Nobody changes one: when `scan` learns something, it returns new hints in an `Ev.HINTS` event.
    """

    dialects: tuple[str, str]
    """Dialect of each direction, indexed by `Direction`."""
    extra: Any
    """Immutable value that only the protocol understands: tokens, negotiated limits, last numbers.
    """

    def __init__(self, dialects: tuple[str, str], extra: Any = None) -> None:
        self.dialects = dialects
        self.extra = extra


pickle_by_fields([Claim, Hints])
