"""What a connection is told by calls leads to what the events of the same datagrams do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agreement import captures
from netdissect.capture import open_capture
from netdissect.export.json import connection
from netdissect.flow import Decapsulator
from netdissect.model.claims import Claim
from netdissect.model.records import DatagramRecord
from netdissect.pipeline import Pipeline
from netdissect.pipeline.iterate import iter_both
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.records import Records
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol

CALLED = [protocol for protocol in registry.protocols() if protocol.scanner(0) is not None]
NAMES = [path for protocol in CALLED for path in captures(protocol.name)]

ASKED = {
    protocol.name
    for protocol in CALLED
    if (inspector := protocol.inspector()) is not None and inspector.asks_scanner
}


def reports(path: Path) -> list[dict[str, Any]]:
    pipeline = Pipeline()
    with open_capture(path) as capture:
        for packets in Decapsulator().batches(capture.batches()):
            pipeline.run(packets)
    pipeline.finish()
    return [connection(report) for report in pipeline.reports]


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.stem)
def test_calls_and_events_lead_to_one_report(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_calls = reports(path)
    for protocol in CALLED:
        monkeypatch.setattr(type(protocol), "scanner", Protocol.scanner)
    assert by_calls == reports(path)


class Judged(Records):
    """Compares what scanners say of the datagrams that they report by calls with their events."""

    by_calls = 0

    def seen(self, item: Datagram) -> None:
        assert item.protocol is not None
        judge = item.protocol.inspector()
        if judge is not None and not item.is_listed:
            assert item.follows == judge.wants(item.events)
            self.by_calls += 1
        super().seen(item)


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.stem)
def test_a_scanner_says_what_an_inspector_wants(path: Path) -> None:
    records = Judged(lazy=True)
    pipeline = Pipeline(recorder=records.recorder, observer=records)
    found = list(iter_both(str(path), records, pipeline, timeline=False))
    called = [each for each in found if isinstance(each, DatagramRecord)]
    asked = sum(each.protocol in ASKED and each.transport == "udp" for each in called)
    assert records.by_calls or asked < 100


@pytest.mark.parametrize("protocol", CALLED, ids=lambda protocol: protocol.name)
def test_no_space_is_called_by_the_place_of_another(protocol: Protocol) -> None:
    """A policy may lack the last of those that its scanner names, and no other."""
    for row in protocol.dialects:
        names = {rule.name for rule in protocol.policy(row.name).spaces}
        scanner = protocol.scanner(0)
        assert scanner is not None
        there = [name in names for name in scanner.spaces]
        assert there == sorted(there, reverse=True)
        claim = Claim(protocol.name, 90, (row.name, row.name), 0, "handshake", ())
        assert scanner.events(b"", protocol.initial_hints(claim))
