"""Snapshots of a connection: parts, bases, checksums, and what is said where something lacks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agreement import captures, mutations, payloads
from netdissect.capture import open_capture
from netdissect.dissect.engine import Request, dissect
from netdissect.flow import Decapsulator
from netdissect.model.claims import Hints
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline
from netdissect.protocols.teeworlds.inspector import SnapshotInspector
from netdissect.protocols.teeworlds.scanner import scan
from netdissect.protocols.teeworlds.snapshots import MAX_PARTIAL, SPARE, Part, Snapshots
from netdissect.wire.teeworlds_forms import DIALECTS
from netdissect.wire.teeworlds_snapshots import Delta
from netdissect.wire.varint import TEEWORLDS


def packed(*numbers: int) -> bytes:
    return b"".join(TEEWORLDS.write(number) for number in numbers)


PICKUP = packed(0, 1, 0, 4, 2, 100, -200, 1)
"""One new pickup (type 4) with id 2; the checksum of it alone is -99."""
MOVED = packed(0, 1, 0, 4, 2, 1, 0, 0)


def full(tick: int, parts: int = 1, part: int = 0) -> Part:
    """Return part of a snapshot without base, cut in pieces of equal size."""
    size = -(-len(PICKUP) // parts)
    return Part(tick, tick + 1, -99, PICKUP[part * size : (part + 1) * size], part, parts)


def test_a_delta_needs_its_base() -> None:
    snapshots = Snapshots("0.7")
    lone = snapshots.feed(Part(12, 2, -98, MOVED))
    assert (lone.code, lone.base, lone.items) == ("teeworlds-snap-base", 10, None)
    assert lone.delta == Delta(updated={(4, 2): (1, 0, 0)})
    assert snapshots.feed(full(10)).items == {(4, 2): (100, -200, 1)}
    found = snapshots.feed(Part(12, 2, -98, MOVED))
    assert (found.code, found.items) == (None, {(4, 2): (101, -200, 1)})
    assert snapshots.feed(Part(14, 2, -5, MOVED)).code == "teeworlds-snap-crc"
    assert snapshots.feed(Part(16, 4, None, b"")).items == found.items
    snapshots.reset()
    assert snapshots.feed(Part(18, 2, -98, MOVED)).code == "teeworlds-snap-base"


def test_snapshots_much_older_than_the_last_base_are_forgotten() -> None:
    """Their client has dropped them, too."""
    snapshots = Snapshots("0.7")
    for tick in range(100, 102 + 2 * SPARE):
        snapshots.feed(full(tick))
    last = 101 + 2 * SPARE
    assert snapshots.feed(Part(last + 1, 1, -98, MOVED)).code is None
    assert snapshots.feed(Part(last + 2, 2 + SPARE, -98, MOVED)).code is None
    assert snapshots.feed(Part(last + 3, 4 + SPARE, -98, MOVED)).code == "teeworlds-snap-base"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 0, 2, 2, 1)])
def test_parts_come_in_any_order_and_twice(order: tuple[int, ...]) -> None:
    snapshots = Snapshots("0.7")
    found = [snapshots.feed(full(10, 3, part)) for part in order]
    assert [one.items for one in found[:-1]] == [None] * (len(order) - 1)
    assert found[-1].items == {(4, 2): (100, -200, 1)}
    again = snapshots.feed(full(10, 3, 1))
    assert (again.items, again.code) == (found[-1].items, None)
    assert not snapshots.given_up(99)


def test_lost_parts_are_named_once() -> None:
    snapshots = Snapshots("0.7")
    assert snapshots.feed(full(10, 3, 1)).message == "parts 0 and 2 of 3 still missing"
    assert snapshots.given_up(10) == []
    assert snapshots.given_up(12) == ["snapshot 10: parts 0 and 2 of 3 did not come"]
    assert snapshots.given_up(14) == []
    assert snapshots.feed(full(10, 3, 0)).message == "part 2 of 3 still missing"
    assert snapshots.feed(full(10, 3, 2)).items is not None


def test_parts_held_are_bounded() -> None:
    snapshots = Snapshots("0.7")
    for tick in range(0, 2000, 2):
        snapshots.given_up(tick)
        snapshots.feed(full(tick, 3, 0))
    assert len(snapshots._partial) == len(snapshots._parts) == MAX_PARTIAL
    assert len(snapshots._reported) <= MAX_PARTIAL


def records(path: Any, keep: Any) -> list[Any]:
    """Return the records of a capture's frames that `keep` is true for."""
    found = Records(strict=True)
    pipeline = Pipeline(recorder=found.recorder, observer=found)
    with open_capture(path) as reader:
        pipeline.run(Decapsulator().packets(frame for frame in reader if keep(frame)))
    pipeline.finish()
    return list(found.rest())


def snapshots_of(path: Any, keep: Any) -> tuple[Counter[str], list[Any]]:
    """Return counts of what became of the snapshots with a checksum, and their messages."""
    counts: Counter[str] = Counter()
    messages = []
    for record in records(path, keep):
        for message in record.messages:
            if message.type not in ("sys.snap", "sys.snap_single"):
                continue
            codes = {note.code for note in message.annotations}
            messages.append(message)
            whole = "items" in message.fields and not codes & {"teeworlds-snap-crc"}
            counts["ok" if whole else next(iter(codes), "part")] += 1
    return counts, messages


@pytest.mark.parametrize("name", ["ddnet_clean", "tw07_vote"])
def test_from_the_middle_on_deltas_are_shown_as_deltas(name: str) -> None:
    (path,) = (path for path in captures("teeworlds") if path.stem == name)
    _counts, every = snapshots_of(path, lambda _: True)
    with open_capture(path) as reader:
        middle = sum(1 for _ in reader) // 2
    counts, late = snapshots_of(path, lambda frame: frame[0] > middle)
    assert counts["teeworlds-snap-base"] >= 10
    assert set(counts) <= {"teeworlds-snap-base", "part", "ok"}
    shown = [message for message in late if "changes" in message.fields]
    assert len(shown) == counts["teeworlds-snap-base"]
    ticks = {m.fields["tick"]: m.fields["base"] for m in every}
    for message in shown:
        assert message.fields["base"] == ticks[message.fields["tick"]]
        assert "items" not in message.fields
    assert any(message.fields["changes"] for message in shown)


def test_lost_parts_of_a_capture_are_named() -> None:
    (path,) = (path for path in captures("teeworlds") if path.stem == "ddnet_big_snap")
    lost = [
        note.message
        for record in records(path, lambda frame: frame[0] % 11)
        for message in record.messages
        for note in message.annotations
        if note.code == "teeworlds-snap-incomplete"
    ]
    assert len(lost) > 5
    assert all(" did not come" in text for text in lost)
    assert len(set(lost)) == len(lost)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_datagram_that_is_followed_gives_what_its_tree_gives(dialect: str) -> None:
    def state(inspector: SnapshotInspector) -> Any:
        known = inspector._snapshots
        return None if known is None else (known._complete, known._partial)

    seeds = payloads("teeworlds")[:: len(payloads("teeworlds")) // 300]
    hints = Hints((dialect, dialect))
    looked, followed = SnapshotInspector(), SnapshotInspector()
    certain = 0
    for payload in (*seeds, *mutations(seeds, 300)):
        looked.inspect(dissect("teeworlds", payload, Request(dialect, 1)))
        if followed.follow(payload, dialect, 1, scan(payload, 1, hints)):
            certain += 1
        else:
            followed.inspect(dissect("teeworlds", payload, Request(dialect, 1)))
        assert state(followed) == state(looked)
    assert certain > 10
    assert state(looked) is not None
