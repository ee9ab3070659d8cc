"""What `track` concludes and `render`/`export` print. Times in ns since the Unix epoch, durations
in ms, `None` = not knowable.

The `__init__` of what each connection has is written out, since one that `dataclass` makes is not
compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from netdissect.model.annotations import Severity
from netdissect.model.apart import take_apart
from netdissect.model.diagnosis import Burst, Ceiling, Diagnosis, Late
from netdissect.model.units import ConnectionEvent, Copy, UnitRecord

__all__ = [
    "Anomaly",
    "CaptureInfo",
    "Ceilings",
    "ConnectionEvent",
    "ConnectionReport",
    "Copy",
    "Parting",
    "ProbeReport",
    "QuietSpan",
    "RttSummary",
    "SoFar",
    "SpaceReport",
    "TimeoutVerdict",
    "UnitRecord",
]


Ceilings: TypeAlias = tuple[Ceiling | None, Ceiling | None]


@dataclass(slots=True, init=False)
class RttSummary:
    """Round trips of one space or probe, milliseconds."""

    samples: int
    """Unambiguous samples (units sent once; probes answered)."""
    ambiguous: int
    """Acknowledged units that were sent more than once: no sample is taken (Karn)."""
    minimum: float | None
    p50: float | None
    """Median, from a bounded reservoir when samples are many."""
    p95: float | None
    maximum: float | None

    def __init__(
        self, samples: int = 0, ambiguous: int = 0, minimum: float | None = None,
        p50: float | None = None, p95: float | None = None, maximum: float | None = None,
    ) -> None:  # fmt: skip
        self.samples = samples
        self.ambiguous = ambiguous
        self.minimum = minimum
        self.p50 = p50
        self.p95 = p95
        self.maximum = maximum


@dataclass(slots=True, init=False)
class SpaceReport:
    """One sequence space in one direction. copies = units + retransmissions + duplicates +
    undecided (in `extra`); units = acked + unacked + unknown.
    """

    space: str
    direction: int
    """`Direction` of the units."""
    units: int
    copies: int
    retransmissions: int
    duplicates: int
    acked: int
    unacked: int
    unknown: int
    never_seen: int
    """Numbers up to the newest that no unit has; those that copies have taken are among them."""
    out_of_order: int
    given_up: int
    first_seq: int | None
    last_seq: int | None
    max_copies: int
    consecutive: bool
    """False where numbers are skipped in normal operation."""
    rtt: RttSummary
    added: Late | None
    """What resends added to its units; None without one that was acknowledged."""
    timer_ms: float | None
    """What its sender waits for an acknowledgement at the end; None where it has no timer."""
    bursts: tuple[Burst, ...]
    """The longest runs of numbers that were missing when a later one came, longest first."""
    extra: dict[str, Any]
    """Further facts of the space (notify: delivered, lost, assumed_lost ...), shown as added keys.
    """
    others: int
    """Numbers that something else than a unit has taken: messages that want no acknowledgement."""
    copies_take_numbers: bool
    """Whether each further copy that its sender makes takes a number, though it keeps its own."""
    by_name: bool
    """Whether an acknowledgement names one unit, once: none is late because another was lost."""

    def __init__(
        self, space: str, direction: int, units: int = 0, copies: int = 0,
        retransmissions: int = 0, duplicates: int = 0, acked: int = 0, unacked: int = 0,
        unknown: int = 0, never_seen: int = 0, out_of_order: int = 0, given_up: int = 0,
        first_seq: int | None = None, last_seq: int | None = None, max_copies: int = 0,
        consecutive: bool = True,  # noqa: FBT001, FBT002 - as in the fields
        rtt: RttSummary | None = None, added: Late | None = None, timer_ms: float | None = None,
        bursts: tuple[Burst, ...] = (), extra: dict[str, Any] | None = None, others: int = 0,
        copies_take_numbers: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        by_name: bool = False,  # noqa: FBT001, FBT002 - as in the fields
    ) -> None:  # fmt: skip
        self.space = space
        self.direction = direction
        self.units = units
        self.copies = copies
        self.retransmissions = retransmissions
        self.duplicates = duplicates
        self.acked = acked
        self.unacked = unacked
        self.unknown = unknown
        self.never_seen = never_seen
        self.out_of_order = out_of_order
        self.given_up = given_up
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.max_copies = max_copies
        self.consecutive = consecutive
        self.rtt = RttSummary() if rtt is None else rtt
        self.added = added
        self.timer_ms = timer_ms
        self.bursts = bursts
        self.extra = {} if extra is None else extra
        self.others = others
        self.copies_take_numbers = copies_take_numbers
        self.by_name = by_name


@dataclass(slots=True, init=False)
class ProbeReport:
    """Probes that one side sent."""

    kind: str
    direction: int
    """`Direction` of the questions."""
    sent: int
    answered: int
    rtt: RttSummary
    """From question to answer, as captured."""
    declared: RttSummary
    """Round trips that the asking side states itself: its own measurements, from any vantage."""

    def __init__(
        self, kind: str, direction: int, sent: int = 0, answered: int = 0,
        rtt: RttSummary | None = None, declared: RttSummary | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.direction = direction
        self.sent = sent
        self.answered = answered
        self.rtt = RttSummary() if rtt is None else rtt
        self.declared = RttSummary() if declared is None else declared


@dataclass(slots=True, init=False)
class TimeoutVerdict:
    """What one side's idle timer did, seen from the capture."""

    side: str
    """`client` or `server`: whose timer."""
    last_heard_ns: int | None
    """Last sign of life of its peer by the protocol's own rule."""
    last_heard_frame: int | None
    due_ns: int | None
    """When the idle timeout was due: last_heard + idle."""
    latest_ns: int | None
    """When the verdict must have fallen at the latest: due + check period."""
    fired: bool | None
    """True: it fired (this side fell silent or announced it in that window); False: it did not;
    None: the capture cannot tell.
    """

    def __init__(
        self, side: str, last_heard_ns: int | None, last_heard_frame: int | None,
        due_ns: int | None, latest_ns: int | None,
        fired: bool | None,  # noqa: FBT001 - as in the fields
    ) -> None:  # fmt: skip
        self.side = side
        self.last_heard_ns = last_heard_ns
        self.last_heard_frame = last_heard_frame
        self.due_ns = due_ns
        self.latest_ns = latest_ns
        self.fired = fired


