"""What earlier datagrams of an EOUDP connection have taught its decoder: `Hints.extra`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, init=False)
class DecoderState:
    """What a connection has taught so far.

    Never changed once made. It is no NamedTuple, because each of a connection's first datagrams
    replaces it, and `_replace` takes ten times as long.
    """

    order: str | None
    """Byte order of the contents in a document dialect; None until a string has shown it."""
    openers: tuple[bytes | None, bytes | None]
    """First message of the current epoch of each direction, without its time stamp in the dialects
    whose copies get a fresh one; None until that direction has sent anything.
    """
    second: bytes
    """The server's last message numbered as the second of an epoch, like `openers`."""
    connect: bytes
    """The last CONNECT."""
    pending: bool
    """True from a CONNECT until the server numbers its messages from the start."""
    accepted: bool
    """True once the server has accepted the client."""
    undecided: tuple[bool, bool]
    """Directions whose dialect is only the likeliest of several."""
    far: tuple[int, int]
    """Last id of each direction that is wider than 32 bits."""
    foreign: tuple[tuple[str, int], tuple[str, int]]
    """(dialect, number) of the last datagrams of each direction that were in another dialect."""

    def __init__(
        self, order: str | None = None, openers: tuple[bytes | None, bytes | None] = (None, None),
        second: bytes = b"", connect: bytes = b"",
        pending: bool = False, accepted: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        undecided: tuple[bool, bool] = (False, False), far: tuple[int, int] = (0, 0),
        foreign: tuple[tuple[str, int], tuple[str, int]] = (("", 0), ("", 0)),
    ) -> None:  # fmt: skip
        self.order = order
        self.openers = openers
        self.second = second
        self.connect = connect
        self.pending = pending
        self.accepted = accepted
        self.undecided = undecided
        self.far = far
        self.foreign = foreign

    def replace(
        self, order: str | None = None, connect: bytes | None = None, *,
        pending: bool | None = None, accepted: bool | None = None,
        openers: tuple[bytes | None, bytes | None] | None = None, second: bytes | None = None,
        undecided: tuple[bool, bool] | None = None, far: tuple[int, int] | None = None,
        foreign: tuple[tuple[str, int], tuple[str, int]] | None = None,
    ) -> DecoderState:  # fmt: skip
        """Return a copy in which the arguments that are not None replace the attributes."""
        return DecoderState(
            order or self.order,
            openers or self.openers,
            self.second if second is None else second,
            self.connect if connect is None else connect,
            self.pending if pending is None else pending,
            self.accepted if accepted is None else accepted,
            undecided or self.undecided,
            far or self.far,
            foreign or self.foreign,
        )
