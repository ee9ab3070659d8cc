"""What a Teeworlds connection has taught its decoder: `Hints.extra`."""

from __future__ import annotations

from typing import Final, NamedTuple

from netdissect.model.claims import Hints

__all__ = ["ACCEPTED", "ASKED", "CLOSED", "ONLINE", "UNKNOWN", "Learnt", "learnt_of"]

UNKNOWN, ASKED, ACCEPTED, ONLINE, CLOSED = range(5)
"""Phases: nothing known (mid-stream), a request was seen, it was accepted, data of the server was
seen, ended."""


class Learnt(NamedTuple):
    """Phase and tokens."""

    phase: int = UNKNOWN
    tokens: tuple[bytes | None, bytes | None] = (None, None)
    """Token that packets of each direction must carry; None = none is agreed on or known."""
    spoken: bool = False
    """True once the client has sent data."""
    client_token: bytes | None = None
    """Token that the client chose: it names the attempt."""
    offered: str | None = None
    """Dialect that the client offered, until the server has answered."""
    knocking: bool = False
    """True where a new request came on a live connection and is not answered yet."""


_NOTHING: Final = Learnt()


def learnt_of(hints: Hints) -> Learnt:
    """Return what is known; nothing at first."""
    extra = hints.extra
    return extra if isinstance(extra, Learnt) else _NOTHING
