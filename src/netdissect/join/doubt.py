"""Which fates rest on a clock that nothing confirms, and which on times outside a capture.

A clock may be set so close to the beginning or the end of what both captures hold that no datagram
beyond shows its new time. If the time stamps of a capture jump there, and what arrived beyond fits
nothing, the fates beyond the jump are only the most likely ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from netdissect.join.clock import STEP_NS, STEP_WINDOW
from netdissect.join.pairing import MAX_SLACK_NS, Pairing, delay_of
from netdissect.join.sample import Sample
from netdissect.join.table import (
    AMBIGUOUS,
    APPEARED,
    ARRIVED,
    COPY,
    LOST,
    FateTable,
    bit_of,
    flags_of,
    partner_of,
)
from netdissect.join.weigh import Priors
from netdissect.model.joined import Fate
from netdissect.model.native import i64

MAX_BEYOND: Final = 65_536
"""Frames beyond the last datagram that confirms the clock; if there are more, a jump among them
leaves no doubt."""
MAX_SHARED = 262_144
"""Pairs of equal datagrams that may be one although their conversations are not compared, at most.
"""
_NOWHERE: Final = -1, 0
"""Group and direction of a flow that is compared with none."""
_MIN_ODD: Final = 2
"""A pause that is longer than every other by this factor may be a clock that was set."""
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
    longest_ns = pairing.usual_ns
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


def shared_with_others(
    samples: tuple[Sample, Sample], pairing: Pairing
) -> tuple[list[tuple[int, int]], int]:
    """Return (frame of A, frame of B) of equal datagrams in flows that are not compared with each
    other, as far apart as one datagram would be; and of how many datagrams of A this was not found
    out, because equal ones are too many (`MAX_SHARED`).
    """
    places = [pairing.places(sample, capture) for capture, sample in enumerate(samples)]
    clock = pairing.clock
    found: list[tuple[int, int]] = []
    left, dropped = MAX_SHARED, 0
    theirs = samples[1].tokens
    for token, one in samples[0].tokens.items():
        other = theirs.get(token)
        if other is None:
            continue
        groups = {places[0].get(flow, _NOWHERE)[0] for _, _, flow in one.occurrences}
        groups.update(places[1].get(flow, _NOWHERE)[0] for _, _, flow in other.occurrences)
        if len(groups) == 1:
            continue
        if left < 0:
            dropped += len(one.occurrences)
            continue
        there = sorted([
            (clock.common(1, frame, time_ns), frame, places[1].get(flow, _NOWHERE))
            for frame, time_ns, flow in other.occurrences
        ])
        times = [each[0] for each in there]
        for frame, time_ns, flow in one.occurrences:
            group, toward = places[0].get(flow, _NOWHERE)
            at_ns = clock.common(0, frame, time_ns)
            ahead = pairing.usual_ns if toward >= 0 else MAX_SLACK_NS
            back = pairing.usual_ns if toward <= 0 else MAX_SLACK_NS
            low, high = bisect_left(times, at_ns - back), bisect_right(times, at_ns + ahead)
            left -= high - low
            if left < 0:
                dropped += 1
                continue
            for _, frame_b, (group_b, toward_b) in there[low:high]:
                if group_b != group and toward * toward_b >= 0:
                    found.append((frame, frame_b))
    return found, dropped


def mark_shared(shared: list[tuple[int, int]], tables: tuple[FateTable, FateTable]) -> None:
    """Flag as ambiguous what seems lost or of unknown origin, if the other capture holds an equal
    datagram of another conversation whose fate is open as well: they may be one, and the
    conversations, too. A translator may have given a flow another port.

    Args:
        shared: the pairs that `shared_with_others` returned.
        tables: the fates of both captures' frames.

    """
    for frames in shared:
        places = list(zip(tables, frames, strict=True))
        if all(_is_open(table.word(frame)) for table, frame in places):
            for table, frame in places:
                if table.fate(frame):
                    table.add_flags(frame, AMBIGUOUS)


def _is_open(word: i64) -> bool:
    """Return whether a datagram has no partner for certain."""
    return not partner_of(word) or bool(flags_of(word) & AMBIGUOUS)


class _Unconfirmed(NamedTuple):
    """Jumps of a capture's timestamps on one side of what confirms its clock."""

    frames: list[int]
    """First frames after a jump."""
    ahead_ns: int
    back_ns: int
    """The clock may have been set forward or back by as much."""


