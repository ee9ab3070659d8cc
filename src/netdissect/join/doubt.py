"""Which fates rest on a clock that nothing confirms.

A clock may be set so close to the beginning or the end of what both captures hold that no datagram
beyond shows its new time. If the time stamps of a capture jump there, and what arrived beyond fits
nothing, the fates beyond the jump are only the most likely ones.
"""

from __future__ import annotations

from typing import Final

from netdissect.join.clock import STEP_NS, STEP_WINDOW
from netdissect.join.pairing import Pairing, delay_of
from netdissect.join.sample import Sample
from netdissect.join.table import (
    AMBIGUOUS,
    APPEARED,
    ARRIVED,
    COPY,
    LOST,
    FateTable,
    partner_of,
)

MAX_BEYOND: Final = 65_536
"""Frames beyond the last datagram that confirms the clock; if there are more, a jump among them
leaves no doubt."""
_UNMATCHED: Final = (LOST, APPEARED)
_ARRIVALS: Final = (ARRIVED, APPEARED, COPY)


def mark_doubtful(
    samples: tuple[Sample, Sample],
    pairing: Pairing,
    tables: tuple[FateTable, FateTable],
) -> None:
    """Flag the fates as ambiguous that rest on a clock which nothing confirms.

    Args:
        samples: of both captures.
        pairing: how they fit together.
        tables: the fates of both captures' frames.

    """
    for anchor in pairing.candidates:
        # If the only two of their payload are not one datagram, the clock may be the reason.
        places = ((tables[0], anchor.frame_a), (tables[1], anchor.frame_b))
        if all(table.fate(frame) in _UNMATCHED for table, frame in places):
            for table, frame in places:
                table.add_flags(frame, AMBIGUOUS)
    longest_ns = pairing.usual_ns()
    # Where few datagrams of one direction follow a step, their delays hide what is left of it.
    pieces = pairing.clock.pieces
    vague = [piece.bound_ns is None and piece.anchors < STEP_WINDOW for piece in pieces]
    for capture in (0, 1):
        known = [
            anchor[2 * capture]
            for anchor in pairing.anchors
            if anchor.toward * delay_of(anchor, pairing.clock) <= longest_ns
        ]
        steps = [frame for frame, _ in pairing.clock.steps[capture]]
        for frame, span in samples[capture].jumps:
            is_step = frame in steps
            if frame > max(known) or (is_step and vague[-1] and frame == steps[-1]):
                end = _End(tables, capture, frame, longest_ns, late=True)
            elif frame <= min(known) or (is_step and vague[0] and frame == steps[0]):
                end = _End(tables, capture, frame, longest_ns, late=False)
            else:
                continue
            # Time never runs back. After a mere pause, what arrives was sent.
            if is_step or span < -STEP_NS or end.unexplained > end.explained:
                end.mark()


class _End:
    """What two captures hold beyond a jump of one's timestamps, toward the beginning or the end.

    Args:
        tables: the fates of both captures' frames.
        capture: the capture whose timestamps jump.
        jump: the first frame after the jump.
        longest_ns: the longest usual delay.
        late: whether the frames from the jump on are meant, or those before it.

    """

    def __init__(
        self,
        tables: tuple[FateTable, FateTable],
        capture: int,
        jump: int,
        longest_ns: int,
        *,
        late: bool,
    ) -> None:
        self.explained = self.unexplained = 0
        """Arrivals beyond the jump that were sent there, a usual delay before; all others."""
        self._rows: list[tuple[FateTable, FateTable, int]] = []
        """(table, the other one, frame)."""
        ours, theirs = tables[capture], tables[1 - capture]
        own = range(jump, ours.frames + 1) if late else range(jump - 1, 0, -1)
        near = range(jump - 1, 0, -1) if late else range(jump, ours.frames + 1)
        at_ns = next((ours.common_ns(frame) for frame in near if ours.fate(frame)), None)
        if at_ns is None or len(own) > MAX_BEYOND:
            return
        for frame in own:
            self._add(ours, theirs, frame, longest_ns)
        for frame in range(theirs.frames, 0, -1) if late else range(1, theirs.frames + 1):
            if not theirs.fate(frame):
                continue
            # What was on its way may be on either side of the jump.
            beyond_ns = theirs.common_ns(frame) - at_ns if late else at_ns - theirs.common_ns(frame)
            if beyond_ns < -longest_ns or len(self._rows) > MAX_BEYOND:
                break
            partner = partner_of(theirs.word(frame))
            apart_ns = abs(int(theirs.common_ns(frame) - ours.common_ns(partner)))
            matched_before = partner and (partner >= jump) != late and apart_ns <= longest_ns
            if not matched_before or theirs.fate(frame) == COPY:
                self._add(theirs, ours, frame, longest_ns)

    def _add(self, table: FateTable, other: FateTable, frame: int, longest_ns: int) -> None:
        """Add a frame, if it was compared."""
        fate = table.fate(frame)
        if not fate:
            return
        self._rows.append((table, other, frame))
        if fate in _ARRIVALS:
            sent_ns = other.common_ns(partner_of(table.word(frame)))
            if fate == ARRIVED and table.common_ns(frame) - sent_ns <= longest_ns:
                self.explained += 1
            else:
                self.unexplained += 1

    def mark(self) -> None:
        """Flag the fates of all these frames, and of their partners, as ambiguous."""
        for table, other, frame in self._rows:
            table.add_flags(frame, AMBIGUOUS)
            partner = partner_of(table.word(frame))
            if partner:
                other.add_flags(partner, AMBIGUOUS)
