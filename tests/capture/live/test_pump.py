from __future__ import annotations

from netdissect.capture.live.pump import FrameQueue

FRAME = (1, 0, 1, bytes(100), 100)


def test_a_full_queue_loses_and_counts_what_an_interface_delivers() -> None:
    queue = FrameQueue(patient=False, limit=1000)
    for _ in range(10):
        queue.put([FRAME] * 2)
    taken = 0
    queue.close()
    while (batch := queue.get()) is not None:
        taken += len(batch)
    assert 0 < taken < 20
    assert taken + queue.lost == 20


def test_what_is_abandoned_counts_as_lost() -> None:
    queue = FrameQueue(patient=False)
    queue.put([FRAME] * 3)
    assert queue.get(0.0) == [FRAME] * 3
    assert queue.get(0.0) == []
    queue.put([FRAME] * 5)
    queue.abandon()
    queue.put([FRAME])
    assert queue.get() is None
    assert queue.lost == 6
