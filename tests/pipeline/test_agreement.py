"""Promises about whole captures: every view says the same of the same copy, and what is concluded of
a connection does not depend on what else is in the capture.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agreement import CAPTURES, captures
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapWriter
from netdissect.cli import cli
from netdissect.export import json as export
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline import (
    Intervals,
    Options,
    Pipeline,
    Recorder,
    analyze,
    iter_timeline,
    look_ahead,
)
from netdissect.pipeline.iterate import iter_records
from twocaptures import Change, on_ethernet, over_ipv6, rewritten, snapped, thinned, with_ip

PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp", "netplay")
PATHS = [path for protocol in PROTOCOLS for path in captures(protocol)]
TELLING = (
    "riptide/udp_2.2.0_clean.pcap",  # its vantage is learnt late
    "riptide/udp_2.0.0_lossy_serverleg.pcap",
    "riptide/udp_2.2.1_seqwrap_clientleg.pcap",
    "teeworlds/ddnet_sixup_loss_client_side.pcap",
    "teeworlds/tw07_blackout_client_side.pcap",
    "knet/udp_loss8.server.pcap",
    "knet/udp_simulator_corrupt.pcap",
    "knet/knet2010_loss.client.pcap",
    "eoudp/late_resend_peer_server.pcap",  # copies are judged by the next number
    "eoudp/early_lossy_client.pcap",
    "netplay/bin1_lossy__server_side.pcap",  # copies after the acknowledgement
    "netplay/bin1_overlap_retransmit_derived.pcap",
    "netplay/bin1_blackout_recovers__client_side.pcap",
)
FEW = (
    "riptide/udp_2.2.0_clean.pcap", "knet/knet2010_loss.client.pcap",
    "eoudp/late_resend_peer_server.pcap", "netplay/bin1_blackout_recovers__client_side.pcap",
)  # fmt: skip
VARIANTS = {"over IPv6": with_ip(over_ipv6), "snapped": snapped(90)}
"""As another network, or a capture that keeps little of each packet, would have left them."""
KINDS = ("retransmission", "duplicate")
Counts = Counter[tuple[int, int, str, str]]


def chosen(paths: Iterable[Path], names: tuple[str, ...] = TELLING) -> list[Any]:
    """Return the captures that each kind of trouble shows in; the others are `slow`."""
    telling = {CAPTURES / name for name in names}
    return [
        pytest.param(path, id=path.stem, marks=() if path in telling else pytest.mark.slow)
        for path in paths
    ]


def by_connections(path: Path) -> Counts:
    found: Counts = Counter()
    for report in analyze(path).connections:
        for space in report.spaces:
            lane = report.connection, space.direction, space.space
            found[*lane, "original"] = space.units + space.extra.get("partly_new", 0)
            found[*lane, "retransmission"] = space.retransmissions
            found[*lane, "duplicate"] = space.duplicates
            told = sum(found[*lane, kind] for kind in ("original", *KINDS))
            found[*lane, "unknown"] = space.copies - told
    return +found


def by_timeline(items: list[Any]) -> Counts:
    """Count copies; a segment that repeats several units of a stream is one."""
    found: Counts = Counter()
    segments: set[tuple[int, int, int, str]] = set()
    for item in items:
        for copy in item.copies if isinstance(item, UnitRecord) else ():
            if item.space == "tcp" and copy.kind != "original":
                segment = item.connection, item.direction, copy.frame, copy.kind
                if segment in segments:
                    continue
                segments.add(segment)
            found[item.connection, item.direction, item.space, copy.kind] += 1
    return found


def by_read(path: Path) -> tuple[Counts, dict[tuple[int, int], set[str | None]]]:
    """Return the counts of messages with a number, and the kinds in each frame."""
    found: Counts = Counter()
    frames: dict[tuple[int, int], set[str | None]] = {}
    for record in iter_records(path):
        for item in record.messages:
            fact = item.reliability
            if fact is None:
                continue
            found[record.connection, record.direction, fact.space, str(fact.kind)] += 1
            frames.setdefault((record.connection, record.frame), set()).add(fact.kind)
    return found, frames


def by_stats(items: list[Any]) -> tuple[int, int]:
    """Return copies and retransmissions of all spans."""
    table = Intervals(1_000_000_000)
    for item in items:
        if isinstance(item, UnitRecord):
            table.unit(item)
    rows = table.rows()
    return sum(row.copies for row in rows), sum(row.retransmissions for row in rows)


def by_ladder(path: Path, connection: int) -> set[int]:
    """Return the frames with a mark of a further copy."""
    run = CliRunner().invoke(cli, ["ladder", str(path), str(connection), "--json"])
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    marked = {"resend", "duplicate"}
    return {row["frame"] for row in rows if row["mark"] in marked}


@pytest.mark.parametrize("path", chosen(PATHS))
def test_all_views_say_the_same_of_the_same_copy(path: Path) -> None:
    views_agree(path)


def views_agree(path: Path) -> None:
    wanted = by_connections(path)
    items = list(iter_timeline(path))
    assert by_timeline(items) == wanted
    copies = [copy for item in items if isinstance(item, UnitRecord) for copy in item.copies]
    assert by_stats(items) == (
        len(copies), sum(copy.kind == "retransmission" for copy in copies),
    )  # fmt: skip
    read, kinds = by_read(path)
    # The numbers of datagrams and bytes are around those of the messages that `read` shows.
    around = {"datagram", "tcp"}
    assert Counter({key: n for key, n in read.items() if key[2] not in around}) == Counter(
        {key: n for key, n in wanted.items() if key[2] not in around}
    )
    again = {(key[0], key[1]) for key in wanted if key[3] in KINDS}
    for connection in sorted({number for number, _ in again})[:3]:
        frames = {frame for (number, frame), found in kinds.items()
                  if number == connection and found & set(KINDS)}  # fmt: skip
        frames |= {
            copy.frame
            for item in items
            if isinstance(item, UnitRecord) and item.space == "tcp" and item.connection == connection
            for copy in item.copies
            if copy.kind != "original"
        }
        drawn = by_ladder(path, connection)
        assert drawn ^ frames <= told_lost(items)


@pytest.mark.parametrize("how", VARIANTS)
@pytest.mark.parametrize("path", chosen(PATHS, FEW))
def test_all_views_agree_on_variants(path: Path, how: str, tmp_path: Path) -> None:
    with open_capture(path) as reader:
        links = {link for _, _, link, _, _ in reader}
    if links - {1, 101} or any(data[12:14] != b"\x08\x00" for _, data, _ in on_ethernet(path)):
        pytest.skip("not IPv4 alone")
    views_agree(Path(rewritten(path, tmp_path / "other.pcap", VARIANTS[how])))


@pytest.mark.parametrize(
    ("name", "change"),
    [("teeworlds/ddnet_loss_client_side", snapped(200)), ("knet/tcp_timeout", thinned(0.02, 28))],
)
def test_one_pass_sees_the_silences_of_two(name: str, change: Change, tmp_path: Path) -> None:
    """That the capture misses frames may show only after a pause."""
    path = rewritten(CAPTURES / f"{name}.pcap", tmp_path / "changed.pcap", change)
    pipeline = Pipeline(look_ahead(path, Options()), recorder=Recorder())
    list(iter_timeline(path, pipeline=pipeline))
    found = [[(span.kind, span.from_ns, span.basis) for span in report.quiet]
             for report in analyze(path).connections]  # fmt: skip
    assert found == [[(span.kind, span.from_ns, span.basis) for span in report.quiet]
                     for report in pipeline.reports]  # fmt: skip


def test_copies_that_a_stalled_network_releases_are_the_same_in_all_views(tmp_path: Path) -> None:
    """The first of them looks like a network copy until the others have come."""
    path = CAPTURES / "riptide/udp_2.2.1_blackout_timeout_serverleg.pcap"
    with open_capture(path) as reader:
        frames = [(time_ns, data) for _, time_ns, _, data, _ in reader]
    time_ns, first = next(each for each in frames if each[1][42:46].hex() == "2700b07e")
    frames += [(time_ns + late * 100_000, first) for late in (1, 15, 28)]
    with PcapWriter(tmp_path / "again.pcap", 1) as out:
        for each in sorted(frames):
            out.write(*each)
    views_agree(tmp_path / "again.pcap")


def told_lost(items: list[Any]) -> set[int]:
    """Return the frames that `ladder` marks as lost, whatever else they are."""
    return {
        copy.frame
        for item in items
        if isinstance(item, UnitRecord) and item.extra.get("reported") == "lost"
        for copy in item.copies
    }


# -- merged ----------------------------------------------------------------------------------------

BASE_NS = 1_600_000_000_000_000_000
OTHERS = 5
ENDED = {"closed", "rejected", "timed_out"}
END = {
    "connection", "explain", "close", "state", "state_name", "timeouts", "codes", "anomalies",
    "diagnosis", "quiet", "ended_ns",
}  # fmt: skip
"""What may be told better where a capture goes on for longer, and what has no meaning alone."""
NUMBERS = re.compile(r'"(connection|\w*frames?)": ?(\d+|null|\[[^\]]*\])|#\d+|\bc\d+\b')
"""Numbers of frames and connections in a line of JSON."""


def frames_of(path: Path, network: int) -> list[tuple[int, bytes]]:
    """Return the frames of a capture, in a network of their own, with times from its start on."""
    with open_capture(path) as reader:
        frames = list(reader)
    start = frames[0][1] if frames else 0
    found = []
    for _, time_ns, link, data, wire in frames:
        if link != 1 or data[12:14] != b"\x08\x00" or len(data) < wire:
            return []
        head = bytearray(data)
        head[26] = head[30] = network
        if head[23] == 1:  # the quoted header of an ICMP error
            head[54] = head[58] = network
        found.append((time_ns - start, bytes(head)))
    return found


def merged(paths: list[Path], file: Path, until_ns: int | None = None) -> list[list[int]]:
    """Write captures as one, as if all had begun at once; return for each its frames' places."""
    every = [
        (time_ns, index, place, data)
        for index, path in enumerate(paths)
        for place, (time_ns, data) in enumerate(frames_of(path, 20 + index), 1)
        if until_ns is None or time_ns <= until_ns
    ]
    every.sort(key=lambda item: item[:3])
    with PcapWriter(file, 1) as out:
        for time_ns, _, _, data in every:
            out.write(BASE_NS + time_ns, data)
    places = [[0] * (len(every) + 1) for _ in paths]
    for number, (_, index, place, _) in enumerate(every, 1):
        places[index][number] = place
    return places


