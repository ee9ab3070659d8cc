"""What earlier datagrams of an EOUDP connection have taught its decoder: `Hints.extra`."""

from __future__ import annotations

from typing import NamedTuple


class DecoderState(NamedTuple):
    """What a connection has taught so far."""

    order: str | None = None
    """Byte order of the contents in a document dialect; None until a string has shown it."""
    openers: tuple[bytes | None, bytes | None] = (None, None)
    """First message of the current epoch of each direction, without its time stamp in the dialects
    whose copies get a fresh one; None until that direction has sent anything.
    """
    second: bytes = b""
    """The server's last message numbered as the second of an epoch, like `openers`."""
    connect: bytes = b""
    """The last CONNECT."""
    pending: bool = False
    """True from a CONNECT until the server numbers its messages from the start."""
    accepted: bool = False
    """True once the server has accepted the client."""
    undecided: tuple[bool, bool] = (False, False)
    """Directions whose dialect is only the likeliest of several."""
    far: tuple[int, int] = (0, 0)
    """Last id of each direction that is wider than 32 bits."""
    foreign: tuple[tuple[str, int], tuple[str, int]] = (("", 0), ("", 0))
    """(dialect, number) of the last datagrams of each direction that were in another dialect."""
