"""Ports that are used again within one flow: by another protocol, or after a long silence."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

import pytest

from agreement import CAPTURES
from netdissect import pipeline as pipelines
from netdissect.capture import open_capture
from netdissect.diagnosis import diagnose
from netdissect.flow import Decapsulator
from netdissect.model.keys import flow_texts
from netdissect.model.packets import Packet, PacketKind, reverse_key
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline import Options, Pipeline, stages
from netdissect.pipeline.handlers import MAX_HELD
from netdissect.track.recorder import Recorder

SECOND = 1_000_000_000
KEY = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + (50_000).to_bytes(2, "big") + (4_000).to_bytes(2, "big")
NAMES = (
    "riptide/udp_2.2.1_clean", "riptide/udp_2.0.0_clean", "teeworlds/tw07_clean",
    "teeworlds/ddnet_clean", "knet/udp_clean_session", "knet/knet2010_clean", "eoudp/late_clean",
    "eoudp/rfc02_clean",
)  # fmt: skip


@dataclass
class Talk:
    """The datagrams of the longest connection of a capture."""

    protocol: str
    rows: list[tuple[int, int, bytes]]
    """(direction, time in ns since the first, payload)."""


def talk(name: str) -> Talk:
    with open_capture(CAPTURES / f"{name}.pcap") as reader:
        packets = [p for p in Decapsulator().packets(list(reader)) if p[0] == PacketKind.UDP]
    report = max(analysed(packets), key=lambda report: sum(report.datagrams))
    ends = [(report.client, report.server), (report.server, report.client)]
    mine = [packet for packet in packets if flow_texts(packet[3]) in ends]
    rows = [(ends.index(flow_texts(p[3])), p[2] - mine[0][2], p[4]) for p in mine]
    return Talk(report.protocol, rows)


def packets_of(
    rows: list[tuple[int, int, bytes]], before: list[Packet], gap_s: float
) -> list[Packet]:
    """Return packets of a talk `gap_s` after others, between the same ports."""
    last = before[-1][1] if before else 0
    begins = int((before[-1][2] if before else 0) + gap_s * SECOND)
    return [
        (PacketKind.UDP, last + n, begins + at, reverse_key(KEY) if way else KEY, octets,
         None, ())
        for n, (way, at, octets) in enumerate(rows, 1)
    ]  # fmt: skip


def analysed(packets: Iterable[Packet], options: Options | None = None) -> list[ConnectionReport]:
    pipeline = Pipeline(options or Options(strict=True))
    pipeline.run(packets)
    pipeline.finish()
    return list(pipeline.reports)


@pytest.mark.parametrize("gap_s", [3, 200])
@pytest.mark.parametrize(("name", "other"), list(permutations(NAMES, 2)))
def test_another_protocol_between_the_same_ports(name: str, other: str, gap_s: int) -> None:
    """All of it was one connection, with hundreds of malformed datagrams."""
    one, two = talk(name), talk(other)
    if one.protocol == two.protocol:
        pytest.skip("the same protocol")
    first = packets_of(one.rows, [], 1)
    packets = [*first, *packets_of(two.rows, first, gap_s)]
    reports = analysed(packets)
    assert [report.protocol for report in reports] == [one.protocol, two.protocol]
    assert reports[0].last_frame == len(first)
    assert (reports[1].first_frame, reports[1].last_frame) == (len(first) + 1, len(packets))


@pytest.mark.parametrize("name", [*NAMES, "eoudp/early_clean", "teeworlds/tw065_clean"])
def test_a_handshake_after_both_sides_gave_up_begins_a_connection(name: str) -> None:
    """The client was killed, and another one uses its port 200 s later."""
    rows = talk(name).rows
    first = packets_of(rows[: len(rows) // 2], [], 1)
    packets = [*first, *packets_of(rows, first, 200)]
    one, two = analysed(packets)
    assert (one.last_frame, two.first_frame) == (len(first), len(first) + 1)
    assert (two.client, two.server) == (one.client, one.server)
    assert diagnose(one).ending.how != "said"
    (whole,) = analysed(packets_of(rows, [], 1))
    assert (two.datagrams, two.state) == (whole.datagrams, whole.state)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_go_on_after_a_pause_are_those_of_the_same_connection(name: str) -> None:
    """The capture paused, or its clock was set forward."""
    rows = talk(name).rows
    middle = len(rows) // 2
    first = packets_of(rows[:middle], [], 1)
    rest = [(way, at - rows[middle][1], octets) for way, at, octets in rows[middle:]]
    (report,) = analysed([*first, *packets_of(rest, first, 200)])
    (whole,) = analysed(packets_of(rows, [], 1))
    assert report.datagrams == whole.datagrams


def test_malformed_datagrams_alone_begin_nothing() -> None:
    rows = talk("riptide/udp_2.2.1_clean").rows
    noise = [(n % 2, n * SECOND // 100, b"\xee" * 30) for n in range(300)]
    first = packets_of(rows, [], 1)
    middle = packets_of(noise, first, 1)
    (report,) = analysed([*first, *middle])
    assert sum(report.datagrams) == len(rows) + len(noise)
    assert report.last_frame == len(rows) + len(noise)


def test_both_passes_begin_the_same_connections() -> None:
    """The second pass knows where connections begin, and looks at the events of each datagram."""
    one, two = talk("knet/udp_clean_session"), talk("teeworlds/ddnet_clean")
    first = packets_of(one.rows, [], 1)
    packets = [*first, *packets_of(two.rows, first, 3)]
    pipeline = Pipeline(Options(placing=True, strict=True))
    pipeline.run(packets)
    pipeline.finish()
    begins = array("q", sorted(pipeline.begun.frames))
    assert list(begins) == [1, len(first) + 1]
    again = Pipeline(Options(begins=begins, near=pipeline.near, strict=True), recorder=Recorder())
    again.run(packets)
    again.finish()
    assert [report.first_frame for report in again.reports] == list(begins)


@pytest.mark.parametrize("seed", range(4))
def test_doubts_do_not_depend_on_who_watches(seed: int) -> None:
    """A scanner tells fewer faults than a scan: counted, they made a connection begin elsewhere."""
    chance = random.Random(seed)
    rows = talk("teeworlds/ddnet_clean").rows[:200]
    broken = [
        (way, at, octets[: chance.randrange(len(octets))] + chance.randbytes(3))
        for way, at, octets in rows
    ]
    first = packets_of(rows, [], 1)
    middle = packets_of(broken, first, 1)
    packets = [*first, *middle, *packets_of(talk("riptide/udp_2.2.1_clean").rows, middle, 1)]
    found = []
    for recorder in (None, Recorder()):
        pipeline = Pipeline(Options(strict=True), recorder=recorder)
        pipeline.run(packets)
        pipeline.finish()
        found.append([(report.protocol, report.first_frame) for report in pipeline.reports])
    assert found[0] == found[1]


# -- Teeworlds clients that connect again, or only seem to ------------------------------------------

CONTROL_06, CONTROL_07 = 0x10, 0x04
TOKEN = slice(8, 12)
"""The client's token in a connect of 0.7."""
Rows = list[tuple[int, int, bytes]]


