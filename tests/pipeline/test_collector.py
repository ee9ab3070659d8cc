import gc
from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.options import Options
from netdissect.pipeline.stages import Pipeline


def test_thresholds_come_back_whatever_happens() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    with pytest.raises(KeyError), rare_collections():
        _ = {}["missing"]
    assert gc.get_threshold() == before


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
