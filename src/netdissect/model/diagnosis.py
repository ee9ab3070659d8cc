"""The diagnosis of one connection: how it ended, why, and how well it worked until then. Plain
data; `diagnosis/` writes the sentences in it.

Classes of which each connection has one are not frozen, because creating a frozen dataclass takes
ten times as long. Their `__init__` is written out, because a generated one is not compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netdissect.model.pickling import pickle_by_fields

MEASURED: Final = ("observed", "inferred", "copies", "ids", "told")
"""Those `Loss.basis` with which one capture shows the loss itself rather than a limit of it."""
SEEN: Final = (*MEASURED, "least")
"""Those with which one capture shows losses, if not all."""
LOSS_BASIS: Final = {
    "bound": "retransmitted or unacknowledged",
    "copies": "from missing copies",
    "ids": "from missing IP identifications",
    "inferred": "from missing numbers",
    "joined": "from both captures",
    "least": "from what is missing in this capture",
    "observed": "from missing numbers",
    "told": "reported by the receiver",
}
"""`Loss.basis` -> the words for it that follow a share; none where it is unknown."""
ENDINGS: Final = {
    "timed-out": (90, "timed out"),
    "dropped": (88, "dropped"),
    "silent": (85, "fell silent"),
    "quality": (80, "closed for poor quality"),
    "unreachable": (75, "port unreachable"),
    "reset": (70, "reset"),
    "never-answered": (65, "never answered"),
    "gave-up": (65, "given up"),
    "rejected": (60, "rejected"),
    "unknown": (30, "end not in the capture"),
    "said": (0, "closed"),
    "info-only": (0, "information only"),
    "open": (0, "still open"),
}
"""`Ending.how` -> badness, and phrase. The badness orders connections; its scale has no meaning."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of the findings about the quality of a connection: the settings `findings.*`."""

    high_loss: int = 5
    """Lost share of a direction, percent."""
    burst_loss: int = 10
    """Consecutive numbers that are missing next to the receiver."""
    high_resend: int = 25
    """Share of retransmissions in what a side sent, percent, beyond what its own timer explains."""
    rtt_spike: int = 150
    """Milliseconds by which a round trip exceeds the usual one; it must also be four times as long.
    """
    jitter: int = 60
    """Milliseconds by which the 95th percentile of the round trips exceeds their median; it must
    also be twice as long.
    """
    slow_receiver: int = 500
    """Total time that a receive window is closed, milliseconds."""
    late_delivery: int = 200
    """Milliseconds by which a retransmitted unit arrives later than the path alone explains."""
    rate_limited: int = 10
    """Consecutive seconds in which the received rate stays at a ceiling while the excess is lost.
    """