@dataclass(slots=True, init=False)
class SoFar:
    """What was known of a space up to a moment."""

    space: str
    units: int
    """What came under numbers of their own."""
    never_seen: int
    lost: int
    """By what its receiver told."""
    delivered: int

    def __init__(
        self, space: str, units: int, never_seen: int, lost: int, delivered: int
    ) -> None:
        self.space = space
        self.units = units
        self.never_seen = never_seen
        self.lost = lost
        self.delivered = delivered


@dataclass(slots=True, init=False)
class QuietSpan:
    """A span in which a side was not heard (`silence`), or not answered (`one-way`), though it
    should have been.
    """

    kind: str
    """`silence`: nothing of this direction is in the capture; `one-way`: nothing that this
    direction sent was answered, while the other one went on.
    """
    direction: int
    """`Direction` of what was missing, or sent in vain."""
    from_ns: int
    """Last packet before it; of `one-way` the last one sent before that was answered."""
    from_frame: int | None
    to_ns: int | None
    """Next packet of the direction; of `one-way` the next one sent that was answered. None: none
    until the end of the capture.
    """
    to_frame: int | None
    """Of `one-way`: the frame of that answer."""
    basis: str
    """`timer`: its own timers should have made it speak; `asked`: its peer asked in vain;
    `numbers`: it did speak, as the numbers that are missing after it show.
    """
    asked: int
    """Questions without an answer in the span: each copy of a unit, but once what was sent at once.
    """
    before: tuple[SoFar, ...]
    """What was known of the direction's spaces until then."""

    def __init__(
        self, kind: str, direction: int, from_ns: int, from_frame: int | None, to_ns: int | None,
        to_frame: int | None, basis: str, asked: int, before: tuple[SoFar, ...] = (),
    ) -> None:  # fmt: skip
        self.kind = kind
        self.direction = direction
        self.from_ns = from_ns
        self.from_frame = from_frame
        self.to_ns = to_ns
        self.to_frame = to_frame
        self.basis = basis
        self.asked = asked
        self.before = before


