"""The answer about one connection: how it ended, why, and how bad it was on the way. Plain data;
the sentences in it are made in one place and shown alike everywhere.

What each connection has is not frozen: to fill a frozen value takes ten times as long. Its
`__init__` is written out, since one that `dataclass` makes is not compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from netdissect.model.apart import take_apart

__all__ = [
    "Around",
    "Burst",
    "Cause",
    "Ceiling",
    "Diagnosis",
    "Ending",
    "Lag",
    "Late",
    "Limits",
    "Loss",
    "Worst",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a connection is told to be bad; the settings `findings.*` are these fields."""

    high_loss: int = 5
    """Percent of a direction that is lost."""
    burst_loss: int = 10
    """Numbers in a row that are missing next to the receiver."""
    high_resend: int = 25
    """Percent of what a side sent that were repetitions, more than its own timer explains."""
    rtt_spike: int = 150
    """Milliseconds that a round trip is longer than the usual one, and four times as long."""
    jitter: int = 60
    """Milliseconds that 5% of the round trips take longer than half of them, and twice as long."""
    slow_receiver: int = 500
    """Milliseconds that a receive window is closed in all."""
    late_delivery: int = 200
    """Milliseconds by which a unit that was sent again comes later than the path allows."""
    rate_limited: int = 10
    """Seconds in a row in which what arrives stays at a limit, and is lost beyond it."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Numbers in a row that were missing when a later one came."""

    count: int
    from_ns: int
    """Newest number before it."""
    to_ns: int
    """The later one."""
    frame: int
    """Its frame."""
    low: int = 0
    """First of the numbers; those that came late have left `count`, and are among them."""
    high: int = 0
    """Last of them."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Seconds in a row in which no more than so much of a direction arrived, the rest being lost,
    while nothing was lost below.
    """

    per_second: int
    """What arrived."""
    unit: str
    """Of what: `bytes`; `datagrams` where it is told or joined."""
    seconds: int
    sent: int
    """Numbered units of them."""
    lost: int
    from_ns: int
    to_ns: int
    first_frame: int
    """First frame of the first second."""
    last_frame: int
    """First frame of the last second."""
    queue_ms: float | None
    """By how much delays were longer than below; None where that is not known."""

    @property
    def text(self) -> str:
        """Return what is said of it."""
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
    """`client`, `server`, `both`, `nobody`; None = cannot be told."""
    how: str
    """`said`, `rejected`, `reset`, `unreachable`, `timed-out`, `quality`, `dropped`
    (forgotten without a word), `silent` (fell silent without a word), `gave-up`,
    `never-answered`, `info-only`, `open`, `unknown`.
    """
    reason: str | None
    """The program's own word."""
    frame: int | None
    """Frame that says so; None where none does."""
    time_ns: int | None
    """When."""
    confidence: str
    """`certain`: it was said, or cannot be otherwise; `likely`: concluded from silence, a timer or
    a rule; `cannot tell`.
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


@dataclass(slots=True, init=False)
class Cause:
    """Why a connection ended, or why it is bad."""

    what: str
    """`silence`, `one-way`, `loss`, `slow-receiver`, `quality`, `rejected`, `no-answer`, `closed`,
    `none`.
    """
    direction: int | None
    """`Direction` that is concerned; None = both, or not known."""
    from_ns: int | None
    to_ns: int | None
    """Span; `to_ns` None = to the end."""
    from_frame: int | None
    to_frame: int | None
    confidence: str
    """`certain`, `likely` or `cannot tell`: of whose fault it is, not of what was seen."""
    text: str
    """One or two sentences."""

    def __init__(
        self, what: str, direction: int | None, from_ns: int | None, to_ns: int | None,
        from_frame: int | None, to_frame: int | None, confidence: str, text: str,
    ) -> None:  # fmt: skip
        self.what = what
        self.direction = direction
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.from_frame = from_frame
        self.to_frame = to_frame
        self.confidence = confidence
        self.text = text


@dataclass(slots=True, init=False)
class Loss:
    """How much of what a direction sent was lost."""

    sent: int
    lost: int
    basis: str
    """`joined`: two captures show it; `observed`: numbers missing next to the receiver; `inferred`:
    the same, but their sender leaves some out now and then; `told`: the receiver says so; `bound`:
    at most so much, it was sent again; `unknown`: the capture cannot tell.
    """

    def __init__(self, sent: int, lost: int, basis: str) -> None:
        self.sent = sent
        self.lost = lost
        self.basis = basis

    @property
    def share(self) -> float | None:
        """Return lost of sent; None where that is not known."""
        return self.lost / self.sent if self.sent and self.basis != "unknown" else None

    @property
    def is_seen(self) -> bool:
        """Return whether one capture shows the loss itself, not a bound of it."""
        return self.basis in ("observed", "inferred", "told")

    @property
    def is_known(self) -> bool:
        """Return whether the loss itself is known, from one capture or from two."""
        return self.is_seen or self.basis == "joined"

    @property
    def is_limit(self) -> bool:
        """Return whether less may have been lost."""
        return self.basis in ("bound", "inferred")


@dataclass(slots=True, init=False)
class Around:
    """What each direction lost before the span of a silence, and in it."""

    before: tuple[Loss, Loss]
    """By `Direction`."""
    inside: tuple[Loss, Loss]
    """By `Direction`."""

    def __init__(self, before: tuple[Loss, Loss], inside: tuple[Loss, Loss]) -> None:
        self.before = before
        self.inside = inside


@dataclass(slots=True, init=False)
class Worst:
    """A unit that came late."""

    space: str
    seq: int
    frame: int
    """Frame of its first copy."""
    time_ns: int
    """Time of that frame."""
    added_ms: float
    """What it took longer than the path."""
    copies: int

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
class Late:
    """What resends added to the units of a direction that were sent more than once, ms."""

    units: int
    p50: float | None
    p95: float | None
    maximum: float | None
    beyond: int
    """Units later than the limit."""
    worst: tuple[Worst, ...]
    limit_ms: int
    """That limit."""

    def __init__(
        self, units: int, p50: float | None, p95: float | None, maximum: float | None, beyond: int,
        worst: tuple[Worst, ...], limit_ms: int,
    ) -> None:  # fmt: skip
        self.units = units
        self.p50 = p50
        self.p95 = p95
        self.maximum = maximum
        self.beyond = beyond
        self.worst = worst
        self.limit_ms = limit_ms


@dataclass(slots=True, init=False)
class Lag:
    """How long things took."""

    path_ms: float | None
    """Usual round trip; None where the capture has no whole one."""
    p95_ms: float | None
    """95% of the round trips did not exceed this."""
    added: tuple[Late, Late]
    """By `Direction`."""

    def __init__(
        self, path_ms: float | None, p95_ms: float | None, added: tuple[Late, Late],
    ) -> None:  # fmt: skip
        self.path_ms = path_ms
        self.p95_ms = p95_ms
        self.added = added

    @property
    def late_ms(self) -> float | None:
        """Return by how much 95% of what was sent again was late, of the worse direction."""
        return max((late.p95 for late in self.added if late.p95 is not None), default=None)


@dataclass(slots=True, init=False)
class Diagnosis:
    """The answer about one connection."""

    ending: Ending
    cause: Cause
    loss: tuple[Loss, Loss]
    """By `Direction`, over the whole connection."""
    around: Around | None
    """Of a connection that fell silent: the same before that span, and in it."""
    lag: Lag
    badness: int
    """Order of connections, worst first: the higher the worse."""
    verdict: str
    """One sentence: who, when, why."""
    ruled_out: tuple[str, ...]
    """What it was not, each with the reason."""
    settles: str | None
    """What a second capture would settle; None where nothing is left."""
    names: tuple[str | None, str | None]
    """Names of client and server from the payload."""

    def __init__(
        self, ending: Ending, cause: Cause, loss: tuple[Loss, Loss], around: Around | None,
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


take_apart((
    Limits, Burst, Ceiling, Ending, Cause, Loss, Around, Worst, Late, Lag, Diagnosis,
))  # fmt: skip
