"""One record per datagram with everything known about it: the input of `read`, `show` and filters.

The tracker learns the outcome of a unit only later. Records of a file therefore wait until their
units are settled; those of a live source leave at once, with what is known then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from netdissect.dissect.engine import Request, dissect
from netdissect.flow.codes import FLOW_CODES, SNAPPED
from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Dissection
from netdissect.model.native import mypyc_attr
from netdissect.model.packets import Packet, flow_texts
from netdissect.model.records import (
    ConnectionFacts,
    DatagramRecord,
    Finding,
)
from netdissect.model.units import MESSAGES
from netdissect.pipeline.holding import DatagramQueue, may_have
from netdissect.pipeline.messages import messages_of
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.passwords import mask_lines
from netdissect.protocols.base import Fault, Inspector, Protocol, in_full
from netdissect.track.connection import Connection
from netdissect.track.recorder import Recorder
from netdissect.wire.inflate import Bounds

MAX_INSPECTORS = 256
"""Connections that have an inspector, which completes trees from earlier datagrams."""
MAX_FINDINGS = 1000
"""Findings kept per datagram."""
MAX_PASSED = 16_384
"""Datagrams of all connections that are not decoded but kept, because decoding later ones may
depend on them.
"""

_REPEATS: Final = (
    ("duplicate", "duplicate"), ("retransmission", "retransmission"), ("unknown-copy", "unknown")
)  # fmt: skip
"""(finding on a copy, kind of the copy). Both may change when more is known about the vantage."""
_FAULTS = frozenset({SNAPPED, *(row.code for row in FLOW_CODES)})
"""Findings on the packet below the protocol."""


class _Unwanted(NamedTuple):
    """A datagram without a record, kept because decoding later ones may depend on it."""

    frame: int
    dialect: str
    item: Datagram


class _Decoding:
    """Decodes a datagram when its tree or its messages are first requested."""

    __slots__ = ("_follows", "_item", "_maker")

    def __init__(self, maker: Records, item: Datagram, follows: bool) -> None:  # noqa: FBT001 - private
        self._maker = maker
        self._item = item
        self._follows = follows

    def __call__(self, record: DatagramRecord) -> None:
        """Fill in the record."""
        self._maker.decode(self._item, record, follows=self._follows)


@mypyc_attr(allow_interpreted_subclasses=True)
class Records:
    """Creates the records of the datagrams that the pipeline shows: an `Observer`."""

    def __init__(
        self,
        *,
        schemas: Mapping[str, Any] | None = None,
        strict: bool = False,
        live: bool = False,
        bounds: Bounds | None = None,
        lazy: bool = False,
        lines: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        """Create one.

        Args:
            schemas: user schemas by protocol.
            strict: re-raise exceptions in decoders.
            live: records leave at once instead of waiting for the outcome of their units.
            bounds: how far compressed bodies are inflated.
            lazy: decode a record only when its tree or its messages are requested.
            lines: False if nobody reads the summary lines of messages, which then are empty.
            recorder: records units; None = one that records each of them.

        """
        self.recorder = recorder or Recorder()
        self.lazy = lazy and not strict
        self.schemas = dict(schemas or {})
        self.strict = strict
        self.held = DatagramQueue(live=live)
        self.bounds = bounds or Bounds()
        self.lines = lines
        self._findings: list[tuple[int | None, Finding]] = []
        self.needs: frozenset[str | None] | None = None
        """Only datagrams with a copy of one of these kinds are needed (None in it = of any kind);
        None = all datagrams are. Used only if `lazy`.
        """
        self.most: int | None = None
        """Records of one frame at most; None = any number. A segment of a stream that fills a gap
        may complete hundreds of thousands of messages.
        """
        self._newest: Datagram | None = None
        """The newest datagram of the queue; this and the next two are for `most` alone."""
        self._in_frame = 0
        """How many datagrams its frame has completed."""
        self._parts: set[int] = set()
        """The frames of these that `_newest` lists."""
        self.skip = (0, 0)
        """Records that were shown early: (frame, n) = all of earlier frames, and n of this one."""
        self._reliable: dict[tuple[str, str], frozenset[str]] = {}
        """(protocol, dialect) -> spaces with retransmission."""
        self._lately: dict[tuple[str, str, str, str, str], ConnectionFacts] = {}
        """Recent facts about connections, to share equal ones."""
        self._inspectors: dict[int, Inspector | None] = {}
        """Connection -> its inspector, oldest first."""
        self._judges: dict[Protocol, Inspector | None] = {}
        """Protocol -> an inspector that only says which datagrams matter to inspectors."""
        self._passed: dict[int, tuple[Connection, deque[DatagramRecord | _Unwanted]]] = {}
        """Connection -> datagrams that were not decoded yet but that its inspector needs."""
        self._passed_count = 0
        self._passed_due = MAX_INSPECTORS
        """How many connections of `_passed` there may be before it is looked through."""

    # -- called by the pipeline --------------------------------------------------------------------

    def reads_events(self, protocol: Protocol) -> bool:
        """Return whether the protocol has an inspector that judges all datagrams by events."""
        judge = self._judge(protocol)
        return judge is not None and not judge.asks_scanner

    def _judge(self, protocol: Protocol) -> Inspector | None:
        """Return the inspector that judges the datagrams of a protocol; None without one."""
        if protocol not in self._judges:
            self._judges[protocol] = protocol.inspector()
        return self._judges[protocol]

    def seen(self, item: Datagram) -> None:
        """Add a datagram of a known protocol to the queue."""
        if self._findings:
            mine = (finding for where, finding in self._findings if where == item.frame)
            item.findings = tuple(mine)
            self._findings.clear()
        item.follows = self._follows(item)
        if self.most is not None and self._is_beyond(item):
            return
        needs = self.held.needs
        if needs is not None and not _may_matter(item, needs):
            if not item.touched:
                return
            item.set_aside()
        self.held.add(item)
        if not self.held.live:
            item.release_events()

    def _is_beyond(self, item: Datagram) -> bool:
        """Return whether a frame has `most` records before this one. The last of them then names
        the frames that have part in this one, too.
        """
        newest = self._newest
        if newest is None or newest.frame != item.frame:
            self._in_frame = 0
            self._parts.clear()
        self._in_frame += 1
        if newest is None or self.most is None or self._in_frame <= self.most or item.follows:
            self._newest = item
            self._parts.update(item.frames)
            return False
        more = tuple(frame for frame in item.frames if frame not in self._parts)
        self._parts.update(more)
        newest.frames += more
        return True

    def _follows(self, item: Datagram) -> bool:
        """Return whether the inspector of a datagram's connection has to see it."""
        judge = None if item.protocol is None else self._judge(item.protocol)
        if judge is None:
            return False
        return judge.wants(item.events) if item.is_listed else item.follows

    def other(self, packet: Packet) -> None:
        """Add a datagram of an unknown protocol to the queue."""
        item = Datagram(packet[1], packet[2], packet[4])
        item.packet = packet
        self.held.add(item)

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Remember a finding for the datagram that `seen` gets next."""
        if len(self._findings) >= MAX_FINDINGS and self._findings[0][0] != frame:
            # The datagrams of the others were not shown.
            self._findings = [each for each in self._findings if each[0] == frame]
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append((frame, Finding(code, severity)))

    def next(self, item: Datagram) -> DatagramRecord | None:
        """Return the record of a datagram that leaves the queue; None if it is not needed."""
        if self._is_wanted(item) and not self._left_early(item.frame):
            return self.record_of(item)
        if item.connection is not None and item.follows:
            dialect = item.connection.hints.dialects[item.direction]
            item.touched = ()  # its messages are never asked for
            self._pass(item.connection, _Unwanted(item.frame, dialect, item))
        return None

    def _is_wanted(self, item: Datagram) -> bool:
        needs = self.needs
        return needs is None or not self.lazy or may_have(item, needs)

    def _left_early(self, frame: int) -> bool:
        """Return whether the next record of a frame was shown early."""
        last, left = self.skip
        if frame == last and left:
            self.skip = (last, left - 1)
            return True
        return frame < last

    # -- called by users of the records ------------------------------------------------------------

    def ready(self, now_ns: int, oldest_frame: int | None = None) -> Iterator[DatagramRecord]:
        """Yield the records that may leave, in the order of frames; see `DatagramQueue.take`."""
        while (item := self.held.take(now_ns, oldest_frame)) is not None:
            record = self.next(item)
            if record is not None:
                yield record

    def rest(self) -> Iterator[DatagramRecord]:
        """Yield the remaining records, at the end of the capture."""
        while self.held:
            item = self.held.pop()
            record = None if item.is_aside else self.next(item)
            if record is not None:
                yield record

    # -- building ----------------------------------------------------------------------------------

    def record_of(self, item: Datagram) -> DatagramRecord:
        """Return the record of a datagram with what is known about it now."""
        connection, protocol = item.connection, item.protocol
        if connection is None or protocol is None:
            return _unknown(item)
        if item.findings:
            item.findings = _agreed(item)
        dialect = connection.hints.dialects[item.direction]
        record = DatagramRecord(
            frame=item.frame,
            time_ns=item.time_ns,
            connection=connection.number,
            direction=item.direction,
            transport=connection.transport,
            src=connection.endpoints[item.direction],
            dst=connection.endpoints[1 - item.direction],
            protocol=protocol.name,
            dialect=dialect,
            length=len(item.payload),
            frames=item.frames,
            stream=item.stream,
            payload=item.payload,
            findings=item.findings,
            faults=tuple(
                dict.fromkeys([found.code for found in item.findings if found.code in _FAULTS])
            )
            if item.findings
            else (),
            kinds=_kinds(item),
            facts=self._facts_of(connection),
        )
        record.decode = _Decoding(self, item, item.follows)
        if not self.lazy:
            _ = record.messages
        elif item.follows:
            self._pass(connection, record)
        return record

    def _pass(self, connection: Connection, record: DatagramRecord | _Unwanted) -> None:
        """Keep a datagram until a later one is decoded. Sometimes drop those after which none can
        come: each keeps its whole connection. If too many others are kept, show the oldest to their
        inspectors.
        """
        passed = self._passed
        passed.setdefault(connection.number, (connection, deque()))[1].append(record)
        self._passed_count += 1
        if self._passed_count <= MAX_PASSED and len(passed) <= self._passed_due:
            return
        held = self.held.connections()
        for number, (owner, _) in list(passed.items()):
            if owner.released and owner not in held:
                self._passed_count -= len(passed.pop(number)[1])
        self._passed_due = max(MAX_INSPECTORS, 2 * len(passed))
        if self._passed_count <= MAX_PASSED:
            return
        # Free an eighth at once, or each further datagram would get here.
        while self._passed_count > MAX_PASSED * 7 // 8:
            number, (_, records) = next(iter(passed.items()))
            last = records[-1]
            if isinstance(last, _Unwanted):
                self._catch_up(number, last)
            else:
                _ = last.messages

    def _catch_up(self, number: int, record: DatagramRecord | _Unwanted) -> None:
        """Show the inspector of a connection the datagrams before a record, and the record itself
        if it is `_Unwanted`.
        """
        _, passed = self._passed.get(number, (None, None))
        while passed and passed[0].frame <= record.frame:
            earlier = passed.popleft()
            self._passed_count -= 1
            if isinstance(earlier, _Unwanted):
                self._follow(earlier)
            elif earlier is record:
                break
            else:
                _ = earlier.messages
        if passed is not None and not passed:
            self._passed.pop(number, None)

    def _follow(self, passed: _Unwanted) -> None:
        """Show a datagram without a record to its inspector, decoding it if necessary."""
        item = passed.item
        if item.connection is None or item.protocol is None:
            return
        inspector = self._inspector(item.connection, item.protocol)
        way = item.direction
        if inspector is None or inspector.follow(item.payload, passed.dialect, way, item.events):
            return
        self._tree(item, item.connection, item.protocol, passed.dialect)

    def _facts_of(self, connection: Connection) -> ConnectionFacts:
        """Return the present facts about a connection, shared with earlier records if equal."""
        machine = connection.machine
        client, server = connection.endpoints
        known = (machine.word, machine.handshake, client, server, connection.vantage.word)
        facts = self._lately.get(known)
        if facts is None:
            # Cleared as a whole: it only saves memory, and refills at once.
            if len(self._lately) >= MAX_INSPECTORS:
                self._lately.clear()
            facts = self._lately[known] = ConnectionFacts(*known)
        return facts

    def decode(self, item: Datagram, record: DatagramRecord, *, follows: bool) -> None:
        """Set the tree and the messages of a record; `follows`: its inspector has to see the
        datagrams before it first.
        """
        connection, protocol = item.connection, item.protocol
        if connection is None or protocol is None:
            return
        if follows:
            self._catch_up(record.connection or 0, record)
        dialect = record.dialect or ""
        record.dissection = tree = self._tree(item, connection, protocol, dialect)
        record.messages = messages_of(item, tree, self._reliable_spaces(protocol, dialect))

    def _tree(
        self, item: Datagram, connection: Connection, protocol: Protocol, dialect: str
    ) -> Dissection:
        """Return the tree of a datagram, completed by its inspector."""
        name = protocol.name
        request = Request(
            dialect,
            item.direction,
            connection.transport,
            unframed=connection.transport == "tcp",
            schema=self.schemas.get(name) if self.schemas else None,
            hints=None if item.hints is None else item.hints.extra,
            bounds=self.bounds,
            lines=self.lines,
        )
        tree = dissect(
            name, item.payload, request, module=protocol.layer_module, strict=self.strict
        )
        if item.faults:
            _annotate(tree, item.faults, protocol)
        inspector = self._inspector(connection, protocol)
        if inspector is not None:
            inspector.inspect(tree)
        mask_lines(tree, protocol.secrets)
        return tree

    def _inspector(self, connection: Connection, protocol: Protocol) -> Inspector | None:
        """Return the inspector of a connection. If there are too many, the oldest is dropped."""
        known = self._inspectors
        if connection.number not in known:
            known[connection.number] = protocol.inspector()
            if len(known) > MAX_INSPECTORS:
                del known[next(iter(known))]
        return known[connection.number]

    def _reliable_spaces(self, protocol: Protocol, dialect: str) -> frozenset[str]:
        key = (protocol.name, dialect)
        spaces = self._reliable.get(key)
        if spaces is None:
            policy = protocol.policy(dialect)
            found = {rule.name for rule in policy.spaces if rule.resend is not None}
            # TCP retransmits what is lost of a stream.
            spaces = frozenset(found | ({MESSAGES} if policy.stream else set()))
            self._reliable[key] = spaces
        return spaces


def _may_matter(item: Datagram, needs: frozenset[str | None]) -> bool:
    """Return whether a datagram may be needed for its copies, or for decoding later ones. An
    original stays an original; the kind of other copies may change.
    """
    for _, copy in item.touched:
        if copy.kind != "original":
            return True
    return may_have(item, needs) or item.follows


def _kinds(item: Datagram) -> tuple[str | None, ...]:
    """Return the kinds of the copies in a datagram. What TCP has retransmitted of a message has no
    record, so that the message counts as one.
    """
    found = [copy.kind for _, copy in item.touched]
    if item.stream is not None:
        for record, _ in item.touched:
            if "retransmitted_in" in record.extra:
                found.append("retransmission")
    return tuple(found)


def _agreed(item: Datagram) -> tuple[Finding, ...]:
    """Return the findings of a datagram, after changing those about its copies so that they agree
    with the present kinds of these copies.
    """
    findings = list(item.findings)
    codes = [finding.code for finding in findings]
    for before, kind in _REPEATS:
        turned = codes.count(before)
        if not turned:
            continue
        kinds = [copy.kind for _, copy in item.touched]
        turned -= kinds.count(kind)
        for now, other in _REPEATS:
            count = min(turned, kinds.count(other) - codes.count(now))
            turned -= max(0, count)
            for _ in range(count):
                at = codes.index(before)
                codes[at] = now
                findings[at] = findings[at]._replace(code=now)
    return tuple(findings)


def _annotate(tree: Dissection, faults: tuple[Fault, ...], protocol: Protocol) -> None:
    """Add the faults that the framer of a stream has found, which the bytes alone do not show."""
    known = {note.code for note in tree.annotations}
    rows = {row.code: row for row in protocol.codes}
    for fault in faults:
        code, text = in_full(fault)
        row = rows.get(code)
        if row is None or code in known:
            continue
        size = 8 * len(tree.buffers[0].data)
        note = Annotation(code, row.severity, row.group, text or row.title, 0, size)
        tree.annotations.append(note)


def _unknown(item: Datagram) -> DatagramRecord:
    packet = item.packet
    faults = () if packet is None else packet[6]
    source, destination = ("", "") if packet is None else flow_texts(packet[3])
    return DatagramRecord(
        frame=item.frame,
        time_ns=item.time_ns,
        connection=None,
        direction=None,
        transport="udp" if packet is None or packet[5] is None else "tcp",
        src=source,
        dst=destination,
        protocol=None,
        dialect=None,
        length=len(item.payload),
        payload=item.payload,
        faults=faults,
    )
