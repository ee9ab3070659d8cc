"""What a record of a unit tells of its space."""

from __future__ import annotations

from netdissect.model.policy import SpaceRule

__all__ = ["Placed"]


class Placed:
    """What a record tells of its space. A class, not a protocol: compiled, attributes of a protocol
    are looked up by name.
    """

    __slots__ = ("delay_ns", "direction", "receiver_near", "rule", "sender_near")

    direction: int
    rule: SpaceRule
    sender_near: bool | None
    """True: no network lies between the sender and the capture; None: not known."""
    receiver_near: bool | None
    """True: no network lies between the capture and the receiver; None: not known."""
    delay_ns: int
    """Resend delay that the sender works with now; 0 without a timer."""
