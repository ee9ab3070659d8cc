from __future__ import annotations

import copy
import gc
import io
import pickle
import tempfile
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdissect.diagnosis import diagnose, words
from netdissect.export import json
from netdissect.model.diagnosis import Cause
from netdissect.model.reports import ConnectionReport, QuietSpan
from netdissect.pipeline import reports as room
from netdissect.pipeline.reports import Lines, Reports
from samples import connection


def report(frame: int, number: int = 1, **changes: Any) -> ConnectionReport:
    return connection(connection=number, first_frame=frame, **changes)


@pytest.fixture(params=["plain", "in memory", "in a file"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the three states that reports may be in, with three reports already."""
    if request.param != "plain":
        monkeypatch.setattr(room, "MAX_PLAIN", 2)
    if request.param == "in a file":
        monkeypatch.setattr(room, "MAX_IN_MEMORY", 1)
    return request.param


FRAMES = (30, 10, 20, 10)


def made() -> tuple[Reports, list[ConnectionReport]]:
    """Return reports, and the list that they stand for."""
    each = [report(frame, number) for number, frame in enumerate(FRAMES, 1)]
    return Reports(each), sorted(copy.deepcopy(each), key=lambda one: one.first_frame)


def test_they_are_a_list_in_order_of_first_frame(where: str) -> None:
    found, listed = made()
    assert list(found) == listed
    assert [one.connection for one in found] == [2, 4, 3, 1]
    assert len(found) == 4
    assert found
    assert found == listed
    assert found != listed[1:]
    assert found != [*listed[1:], listed[0]]
    assert found[0] == listed[0]
    assert found[-1] == listed[-1]
    assert listed[2] in found
    assert found.index(listed[2]) == 2
    assert list(reversed(found)) == listed[::-1]
    with pytest.raises(IndexError):
        found[4]
    with pytest.raises(TypeError):
        hash(found)


@pytest.mark.parametrize(
    "part", [slice(2), slice(None), slice(1, None, 2), slice(None, None, -1), slice(5, 9)]
)
def test_slices_are_those_of_the_list(where: str, part: slice) -> None:
    found, listed = made()
    assert found[part] == listed[part]
    assert len(found[part]) == len(listed[part])


def test_no_reports_are_an_empty_list() -> None:
    assert not Reports()
    assert Reports() == []
    assert list(Reports()) == []


def test_another_order_keeps_those_of_the_same_key_as_they_stand(where: str) -> None:
    found, listed = made()
    assert found.ordered(lambda one: -one.first_frame) == sorted(
        listed, key=lambda one: -one.first_frame
    )
    backwards = found[::-1]
    assert [one.connection for one in backwards.ordered(lambda one: one.first_frame)] == [
        4,
        2,
        3,
        1,
    ]


def test_some_are_chosen_by_number(where: str) -> None:
    found, _ = made()
    assert [one.connection for one in found.of({1, 4, None})] == [4, 1]
    assert [one.connection for one in found[:3].of({1, 4})] == [4]
    assert not found.of(set())


def test_one_is_found_by_its_number(where: str) -> None:
    found, _ = made()
    for number, frame in enumerate(FRAMES, 1):
        assert found.by_number(number) == report(frame, number)
    assert found.by_number(5) is None
    found.append(report(15, 5))
    assert found.by_number(5) == report(15, 5)
    found.store.renumber([5, 4, 3, 2, 1])
    assert found.by_number(1) == report(15, 1)
    assert Reports().by_number(1) is None


def test_a_choice_does_not_grow_with_the_whole(where: str) -> None:
    found, listed = made()
    chosen = found[1:]
    found.append(report(15, 5))
    assert chosen == listed[1:]
    assert [one.connection for one in found] == [2, 4, 5, 3, 1]


def test_values_of_every_kind_survive() -> None:
    odd = report(
        1,
        identity={"token": b"\x00\xff", "name": "\ud800", "wide": 1 << 90, "list": [(1, None), {}]},
        close=None,
        limits_hit={"MAX_UNITS": 3},
        explain=("score 90", "…"),
    )
    kept = copy.deepcopy(odd)
    found = Reports([odd])
    stream = io.BytesIO()
    found.store.send(stream)
    assert list(found) == [kept]
    assert pickle.loads(pickle.dumps(found)) == [kept]  # noqa: S301 - our own
    assert copy.deepcopy(found) == [kept]


def test_numbers_are_given_anew(where: str) -> None:
    found, _ = made()
    found.store.renumber([10, 20, 30, 40])
    assert [one.connection for one in found] == [20, 40, 30, 10]
    assert [one.connection for one in found.of({20})] == [20]


@given(
    shares=st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=1, max_size=4),
    plain=st.integers(0, 13),
    in_memory=st.sampled_from([0, 5000, 10**6]),
)
def test_what_is_sent_is_sorted_in(shares: list[list[int]], plain: int, in_memory: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_PLAIN", plain)
        patch.setattr(room, "MAX_IN_MEMORY", in_memory)
        whole, expected = Reports(), []
        for index, frames in enumerate(shares):
            numbers = [100 * index + number for number in range(1, len(frames) + 1)]
            part = Reports(report(frame, number) for number, frame in enumerate(frames, 1))
            stream = io.BytesIO()
            part.store.send(stream)
            assert list(part) == sorted(part, key=lambda one: one.first_frame)
            stream.write(b"what comes next")
            stream.seek(0)
            whole.store.receive(stream, numbers)
            assert stream.read() == b"what comes next"
            expected += [
                report(frame, number) for frame, number in zip(frames, numbers, strict=True)
            ]
        assert whole == sorted(expected, key=lambda one: one.first_frame)
        whole.close()


LINES = Lines(
        json.connection_line, json.line_parts, json.diagnosed_line, json.renumbered
    )


def written(reports: Reports) -> list[str]:
    return [json.connection_line(one) for one in reports]


def test_lines_are_those_of_the_reports(where: str) -> None:
    usual, kept = Reports(), Reports(lines=LINES)
    for number, frame in enumerate(FRAMES, 1):
        for found in (usual, kept):
            found.append(report(frame, number, identity={"player_name": ',"protocol":'}))
    for found in (usual, kept):
        found.store.renumber([7, 8, 9, 10])
    assert list(kept.lines(LINES)) == list(usual.lines(LINES)) == written(usual)
    assert list(kept[1:].lines(LINES)) == written(usual[1:])
    stream = io.BytesIO()
    kept.store.send(stream)
    stream.seek(0)
    whole = Reports(lines=LINES)
    whole.store.receive(stream, range(101, 111))
    usual.store.renumber(range(101, 111))
    assert list(whole.lines(LINES)) == written(usual)


def silent(frame: int, number: int) -> ConnectionReport:
    """Return a report of a client that fell silent, next to the capture."""
    made = report(frame, number)
    made.diagnosis = diagnose(made)
    made.diagnosis.cause = Cause("silence", 0, 0, None, frame + 5, None, "certain", "It stopped.")
    return made


def test_a_line_waits_for_what_others_leave_in_doubt() -> None:
    usual, kept = Reports(), Reports(lines=LINES)
    for found in (usual, kept):
        found.append(silent(1, 1))
        found.append(silent(30, 2))
    assert list(kept.lines(LINES)) == written(usual)
    assert ["#30" in line for line in kept.lines(LINES)] == [True, False]


def dark(frame: int, number: int, *, heard: bool) -> ConnectionReport:
    """Return a report of a client of which nothing came for 3 s, or one that was always heard."""
    made = report(frame, number)
    made.diagnosis = diagnose(made)
    if not heard:
        start_ns = made.first_time_ns + 1_000_000_000
        span = QuietSpan("silence", 1, start_ns, 5, start_ns + 3_000_000_000, 9, "asked", 3)
        text = words.span_text(span, "cannot tell", beside=False)
        made.quiet = [span]
        made.diagnosis.cause = Cause(
            "silence", 1, start_ns, span.to_ns, 5, 9, "cannot tell", text
        )
    return made


@settings(max_examples=25)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=9), st.integers(0, 9))
def test_what_others_show_is_the_same_of_shares(
    each: list[tuple[bool, int]], plain: int
) -> None:
    def some(*shares: int) -> list[ConnectionReport]:
        return [
            dark(10 * number, number, heard=heard)
            for number, (heard, share) in enumerate(each, 1)
            if share in shares
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_PLAIN", plain)
        whole, joined, alone = Reports(some(0, 1, 2)), Reports(lines=LINES), Reports(lines=LINES)
        for share in (0, 1, 2):
            part = Reports(some(share), lines=LINES)
            own = [number for number, (_, mine) in enumerate(each, 1) if mine == share]
            part.store.renumber(list(range(1, len(each) + 1)))
            for take in (joined.store.receive, alone.store.learn if share else alone.store.receive):
                stream = io.BytesIO()
                part.store.send(stream)
                stream.seek(0)
                take(stream, range(1, len(each) + 1))
            assert part.numbers() == own
        assert list(joined.lines(LINES)) == written(whole)
        assert list(alone.lines(LINES)) == written(whole.of(alone.numbers()))
        good = [number for number, (heard, _) in enumerate(each, 1) if heard]
        for one in whole:
            assert one.diagnosis is not None
            went_on = "The server kept sending to c" in one.diagnosis.cause.text
            assert went_on == bool(good and one.connection not in good)
            again = Reports(whole)
            assert again == whole


def test_what_others_show_replaces_what_others_showed_before() -> None:
    known = dark(10, 1, heard=False)
    for number in (2, 3):
        known = Reports([known, dark(10 * number, number, heard=True)])[0]
        assert known.diagnosis is not None
        assert f"kept sending to c{number}" in known.diagnosis.cause.text


def test_a_stream_that_ends_too_early_is_told() -> None:
    part = Reports([report(1), report(2)])
    stream = io.BytesIO()
    part.store.send(stream)
    octets = stream.getvalue()
    for size in (0, 1, len(octets) // 2, len(octets) - 1):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            Reports().store.receive(io.BytesIO(octets[:size]), [1, 2])


def test_the_file_is_freed_with_the_last_who_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    honest = tempfile.TemporaryFile

    def opened() -> Any:
        files.append(honest())
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", opened)
    monkeypatch.setattr(room, "MAX_PLAIN", 0)
    monkeypatch.setattr(room, "MAX_IN_MEMORY", 0)
    found = Reports([report(1), report(2)])
    part = found[1:]
    del found
    gc.collect()
    assert not files[0].closed
    assert part == [report(2)]
    del part
    gc.collect()
    assert files[0].closed
    with Reports([report(1)]) as found:
        assert not files[1].closed
    assert files[1].closed
    assert not found
    found.append(report(7))
    assert found == [report(7)]


class _Slow(io.BytesIO):
    """A file in which another thread comes between a position and its use."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        time.sleep(0.001)
        return place


def test_threads_read_the_reports_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BytesIO", _Slow)
    monkeypatch.setattr(room, "MAX_PLAIN", 0)
    found, listed = made()
    with ThreadPoolExecutor(4) as pool:
        places = [number % 4 for number in range(80)]
        assert list(pool.map(found.__getitem__, places)) == [listed[place] for place in places]


def test_without_a_place_for_a_file_memory_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Any:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    monkeypatch.setattr(room, "MAX_PLAIN", 0)
    monkeypatch.setattr(room, "MAX_IN_MEMORY", 0)
    found, listed = made()
    assert found == listed


def grown(count: int) -> int:
    """Return the bytes of memory that so many reports take."""
    tracemalloc.start()
    found = Reports(report(frame, frame) for frame in range(count))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert found[count - 1].connection == count - 1
    found.close()
    return size


def test_memory_does_not_grow_with_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_PLAIN", 20)
    monkeypatch.setattr(room, "MAX_IN_MEMORY", 20_000)
    assert grown(1200) - grown(300) < 900 * 64
