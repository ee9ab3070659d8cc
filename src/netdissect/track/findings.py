"""Findings of one connection: counted by severity, reported at 1, 10, 100 ... repeats of a code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.diagnosis import Limits
from netdissect.model.reports import Anomaly

__all__ = ["MAX_CODES", "REPORTED", "TRACK_CODES", "Findings"]

MAX_CODES = 256
"""Different codes counted per connection; further ones count by severity only."""


def _row(code: str, severity: Severity, group: str, title: str, meaning: str) -> CodeRow:
    return CodeRow(code, severity, group, title, meaning)


TRACK_CODES: tuple[CodeRow, ...] = (
    _row("ack-of-unsent", Severity.WARN, "sequence", "acknowledges a number that was never sent",
         "The number acknowledged is ahead of everything its sender has sent in this capture."
         " Either the capture lost datagrams, or the acknowledgement is wrong or forged."),
    _row("ack-of-unseen", Severity.WARN, "sequence", "acknowledges a number that was never seen",
         "The number lies between captured ones, but no copy of it is in the capture. Next to the"
         " receiver this means that it acknowledges what never arrived."),
    _row("sequence-jump", Severity.WARN, "sequence", "sequence number jumps far ahead",
         "The number is more than 1024 away from all before it: a sender that was restarted, a"
         " capture gap, or a damaged or forged datagram. It stands alone, and the others go on"
         " where they were, until a later number confirms it."),
    _row("number-before-first", Severity.NOTE, "sequence", "number before the first one",
         "The connection is in the capture from its start, and the number lies just before the one"
         " that this protocol begins with: no sender uses it so early. The unit stands alone."),
    _row("number-reused", Severity.WARN, "sequence", "same number, other content",
         "Two copies of one number differ. The sender re-uses numbers or writes wrong ones; what"
         " its receiver makes of the second copy cannot be told."),
    _row("ack-out-of-window", Severity.NOTE, "receive", "datagram dropped for its acknowledgement",
         "It acknowledges less than a datagram before it, or more than its receiver has sent: by"
         " its rules the receiver drops the whole datagram. Where the network changes the order,"
         " this hits what was overtaken. Told where the capture may be next to the receiver."),
    _row("behind-gap", Severity.CHAT, "receive", "unit thrown away behind a gap",
         "A unit before it has not arrived, and this receiver keeps nothing out of order: it throws"
         " the unit away and asks for everything since the gap again."),
    _row("first-number-skipped", Severity.NOTE, "sequence", "first number was never used",
         "The connection is in the capture from its start, yet the first number that this protocol"
         " uses is missing."),
    _row("numbers-restart", Severity.WARN, "sequence", "numbers start again",
         "The sender numbers this space from its start again on the same address pair: it has lost"
         " or dropped the connection and made a new one."),
    _row("datagram-timed-out", Severity.CHAT, "sequence", "datagram not acknowledged in time",
         "Its sender has forgotten the datagram and sends again, in a new one, what must arrive."),
    _row("retransmission", Severity.CHAT, "sequence", "unit sent again",
         "Its sender sent the unit again because no acknowledgement had reached it in time."),
    _row("resend-of-unseen", Severity.CHAT, "sequence", "sent again, original not seen",
         "Its sender marks the unit as sent again, yet no copy before it is in the capture: it was"
         " lost on the way here, or the capture began later."),
    _row("duplicate", Severity.CHAT, "sequence", "unit copied by the network",
         "The same unit arrived twice, too soon for its sender to have repeated it."),
    _row("out-of-order", Severity.CHAT, "sequence", "unit arrived late",
         "The first copy in the capture of a number that is older than the newest one."),
    _row("order-not-kept", Severity.NOTE, "sequence", "message that asked for order came late",
         "Its sender asks for delivery in order, and a later message that asks for it came first."
         " Where the receiver does not wait (see the protocol's page), its program gets them so."),
    _row("acked-yet-resent", Severity.NOTE, "sequence", "acknowledged, yet sent again",
         "The unit was sent again after an acknowledgement for it had passed the capture: that"
         " acknowledgement was late or was lost on the rest of its way, or the sender waits for"
         " another number."),
    _row("attempts-exhausted", Severity.WARN, "sequence", "last permitted attempt not acknowledged",
         "The unit was sent as often as its sender permits and no acknowledgement came. The sender"
         " drops it or closes the connection, as its rules say."),
    _row("poor-quality", Severity.WARN, "sequence", "loss above the sender's own limit",
         "The sender's quality rule was broken for as long as it tolerates: unless its program has"
         " switched that off, it closes the connection without a word on the wire."),
    _row("silent-close", Severity.WARN, "protocol", "side closed without telling its peer",
         "By its own rules this side has closed the connection; it sends nothing, so its peer"
         " learns of it only by its own timeout."),
    _row("timeout", Severity.WARN, "protocol", "side gave its peer up",
         "Nothing that counts as a sign of life arrived for the time that the protocol allows, and"
         " the side fell silent."),
    _row("silence", Severity.WARN, "protocol", "side not heard though it should have been",
         "For the span given nothing of this side is in the capture, though by its own timers it"
         " should have spoken, or its peer asked again and again. Next to that side its program"
         " stopped; elsewhere the network or the program did, which one capture cannot tell."),
    _row("one-way", Severity.WARN, "protocol", "sent in vain: the other direction went on",
         "For the span given nothing that this side sent was answered, while its peer went on"
         " speaking: the path of this direction was broken, or the peer did not listen."),
    _row("probe-unanswered", Severity.CHAT, "sequence", "probe without answer",
         "A ping or heartbeat of which no answer is in the capture."),
    _row("port-unreachable", Severity.NOTE, "protocol", "nobody listens on the port",
         "An ICMP port-unreachable error quotes a datagram of this connection. After a close this"
         " is normal: the last datagrams met a closed socket."),
    _row("limit-hit", Severity.NOTE, "receive", "a bound of netdissect was reached",
         "To keep memory bounded something was dropped; the finding says what is unknown from its"
         " frame on. `limits_hit` names the bound."),
)  # fmt: skip
"""Codes of the tracker itself."""

REPORTED: Final = frozenset(10**power for power in range(19))
"""Repeats at which a code is reported again."""
_ROWS: Final = {row.code: row for row in TRACK_CODES}


class Heard(Protocol):
    """What knows the newest packet of one direction."""

    last_ns: int
    last_frame: int


class Bound:
    """A bound that was reached: how often, and where first."""

    __slots__ = ("frame", "time_ns", "times")

    def __init__(self, time_ns: int, frame: int) -> None:
        self.times = 0
        self.time_ns = time_ns
        self.frame = frame


class Findings:
    """Counts of one connection (None: of what belongs to none), and where its anomalies go."""

    __slots__ = (
        "_connection", "_rows", "_sink", "bounds", "by_severity", "every", "heard", "late",
        "late_ms", "repeats",
    )  # fmt: skip

    def __init__(
        self,
        connection: int | None,
        rows: Mapping[str, CodeRow],
        sink: Callable[[Anomaly], None] | None,
        limits: Limits | None = None,
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._sink = sink
        self.every: Callable[[str, Severity, int | None], None] | None = None
        """Told code, severity and frame of every finding, repeats included; None = nobody."""
        self.late: Callable[[str, Severity, int], None] | None = None
        """Told the same of what is concluded only after its frame has passed."""
        self.late_ms = (limits or Limits()).late_delivery
        """A unit that comes so much later than the path allows is late, milliseconds."""
        self.repeats: dict[str, int] = {}
        """Code -> occurrences."""
        self.heard: Sequence[Heard] = ()
        """The connection's directions: they know where it is."""
        self.bounds: dict[tuple[int, str, str], Bound] = {}
        """(direction, space or "", name) of the bounds that were reached."""
        self.by_severity = [0, 0, 0, 0]
        """Occurrences, indexed by `Severity`."""

    def turn(self, before: str, after: str, count: int = 1) -> None:
        """Count findings as others of the same severity, now that more is known."""
        repeats = self.repeats
        left = repeats.get(before, 0) - count
        if left < 0:
            return
        repeats[before] = left
        if not left:
            del repeats[before]
        repeats[after] = repeats.get(after, 0) + count

    def hit(self, limit: str, direction: int, space: str = "", times: int = 1) -> None:
        """Count that a bound of this name was reached at the packet at hand."""
        bound = self.bounds.get((direction, space, limit))
        if bound is None:
            at = max(((each.last_ns, each.last_frame) for each in self.heard), default=(0, 0))
            bound = self.bounds[direction, space, limit] = Bound(*at)
        bound.times += times

    def limits(self) -> dict[str, int]:
        """Return how often each bound was reached, wherever that was."""
        found: dict[str, int] = {}
        for (_, _, limit), bound in self.bounds.items():
            found[limit] = found.get(limit, 0) + bound.times
        return found

    def totals(self) -> dict[str, int]:
        """Return how many were found of each severity."""
        return {severity.label: self.by_severity[severity] for severity in Severity}

    def add(
        self,
        code: str,
        frame: int | None,
        time_ns: int | None,
        direction: int | None,
        message: str = "",
        evidence: dict[str, Any] | None = None,
        *,
        concluded_ns: int | None = None,
        always: bool = False,
    ) -> None:
        """Count one finding and report it where its number of repeats is a power of ten.

        Args:
            code: what was found.
            frame: where its cause is; None where no frame has it.
            time_ns: time of that frame.
            direction: of the cause.
            message: what there is to say beyond the title of the code.
            evidence: for programs.
            concluded_ns: when the conclusion fell, where that was later; None = with the frame.
            always: report it whatever that number is.

        """
        row = _ROWS.get(code) or self._rows[code]
        self.by_severity[row.severity] += 1
        if self.every is not None:
            self.every(code, row.severity, frame)
        if concluded_ns is not None and frame is not None and self.late is not None:
            self.late(code, row.severity, frame)
        repeats = self.repeats.get(code, 0) + 1
        if repeats > 1 or len(self.repeats) < MAX_CODES:
            self.repeats[code] = repeats
        if self._sink is None or not (always or repeats in REPORTED):
            return
        self._sink(
            Anomaly(
                code=code,
                severity=row.severity,
                group=row.group,
                frame=frame,
                time_ns=time_ns,
                concluded_ns=time_ns if concluded_ns is None else concluded_ns,
                connection=self._connection,
                direction=direction,
                message=message or row.title,
                evidence=evidence or {},
                repeats=repeats,
            )
        )
