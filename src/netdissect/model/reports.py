"""What `track` concludes about connections. Times are in ns since the Unix epoch, durations in ms;
`None` means that the capture cannot tell.

The `__init__` of classes of which each connection has instances is written out, because one that
`dataclass` generates is not compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from netdissect.model.annotations import Severity
from netdissect.model.diagnosis import AddedDelay, Burst, Ceiling, Diagnosis
from netdissect.model.pickling import pickle_by_fields
from netdissect.model.units import NO_GAPS, ConnectionEvent, Copy, CopyGaps, Placement, UnitRecord

__all__ = [
    "Anomaly",
    "CaptureInfo",
    "Ceilings",
    "ConnectionEvent",
    "ConnectionReport",
    "Copy",
    "EndHint",
    "MalformedData",
    "ProbeReport",
    "QuietSpan",
    "RttSummary",
    "SpaceReport",
    "SpaceSnapshot",
    "TimeoutVerdict",
    "UnitRecord",
]


Ceilings: TypeAlias = tuple[Ceiling | None, Ceiling | None]
"""By direction."""


@dataclass(slots=True, init=False)
class RttSummary:
    """Round trips of one space or probe, milliseconds."""

    samples: int
    """Unambiguous samples: units sent once and acknowledged, and probes that were answered."""
    ambiguous: int
    """Acknowledged units that were sent more than once. They give no sample. Source: Karn's
    algorithm, RFC 6298 section 3.
    """
    minimum: float | None
    p50: float | None
    """Median. If there are many samples, percentiles are those of a bounded random selection."""
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
    """One sequence space in one direction.

    copies = units + retransmissions + duplicates + `extra["undecided"]`;
    units = acked + unacked + unknown.
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
    """Numbers up to the newest of which no unit was seen, including numbers used up by copies."""
    out_of_order: int
    given_up: int
    first_seq: int | None
    last_seq: int | None
    max_copies: int
    consecutive: bool
    """See `SpaceRule.consecutive`."""
    rtt: RttSummary
    added: AddedDelay | None
    """Delay added by retransmissions; None if no retransmitted unit was acknowledged."""
    timer_ms: float | None
    """The sender's retransmission delay at the end; None without a timer."""
    bursts: tuple[Burst, ...]
    """The longest bursts of missing numbers, longest first."""
    extra: dict[str, Any]
    """Further facts (delivered, lost, assumed_lost ... of a notify space), shown as further keys.
    """
    others: int
    """Numbers used by something other than a unit, such as a message that needs no acknowledgement.
    """
    copies_take_numbers: bool
    """See `SpaceRule.copies_take_numbers`."""
    by_name: bool
    """True if each acknowledgement names a single unit, so that the loss of one unit delays no
    other.
    """

    def __init__(
        self, space: str, direction: int, units: int = 0, copies: int = 0,
        retransmissions: int = 0, duplicates: int = 0, acked: int = 0, unacked: int = 0,
        unknown: int = 0, never_seen: int = 0, out_of_order: int = 0, given_up: int = 0,
        first_seq: int | None = None, last_seq: int | None = None, max_copies: int = 0,
        consecutive: bool = True,  # noqa: FBT001, FBT002 - as in the fields
        rtt: RttSummary | None = None, added: AddedDelay | None = None,
        timer_ms: float | None = None, bursts: tuple[Burst, ...] = (),
        extra: dict[str, Any] | None = None, others: int = 0,
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
    """`Direction` of the probes."""
    sent: int
    answered: int
    rtt: RttSummary
    """Time from probe to answer, as captured."""
    declared: RttSummary
    """Round trips that the probing side states itself; they are valid from any vantage."""

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
    """Whether the idle timer of one side expired."""

    side: str
    """`client` or `server`: the side that has the timer."""
    last_heard_ns: int | None
    """When its peer last sent something that restarts the timer."""
    last_heard_frame: int | None
    due_ns: int | None
    """Earliest time at which the timer can expire: `last_heard_ns` + `TimeoutRule.idle_ms`."""
    latest_ns: int | None
    """Latest time at which it can expire: `due_ns` + `TimeoutRule.check_ms`."""
    fired: bool | None
    """True: it expired, as the side stopped sending or said so in that time; False: it did not;
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
class SpaceSnapshot:
    """The counts of a space at one moment."""

    space: str
    units: int
    """Numbers of which something was seen."""
    never_seen: int
    lost: int
    """As reported by its receiver."""
    delivered: int
    """As reported by its receiver."""

    def __init__(self, space: str, units: int, never_seen: int, lost: int, delivered: int) -> None:
        self.space = space
        self.units = units
        self.never_seen = never_seen
        self.lost = lost
        self.delivered = delivered


@dataclass(slots=True, init=False)
class QuietSpan:
    """A span of time in which one direction of an open connection did not work."""

    kind: str
    """`silence`: no packet of this direction was captured, although some were due; `one-way`: no
    packet of this direction was answered, although the other side kept sending.
    """
    direction: int
    """`Direction` concerned."""
    from_ns: int
    """`silence`: last packet before the span; `one-way`: first packet in it that was not answered,
    or the last one before it that was.
    """
    from_frame: int | None
    """The frame of that packet; None if it is unknown."""
    to_ns: int | None
    """`silence`: first packet after the span; `one-way`: first packet after it that was answered.
    None if there is none until the end of the capture.
    """
    to_frame: int | None
    """`silence`: the frame of that packet; `one-way`: the frame of its answer."""
    basis: str
    """Why packets were due. `timer`: by the side's own timers; `asked`: its peer sent requests;
    `numbers`: it did send, as numbers missing after the span show.
    """
    unanswered: int
    """Requests without an answer in the span. Each copy of a unit counts; copies sent back to back
    count once.
    """
    before: tuple[SpaceSnapshot, ...]
    """Spaces of the direction at the start of the span."""

    def __init__(
        self, kind: str, direction: int, from_ns: int, from_frame: int | None, to_ns: int | None,
        to_frame: int | None, basis: str, unanswered: int,
        before: tuple[SpaceSnapshot, ...] = (),
    ) -> None:  # fmt: skip
        self.kind = kind
        self.direction = direction
        self.from_ns = from_ns
        self.from_frame = from_frame
        self.to_ns = to_ns
        self.to_frame = to_frame
        self.basis = basis
        self.unanswered = unanswered
        self.before = before


@dataclass(frozen=True, slots=True)
class EndHint:
    """A sign that a connection has, or may have, ended although no message says so."""

    kind: str
    """`renewed`: a side has forgotten the connection and restarts its numbers; `superseded`: the
    client begins another connection between the same endpoints; `answered`: the answer to a goodbye
    was captured, but not the goodbye; `notice`: the last message of a side is a goodbye unless the
    connection goes on after the capture; `notices`: the same, but it went on after an earlier one;
    `asked`: the capture ends too soon after a request to begin to have the answer; `unreachable`:
    an ICMP error says that a side cannot be reached.
    """
    direction: int
    """`Direction` of the frame."""
    frame: int
    time_ns: int
    reason: str | None = None
    """The protocol's word for it."""


@dataclass(frozen=True, slots=True)
class MalformedData:
    """Data of a side that its peer cannot read."""

    direction: int
    """`Direction` of the data."""
    code: str
    """Code of the finding."""
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
    """Where the capture was taken: `client`, `server`, `middle` or `unknown`."""
    vantage_basis: str
    """The evidence for the vantage, one sentence."""
    handshake: str
    reject_reason: str | None
    state: str
    """`open`, `closed`, `timed_out`, `rejected`, `unknown`, or `silent`: at the end of the capture
    one side has stopped sending, but the timer of its peer has not expired yet.
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
    """The protocol's own counters by direction (`Ev.COUNTER`)."""
    anomalies: dict[str, int]
    """Severity label -> number of findings."""
    complete: bool
    """False if the capture begins in the middle, shows one side only, or state was evicted."""
    limits_hit: dict[str, int]
    """Name of a bound -> how often it was hit."""
    explain: tuple[str, ...]
    """Evidence for the recognition of the protocol."""
    timings: tuple[dict[str, RttSummary], dict[str, RttSummary]]
    """By direction of the sender: name -> times that it states (`Ev.TIMING`), milliseconds; may be
    negative.
    """
    clocks: tuple[RttSummary, RttSummary]
    """By direction: capture time minus the sender's own clock, that is, the delay to the capture
    plus the offset of that clock. Not a round trip; may be negative.
    """
    codes: dict[str, int]
    """Code of a finding -> how often it was made."""
    quiet: list[QuietSpan]
    """In the order in which they were concluded."""
    ended_ns: int | None
    """Time of the frame in `close`; None without one."""
    diagnosis: Diagnosis | None
    """None only until the pipeline has added it."""
    end_hint: EndHint | None
    """If the end itself was not captured: the most significant sign of it."""
    gone: EndHint | None
    """The first ICMP error after the last packet of a side, if there is one."""
    near: tuple[bool | None, bool | None]
    """(client, server): whether the capture was taken next to that side; None = unknown."""
    ceilings: tuple[Ceilings, Ceilings]
    """Rate limits, by what is missing in the capture and by what the receiver reports; each by
    direction.
    """
    misses_frames: bool
    """True if the capture is known to miss frames of the connection, so that a number missing from
    it proves nothing.
    """
    copy_gaps: tuple[CopyGaps, CopyGaps]
    """By direction: what gaps tell of the copies that the network made."""
    malformed: list[MalformedData | None]
    """By direction: its newest malformed data of severity `error`."""

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
        diagnosis: Diagnosis | None = None, end_hint: EndHint | None = None,
        gone: EndHint | None = None,
        near: tuple[bool | None, bool | None] = (None, None),
        ceilings: tuple[Ceilings, Ceilings] = ((None, None), (None, None)),
        misses_frames: bool = False,  # noqa: FBT001, FBT002 - as in the fields
        copy_gaps: tuple[CopyGaps, CopyGaps] = NO_GAPS,
        malformed: list[MalformedData | None] | None = None,
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
        self.end_hint = end_hint
        self.gone = gone
        self.near = near
        self.ceilings = ceilings
        self.misses_frames = misses_frames
        self.copy_gaps = copy_gaps
        self.malformed = [None, None] if malformed is None else malformed

    @property
    def placement(self) -> Placement:
        """Return what a second pass needs of the first one."""
        return Placement(self.near, self.misses_frames, self.copy_gaps)


@dataclass(slots=True)
class Anomaly:
    """One finding of the tracker or of a decoder, as `anomalies` prints it."""

    code: str
    severity: Severity
    group: str
    frame: int | None
    """Frame of the cause; None without one."""
    time_ns: int | None
    """Time of that frame."""
    connection: int | None
    direction: int | None
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    """How often the finding has been made on this connection so far. It is listed at 1, 10, 100
    and so on; a finding about a whole direction once for each direction.
    """
    concluded_ns: int | None = None
    """When the conclusion was drawn: with its frame, or later, for example when a timer expired."""


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
    """Number of the last frame. pcapng also has frames without a packet, such as Custom Blocks."""
    octets: int = 0
    """Bytes on the wire."""
    first_time_ns: int | None = None
    last_time_ns: int | None = None
    nanosecond: bool = False
    truncated_at: int | None = None
    """Offset in the decompressed file of the first byte that could not be read as a record; None
    for an undamaged file.
    """
    damage: str | None = None
    """What is wrong at that offset."""
    drops: int | None = None
    """Packets that the capturing kernel or program dropped, if the file states it."""
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Name of a bound of the lists above -> how many items were left out."""


pickle_by_fields((
    RttSummary, SpaceReport, ProbeReport, TimeoutVerdict, SpaceSnapshot, QuietSpan, EndHint,
    MalformedData, ConnectionReport, Anomaly, CaptureInfo,
))  # fmt: skip
