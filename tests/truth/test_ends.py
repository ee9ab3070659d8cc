"""How connections end, against what the programs' and the relays' logs say (`verdicts.json`).

`verdicts.json` has for each capture where it was taken, and for each connection who ended it (`by`,
`how`, other right descriptions in `also`), the `frame` that says so (over TCP the first FIN or
RST), whether it is `shown` there, spans in which nothing passed, datagrams lost of those sent, and
the longest wait that a resend added. All times are seconds after the first frame.
"""

from __future__ import annotations

import json
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from netdissect import analyze
from netdissect.flow import Decapsulator
from netdissect.model.packets import Frame
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import Options, Pipeline
from twocaptures import rewritten
from windows import frames_of

ROOT = Path(__file__).parents[2] / "captures"
TOLD: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("verdicts.json").read_text(encoding="utf-8")
)
CAPTURES = sorted(name for name in TOLD if TOLD[name]["connections"])
LOSSY = [
    name
    for name in CAPTURES
    if ("loss" in name or "burst_gap" in name) and TOLD[name]["vantage"] in {"client", "server"}
    and not name.startswith("netplay")
]  # fmt: skip

HEARTBEAT = 5
"""First byte of a heartbeat of Riptide 2.0."""


@lru_cache(maxsize=8)
def connections(name: str) -> list[ConnectionReport]:
    return list(analyze(str(ROOT / name)).connections)


def endpoint(text: str) -> str:
    host, _, port = text.rpartition(":")
    return f"[{host}]:{port}" if ":" in host else text


def pairs(name: str) -> list[tuple[dict[str, Any], ConnectionReport]]:
    """Return what is told of each connection with its report; several of one address in order."""
    left = connections(name).copy()
    found = []
    for wanted in TOLD[name]["connections"]:
        ends = (endpoint(wanted["client"]), endpoint(wanted["server"]))
        mine = next((r for r in left if (r.client, r.server) == ends), None)
        if mine is not None:
            left.remove(mine)
            found.append((wanted, mine))
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_the_vantage_is_right_or_unknown(name: str) -> None:
    told = TOLD[name]["vantage"]
    for _, report in pairs(name):
        right = {"client", "server", "middle"} if told == "both" else {told}
        assert report.vantage in {"unknown", *right}
        if report.vantage != "unknown":
            assert re.search("answers? of|out of order", report.vantage_basis)


