"""Captures cut anywhere: what is said of a part contradicts nothing that is said of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agreement import CAPTURES, captures
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapWriter
from netdissect.model.packets import SIDES
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records
from twocaptures import followed_by, rewritten
from windows import BROADER

PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp", "netplay")
TELLING = {
    "riptide/tcp_2.0.0_big.pcap",  # no message of the middle shows who is the client
    "teeworlds/ddnet_vote.pcap",  # a direct link whose sides keep step in ticks of 20 ms
    "netplay/bin2_lossy__server_side.pcap",  # bytes that come behind the first ones seen
    "netplay/text_lossy__server_side.pcap",
    "knet/udp_simulator.pcap",  # both programs put their own datagrams out of order
    "knet/udp_early_data_ghost_kept.pcap",  # several senders behind one port send equal datagrams
    "riptide/udp_2.2.1_natreuse_serverleg.pcap",  # a Connect in the middle; the roles were guessed
}
LEAST = 40
"""Frames of a capture that is worth a cut."""


def chosen() -> list[Any]:
    paths = [path for name in PROTOCOLS for path in captures(name) if path.suffix == ".pcap"]
    telling = {CAPTURES / name for name in TELLING}
    return [
        pytest.param(path, id=path.stem, marks=() if path in telling else pytest.mark.slow)
        for path in paths
    ]


def windows(count: int) -> Iterable[tuple[int, int]]:
    return (
        (count // 4, count), (count // 2, count), (count // 3, 2 * count // 3), (0, count // 2),
    )  # fmt: skip


def copies(path: Path, offset: int) -> dict[tuple[int, int, str, int], str]:
    return {
        (copy.frame + offset, item.direction, item.space, item.wire_seq): copy.kind
        for item in iter_timeline(path)
        if isinstance(item, UnitRecord)
        for copy in item.copies
    }


def stands(path: Path) -> set[str]:
    """Return at which side a capture can have been taken by the name of its file and its report."""
    for side in SIDES:
        if any(f"{mark}{side}" in path.stem for mark in ("_", ".")):
            return {side, "unknown"}
    return {"unknown"} | {report.vantage for report in analyze(path).connections}


OPENED = (
    "riptide/udp_2.2.1_clean", "riptide/udp_2.0.0_kick_stop", "riptide/udp_2.2.1_reconnect",
    "eoudp/late_long32_session", "eoudp/rfc02_kick", "knet/udp_clean_session",
    "teeworlds/ddnet_client_to_064", "teeworlds/tw065_client_to_064", "teeworlds/tw07_kicked",
)  # fmt: skip


@pytest.mark.parametrize("name", OPENED)
def test_an_answer_that_was_not_captured_is_no_refusal(name: str, tmp_path: Path) -> None:
    """Any of the first frames is missing: what follows shows that the client was accepted."""
    path = CAPTURES / f"{name}.pcap"
    whole = analyze(path).connections
    for missing in range(8):
        part = rewritten(
            path, tmp_path / "part.pcap", lambda found: found[:missing] + found[missing + 1 :]  # noqa: B023
        )
        found = analyze(part).connections
        assert len(found) == len(whole)
        for cut, report in zip(found, whole, strict=True):
            assert cut.client == report.client
            for said, true in zip(cut.dialects, report.dialects, strict=True):
                assert said in {true, *BROADER.get(true, ())}
            assert cut.handshake in {report.handshake, "not_seen"}
            assert cut.state in {report.state, "unknown", "open"}
            assert (cut.close or {}).get("by") == (report.close or {}).get("by")


@pytest.mark.parametrize("name", ["ddnet_client_to_064", "tw065_client_to_064"])
def test_a_client_heard_alone_shows_that_its_token_was_declined(name: str, tmp_path: Path) -> None:
    path = CAPTURES / "teeworlds" / f"{name}.pcap"
    whole = analyze(path).connections[0]
    port = int(whole.client.rpartition(":")[2]).to_bytes(2, "big")
    part = rewritten(
        path, tmp_path / "part.pcap", lambda found: [row for row in found if row[1][34:36] == port]
    )
    (report,) = analyze(part).connections
    assert (report.client, report.dialects) == (whole.client, ("teeworlds-0.6",) * 2)
    assert not {"length-beyond-end", "list-short"} & report.codes.keys()
    assert report.handshake == "accepted"


def test_a_server_heard_alone_is_known_by_its_accept(tmp_path: Path) -> None:
    path = CAPTURES / "teeworlds" / "tw07_wrong_version.pcap"
    whole = analyze(path).connections[0]
    port = int(whole.server.rpartition(":")[2]).to_bytes(2, "big")
    part = rewritten(
        path, tmp_path / "part.pcap", lambda found: [row for row in found if row[1][34:36] == port]
    )
    (report,) = analyze(part).connections
    assert (report.client, report.roles_from) == (whole.client, "protocol")


@pytest.mark.parametrize("side", [0, 1], ids=SIDES)
@pytest.mark.parametrize("name", ["udp_2.0.0_clean", "udp_2.2.1_clean", "tcp_2.2.1_clean"])
def test_riptide_is_known_by_one_side_alone(name: str, side: int, tmp_path: Path) -> None:
    """Several kinds of numbers that count up, or a client's answers to a Welcome."""
    path = CAPTURES / "riptide" / f"{name}.pcap"
    whole = {(report.client, report.server): report for report in analyze(path).connections}
    ports = {int(ends[side].rpartition(":")[2]).to_bytes(2, "big") for ends in whole}
    part = rewritten(
        path, tmp_path / "part.pcap", lambda found: [row for row in found if row[1][34:36] in ports]
    )
    found = analyze(part).connections
    assert {(report.client, report.server) for report in found} == set(whole)
    for report in found:
        true = whole[report.client, report.server].dialects[side]
        assert report.dialects[side] in {true, *BROADER.get(true, ())}
        assert report.misses_frames


