"""The messages of one datagram, each with what the tracker knows about its unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.dissection import Dissection, MessageView
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.records import MessageRecord, Reliability, assign_annotations
from netdissect.model.units import Copy, UnitRecord
from netdissect.pipeline.observer import Datagram

_TYPED: Final = frozenset({Ev.MESSAGE, Ev.UNIT, Ev.PLAIN_UNIT})


def messages_of(item: Datagram, tree: Dissection, reliable: frozenset[str]) -> list[MessageRecord]:
    """Return the messages of a datagram, each with its unit and its findings.

    Args:
        item: the datagram.
        tree: its field tree.
        reliable: names of the spaces whose sender retransmits what is not acknowledged.

    """
    views = tree.messages or [whole_message(tree, item.payload, item.events)]
    return records_of(tree, views, _facts(item, reliable, len(views)))


def records_of(
    tree: Dissection, views: list[MessageView], facts: list[Reliability | None]
) -> list[MessageRecord]:
    """Return the messages of a datagram, each with its findings.

    Args:
        tree: the field tree.
        views: the messages in it.
        facts: for each message, what is known about its unit.

    """
    found: list[MessageRecord] = []
    for index, view in enumerate(views):
        message = MessageRecord(
            index, view.type, view.offset, view.length, {}, facts[index], None, view.buffer,
            view.summary,
        )  # fmt: skip
        message.take_fields(view)
        found.append(message)
    if tree.annotations:
        assign_annotations(tree.annotations, found)
    return found


def _facts(item: Datagram, reliable: frozenset[str], count: int) -> list[Reliability | None]:
    """Return for each message what the tracker knows about its unit.

    The typed events of `scan` are in the order of the messages. A unit without a type carries the
    messages; it applies to those that have no number of their own.
    """
    if not item.touched:
        return [None] * count
    left = list(item.touched)
    outer: Reliability | None = None
    facts: list[Reliability | None] = []
    for event in item.events:
        kind: i64 = event[0]
        if kind == Ev.MESSAGE:
            facts.append(None)
            continue
        if kind != Ev.UNIT and kind != Ev.PLAIN_UNIT:  # noqa: PLR1714 - compiled, two comparisons
            continue
        unit = _taken(left, event)
        known: Reliability | None = None
        if unit is not None:
            record, copy = unit
            known = reliability(record, copy, reliable=record.space.partition("[")[0] in reliable)
        if event[1] is None:
            outer = known
        else:
            facts.append(known)
    # A damaged datagram may have fewer messages in its tree than the scan has found, or more.
    if len(facts) != count:
        facts = facts[:count] + [None] * (count - len(facts))
    return facts if outer is None else [outer if known is None else known for known in facts]


def _taken(left: list[tuple[UnitRecord, Copy]], event: Event) -> tuple[UnitRecord, Copy] | None:
    """Remove from `left` and return the unit of an event; None if it was not recorded."""
    space, wire_seq = event[2], event[3]
    for index, (record, _) in enumerate(left):
        if record.space == space and record.wire_seq == wire_seq:
            return left.pop(index)
    return None


def reliability(record: UnitRecord, copy: Copy, *, reliable: bool) -> Reliability:
    """Return what is known about one copy of a unit.

    Args:
        record: the unit.
        copy: one of its copies.
        reliable: whether the sender retransmits the unit until it is acknowledged.

    """
    first = record.extra.get("continued", record.copies[0].frame)
    repeated = copy.kind != "original"
    before = None
    if repeated:
        for other in record.copies:
            if other.frame < copy.frame:
                before = other.time_ns
    attempts, latency_ms, added_ms = _waits(record, copy)
    resent_in = record.extra.get("retransmitted_in")
    if resent_in is not None and record.rtt_ms is None:
        attempts = added_ms = None  # known of segments only
    return Reliability(
        record.space,
        record.wire_seq,
        record.seq,
        reliable,
        copy.kind,
        first if repeated else None,
        record.acked_frame,
        record.rtt_ms,
        None if before is None else (copy.time_ns - before) / 1e6,
        attempts,
        latency_ms,
        added_ms,
        resent_in,
    )


def _waits(record: UnitRecord, copy: Copy) -> tuple[int | None, float | None, float | None]:
    """Return `attempts`, `latency_ms` and `added_ms` of `Reliability`."""
    if "continued" in record.extra:
        return None, None, None  # the first copies are in another record
    acked_ns = record.acked_time_ns
    if len(record.copies) == 1 and record.copies[0] is copy and copy.kind != "duplicate":
        if acked_ns is None:
            return 1, None, None
        return 1, (acked_ns - copy.time_ns) / 1e6, 0.0
    until_ns = copy.time_ns if acked_ns is None else acked_ns
    sent = attempts = 0
    first_ns = last_ns = 0  # transmissions: the first, and the last before the acknowledgement
    for each in record.copies:
        if each.kind == "duplicate":
            continue
        time_ns = each.time_ns
        if not sent:
            first_ns = last_ns = time_ns
        sent += 1
        if time_ns <= until_ns:
            last_ns = time_ns
            attempts += 1
        elif time_ns <= copy.time_ns:
            attempts += 1
    if acked_ns is None or not sent:
        return sent, None, None
    return attempts, (acked_ns - first_ns) / 1e6, (last_ns - first_ns) / 1e6


def whole_message(tree: Dissection, payload: bytes, events: Sequence[Event] = ()) -> MessageView:
    """Return a message for the whole of a datagram that has no messages."""
    named = next((event[1] for event in events if event[0] in _TYPED and event[1]), None)
    kinds = (tree.fields.get("type"), tree.fields.get("kind"))
    name = named or next((kind for kind in kinds if isinstance(kind, str)), "datagram")
    view = MessageView(name, 0, len(payload), tree.fields, tree.root)
    view.summary = tree.root.line(name)
    return view
