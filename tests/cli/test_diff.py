from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.capture import PcapWriter, open_capture
from netdissect.cli import cli
from netdissect.model.compare import differences

CAPTURES = console_docs.ROOT / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"


def run(*words: object, status: int) -> Result:
    result = CliRunner().invoke(cli, ["diff", *map(str, words)], prog_name="netdissect")
    assert result.exit_code == status, result.stderr
    return result


def test_nothing_differs_from_itself() -> None:
    assert run(LOSSY, LOSSY, status=0).stdout == ""
    assert run(LOSSY, 80, 80, status=0).stdout == ""


def test_two_frames_differ_field_by_field() -> None:
    rows = [json.loads(line) for line in run(LOSSY, 80, 93, "--json", status=7).stdout.splitlines()]
    changed = {row["field"]: (row.get("before"), row.get("after")) for row in rows}
    assert changed["fields.sequence_id"] == (9, 10)
    assert "fields.type_id" not in changed


def test_a_capture_that_lost_a_datagram_differs_in_its_figures(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    words = ["slice", str(LOSSY), "-w", str(cut), "--frames", "1-79,81-"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    rows = [json.loads(line) for line in run(LOSSY, cut, "--json", status=7).stdout.splitlines()]
    changed = {row["field"]: (row.get("before"), row.get("after")) for row in rows}
    before, after = changed["datagrams.s2c"]
    assert before == after + 1
    assert all(row["where"].startswith("connection 1 riptide 127.0.0.1") for row in rows)


@pytest.mark.parametrize(
    "name", ["riptide/udp_2.2.1_lossy_clientleg.pcap", "netplay/bin1_lossy__client_side.pcap",
             "teeworlds/ddnet_loss_client_side.pcap"],
)  # fmt: skip
def test_the_same_an_hour_later_and_behind_other_frames_does_not_differ(name: str, tmp_path: Path) -> None:
    source, later = CAPTURES / name, tmp_path / "later.pcap"
    with open_capture(source) as reader:
        taken = list(reader)
    foreign = (0, taken[0][1], taken[0][2], b"", 60)
    with PcapWriter(later, taken[0][2]) as writer:
        for _, time_ns, _, data, wire in [foreign, foreign, *taken]:
            writer.write(time_ns + 3600 * 10**9, data, wire)
    assert run(source, later, status=0).stdout == ""


def test_rows_are_paired_by_what_they_are_and_shown_in_words() -> None:
    pair = [CAPTURES / "netplay" / f"bin1_blackout_recovers__{side}_side.pcap" for side in ("client", "server")]
    rows = [json.loads(line) for line in run(*pair, "--json", status=7).stdout.splitlines()]
    changed = {row["field"]: (row.get("before"), row.get("after")) for row in rows}
    # The relay's two connections: what one side resends is not resent by the other.
    assert changed["spaces[tcp c2s].retransmissions"] == (5, 0)
    assert changed["spaces[tcp s2c].retransmissions"] == (0, 4)
    assert changed["diagnosis.lag.added.s2c.p50_ms"][0] is None
    shown = run(*pair, status=7).stdout
    assert "  diagnosis.lag.added.s2c.p50_ms  none → " in shown
    assert "None" not in shown


def test_rows_that_nothing_tells_apart_are_paired_in_order() -> None:
    assert _paths([{"kind": "a", "n": 1}, {"kind": "a", "n": 2}], [{"kind": "a", "n": 1}, {"kind": "a", "n": 3}]) == ["[1].n"]
    assert _paths([{"kind": "a"}, {"kind": "b", "n": 2}], [{"kind": "b", "n": 3}]) == ["[a]", "[b].n"]
    assert _paths([{"n": 1}], [{"n": 2}]) == ["[0].n"]
    assert _paths([{"kind": 1, "n": 1}], [{"kind": 1, "n": 2}]) == ["[0].n"]
    assert _paths([1, 2], [1]) == ["[1]"]
    assert _paths([{"kind": "a", "n": 1}, 5], [{"kind": "a", "n": 2}, 5]) == ["[0].n"]


def _paths(before: object, after: object) -> list[str]:
    return [change.path for change in differences(before, after)]


def test_connections_are_paired_in_order_where_their_endpoints_differ() -> None:
    rows = [json.loads(line) for line in run(LOSSY, CLEAN, "--json", status=7).stdout.splitlines()]
    assert {"client", "server"} <= {row["field"] for row in rows}
    assert "absent" not in run(LOSSY, CLEAN, status=7).stdout.split("\n")[0]


@pytest.mark.parametrize(
    "words", [[LOSSY], [LOSSY, 1], [LOSSY, 1, 99999], [LOSSY, "a", "b"], [LOSSY, 1, 2, 3]]
)
def test_wrong_words(words: list[object]) -> None:
    status = 3 if words == [LOSSY, 1] else 2
    assert run(*words, status=status).stderr
