from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import samples
from netdissect.model.records import DatagramRecord, MessageRecord, Reliability
from netdissect.pipeline.delivery import MAX_WAITING, delivered


def record(
    seq: int, *, kind: str = "original", direction: int = 0, space: str = "vital"
) -> DatagramRecord:
    facts = Reliability(space, seq, seq, True, kind)
    return samples.datagram(direction=direction, messages=[MessageRecord(0, "M", 0, 1, {}, facts)])


def numbers(records: list[DatagramRecord], direction: int = 0) -> list[int]:
    return [
        item.reliability.seq
        for found, item in delivered(records)
        if item.reliability is not None and found.direction == direction
    ]


def test_a_message_that_overtook_waits() -> None:
    assert numbers([record(1), record(3), record(4), record(2), record(5)]) == [1, 2, 3, 4, 5]


def test_copies_and_unreliable_messages_are_left_out() -> None:
    plain = samples.datagram(messages=[MessageRecord(0, "M", 0, 1, {})])
    assert numbers([record(1), record(1, kind="retransmission"), plain, record(2)]) == [1, 2]


def test_directions_and_spaces_have_queues_of_their_own() -> None:
    records = [record(1), record(7, direction=1), record(2), record(8, direction=1)]
    assert numbers(records) == [1, 2]
    assert numbers(records, 1) == [7, 8]


def test_a_number_that_never_comes_is_passed_over() -> None:
    records = [record(1), *(record(seq) for seq in range(3, MAX_WAITING + 10))]
    assert numbers(records) == [1, *range(3, MAX_WAITING + 10)]


@given(st.permutations(list(range(40))))
def test_any_order_comes_out_in_order(order: list[int]) -> None:
    first = order[0]
    assert numbers([record(seq) for seq in order]) == sorted(seq for seq in order if seq >= first)
