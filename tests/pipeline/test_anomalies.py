from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import CAPTURES
from netdissect.model.annotations import Severity
from netdissect.pipeline import analyze
from netdissect.pipeline import anomalies as room
from netdissect.pipeline.anomalies import Anomalies
from samples import anomaly


@given(st.lists(st.sampled_from(Severity), max_size=40), st.integers(1, 12))
def test_the_worst_are_kept_in_order_of_discovery(severities: list[Severity], bound: int) -> None:
    found = Anomalies()
    each = [
        replace(anomaly(), severity=severity, frame=frame)
        for frame, severity in enumerate(severities)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_ANOMALIES", bound)
        for item in each:
            found.take(item)
    worst = sorted(each, key=lambda item: (-item.severity, item.frame))[:bound]
    assert found.listed() == [item for item in each if item in worst]
    assert found.dropped == len(each) - len(worst)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_analysis_counts_what_it_let_go(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    path = str(CAPTURES / "riptide/udp_2.2.1_lossy_clientleg.pcap")
    whole = analyze(path, processes=processes)
    assert "MAX_ANOMALIES" not in whole.limits_hit
    monkeypatch.setattr(room, "MAX_ANOMALIES", 3)
    found = analyze(path, processes=processes)
    assert len(found.anomalies) == 3
    assert found.limits_hit["MAX_ANOMALIES"] == len(whole.anomalies) - 3 > 0
    least = min(item.severity for item in found.anomalies)
    assert sum(item.severity > least for item in whole.anomalies) <= 3
    none = analyze(path, processes=processes, anomalies=False)
    assert not none.anomalies
    assert none.connections == whole.connections


def test_what_is_counted_per_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_COUNTED", 3)
    found = room.ContentFindings()
    times = [found._count(connection, "x") for connection in (1, 2, 1, 3, 4, 2, 1)]
    assert times == [1, 1, 2, 1, 1, 1, 1]
    assert len(found._repeats) == 3