def is_data(payload: bytes) -> bool:
    """Return whether a packet of DDNet or 0.6 carries chunks."""
    return not payload[0] & CONTROL_06


def ends_of(rows: Rows, again: Rows, gap_s: float) -> list[tuple[int, str | None, str]]:
    """Return (first frame, who ended it, how) of the connections of two talks, one after another."""
    first = packets_of(rows, [], 1)
    reports = analysed([*first, *packets_of(again, first, gap_s)])
    endings = [diagnose(report).ending for report in reports]
    return [(r.first_frame, e.by, e.how) for r, e in zip(reports, endings, strict=True)]


def test_a_client_that_got_no_data_connects_again() -> None:
    """The accept came, then nothing; a DDNet client gives up without a word."""
    whole = talk("teeworlds/ddnet_clean").rows
    deaf = [row for row in whole[:40] if row[0] == 0 or not is_data(row[2])]
    assert [first for first, *_ in ends_of(deaf, whole, 12)] == [1, len(deaf) + 1]


def test_who_connects_again_has_given_up_and_not_who_accepts() -> None:
    """The client's goodbye was lost, and the server goes on until the client is back."""
    whole = talk("teeworlds/ddnet_clean").rows
    open_end = [row for row in whole if row[1] < 6 * SECOND]
    found = ends_of(open_end, whole, 0.3)
    assert found[0] == (1, "client", "silent")
    assert found[1][0] == len(open_end) + 1