def told(report: ConnectionReport, places: list[int]) -> dict[str, Any]:
    """Return what is said of a connection but for how it ended."""
    facts = {one.name: getattr(report, one.name) for one in fields(report) if one.name not in END}
    facts["first_frame"], facts["last_frame"] = places[report.first_frame], places[report.last_frame]
    for name in ("end_hint", "gone"):
        if facts[name] is not None:
            facts[name] = replace(facts[name], frame=places[facts[name].frame])
    facts["malformed"] = [
        None if each is None else replace(each, frame=places[each.frame])
        for each in report.malformed
    ]
    if report.state in ENDED:
        facts["state"] = report.state_name, (report.close or {}).get("by")
    for space in report.spaces:
        space.added, space.bursts = None, ()  # they name frames
        space.extra.pop("window_closed", None)
        space.extra.pop("window_closed_ms", None)  # a window that stays closed is so till the end
    return facts


def own(file: Path, network: int, places: list[int]) -> list[dict[str, Any]]:
    """Return what is told of the connections of one network, in order."""
    reports = analyze(file).connections
    return [told(one, places) for one in reports if one.client.startswith(f"{network}.")]


@pytest.mark.parametrize("path", chosen(PATHS))
def test_a_connection_is_the_same_whatever_else_is_in_the_capture(path: Path, tmp_path) -> None:
    if not frames_of(path, 20):
        pytest.skip("no whole IPv4 packets over Ethernet")
    chance = random.Random(path.stem)
    mixed = chance.sample(PATHS, len(PATHS))
    others = list(islice((other for other in mixed if frames_of(other, 21)), OTHERS))
    (places,) = merged([path], tmp_path / "alone.pcap")
    alone = own(tmp_path / "alone.pcap", 20, places)
    places, *_ = merged([path, *others], tmp_path / "merged.pcap")
    together = own(tmp_path / "merged.pcap", 20, places)
    for one, same in zip(alone, together, strict=True):
        if "state" not in one:
            same.pop("state", None)
        assert same == one


@pytest.mark.parametrize("path", chosen(PATHS))
def test_how_a_connection_ends_depends_on_nothing_else_in_the_same_time(path: Path, tmp_path) -> None:
    """Here every key is compared, since what runs beside the capture ends when it does."""
    frames = frames_of(path, 20)
    if not frames:
        pytest.skip("no whole IPv4 packets over Ethernet")
    chance = random.Random(f"{path.stem} beside")
    same = [each for each in captures(path.parent.name) if each != path and frames_of(each, 21)]
    mixed = [each for each in chance.sample(PATHS, len(PATHS)) if frames_of(each, 21)]
    others = [*chance.sample(same, min(2, len(same))), *mixed][:OTHERS]
    merged([path], tmp_path / "alone.pcap")
    merged([path, *others], tmp_path / "beside.pcap", max(time_ns for time_ns, _ in frames))
    assert lines(tmp_path / "beside.pcap", 20) == lines(tmp_path / "alone.pcap", 20)


def lines(file: Path, network: int) -> list[str]:
    """Return what `--json` says of the connections of one network, without numbers and frames."""
    found = [one for one in analyze(file).connections if one.client.startswith(f"{network}.")]
    return [NUMBERS.sub("", json.dumps(export.connection(one))) for one in found]
