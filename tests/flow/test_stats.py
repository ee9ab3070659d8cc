"""Every counter counts, is printed, and means the same however many processes share the work."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect import flow
from netdissect.cli import cli
from netdissect.flow.stats import FlowStats
from netdissect.pipeline import analyze

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
ROOM = Path(flow.__file__).parent
COUNTERS = [field.name for field in fields(FlowStats)]


@pytest.mark.parametrize("name", COUNTERS)
def test_every_counter_is_counted_somewhere(name: str) -> None:
    counted = re.compile(rf"stats\.{name}(\[\w+\])? \+?= ")
    assert any(counted.search(path.read_text()) for path in ROOM.glob("*.py"))


def test_every_counter_is_printed() -> None:
    capture = str(CAPTURES / "netplay" / "bin2_lossy__server_side.pcap")
    shown = json.loads(CliRunner().invoke(cli, ["info", "--json", capture]).stdout)["flow"]
    assert list(shown) == COUNTERS
    assert shown["tcp"] == shown["frames"] > shown["tcp_connections"] > 0
    filtered = CliRunner().invoke(cli, ["info", "--json", "-Y", "frame.number > 0", capture])
    assert json.loads(filtered.stdout)["flow"] is None


def test_info_shows_unusual_counters() -> None:
    words = ["info", str(CAPTURES / "knet" / "udp_snaplen_96.pcap"), "--width", "100"]
    assert re.search(r"lower layers +\d+ snapped", CliRunner().invoke(cli, words).stdout)


@pytest.mark.parametrize(
    "name",
    ["netplay/bin1_any_iface_sll.pcap", "knet/udp_snaplen_96.pcap", "knet/udp_two_clients.pcap"],
)
def test_shares_add_up(name: str) -> None:
    alone, shared = (analyze(str(CAPTURES / name), processes=count) for count in (1, 2))
    assert shared.flow == alone.flow