@dataclass(frozen=True, slots=True)
class Parting:
    """A sign that a connection had ended, or may have, though nothing says so."""

    kind: str
    """`renewed`: a side that had forgotten the connection numbers from the start; `superseded`: the
    client begins another one at the same endpoints; `answered`: a goodbye that is not in the
    capture was answered; `notice`: the last word of a side may have
    been its goodbye.
    """
    direction: int
    """`Direction` of the frame."""
    frame: int
    time_ns: int


@dataclass(slots=True, init=False)
class ConnectionReport:
    """One connection, as `connections` shows it."""

    connection: int
    protocol: str
    dialects: tuple[str, str]
    """Dialect of each direction."""
    transport: str
    client: str
    """"address:port"."""
    server: str
    roles_from: str
    first_frame: int
    last_frame: int
    first_time_ns: int
    last_time_ns: int
    vantage: str
    """`client`, `server`, `middle` or `unknown`."""
    vantage_basis: str
    """One sentence: what the vantage rests on."""
    handshake: str
    reject_reason: str | None
    state: str
    """Contract word: open, closed, timed_out, rejected, silent (the capture ends while a side that
    should have been heard was not, too soon for its peer's timer), unknown.
    """
    state_name: str
    """The protocol's own name of the state."""
    close: dict[str, Any] | None
    """by, reason, frame."""
    identity: dict[str, Any]
    datagrams: tuple[int, int]
    octets: tuple[int, int]
    messages: tuple[dict[str, int], dict[str, int]]
    spaces: list[SpaceReport]
    probes: list[ProbeReport]
    timeouts: list[TimeoutVerdict]
    counters: tuple[dict[str, int], dict[str, int]]
    """Protocol's own counters per direction."""
    anomalies: dict[str, int]
    """Severity label -> count."""
    complete: bool
    """False: mid-stream start, one-sided or evicted."""
    limits_hit: dict[str, int]
    """Named bound -> how often it was hit."""
    explain: tuple[str, ...]
    """Evidence of the recognition."""
    timings: tuple[dict[str, RttSummary], dict[str, RttSummary]]
    """Direction of the sender -> times that it states, by name, milliseconds; may be negative."""
    clocks: tuple[RttSummary, RttSummary]
    """Direction -> capture time less the sender's own clock: the way to the capture plus the offset
    of that clock. Not a round trip; may be negative.
    """
    codes: dict[str, int]
    """Code -> how often it was found."""
    quiet: list[QuietSpan]
    """In the order in which they were concluded."""
    ended_ns: int | None
    """Time of the frame that `close` names; None where there is none."""
    diagnosis: Diagnosis | None
    """The answer; None only before the pipeline has asked for it."""
    parting: Parting | None
    """The sign that says most of how it ended, where it has no end of its own."""
    near: tuple[bool | None, bool | None]
    """(client, server): whether it is next to the capture; None = not known."""
    ceilings: tuple[Ceilings, Ceilings]
    """By direction: limits of the rate by what is missing here, and by what the receiver told."""
    misses_frames: bool
    """Whether the capture is known to miss frames of it: what it lacks then proves nothing."""
    close_resends: tuple[bool, bool]
    """By direction: whether the network brings resends close to the copies before them."""

    def __init__(
        self, connection: int, protocol: str, dialects: tuple[str, str], transport: str,
        client: str, server: str, roles_from: str, first_frame: int, last_frame: int,
        first_time_ns: int, last_time_ns: int, vantage: str, vantage_basis: str, handshake: str,
        reject_reason: str | None, state: str, state_name: str, close: dict[str, Any] | None,
        identity: dict[str, Any], datagrams: tuple[int, int], octets: tuple[int, int],
        messages: tuple[dict[str, int], dict[str, int]], spaces: list[SpaceReport],
        probes: list[ProbeReport], timeouts: list[TimeoutVerdict],
        counters: tuple[dict[str, int], dict[str, int]], anomalies: dict[str, int],
        complete: bool,  # noqa: FBT001 - as in the fields
        limits_hit: dict[str, int] | None = None, explain: tuple[str, ...] = (),
        timings: tuple[dict[str, RttSummary], dict[str, RttSummary]] | None = None,
        clocks: tuple[RttSummary, RttSummary] | None = None, codes: dict[str, int] | None = None,
        quiet: list[QuietSpan] | None = None, ended_ns: int | None = None,
        diagnosis: Diagnosis | None = None, parting: Parting | None = None,
        near: tuple[bool | None, bool | None] = (None, None),
        ceilings: tuple[Ceilings, Ceilings] = ((None, None), (None, None)),
        misses_frames: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        close_resends: tuple[bool, bool] = (False, False),
    ) -> None:  # fmt: skip
        self.connection = connection
        self.protocol = protocol
        self.dialects = dialects
        self.transport = transport
        self.client = client
        self.server = server
        self.roles_from = roles_from
        self.first_frame = first_frame
        self.last_frame = last_frame
        self.first_time_ns = first_time_ns
        self.last_time_ns = last_time_ns
        self.vantage = vantage
        self.vantage_basis = vantage_basis
        self.handshake = handshake
        self.reject_reason = reject_reason
        self.state = state
        self.state_name = state_name
        self.close = close
        self.identity = identity
        self.datagrams = datagrams
        self.octets = octets
        self.messages = messages
        self.spaces = spaces
        self.probes = probes
        self.timeouts = timeouts
        self.counters = counters
        self.anomalies = anomalies
        self.complete = complete
        self.limits_hit = {} if limits_hit is None else limits_hit
        self.explain = explain
        self.timings = ({}, {}) if timings is None else timings
        self.clocks = (RttSummary(), RttSummary()) if clocks is None else clocks
        self.codes = {} if codes is None else codes
        self.quiet = [] if quiet is None else quiet
        self.ended_ns = ended_ns
        self.diagnosis = diagnosis
        self.parting = parting
        self.near = near
        self.ceilings = ceilings
        self.misses_frames = misses_frames
        self.close_resends = close_resends


