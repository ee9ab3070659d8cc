"""What one sequence space keeps, and how a unit of it ends. See `space` for what fills it.

`seq` is the extended (unwrapped) number, `wire_seq` the one on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.model.diagnosis import Burst
from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule, Exhausted, SpaceRule
from netdissect.model.reports import Parting, SoFar, SpaceReport
from netdissect.track.copies import CountedCopies
from netdissect.track.feedback import Feedback, Quality
from netdissect.track.findings import Findings
from netdissect.track.lateness import Lateness, waits
from netdissect.track.placed import Placed
from netdissect.track.ranges import Recent
from netdissect.track.recorder import Scribe
from netdissect.track.reservoir import RttReservoir
from netdissect.track.ring import Ring
from netdissect.track.tally import scribe_of
from netdissect.track.unit import Carried, Repeats, Stray, Unit

__all__ = ["CONTENT", "COPIES", "EXPIRY_NS", "MAX_OUTSTANDING", "SETTLED_NS", "TIME", "Ledger"]

MAX_OUTSTANDING: Final = 4096
"""Units of one space that wait for an acknowledgement; beyond, the oldest is settled as unknown."""
EXPIRY_NS: Final = 60_000_000_000
"""Without an acknowledgement for so long after its last copy a unit is settled as it stands."""
SETTLED_NS: Final = 1 << 62
"""Later than anything: no acknowledgement is waited for any more."""
_ROW: Final = 4
TIME: Final = 1
CONTENT: Final = 2
COPIES: Final = 3
"""Places in the row of a settled unit, behind its number."""


PAUSE_NS: Final = 1_000_000_000
"""A shorter pause is none: programs and networks hesitate that long without harm."""
_MS: Final = 1_000_000
_WHERE: Final = {True: "sender", False: "receiver", None: "unknown"}


class Ledger(Placed):
    """Counts, open units and memory of one space in one direction."""

    __slots__ = (
        "_beside", "_beside_only", "_by_place", "_counted", "_further", "_half", "_keeps", "_limit",
        "_loss_quality", "_mask", "_modulus", "_named", "_never_before", "_other", "_overtaken",
        "_ring", "_spans", "_stray", "_strays", "_try_quality", "ack_rule", "acked", "answered_ns",
        "apart", "bursts", "carrier", "consecutive", "covered", "current", "disorder", "duplicates",
        "far_delay_ns", "feedback", "findings", "first", "forgotten", "gave_up_ns", "given_up",
        "goes_on", "guard_ns", "held_ns", "in_stream", "lateness", "max_copies", "missing",
        "newest", "on_answer", "on_sight", "out_of_order", "outstanding", "peer", "peer_seen",
        "placed_for_good", "plain", "reach", "recorder", "renewed", "retransmissions", "rtt",
        "skipped", "soonest_ns", "spent_ns", "started", "unacked", "units",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915 - one line per fact, each with its meaning
        self,
        rule: SpaceRule,
        direction: int,
        findings: Findings,
        recorder: Scribe | None,
    ) -> None:
        self.direction = direction
        self.findings = findings
        self.recorder = None if recorder is None else scribe_of(recorder, direction, rule)
        self.carrier: Ledger | None = None
        """Space whose units carry those of this one."""
        self.current: Unit | None = None
        """As a carrier: the unit of the datagram at hand."""
        self.newest: i64 = ABSENT
        self.first = 0
        """Newest and oldest extended number."""
        self.units = self.plain = 0
        """Units that nobody acknowledges."""
        self.retransmissions = self.duplicates = self.acked = self.unacked = 0
        """Settled units; `unacked`: an acknowledgement could have been seen and was not."""
        self.given_up = self.out_of_order = 0
        self.max_copies: i64 = 0
        self.skipped = 0
        """Numbers used by something that is no unit."""
        self.disorder = 0
        """First copies out of order that only a network explains."""
        self.rtt = RttReservoir()
        self.outstanding: dict[int, Unit] = {}
        self.missing = Recent()
        """Skipped numbers of which a copy may still come."""
        self.started = False
        """True where the connection is in the capture from its start."""
        self._stand_alone()
        self.lateness: Lateness | None = None
        """What resends added; None before the first one that was acknowledged."""
        self.on_answer: Callable[[int, int, int], None] | None = None
        """Called with direction, time of sending and frame of the answer where nothing sent for
        longer than a pause was answered before.
        """
        self.covered = -1
        """Newest number that a cumulative acknowledgement has named while others were missing."""
        self.answered_ns = 0
        """When that was sent of the newest unit that is acknowledged."""
        self.gave_up_ns: int | None = None
        """When the sender gave up the last unit that it had sent as often as it may."""
        self.spent_ns: int | None = None
        """When the timer after the last copy was due of a unit that was acknowledged, and yet sent
        as often as it may be or more often.
        """
        self.renewed: Parting | None = None
        """Where its sender had forgotten the connection first."""
        self.feedback: Feedback | None = None
        self.delay_ns = 0
        self.guard_ns = 0
        """Copies closer than this are the network's."""
        self.soonest_ns = self.far_delay_ns = 0
        """Guard and timer of a sender that is far; 0 where they judge nothing."""
        self.bursts: list[Burst] = []
        """The longest runs of numbers that were missing."""
        self.apart = 0
        """Units whose number is another one's, or stands far from all others."""
        self.forgotten = 0
        """Copies of numbers that are not remembered: what they are cannot be told."""
        self._remember_nothing()
        self.rule = rule
        self._loss_quality: Quality | None = None
        self._try_quality: Quality | None = None
        self.obey(rule)

    def _stand_alone(self) -> None:
        """Begin without a peer, and without a place of the capture."""
        self.peer: Any = None
        """Lane of the other direction; None = not known."""
        self.peer_seen = False
        """True once the other direction has a datagram in the capture."""
        self._named = -1
        """What was acknowledged first while nothing of this space was seen; -1 = nothing."""
        self.goes_on = False
        """True once something else was acknowledged then: its sender is there, and not captured."""
        self.in_stream = False
        """True over TCP, which hands no byte on twice: every further copy is the sender's."""
        self.sender_near = self.receiver_near = None
        self._beside: list[tuple[str, int, int, str, dict[str, Any]]] = []
        """Findings that hold only next to the receiver, while that may still turn out."""
        self.placed_for_good = False
        """True once nothing more will be known about where the capture was taken."""
        self.on_sight: Callable[[], None] | None = None
        """Called where something new is known that tells where the capture was taken."""

    def _remember_nothing(self) -> None:
        """Begin without numbers, and without copies to be judged."""
        self._never_before = 0
        """Numbers spanned by the epochs that a restart has ended."""
        self._spans: tuple[int, int] | None = None
        """(first, last) of those epochs."""
        self._stray: Stray | None = None
        """The newest number far from all before, while nothing confirms it."""
        self._other: tuple[int, int] | None = None
        """(number, frame) of the newest copy that held something else than the one before it."""
        self._strays: dict[int, Stray] = {}
        """Wire number -> those that stood alone."""
        self._further: Repeats | None = None
        """What is remembered of further copies; None before the first one."""
        self._by_place = self._beside_only = False
        """Whether the kind of the copy at hand depends on that, and of which sort it is."""
        self._counted: CountedCopies | None = None
        """Copies since the newest number, which the next number judges."""
        self._ring = Ring(_ROW, 0)
        """Settled units: number, time, content, copies."""

    def obey(self, rule: SpaceRule) -> None:
        """Take the rules of a dialect, now that it is known."""
        self.rule = rule
        self.ack_rule: AckRule | None = rule.ack
        """How acknowledgements name units; None: the connection is over, nothing is taken."""
        self._modulus: i64 = 1 << rule.bits
        self._mask: i64 = self._modulus - 1
        self._half: i64 = self._modulus >> 1
        # Where numbers are skipped at will, a far one is as good as any.
        steady = rule.consecutive or rule.stride_reach
        self.reach = min(rule.reach, int(self._half)) if steady else int(self._half)
        self.consecutive = rule.consecutive
        self._ring.most = rule.memory
        if self.recorder is not None:
            self.recorder.gone.remember(rule.memory)
        self._keeps = rule.ack is not AckRule.NONE
        self.held_ns = int(rule.ack_held_ms * _MS)
        """How long its receiver may hold an acknowledgement back."""
        if rule.copies_take_numbers and self._counted is None:
            self._counted = CountedCopies()
        resend = rule.resend
        limited = resend is not None and resend.exhausted is not Exhausted.NEVER
        self._limit = (resend.attempts or 0) if resend is not None and limited else 0
        quality = rule.quality
        if quality is None:
            self._loss_quality = self._try_quality = None
        elif self.quality is None or self.quality.rule != quality:
            made = Quality(quality)
            self._loss_quality = made if quality.measure == "loss" else None
            self._try_quality = made if quality.measure == "attempts" else None
        self.retime(None)

    @property
    def quality(self) -> Quality | None:
        """Return the state of the quality rule, None where there is none."""
        return self._loss_quality or self._try_quality

    def retime(
        self,
        smoothed_ms: float | None,
        variance_ms: float = 0.0,
        stated_ms: float | None = None,
        before_ms: float | None = None,
    ) -> None:
        """Recompute delay and guard for the round trip that the sender knows; `stated_ms`: the one
        that it knows wherever the capture stands, `before_ms`: the one before that.
        """
        resend = self.rule.resend
        window_ms = self.rule.duplicate_window_ms
        if resend is not None:
            self.delay_ns, guard_ns = waits(resend, smoothed_ms, variance_ms)
            if not window_ms:
                self.guard_ns = guard_ns
                return
            self.far_delay_ns, guard_ns = waits(resend, stated_ms, 0.0)
            self.soonest_ns = min(guard_ns, waits(resend, before_ms, 0.0)[1])
        self.guard_ns = int(window_ms * _MS)

    @property
    def last(self) -> int | None:
        """Return the newest number; None before the first one."""
        return None if self.newest == ABSENT else self.newest

    @last.setter
    def last(self, seq: int | None) -> None:
        self.newest = ABSENT if seq is None else seq

    def reached(self) -> i64:
        """Return the newest number; 0 before the first one."""
        return 0 if self.newest == ABSENT else self.newest

    def extend(self, wire_seq: i64) -> i64:
        """Return the extended number closest to the newest one."""
        newest = self.reached()
        ahead = (wire_seq - newest) & self._mask
        if ahead > self._half:
            ahead -= self._modulus
        return newest + ahead

    @property
    def seen(self) -> bool:
        """Return True where anything of this space is in the capture."""
        return self.newest != ABSENT or self._spans is not None

    def skipped_start(self, first: int) -> bool:
        """Return True where no copy of the protocol's first number is in the capture."""
        return self.last is not None and self._spans is None and self.first > first

    # -- findings ----------------------------------------------------------------------------------

    def hit(self, limit: str, times: int = 1) -> None:
        """Count that a bound was reached."""
        self.findings.hit(limit, self.direction, self.rule.name, times)

    def find(
        self, code: str, frame: int | None, time_ns: int, side: int, text: str,
        concluded_ns: int | None = None, **evidence: Any,
    ) -> None:  # fmt: skip
        """Report a finding, with what the protocol adds to it."""
        remark = self.rule.remarks.get(code)
        message = f"{self.rule.name} {text}" + (f"; {remark}" if remark else "")
        self.findings.add(
            code, frame, time_ns, side, message, {"space": self.rule.name, **evidence},
            concluded_ns=concluded_ns,
        )  # fmt: skip

    # -- memory and ends ---------------------------------------------------------------------------

    def take_out(self, seq: int) -> Unit | None:
        """Take a unit out of those that wait, None where it is not one of them."""
        outstanding = self.outstanding
        if not outstanding:
            return None
        key: Any = seq  # compiled, one object is made of it
        unit = outstanding.get(key)
        if unit is not None:
            del outstanding[key]
        return unit

    def remember(self, number: i64, unit: Unit) -> None:
        """Keep time and content of a settled unit in a ring, to judge its late copies."""
        copies = unit.copies
        slot = self._ring.place(number)
        cells = self._ring.cells
        cells[slot + TIME] = unit.last_ns
        cells[slot + CONTENT] = unit.content
        cells[slot + COPIES] = copies
        if copies > self.max_copies:  # noqa: PLR1730 - the builtin would cost more
            self.max_copies = copies

    def slot_of(self, seq: i64) -> i64:
        """Return where a settled unit stands in the ring, -1 where it is forgotten."""
        return self._ring.find(seq)

    def recount(self, seq: int, step: int) -> None:
        """Count transmissions more or less of a unit, open or settled."""
        unit = self.outstanding.get(seq)
        if unit is not None:
            unit.copies += step
            return
        slot = self.slot_of(seq)
        if slot >= 0:
            cells = self._ring.cells
            cells[slot + COPIES] += step
            self.max_copies = max(self.max_copies, cells[slot + COPIES])

    def exhausted(self, unit: Unit) -> bool:
        """Return True where the unit was sent exactly as often as its sender permits.

        More copies than that show a sender whose limit is switched off.
        """
        return bool(self._limit) and bool(unit.copies == self._limit)

    def delivered(self, item: Carried, frame: int, time_ns: int) -> None:
        """Take the acknowledgement of what carried these units."""
        raise NotImplementedError

    def end(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: one could have been seen."""
        seen = seen and not self.findings.misses
        given_up = self.exhausted(unit)
        if given_up:
            self.given_up += 1
            self.gave_up_ns = max(self.gave_up_ns or 0, unit.due_ns)
            self.find(
                "attempts-exhausted", unit.frame, unit.first_ns, self.direction,
                f"{seq & self._mask} was sent {unit.copies} times, as often as permitted",
                concluded_ns=unit.last_ns, seq=seq, copies=unit.copies,
            )  # fmt: skip
        self.unacked += seen or given_up
        self.remember(seq, unit)
        if self.recorder is not None:
            word = "given_up" if given_up else "unacked" if seen else "unknown"
            # Each copy is answered: that all answers were lost where others came is not likely.
            lost = given_up and not self.receiver_near and self.heard_since(unit)
            in_vain = self._further is not None and seq in self._further.in_vain
            lost = lost and not self.findings.misses and not in_vain
            self.recorder.dropped(unit, word, lost=lost)
        if given_up:
            self._not_in_vain(seq)

    def note_exhausted(self, seq: int, unit: Unit) -> None:
        """Note of a unit that was just sent as often as permitted whether its later half was sent
        while nothing of the other direction was heard: its answers may all have been lost then.
        """
        middle_ns = (unit.first_ns + unit.last_ns) >> 1
        if self.peer is not None and self.peer.last_ns <= middle_ns:
            self._remembered().in_vain.add(seq)

    def _not_in_vain(self, seq: int) -> None:
        """Forget that of a unit that waits no more."""
        if self._further is not None:
            self._further.in_vain.discard(seq)

    def _remembered(self) -> Repeats:
        """Return what is remembered of further copies."""
        further = self._further
        if further is None:
            further = self._further = Repeats()
        return further

    def heard_since(self, unit: Unit) -> bool:
        """Return whether anything of the other direction came after the last copy of a unit."""
        return self.peer is not None and bool(self.peer.last_ns > unit.last_ns)

    def end_all(self, end_ns: int, patience_ns: int) -> None:
        """Settle what is open at the end.

        Args:
            end_ns: until when an acknowledgement could have been seen.
            patience_ns: a unit sent later than this before may still be acknowledged.

        """
        if self._counted is not None:
            self._counted.forget()
        for seq, unit in list(self.outstanding.items()):
            waited = end_ns - unit.last_ns > patience_ns
            self.end(seq, unit, seen=self.peer_seen and waited)
        self.outstanding.clear()

    def shed(self, now_ns: int) -> None:
        """Settle units that have waited too long, and a quarter of them where there are too many.

        Many at once: to look for the oldest entry of a dict costs as much as were deleted there.
        """
        outstanding = self.outstanding
        over = len(outstanding) > MAX_OUTSTANDING
        horizon = now_ns - EXPIRY_NS
        leaving: list[int] = []
        units: list[Unit] = []
        for seq, unit in outstanding.items():
            if len(leaving) == MAX_OUTSTANDING // 4 if over else unit.last_ns > horizon:
                break
            leaving.append(seq)
            units.append(unit)
        if over:
            self.hit("MAX_OUTSTANDING", len(leaving))
        for place, seq in enumerate(leaving):
            unit = units[place]
            del outstanding[seq]
            self.end(seq, unit, seen=not over and self.heard_since(unit))

    def may_restart(self, time_ns: int) -> bool:
        """Return whether a RESTART at this time counts."""
        del time_ns
        return True

    def restart(self) -> None:
        """Begin a new epoch: its sender numbers afresh. What is open is settled as unknown."""
        if self.newest == ABSENT:
            return
        if self._counted is not None:
            self._counted.forget()
        for seq, unit in list(self.outstanding.items()):
            self.end(seq, unit, seen=False)
        self.outstanding.clear()
        self.missing = Recent()
        if self.rule.consecutive:
            self._never_before += self.newest - self.first + 1
        first = self._spans[0] if self._spans else self.first
        self._spans = (first, self.newest)
        self.newest = ABSENT
        self.current = None
        self.feedback = None
        self._stray = None
        self._other = None

    def close_silently(self) -> None:
        """Take back what was counted after its sender had closed the connection."""
        if self.feedback is not None and self._loss_quality is not None:
            self.feedback.revert()
            self._loss_quality.revert()

    def release(self) -> None:
        """Let go of everything that refers back here, so that no cyclic garbage is left."""
        self.on_sight = self.on_answer = self.recorder = None
        self.carrier = self.current = self.peer = None
        self.ack_rule = None
        self._further = None

    # -- report ------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Return the figures; call `end_all` before."""
        first, last = self.first, self.last
        if self._spans is not None:
            first = self._spans[0]
            last = self._spans[1] if last is None else last
        # By place: names cost as much as all the figures.
        return SpaceReport(
            self.rule.name,
            self.direction,
            self.units,
            self.units + self.retransmissions + self.duplicates,  # copies
            self.retransmissions,
            self.duplicates,
            self.acked,
            self.unacked,
            self.units - self.acked - self.unacked,  # unknown
            self.never_seen(),
            self.out_of_order,
            self.given_up,
            None if last is None else first,
            last,
            self.max_copies,
            self.rule.consecutive,
            self.rtt.summary(),
            None if self.lateness is None else self.lateness.summary(),
            self.delay_ns / 1e6 if self.delay_ns else None,  # timer, ms
            tuple(self.bursts),
            self._extra(),
            self.skipped,  # others
            self.rule.copies_take_numbers,
        )

    def so_far(self) -> SoFar:
        """Return what is known by now of what was lost."""
        told = self.feedback
        lost, delivered = (0, 0) if told is None else (told.lost, told.delivered)
        came = self.units + self.skipped
        if self.rule.copies_take_numbers:
            came += self.retransmissions
        return SoFar(self.rule.name, came, self.never_seen(), lost, delivered)

    def never_seen(self) -> int:
        """Return how many numbers were not seen of those up to the newest."""
        if not self.rule.consecutive:
            return 0
        span = self._never_before
        if self.last is not None:
            span += self.last - self.first + 1
        if self.rule.copies_take_numbers:
            span -= self.retransmissions
        return max(0, span - (self.units - self.apart + self.skipped))

    def _extra(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._strays:
            extra["strays"] = len(self._strays)
        if self.forgotten:
            extra["forgotten"] = self.forgotten
        if self.feedback is not None:
            extra |= self.feedback.counts()
            # Next to the sender this is what it was told; elsewhere some of it may not reach it.
            extra["feedback_at"] = _WHERE[self.sender_near]
        if self.quality is not None and self.quality.peak:
            extra["poor_quality_run"] = self.quality.peak
        return extra
