"""TCP streams that tshark has decrypted. Segments get the numbers and bytes of the clear text, so
that reassembling the stream needs no knowledge of TLS.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeAlias

from netdissect.model.packets import HALF_SEQ_SPAN, SEQ_SPAN, SYN

MAX_FLOWS = 4096
"""TCP flows that are remembered; beyond that, the one idle longest is forgotten."""
MAX_MARKS = 1024
"""Segments of one direction that are remembered until they are acknowledged."""


Way: TypeAlias = "tuple[str, str, str, str]"
"""One direction of a flow: source address and port, destination address and port."""


class _Side:
    """One direction of a decrypted flow."""

    __slots__ = ("acked", "marks", "position")

    def __init__(self, start: int) -> None:
        self.position = start
        """Sequence number of the next byte of clear text."""
        self.acked = start
        """Acknowledgement number of the other side, in the clear text."""
        self.marks: deque[tuple[int, int]] = deque(maxlen=MAX_MARKS)
        """(number on the wire, number in the clear text) after each unacknowledged segment."""


class ClearStreams:
    """Renumbers the segments of flows that carry TLS."""

    def __init__(self) -> None:
        self._starts: OrderedDict[Way, int] = OrderedDict()
        self._sides: dict[Way, _Side] = {}

    def segment(
        self, way: Way, numbers: tuple[int, int], flags: int, sent: bytes, clear: bytes | None
    ) -> tuple[int, int, bytes]:
        """Return sequence number, acknowledgement number and bytes of a segment in the clear text.

        Args:
            way: its direction.
            numbers: sequence and acknowledgement number on the wire.
            flags: TCP flags.
            sent: the bytes on the wire.
            clear: the bytes that tshark has decrypted, b"" for none; None if the segment does not
                carry TLS.

        """
        seq, ack = numbers
        back: Way = (way[2], way[3], way[0], way[1])
        syn = bool(flags & SYN)
        # A SYN uses up a sequence number.
        self._begin(way, seq + syn, anew=syn)
        if clear is not None and way not in self._sides:
            self._begin(back, ack, anew=False)
            for side in (way, back):
                self._sides[side] = _Side(self._starts[side])
        mine, theirs = self._sides.get(way), self._sides.get(back)
        if mine is None or theirs is None:
            return seq, ack, sent
        first = mine.position - syn
        mine.position = (mine.position + len(clear or b"")) % SEQ_SPAN
        mine.marks.append(((seq + syn + len(sent)) % SEQ_SPAN, mine.position))
        return first % SEQ_SPAN, _acknowledged(theirs, ack), clear or b""

    def _begin(self, way: Way, start: int, *, anew: bool) -> None:
        """Remember where a direction begins; `anew` after a handshake."""
        known = self._starts
        if anew or way not in known:
            known[way] = start % SEQ_SPAN
        if anew:
            self._sides.pop(way, None)
        known.move_to_end(way)
        # Each flow has two entries.
        if len(known) > 2 * MAX_FLOWS:
            old, _ = known.popitem(last=False)
            self._sides.pop(old, None)


def _acknowledged(side: _Side, ack: int) -> int:
    """Return the acknowledgement number in the clear text for one on the wire."""
    marks = side.marks
    # The mark is acknowledged if it is not ahead of the number, modulo 2**32.
    while marks and (ack - marks[0][0]) % SEQ_SPAN < HALF_SEQ_SPAN:
        side.acked = marks.popleft()[1]
    return side.acked