def changed(frames: list[Frame], how: str) -> list[Frame]:
    """Return frames as a coarser clock, or a tap further from the client, would have them."""
    if how.startswith("clock"):
        unit = int(how[5:])
        return [(n, time // unit * unit, *rest) for n, time, *rest in frames]
    first = frames[0][3][26:30], frames[0][3][34:36]
    later = [
        (n, time + int(how[4:]) * ((data[26:30], data[34:36]) == first), link, data, wire)
        for n, time, link, data, wire in frames
    ]
    return sorted(later, key=lambda frame: frame[1])


@pytest.mark.parametrize("how", ["clock1000000", "clock16000000", "late3000000"])
@pytest.mark.parametrize("name", LOSSY)
def test_no_change_of_a_capture_makes_the_vantage_wrong(name: str, how: str) -> None:
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(Decapsulator().packets(changed(frames_of(ROOT / name), how)))
    pipeline.finish()
    found = {report.vantage for report in pipeline.reports}
    assert found <= {"unknown", TOLD[name]["vantage"]}


@pytest.mark.parametrize("name", [name for name in CAPTURES if "malformed" not in name])
def test_who_ended_it_where_the_capture_shows_it(name: str) -> None:
    """Hand-made datagrams say goodbye for the real programs: their captures are left out."""
    for wanted, report in pairs(name):
        right = {(wanted["by"], wanted["how"]), *map(tuple, wanted.get("also", ()))}
        if wanted.get("shown") == "goodbye" and report.transport == "tcp":
            assert report.close is not None
            assert report.close["by"] in {by for by, _ in right} | {"both"}
        elif report.close is not None and report.close["by"] is not None:
            sides = {by for by, _ in right}
            assert report.close["by"] in sides or "both" in sides


@pytest.mark.parametrize("name", [name for name in CAPTURES if name.startswith("netplay")])
def test_a_tcp_connection_is_closed_by_its_first_fin_or_rst(name: str) -> None:
    for wanted, report in pairs(name):
        if "frame" in wanted and report.close is not None:
            assert report.close["frame"] == wanted["frame"]
        assert (report.close is None) == ("frame" not in wanted)


SILENT_ENDS = [
    (name, index)
    for name in CAPTURES
    for index, wanted in enumerate(TOLD[name]["connections"])
    if (wanted["by"], wanted["how"], wanted.get("shown")) == ("both", "timed-out", "silence")
]


@pytest.mark.parametrize(("name", "index"), SILENT_ENDS)
def test_both_sides_that_time_out_without_a_word(name: str, index: int, tmp_path: Path) -> None:
    """Where the capture ends before the timers it ends in silence; where it goes on, they fired."""
    wanted = TOLD[name]["connections"][index]
    mine = next(report for told, report in pairs(name) if told is wanted)
    assert (mine.state, mine.close) == ("silent", None)
    longer = tmp_path / "longer.pcap"
    longer.write_bytes(with_a_later_frame((ROOT / name).read_bytes(), 600))
    same = next(r for r in analyze(str(longer)).connections if r.connection == mine.connection)
    if same.timeouts:
        assert same.state == "timed_out"
        assert any(verdict.fired for verdict in same.timeouts)
    else:
        assert same.state == "silent"  # TCP has no timer that is known


def test_a_client_that_died_has_not_timed_out() -> None:
    """Its server goes on for seconds, but answers no heartbeats any more."""
    first_ns, kept = 0, []
    for frame in frames_of(ROOT / "riptide/udp_2.0.0_lossy_clientleg.pcap"):
        first_ns = first_ns or frame[1]
        is_sent, kind = frame[3][36:38] == (21101).to_bytes(2, "big"), frame[3][42]
        if frame[1] - first_ns < 5_000_000_000 or not (is_sent or kind == HEARTBEAT):
            kept.append(frame)
    pipeline = Pipeline(Options(strict=True))
    pipeline.run(Decapsulator().packets(kept))
    pipeline.finish()
    (report,) = pipeline.reports
    assert report.vantage == "client"
    assert [verdict.fired for verdict in report.timeouts if verdict.side == "client"] == [False]
    assert report.state != "timed_out"


def with_a_later_frame(octets: bytes, seconds: int) -> bytes:
    """Return a capture with a copy of its first frame's first bytes so much later."""
    order = "<" if octets[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    last, at = 0, 24
    while at < len(octets):
        last = at
        at += 16 + int(struct.unpack_from(order + "I", octets, at + 8)[0])
    when, fraction = struct.unpack_from(order + "II", octets, last)
    return octets + struct.pack(order + "4I", when + seconds, fraction, 14, 14) + bytes(14)




@pytest.mark.parametrize("frames", [40, 200])
def test_no_part_of_a_capture_names_the_wrong_side(frames: int, tmp_path: Path) -> None:
    """Captures that begin in the middle show few answers: then the vantage is unknown."""
    part = tmp_path / "part.pcap"
    for name in CAPTURES[:: 240 // frames + 3]:
        told = TOLD[name]["vantage"]
        octets = (ROOT / name).read_bytes()
        if told == "both" or octets[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
            continue
        clients = {endpoint(wanted["client"]) for wanted in TOLD[name]["connections"]}
        head, *records = pieces(octets)
        for start in range(0, len(records), max(50, len(records) // 4)):
            part.write_bytes(head + b"".join(records[start : start + frames]))
            for report in analyze(str(part)).connections:
                if report.client in clients:  # else the sides have changed their names
                    assert report.vantage in {"unknown", told}, (name, start)


def pieces(octets: bytes) -> list[bytes]:
    """Return the head of a capture and its records."""
    found, at = [octets[:24]], 24
    while at < len(octets):
        end = at + 16 + int(struct.unpack_from("<I", octets, at + 8)[0])
        found.append(octets[at:end])
        at = end
    return found


def test_a_timeout_shows_though_the_fin_that_announces_it_is_not_captured(tmp_path: Path) -> None:
    """The client of this capture closes after 15 s of silence; the server's reset shows its FIN."""
    path = ROOT / "knet/tcp_timeout.pcap"
    (before,) = analyze(str(path)).connections
    assert before.close is not None
    fin = before.close["frame"]
    lost = rewritten(path, tmp_path / "lost.pcap", lambda found: [*found[: fin - 1], *found[fin:]])
    (after,) = analyze(lost).connections
    for report in (before, after):
        assert (report.state, report.close and report.close["by"]) == ("timed_out", "client")