def _unconfirmed(
    samples: tuple[Sample, Sample], pairing: Pairing, capture: int
) -> tuple[_Unconfirmed, _Unconfirmed]:
    """Return the jumps of a capture before the first datagram that confirms its clock, and after
    the last.

    A pause that is not much longer than another of the same capture, or of the other one there, is
    no jump.
    """
    early, late, usual = _jumps_beyond(samples, pairing, capture)
    others = _jumps_beyond(samples, pairing, 1 - capture)
    found = []
    for jumps, there in ((early, others[0]), (late, others[1])):
        spans = sorted([span for _, span in jumps])
        # The second longest beyond: the longest is the one in question.
        pause = max([usual, *spans[-2:-1], *(span for _, span in there)])
        odd = [jump for jump in jumps if jump[1] < 0 or jump[1] > _MIN_ODD * pause]
        ahead = max([0, *(span for _, span in odd)])
        back = max([0, *(pause - span for _, span in odd if span < 0)])
        frames = [frame for frame, _ in odd]
        found.append(_Unconfirmed(frames, ahead, back))
    return found[0], found[1]


def _jumps_beyond(
    samples: tuple[Sample, Sample], pairing: Pairing, capture: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Return (the jumps of a capture before what confirms its clock, those after, the longest pause
    between).
    """
    known = [anchor[2 * capture] for anchor in pairing.anchors]
    first, last = min(known), max(known)
    jumps = samples[capture].jumps
    usual = max([span for frame, span in jumps if first < frame <= last], default=0)
    early = [jump for jump in jumps if jump[0] <= first]
    return early, [jump for jump in jumps if jump[0] > last], usual


def mark_outside(
    samples: tuple[Sample, Sample],
    pairing: Pairing,
    priors: dict[int, Priors],
    tables: tuple[FateTable, FateTable],
) -> None:
    """Mark unmatched datagrams as `OUTSIDE` if the other capture was not running at their time, and
    as ambiguous if that depends on their delay or on a clock that nothing confirms.

    Args:
        samples: of both captures.
        pairing: how they fit together.
        priors: +1 or -1, as in `Anchor.toward` -> what is known of that direction.
        tables: the fates of both captures' frames.

    """
    unmatched = bit_of(LOST) | bit_of(APPEARED)
    jumps = [_unconfirmed(samples, pairing, capture) for capture in (0, 1)]
    for capture in (0, 1):
        other = 1 - capture
        span = samples[other].span(pairing.clock, other)
        start: i64 = span[0]
        end: i64 = span[1]
        early, late = jumps[other]
        # When it may have begun and ended, if its clock was set.
        first_start, last_start = start - early.back_ns, start + early.ahead_ns
        first_end, last_end = end - late.ahead_ns, end + late.back_ns
        early, late = jumps[capture]
        # The other capture sees it a usual delay after it was sent here, or before it arrived.
        going = priors[1 if capture == 0 else -1].delays
        coming = priors[-1 if capture == 0 else 1].delays
        sent = _Usual(going.quantile(0.0), going.quantile(0.5), going.quantile(1.0))
        came = _Usual(-coming.quantile(1.0), -coming.quantile(0.5), -coming.quantile(0.0))
        before: i64 = early.frames[-1] if early.frames else 0
        after: i64 = late.frames[0] if late.frames else tables[capture].frames + 1
        table = tables[capture]
        frame = table.next_frame(0, unmatched)
        while frame:
            usual = sent if table.fate(frame) == LOST else came
            at_ns = table.common_ns(frame)
            least, most = at_ns + usual.least_ns, at_ns + usual.most_ns
            if frame < before:
                least, most = least - early.back_ns, most + early.ahead_ns
            if frame >= after:
                least, most = least - late.ahead_ns, most + late.back_ns
            middle = at_ns + usual.middle_ns
            if middle < start or middle > end:
                table.set_fate(frame, int(Fate.OUTSIDE))
                if most >= first_start and least <= last_end:
                    table.add_flags(frame, AMBIGUOUS)
            elif least < last_start or most > first_end:
                table.add_flags(frame, AMBIGUOUS)
            frame = table.next_frame(frame, unmatched)


class _Usual:
    """The usual differences between the times of a datagram in this capture and in the other."""

    __slots__ = ("least_ns", "middle_ns", "most_ns")

    # Written out: what a dataclass generates is not compiled.
    def __init__(self, least_ns: i64, middle_ns: i64, most_ns: i64) -> None:
        self.least_ns = least_ns
        self.middle_ns = middle_ns
        self.most_ns = most_ns


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
        # From the end inward, so that the search ends at the jump.
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
