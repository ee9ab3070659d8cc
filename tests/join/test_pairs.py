"""Every pair of captures we ship, datagram by datagram, against what the relay between them did.

`pairs.json` was derived from both captures and checked against the logs of the relays. Frames are
those of the captures; `a-b` is a range, `s:r*n` says that n datagrams in a row were delivered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdissect.join import Joined, join
from netdissect.model.joined import Fate
from twocaptures import CAPTURES

PAIRS = json.loads((Path(__file__).parents[1] / "truth" / "pairs.json").read_text())
DATAGRAMS = [pair for pair in PAIRS if pair["kind"] != "proxied"]
STREAMS = [pair for pair in PAIRS if pair["kind"] == "proxied"]


def name(pair: dict[str, Any]) -> str:
    return pair["captures"][0].removesuffix(".pcap")


def joined(pair: dict[str, Any]) -> Joined:
    return join(*(str(CAPTURES / pair["protocol"] / capture) for capture in pair["captures"]))


@pytest.fixture(scope="module", params=DATAGRAMS, ids=name)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], Joined]]:
    with joined(request.param) as found:
        yield request.param, found


def frames(text: str) -> set[int]:
    found: set[int] = set()
    for word in text.split():
        first, _, last = word.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def delivered(text: str) -> dict[int, int]:
    found = {}
    for word in text.split():
        sent, _, rest = word.partition(":")
        arrived, _, count = rest.partition("*")
        for step in range(int(count or 1)):
            found[int(sent) + step] = int(arrived) + step
    return found


def copies(text: str) -> dict[int, int]:
    found = {}
    for word in text.split():
        sent, _, arrived = word.partition(":")
        found |= {int(frame): int(sent) for frame in arrived.split(",")[1:]}
    return found


def test_every_datagram_has_its_fate(both: tuple[dict[str, Any], Joined]) -> None:
    """What is beyond doubt, for the oracle and for us, is exact; neither doubts many more than the
    other."""
    pair, found = both
    assert abs(found.clock.pieces[0].offset_ns) <= (found.clock.pieces[0].bound_ns or 0)
    fates = [dict(found.fates(capture)) for capture in (0, 1)]
    for sender, way in enumerate(("c2s", "s2c")):
        check_way(pair["directions"][way], fates[sender], fates[1 - sender])


def check_way(truth: dict[str, Any], ours: dict[int, Any], theirs: dict[int, Any]) -> None:
    doubt = frames(truth["ambiguous_sent"]) | {
        frame for frame, row in ours.items() if row.ambiguous
    }
    doubt_there = frames(truth["ambiguous_arrived"])
    doubt_there |= {frame for frame, row in theirs.items() if row.ambiguous}
    lost, edge = frames(truth["lost"]), frames(truth["edge"])
    pairs = delivered(truth["delivered"])
    told = {frame: row for frame, row in ours.items() if frame in lost or frame in pairs}
    assert len(told) == truth["sent"]
    for frame, row in told.items():
        if frame in doubt:
            continue
        assert row.partner == pairs.get(frame), frame
        wanted = Fate.OUTSIDE if frame in edge else Fate.LOST if frame in lost else Fate.DELIVERED
        assert row.fate is wanted, frame
    copied, appeared = copies(truth["copied"]), frames(truth["appeared"])
    for frame, row in theirs.items():
        if frame in doubt_there or row.fate.sent:
            continue
        if frame in copied:
            assert (row.fate, row.partner) == (Fate.COPY, copied[frame]), frame
        elif frame in appeared:
            assert row.fate in {Fate.APPEARED, Fate.OUTSIDE}, frame
        else:
            assert row.fate in {Fate.ARRIVED, Fate.LOST, Fate.OUTSIDE}, frame
    extra = {frame for frame in told if ours[frame].ambiguous} ^ frames(truth["ambiguous_sent"])
    assert len(extra) <= 0.06 * truth["sent"] + 2


def test_figures_add_up_to_those_of_the_relay(both: tuple[dict[str, Any], Joined]) -> None:
    pair, found = both
    report = found.report
    assert {one.client for one in report.conversations} == {0}
    assert {one.kind for one in report.conversations} == {pair["kind"]}
    assert report.apart == (0, 0)
    for index, way in enumerate(("c2s", "s2c")):
        truth = pair["directions"][way]
        ways = [one.ways[index] for one in report.conversations]
        total: Counter[str] = Counter()
        for one in ways:
            fields = ("sent", "delivered", "lost", "outside", "unseen", "doubtful")
            counts = {field: getattr(one, field) for field in fields}
            assert counts["sent"] == sum(counts.values()) - counts["sent"]
            total += Counter(counts) + Counter(arrived=one.arrived, copies=one.copies)
        assert (total["sent"], total["arrived"]) == (truth["sent"], truth["arrived"])
        assert total["unseen"] == total["doubtful"] == 0
        # Equal datagrams may be matched so that one more is lost and one more copied.
        assert total["outside"] == len(frames(truth["edge"]))
        missing = total["lost"] + total["outside"] - len(frames(truth["lost"]))
        assert abs(missing) <= 1
        assert total["copies"] - len(copies(truth["copied"])) == missing
        if truth["delay_p50"] and ways[0].delay.p50 and len(ways) == 1:
            bound = report.clock.bound_ms or 0
            assert abs(ways[0].delay.p50 - truth["delay_p50"]) <= bound


def test_delays_are_those_of_datagrams_that_are_known(both: tuple[dict[str, Any], Joined]) -> None:
    """What an ambiguous arrival took is a guess: it may seem quicker than any datagram was."""
    _, found = both
    for index in (0, 1):
        rows = [row for _, row in found.fates(1 - index) if row.fate is Fate.ARRIVED]
        known = [row.delay_ms for row in rows if not row.ambiguous] or [row.delay_ms for row in rows]
        told = [one.ways[index].delay for one in found.report.conversations]
        if known and len(told) == 1:
            assert (told[0].minimum, told[0].maximum) == pytest.approx((min(known), max(known)))


@pytest.mark.parametrize("pair", STREAMS, ids=name)
def test_a_proxied_stream_is_compared_as_a_stream(pair: dict[str, Any]) -> None:
    with joined(pair) as found:
        (one,) = found.report.conversations
        assert one.kind == "proxied"
        assert one.ways == []
        told = {
            way: [*stream.octets, stream.equal]
            for way, stream in zip(("c2s", "s2c"), one.streams, strict=True)
        }
        assert told == pair["streams"]
        assert not list(found.fates(0))
