"""What the tracker of one capture adds to the fates of its frames."""

from __future__ import annotations

from netdissect.join.evidence import Evidence
from netdissect.join.summary import ALL_TIME
from netdissect.join.table import ARRIVED, COPY, DELIVERED, FateTable
from netdissect.track.recorder import Recorder
from tracking import MS, space


def test_of_units_that_arrived_only_further_copies_are_recorded() -> None:
    table = FateTable(10)
    for frame, fate in {1: ARRIVED, 2: DELIVERED, 3: ARRIVED, 5: COPY, 9: COPY}.items():
        table.set(frame, fate, flags=0, lane=0, partner=0, common_ns=frame)
    evidence = Evidence(table, ALL_TIME)
    recorder = Recorder(counted=True, choice=evidence)
    made, _ = space(recorder.of(1))
    for number in (1, 2, 3):
        made.unit(number, None, b"x", "Thing", number, number * MS)
    made.unit(3, None, b"x", "Thing", 5, 300 * MS)  # still outstanding
    made.ack(1, 0, 7, 310 * MS)
    made.unit(1, None, b"x", "Thing", 9, 600 * MS)  # settled
    left = recorder.drain()
    assert [(unit.seq, [copy.frame for copy in unit.copies]) for unit in left] == [
        (2, [2]), (3, [5]), (1, [9]),
    ]  # fmt: skip
    evidence.read(left)
    (counts,) = evidence.counts(1, 0).values()
    assert counts == [0, 0, 2, 0]  # both copies by the network
