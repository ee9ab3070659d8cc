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
from netdissect.pipeline import Pipeline
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol

CALLED = [protocol for protocol in registry.protocols() if protocol.scanner(0) is not None]
NAMES = [path for protocol in CALLED for path in captures(protocol.name)]


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