@dataclass(slots=True)
class Anomaly:
    """One finding of the tracker or of a decoder, as `anomalies` prints it."""

    code: str
    severity: Severity
    group: str
    frame: int | None
    """Frame of the cause; None where no frame has it."""
    time_ns: int | None
    """Time of that frame."""
    connection: int | None
    direction: int | None
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    """How often this code has occurred on this connection so far (reported at 1, 10, 100 ...
    and, of what is said of a whole direction, once for each).
    """
    concluded_ns: int | None = None
    """When the conclusion fell: with its frame, or later (a timer that ran out)."""


@dataclass(slots=True)
class CaptureInfo:
    """Facts about a capture file."""

    path: str
    format: str
    """`pcap`, `pcapng`, `pcap.gz`, `pcapng.zst` ..."""
    link_types: list[str] = field(default_factory=list)
    """Names such as `EN10MB`, in order of appearance."""
    interfaces: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    frames: int = 0
    octets: int = 0
    """Bytes on the wire."""
    first_time_ns: int | None = None
    last_time_ns: int | None = None
    nanosecond: bool = False
    truncated_at: int | None = None
    """Offset in the (decompressed) file of the first byte that could not be read as a record; None
    for a whole file.
    """
    damage: str | None = None
    """What is wrong there."""
    drops: int | None = None
    """Datagrams that the capturing kernel or program lost, where the file says so."""
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Named bound of the facts above -> how many were left out for it."""


take_apart((
    RttSummary, SpaceReport, ProbeReport, TimeoutVerdict, SoFar, QuietSpan, Parting,
    ConnectionReport, Anomaly, CaptureInfo,
))  # fmt: skip
