import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.pipeline.collector import FEW, RareCollections, rare_collections
from netdissect.pipeline.options import Options
from netdissect.pipeline.stages import Pipeline


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """The thresholds that Python starts with; a run of another test may have left others."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_thresholds_come_back_whatever_happens(usual: tuple[int, int, int]) -> None:
    rare = RareCollections()
    with rare():
        assert gc.get_threshold()[0] > usual[0]
    assert gc.get_threshold() == usual
    with pytest.raises(KeyError), rare():
        _ = {}["missing"]
    assert gc.get_threshold() == usual


def test_thresholds_come_back_in_whatever_order_runs_end(usual: tuple[int, int, int]) -> None:
    rare = RareCollections()
    first, second = rare(), rare()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > usual[0]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual


def test_brief_searches_walk_few_objects(usual: tuple[int, int, int]) -> None:
    """A search of a million objects holds the keys of `browse` up for half a second."""
    rare = RareCollections()
    walked = []

    def told(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            walked.append((facts["generation"], gc.get_count()[0]))

    gc.collect()
    with rare(brief=True):
        gc.callbacks.append(told)
        try:
            kept = [[number] for number in range(3 * FEW)]
        finally:
            gc.callbacks.remove(told)
    assert len(kept) == 3 * FEW
    assert walked
    assert all(generation == 0 and young <= FEW + 1 for generation, young in walked)
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("protocol", ["riptide", "teeworlds", "knet", "eoudp", "netplay"])
def test_ended_connections_leave_no_cycles(protocol: str) -> None:
    """What `rare_collections` rests on."""
    for path in sorted(Path(CAPTURES, protocol).glob("*.pcap"))[:12]:
        pipeline = Pipeline(Options(on_report=[].append))
        with open_capture(path) as reader:
            packets = list(Decapsulator().packets(reader))
        gc.collect()
        with rare_collections():
            pipeline.run(packets)
            pipeline.finish()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                gc.collect()
                left = [o for o in gc.garbage if type(o).__module__.startswith("netdissect")]
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
        assert not left, (path.name, {type(o) for o in left})
