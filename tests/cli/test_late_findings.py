"""What is concluded of a frame after it has passed is found with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.cli import cli

CAPTURES = console_docs.ROOT / "captures"
CASES = [
    ("teeworlds/tw07_blackout_client_side.pcap", "timeout"),
    ("riptide/udp_2.2.1_poorconnection_loss_clientleg.pcap", "silent-close"),
    ("riptide/udp_2.0.0_giveup_serverleg.pcap", "attempts-exhausted"),
    ("knet/udp_loss8.client.pcap", "datagram-timed-out"),
]


def objects(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*words, "--json"], prog_name="netdissect")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(("capture", "code"), CASES)
def test_show_and_filters_find_it(capture: str, code: str) -> None:
    path = str(CAPTURES / capture)
    listed = objects("anomalies", path)
    times = [item["time_ns"] for item in listed if item["time_ns"] is not None]
    assert times == sorted(times)
    found = [item for item in listed if item["code"] == code]
    assert found
    assert all(item["concluded_ns"] > item["time_ns"] for item in found)
    frames = {record["frame"]: record for record in objects("read", path, "-Y", f"anomaly == {code}")}
    for item in found:
        assert frames[item["frame"]]["time_ns"] == item["time_ns"]
        shown = objects("show", path, str(item["frame"]))
        assert any(code in {note["code"] for note in record["findings"]} for record in shown)