@dataclass(slots=True, init=False)
class Burst:
    """Consecutive numbers that were missing when a later one arrived."""

    count: int
    """Numbers that are still missing."""
    from_ns: int
    """Time of the newest number before the burst."""
    to_ns: int
    """Time of the later number."""
    frame: int
    """Frame of the later number."""
    low: int
    """First number of the burst, including those that arrived late and left `count`."""
    high: int
    """Last number of the burst."""

    def __init__(
        self, count: int, from_ns: int, to_ns: int, frame: int, low: int = 0, high: int = 0
    ) -> None:
        self.count = count
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.frame = frame
        self.low = low
        self.high = high


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A rate limit in one direction: for several consecutive seconds the received rate stayed at a
    ceiling and the excess was lost, while nothing was lost at lower rates.
    """

    per_second: int
    """The ceiling, in `unit` per second."""
    unit: str
    """`bytes`, or `datagrams` if the receiver reports them or two captures are joined."""
    seconds: int
    """Duration at the ceiling."""
    sent: int
    """Numbered units sent in these seconds."""
    lost: int
    """Those of them that were lost."""
    from_ns: int
    to_ns: int
    first_frame: int
    """First frame of the first second."""
    last_frame: int
    """First frame of the last second."""
    queue_ms: float | None
    """By how much delays exceeded those at lower rates; None if unknown."""

    @property
    def text(self) -> str:
        """Return the sentence about it."""
        longer = self.queue_ms is not None and self.queue_ms >= 1
        return (
            f"no more than {self.per_second:,} {self.unit} a second arrived for {self.seconds} s: "
            f"{100 * self.lost / self.sent:.0f}% of what was sent then was lost, and nothing at "
            "lower rates" + (f"; delays were {self.queue_ms:.0f} ms longer" if longer else "")
        )


@dataclass(slots=True, init=False)
class Ending:
    """Who ended a connection, and how."""

    by: str | None
    """`client`, `server`, `both`, `nobody`; None = unknown."""
    how: str
    """`said` (a message says so), `rejected`, `reset`, `unreachable`, `timed-out`, `quality`,
    `dropped` (a side forgot the connection without a message), `silent` (a side stopped sending
    without a message), `gave-up`, `never-answered`, `info-only`, `open`, `unknown`.
    """
    reason: str | None
    """The reason as the program states it."""
    frame: int | None
    """Frame of the evidence; None without one."""
    time_ns: int | None
    confidence: str
    """`certain`: stated on the wire, or the only possibility; `likely`: concluded from silence, a
    timer or a rule; `cannot tell`.
    """

    def __init__(
        self, by: str | None, how: str, reason: str | None, frame: int | None, time_ns: int | None,
        confidence: str,
    ) -> None:  # fmt: skip
        self.by = by
        self.how = how
        self.reason = reason
        self.frame = frame
        self.time_ns = time_ns
        self.confidence = confidence

    @property
    def text(self) -> str:
        """Return how the connection ended, and by whom, in a few words."""
        _, how = ENDINGS[self.how]
        if self.how == "said" and self.reason == "FIN":
            how = "closed with FIN"
        if self.by in {None, "nobody"} or self.how == "unreachable":
            return how
        if self.how == "silent":
            return f"abandoned by the {self.by}"
        if self.by == "both":
            return f"{how} on both sides"
        return f"{how} {'at' if self.how == 'timed-out' else 'by'} the {self.by}"


@dataclass(slots=True, init=False)
class Cause:
    """Why a connection ended or worked badly."""

    what: str
    """`silence`, `one-way`, `loss`, `slow-receiver`, `malformed`, `quality`, `rejected`,
    `no-answer`, `closed`, `none`.
    """
    direction: int | None
    """`Direction` concerned; None = both, or unknown."""
    from_ns: int | None
    """Start of the span concerned."""
    to_ns: int | None
    """Its end; None = the end of the connection."""
    from_frame: int | None
    to_frame: int | None
    confidence: str
    """`certain`, `likely` or `cannot tell`: how sure it is whose fault it was, not what was seen.
    """
    text: str
    """One or two sentences."""
    calm: bool
    """True if no problem was seen, as far as the capture can tell."""

    def __init__(
        self, what: str, direction: int | None, from_ns: int | None, to_ns: int | None,
        from_frame: int | None, to_frame: int | None, confidence: str, text: str,
        calm: bool = False,  # noqa: FBT001, FBT002 - as in the fields
    ) -> None:  # fmt: skip
        self.what = what
        self.direction = direction
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.from_frame = from_frame
        self.to_frame = to_frame
        self.confidence = confidence
        self.text = text
        self.calm = calm


@dataclass(slots=True, init=False)
class Loss:
    """How much of what was sent in one direction was lost."""

    sent: int
    lost: int
    basis: str
    """`joined`: two captures show it; `observed`: numbers are missing next to the receiver;
    `inferred`: the same, but the sender skips numbers now and then; `copies`: of what the sender
    sends several times at once, copies are missing next to the receiver; `ids`: IP identifications
    are missing there, which the sender may have used elsewhere; `told`: the receiver reports it;
    `bound`: an upper limit from retransmissions; `least`: a lower limit, what was lost before the
    capture, which may be anywhere; `unknown`: the capture cannot tell.
    """

    def __init__(self, sent: int, lost: int, basis: str) -> None:
        self.sent = sent
        self.lost = lost
        self.basis = basis

    @property
    def share(self) -> float | None:
        """Return lost / sent; None if unknown."""
        return self.lost / self.sent if self.sent and self.basis != "unknown" else None

    def exceeds(self, percent: float) -> bool:
        """Return whether the share is known and larger than this."""
        return 100 * (self.share or 0.0) > percent

    @property
    def is_seen(self) -> bool:
        """Return whether one capture shows losses rather than what they may have caused."""
        return self.basis in SEEN

    @property
    def is_known(self) -> bool:
        """Return whether losses are seen, in one capture or two."""
        return self.is_seen or self.basis == "joined"

    @property
    def is_limit(self) -> bool:
        """Return whether the actual loss may be lower."""
        return self.basis in ("bound", "ids", "inferred")

    @property
    def is_bound(self) -> bool:
        """Return whether the loss itself is not known, but an upper or a lower limit of it."""
        return self.basis in ("bound", "least")

    def limit(self, at_most: str = "at most ", at_least: str = "at least ") -> str:
        """Return what stands before the share if it is a limit; else ""."""
        return at_most if self.is_limit else at_least if self.basis == "least" else ""


@dataclass(slots=True, init=False)
class SilenceLoss:
    """What each direction lost before a silence began, and during it."""

    before: tuple[Loss, Loss]
    """By `Direction`."""
    inside: tuple[Loss, Loss]
    """By `Direction`."""

    def __init__(self, before: tuple[Loss, Loss], inside: tuple[Loss, Loss]) -> None:
        self.before = before
        self.inside = inside


@dataclass(slots=True, init=False)
class LateUnit:
    """A unit that was delivered late because copies of it were lost."""

    space: str
    seq: int
    frame: int
    """Frame of its first copy."""
    time_ns: int
    """Time of that frame."""
    added_ms: float
    """Delay in addition to that of the path."""
    copies: int
    """Transmissions."""

    def __init__(
        self, space: str, seq: int, frame: int, time_ns: int, added_ms: float, copies: int,
    ) -> None:  # fmt: skip
        self.space = space
        self.seq = seq
        self.frame = frame
        self.time_ns = time_ns
        self.added_ms = added_ms
        self.copies = copies


@dataclass(slots=True, init=False)
class AddedDelay:
    """The delay in ms that waiting for retransmissions added to the units of one direction that
    were sent more than once.
    """

    units: int
    """Units that were sent more than once."""
    p50: float | None
    p95: float | None
    maximum: float | None
    over_limit: int
    """Units delayed by more than `limit_ms`."""
    worst: tuple[LateUnit, ...]
    """The units with the longest delays."""
    limit_ms: int
    """`Limits.late_delivery`."""

    def __init__(
        self, units: int, p50: float | None, p95: float | None, maximum: float | None,
        over_limit: int, worst: tuple[LateUnit, ...], limit_ms: int,
    ) -> None:  # fmt: skip
        self.units = units
        self.p50 = p50
        self.p95 = p95
        self.maximum = maximum
        self.over_limit = over_limit
        self.worst = worst
        self.limit_ms = limit_ms


@dataclass(slots=True, init=False)
class Lag:
    """Round trips, and what retransmissions added to them."""

    path_ms: float | None
    """Usual round trip; None if the capture has no complete one."""
    p95_ms: float | None
    """95th percentile of the round trips."""
    added: tuple[AddedDelay, AddedDelay]
    """By `Direction`."""

    def __init__(
        self, path_ms: float | None, p95_ms: float | None, added: tuple[AddedDelay, AddedDelay],
    ) -> None:  # fmt: skip
        self.path_ms = path_ms
        self.p95_ms = p95_ms
        self.added = added

    @property
    def late_ms(self) -> float | None:
        """Return the 95th percentile of the added delay in the worse direction."""
        return max((late.p95 for late in self.added if late.p95 is not None), default=None)


@dataclass(slots=True, init=False)
class Diagnosis:
    """All conclusions about one connection."""

    ending: Ending
    cause: Cause
    loss: tuple[Loss, Loss]
    """By `Direction`, over the whole connection."""
    around: SilenceLoss | None
    """If the cause is a silence: the loss before it and during it."""
    lag: Lag
    badness: int
    """Rank for sorting: the higher, the worse."""
    verdict: str
    """One sentence: who, when, why."""
    ruled_out: tuple[str, ...]
    """Causes that can be excluded, each with the reason."""
    settles: str | None
    """What a second capture, or one from the start, would show; None if nothing is open."""
    names: tuple[str | None, str | None]
    """Names of client and server, from the payload."""

    def __init__(
        self, ending: Ending, cause: Cause, loss: tuple[Loss, Loss], around: SilenceLoss | None,
        lag: Lag, badness: int, verdict: str, ruled_out: tuple[str, ...], settles: str | None,
        names: tuple[str | None, str | None],
    ) -> None:  # fmt: skip
        self.ending = ending
        self.cause = cause
        self.loss = loss
        self.around = around
        self.lag = lag
        self.badness = badness
        self.verdict = verdict
        self.ruled_out = ruled_out
        self.settles = settles
        self.names = names


pickle_by_fields((
    Limits, Burst, Ceiling, Ending, Cause, Loss, SilenceLoss, LateUnit, AddedDelay, Lag, Diagnosis,
))  # fmt: skip