def test_data_that_was_under_way_does_not_open_a_closed_connection() -> None:
    """A connect begins another one, even if data overtakes the server's accept."""
    whole = talk("teeworlds/tw064_clean").rows
    late = next(row for row in reversed(whole) if row[0] == 1 and is_data(row[2]))
    closed = [*whole, (1, whole[-1][1] + SECOND // 50, late[2])]
    accept = next(place for place, row in enumerate(whole) if row[0] == 1)
    first, reply = (
        next(row for row in whole if row[0] == way and is_data(row[2])) for way in (1, 0)
    )
    again = [*whole[:accept], first, reply, *whole[accept:]]
    assert [first for first, *_ in ends_of(closed, again, 1)] == [1, len(closed) + 1]


@pytest.mark.parametrize("settled", [False, True])
def test_a_connect_with_another_token_alone_begins_nothing(settled) -> None:
    """DDNet 20 puts the magic of 0.6 there when it repeats its connect; a server answers with the
    token of the first connect that reaches it, and ignores the others.
    """
    whole = talk("teeworlds/tw07_clean")
    rows = list(whole.rows)
    place = next(n for n, row in enumerate(rows) if row[0] == 0 and row[2][7:8] == b"\1")
    connect = bytearray(rows[place][2])
    assert connect[0] == CONTROL_07
    connect[TOKEN] = b"TKEN"
    odd = 0, rows[place][1] + 1, bytes(connect)
    if settled:
        accept = next(n for n, row in enumerate(rows) if n > place and row[0] == 1)
        answer = 1, rows[accept][1], rows[accept][2][:3] + b"TKEN" + rows[accept][2][7:]
        rows[place : accept + 1] = [odd, answer, odd, answer, odd]
        rows = rows[: accept + 5]
    else:
        for at in (place + 6, place + 12, place + 40):
            rows.insert(at, (0, rows[at][1], bytes(connect)))
    assert len(analysed(packets_of(rows, [], 1))) == 1


@pytest.mark.parametrize(
    "name", ["teeworlds/ddnet_clean", "teeworlds/tw065_clean", "teeworlds/tw064_clean"]
)
def test_a_question_about_the_server_does_not_settle_the_dialect(name: str) -> None:
    """It is the same in 0.6 and its extensions; the next packets of the connection tell."""
    whole = talk(name).rows
    asks = 0, whole[150][1] - 1, b"\xff" * 10 + b"gie3\x01"
    (report,) = analysed(packets_of([asks, *whole[150:]], [], 1))
    (known,) = analysed(packets_of(whole, [], 1))
    assert report.dialects == known.dialects


@pytest.mark.parametrize("name", ["teeworlds/ddnet_clean", "teeworlds/tw065_clean"])
def test_what_may_begin_a_connection_is_held_within_a_bound(name: str) -> None:
    """A client that connects again and again, and whom the server does not answer."""
    rows = talk(name).rows
    half = packets_of(rows[: len(rows) // 2], [], 0)
    again = packets_of([(0, number, rows[0][2]) for number in range(4 * MAX_HELD)], half, 0.001)
    pipeline, most = Pipeline(Options(strict=True)), 0
    for packet in half + again:
        pipeline.feed(packet)
        most = max([most, *(len(flow.held) for flow in pipeline._table.flows())])
    pipeline.finish()
    assert most == MAX_HELD
    assert pipeline.limits_hit["MAX_HELD"] == 3 * MAX_HELD


def test_what_a_first_look_keeps_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = talk("riptide/udp_2.2.1_lossy_clientleg").rows
    packets: list[Packet] = []
    for _ in range(4):
        packets += packets_of(rows, packets, 1000)

    def looked() -> Pipeline:
        pipeline = Pipeline(Options(strict=True, placing=True))
        for packet in packets:
            pipeline.feed(packet)
        pipeline.finish()
        return pipeline

    assert (len(looked().near), looked().repeated) == (4, {1, 2, 3, 4})
    monkeypatch.setattr(stages, "MAX_REPORTS", 3)
    assert (len(looked().near), looked().repeated) == (3, None)


def test_flows_that_are_remembered_to_be_of_no_interest_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelines, "MAX_REMEMBERED", 2)
    keys = [KEY[:8] + number.to_bytes(2, "big") + KEY[10:] for number in range(1, 6)]
    known: dict[bytes, bool] = {}
    ends = {frozenset(flow_texts(keys[4]))}
    assert [pipelines._is_other(key, ends, known) for key in keys * 2] == [*[True] * 4, False] * 2
    assert len(known) == 2
