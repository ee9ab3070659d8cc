from __future__ import annotations

import threading

from netdissect.capture.live.pump import FrameQueue

FRAME = (1, 0, 1, bytes(100), 100)


def test_a_full_queue_makes_its_writer_wait() -> None:
    queue = FrameQueue(limit=1000)
    writer = threading.Thread(target=lambda: [queue.put([FRAME] * 2) for _ in range(10)])
    writer.start()
    taken = 0
    while taken < 20:
        taken += len(queue.get(10.0) or ())
    writer.join()
    assert (taken, queue.lost) == (20, 0)


def test_what_is_abandoned_counts_as_lost() -> None:
    queue = FrameQueue()
    queue.put([FRAME] * 3)
    assert queue.get(0.0) == [FRAME] * 3
    assert queue.get(0.0) == []
    queue.put([FRAME] * 5)
    queue.abandon()
    queue.put([FRAME])
    assert queue.get() is None
    assert queue.lost == 6
