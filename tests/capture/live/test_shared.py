from __future__ import annotations

import os

import pytest

from netdissect.capture.live.shared import SharedQueue

FRAME = (1, 1_700_000_000_000_000_000, 1, bytes(range(100)), 142)


def pair(limit: int) -> SharedQueue:
    """Return a queue whose both ends are in this process."""
    queue = SharedQueue(limit)
    queue.count(0)
    return queue


@pytest.mark.parametrize("limit", [1024, 4096, 1 << 20])
def test_frames_come_out_as_they_went_in_around_the_end_of_the_memory(limit: int) -> None:
    queue = pair(limit)
    for number in range(500):
        batch = [(number, number << 40, 1, b"x" * (number % 300), number)]
        queue.put(batch)
        assert queue.get(0.0) == batch
    assert queue.lost == 0
    assert queue.get(0.0) == []


def test_a_full_queue_loses_and_counts() -> None:
    queue = pair(1024)
    for _ in range(10):
        queue.put([FRAME] * 2)
    queue.close()
    taken = 0
    while (batch := queue.get()) is not None:
        assert batch == [FRAME] * 2
        taken += len(batch)
    assert 0 < taken < 20
    assert taken + queue.lost == 20


def test_a_list_that_is_larger_than_the_queue_is_lost_alone() -> None:
    queue = pair(1024)
    queue.put([FRAME] * 100)
    queue.put([FRAME])
    assert queue.get(0.0) == [FRAME]
    assert queue.lost == 100


def test_what_is_abandoned_counts_as_lost() -> None:
    queue = pair(1 << 16)
    queue.put([FRAME] * 3)
    assert queue.get(0.0) == [FRAME] * 3
    queue.put([FRAME] * 5)
    queue.give_up(2)
    queue.abandon()
    queue.put([FRAME])
    queue.close()
    queue.leave()
    assert queue.lost == 8


def test_two_processes() -> None:
    queue = SharedQueue(8192)
    pid = os.fork()
    if not pid:
        queue.write_only()
        for number in range(3000):
            queue.put([(number, 0, 1, bytes(number % 90), 0)])
            queue.count(number + 1)
        queue.close()
        os._exit(0)
    queue.read_only()
    found: list[int] = []
    while (batch := queue.get(1.0)) is not None:
        for number, _, _, data, _ in batch:
            assert len(data) == number % 90
            found.append(number)
    os.waitpid(pid, 0)
    assert found == sorted(set(found))
    assert len(found) + queue.lost == queue.packets == 3000
    queue.leave()


def test_a_writer_that_is_killed_is_the_end() -> None:
    queue = SharedQueue(8192)
    pid = os.fork()
    if not pid:
        queue.write_only()
        queue.put([FRAME])
        os._exit(1)
    os.waitpid(pid, 0)
    queue.read_only()
    assert queue.get(5.0) == [FRAME]
    while (batch := queue.get(5.0)) is not None:
        assert batch == []