@pytest.mark.parametrize("path", chosen())
def test_a_part_contradicts_nothing_of_the_whole(path: Path, tmp_path: Path) -> None:
    with open_capture(path) as reader:
        frames = list(reader)
    if len(frames) < LEAST:
        pytest.skip("too short")
    whole = {(report.client, report.server) for report in analyze(path).connections}
    kinds = copies(path, 0)
    part = tmp_path / "part.pcap"
    for first, last in windows(len(frames)):
        with PcapWriter(part, frames[0][2]) as out:
            for _, time_ns, _, data, _ in frames[first:last]:
                out.write(time_ns, data)
        for report in analyze(part).connections:
            assert (report.client, report.server) in whole
            assert report.vantage in stands(path), report.vantage_basis
        again = {
            place: kind
            for place, kind in copies(part, first).items()
            if kind != "original" and kinds.get(place) == "original"
        }
        assert not again


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("udp_main_clean", 350, 550), ("udp_main_clean", 600, 800), ("udp_2.2.0_clean", 450, 650)],
)
def test_the_timer_of_a_sender_is_not_known_from_the_middle_on(
    name: str, first: int, last: int, tmp_path: Path
) -> None:
    """A round trip is stated late in this part, or never: retransmissions after 10 ms were the
    network's copies, as the first timer is 50 ms.
    """
    path = CAPTURES / "riptide" / f"{name}.pcap"
    part = rewritten(path, tmp_path / "part.pcap", lambda found: found[first:last])
    assert "duplicate" not in copies(Path(part), first).values()


def test_a_message_that_the_end_of_the_capture_cuts_is_whole(tmp_path: Path) -> None:
    """The segments of a message are divided between two captures: it was malformed in the first."""
    path = CAPTURES / "riptide" / "tcp_2.0.0_split.pcap"
    part = rewritten(path, tmp_path / "part.pcap", lambda found: found[:300])
    (report,) = analyze(part).connections
    shown = sum(len(record.messages) for record in iter_records(part))
    assert "truncated" not in report.codes
    assert sum(sum(counts.values()) for counts in report.messages) == shown


def test_what_waited_behind_a_hole_begins_no_connection_of_its_own(tmp_path: Path) -> None:
    """A stream whose frames were cut has holes; what waits behind one is handed on at the end of
    the capture, when its connection may have left the table long ago.
    """

    goes_on = followed_by(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap", 100_000_000_000)
    cut = CAPTURES / "netplay" / "bin1_snaplen_96.pcap"
    alone = list(analyze(cut).connections)
    followed = list(analyze(rewritten(cut, tmp_path / "longer.pcap", goes_on)).connections)
    assert [one.datagrams for one in followed[: len(alone)]] == [one.datagrams for one in alone]
    assert {one.protocol for one in followed[len(alone) :]} == {"riptide"}
