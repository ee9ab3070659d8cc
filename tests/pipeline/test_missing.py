"""Captures that miss frames: what is said of them is what is said of the whole, or unknown."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agreement import CAPTURES, captures
from netdissect.capture import open_capture
from netdissect.diagnosis import diagnose
from netdissect.flow import Decapsulator
from netdissect.model.keys import flow_texts
from netdissect.model.packets import SIDES, Frame
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline import Options, Pipeline
from netdissect.track.recorder import Recorder
from windows import BROADER, flow_of

PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp", "netplay")
TELLING = (
    "riptide/udp_2.0.0_burst_gap_clientleg.pcap",  # resends whose originals are missing
    "riptide/udp_2.2.1_lossy_clientleg.pcap",
    "riptide/udp_2.2.1_natreuse_serverleg.pcap",  # the handshake of the second one is missing
    "teeworlds/ddnet_rate_limited.pcap",  # a goodbye before another handshake is missing
    "teeworlds/ddnet_loss_server_side.pcap",
    "knet/udp_connect_dup_late.client.pcap",
    "knet/udp_loss8.server.pcap",
    "eoudp/late_accept_lost_client.pcap",
    "eoudp/late_resend_lossy_server.pcap",  # a resend stands for the unit that was not captured
    "eoudp/late_long32_client_vs_64_server.pcap",  # the acceptance is missing, then a refusal
    "netplay/bin1_server_full.pcap",
    "netplay/text_tiny_segments__client_leg.pcap",
)
RARELY = 0.02
"""Share of copies that may be taken for the wrong kind where frames are missing."""
FEW = 3
"""Or so many, where there are few."""
KEYS = {12, 36}
"""Bytes of the addresses and ports of IPv4 and IPv6."""
ENDS = ("", "leg", "_side", "_leg")
Drop = Callable[[list[Frame]], list[Frame]]
Copies = dict[tuple[int, int, str, int], str]


def at_random(share: float, seed: int) -> Drop:
    def kept(frames: list[Frame]) -> list[Frame]:
        chance = random.Random(seed)
        return [frame for frame in frames if chance.random() >= share]

    return kept


def in_bursts(seed: int) -> Drop:
    """Miss a run of frames now and then, as a capture does whose buffer is full."""

    def kept(frames: list[Frame]) -> Iterator[Frame]:
        chance = random.Random(seed)
        missing = 0
        for frame in frames:
            if not missing and chance.random() < RARELY:
                missing = chance.randrange(3, 25)
            if not missing:
                yield frame
            missing = max(0, missing - 1)

    return lambda frames: list(kept(frames))


DROPS = {
    "1%": at_random(0.01, 1), "5%": at_random(0.05, 2), "5% again": at_random(0.05, 3),
    "20%": at_random(0.2, 4), "bursts": in_bursts(5),
}  # fmt: skip


def concluded(frames: list[Frame]) -> tuple[list[ConnectionReport], Copies, set[Any]]:
    """Return the reports, the kind of each copy, and what is called lost."""
    packets = list(Decapsulator().packets(frames))
    first = Pipeline(Options(placing=True, strict=True))
    first.run(packets)
    first.finish()
    recorder = Recorder()
    pipeline = Pipeline(Options(near=first.near, strict=True), recorder=recorder)
    pipeline.run(packets)
    pipeline.finish()
    reports = list(pipeline.reports)
    streams = {report.connection for report in reports if report.transport == "tcp"}
    kinds: Copies = {}
    lost = set()
    for unit in recorder.rest():
        if isinstance(unit, UnitRecord) and unit.connection not in streams:
            place = unit.direction, unit.space, unit.wire_seq
            kinds |= {(copy.frame, *place): copy.kind for copy in unit.copies}
            if unit.lost:
                lost.add((unit.copies[0].frame, *place))
    return reports, kinds, lost


def frames_of(path: Path) -> list[Frame]:
    with open_capture(path) as reader:
        return list(reader)


def chosen() -> list[Any]:
    telling = {CAPTURES / name for name in TELLING}
    return [
        pytest.param(path, id=path.stem, marks=() if path in telling else pytest.mark.slow)
        for protocol in PROTOCOLS
        for path in captures(protocol)
    ]


def side_of(path: Path) -> str | None:
    """Return at which side a capture was taken, by the name of its file."""
    ends = {f"{mark}{side}{word}": side for side in SIDES for mark in "_." for word in ENDS}
    return next((side for end, side in ends.items() if path.stem.endswith(end)), None)


@pytest.mark.parametrize("path", chosen())
def test_what_misses_frames_says_nothing_that_is_not_so(path: Path) -> None:
    frames = frames_of(path)
    whole, kinds, lost = concluded(frames)
    by_flow = defaultdict(list)
    for report in whole:
        by_flow[flow_of(report)].append(report)
    wrong = copies = 0
    for name, drop in DROPS.items():
        reports, part, gone = concluded(drop(frames))
        for report in reports:
            true = by_flow[flow_of(report)]
            assert true, name
            ends = {(one.close or {}).get("by") for one in true}
            assert (report.close or {}).get("by") in {None, *ends} or silent(report), name
            for one, dialect in zip(SIDES, report.dialects, strict=True):
                said = {each.dialects[SIDES.index(one)] for each in true}
                broader = {wider for each in said for wider in BROADER.get(each, ())}
                if report.datagrams[SIDES.index(one)] and len(true) == 1:
                    assert dialect in said | broader, name
            if report.transport == "udp" and side_of(path) is not None:
                assert report.vantage in {side_of(path), "unknown"}, report.vantage_basis
        assert len(reports) <= len(whole) + 1
        for place, kind in part.items():
            copies += kind != "original"
            wrong += kind not in {"original", "unknown", kinds.get(place, kind)}
        wrong += len({place for place in gone if place in kinds} - lost)
    assert wrong <= max(FEW, RARELY * copies)


def silent(report: ConnectionReport) -> bool:
    """Return whether an end is concluded from silence, and said to be."""
    return report.state in {"timed_out", "silent"} or "silent-close" in report.codes


def test_one_datagram_begins_one_connection() -> None:
    """Without the goodbye of the first client, the second handshake was taken up for ever."""
    frames = frames_of(CAPTURES / "teeworlds" / "ddnet_rate_limited.pcap")
    reports = concluded(at_random(0.05, 2005)(frames))[0]
    assert len(reports) <= len(concluded(frames)[0])


@pytest.mark.parametrize("name", ["bin1_example_server_full", "text_utf8_split__server_leg"])
def test_who_answers_a_fin_did_not_end_the_connection(name: str) -> None:
    """Each FIN is missing in turn: what acknowledges it shows that it was there."""
    frames = frames_of(CAPTURES / "netplay" / f"{name}.pcap")
    ends = {flow_of(report): report.close for report in concluded(frames)[0]}
    firsts = {close["frame"] for close in ends.values() if close and close["reason"] == "FIN"}
    assert firsts
    for first in firsts:
        for report in concluded([frame for frame in frames if frame[0] != first])[0]:
            true = ends[flow_of(report)]
            assert (report.close or {}).get("by") in {None, (true or {}).get("by")}


@pytest.mark.parametrize(
    "name",
    [
        "netplay/bin1_example_server_full",  # a RST follows, or nothing but an acknowledgement
        "netplay/bin1_length_wrap",  # it is not acknowledged: the number of the RST tells
        "netplay/text_aborts",
        "knet/tcp_malformed_length.client",
    ],
)
def test_who_hung_up_is_told_without_the_fin(name: str) -> None:
    """It was said to be a reset, for certain, or to be open still."""
    frames = frames_of(CAPTURES / f"{name}.pcap")
    whole = concluded(frames)[0]
    firsts = {
        report.close["frame"]
        for report in whole
        if report.close is not None and report.close["reason"] == "FIN"
    }
    assert firsts
    part = concluded([frame for frame in frames if frame[0] not in firsts])[0]
    for one, other in zip(whole, part, strict=True):
        ended, told = diagnose(one).ending, diagnose(other).ending
        assert (told.by, told.how) == (ended.by, ended.how)
        if one.close is not None and one.close["frame"] in firsts:
            assert (told.reason, told.confidence) == ("FIN", "likely")


def test_a_syn_without_its_answer_was_answered_where_the_stream_goes_on() -> None:
    frames = frames_of(CAPTURES / "netplay" / "bin1_example_chat.pcap")
    whole = concluded(frames)[0]
    second = [frame for frame in frames if frame[0] != whole[0].first_frame + 1]
    (report, *_) = concluded(second)[0]
    assert (report.handshake, report.state) == (whole[0].handshake, whole[0].state)


def test_numbers_that_begin_anew_are_no_resends() -> None:
    """The CONNECT of the second connection is missing; two numbers in a row hold other content."""
    path = CAPTURES / "eoudp" / "late_accept_lost_client.pcap"
    frames = frames_of(path)
    _, kinds, _ = concluded(frames)
    _, part, _ = concluded(in_bursts(1)(frames))
    wrong = [place for place, kind in part.items() if kind == "retransmission"
             and kinds.get(place) == "original"]  # fmt: skip
    assert len(wrong) <= 4


@pytest.mark.parametrize(("side", "seed"), [("client", 11), ("server", 2)])
def test_an_answer_to_a_copy_that_is_missing_makes_no_long_way_short(side: str, seed: int) -> None:
    """One such answer was quick: the capture of one side of a relay was one of a direct link."""
    frames = frames_of(CAPTURES / "riptide" / f"udp_2.0.0_lossy_{side}leg.pcap")
    whole, kinds, _ = concluded(frames)
    (report,), part, _ = concluded(at_random(0.05, seed)(frames))
    assert report.misses_frames
    assert (report.vantage, report.near) == (side, whole[0].near)
    # How usual a pause is depends on all frames, so that a verdict may become unknown, or known.
    assert not [place for place, kind in part.items()
                if kind not in ("original", "unknown", kinds[place]) and kinds[place] != "unknown"]  # fmt: skip


def test_a_connect_whose_request_is_missing_begins_a_connection() -> None:
    """The copies of its numbers were taken for the network's, of units seconds before."""
    frames = frames_of(CAPTURES / "teeworlds" / "tw07_reconnect.pcap")
    request = 140
    whole, kinds, _ = concluded(frames)
    reports, part, _ = concluded([frame for frame in frames if frame[0] != request])
    assert len(reports) == len(whole)
    assert all(kind == kinds[place] for place, kind in part.items())


def heard(frames: list[Frame], senders: set[str]) -> list[Frame]:
    """Return the frames that some endpoints sent."""
    sent = {
        packet[1]
        for packet in Decapsulator().packets(frames)
        if len(packet[3]) in KEYS and flow_texts(packet[3])[0] in senders
    }
    return [frame for frame in frames if frame[0] in sent]


@pytest.mark.parametrize("side", [0, 1], ids=SIDES)
@pytest.mark.parametrize(
    "name",
    ["2.0.0_kick_stop", "2.1dev_clean", "2.2.1_reconnect", "2.2.1_malformed", "2.2.1_burst_gap_clientleg",
     "pytide2.1client_2.2.1server"],
)  # fmt: skip
def test_one_side_of_a_handshake_is_enough_to_know_riptide(name: str, side: int) -> None:
    frames = frames_of(CAPTURES / "riptide" / f"udp_{name}.pcap")
    whole = [report for report in concluded(frames)[0] if report.handshake == "accepted"]
    senders = {(report.client, report.server)[side] for report in whole}
    found = {flow_of(report): report for report in concluded(heard(frames, senders))[0]}
    for report in whole:
        same = found[flow_of(report)]
        assert (same.client, same.server) == (report.client, report.server)
        told = same.dialects[side]
        assert report.dialects[side] in {told, *(d for d, wide in BROADER.items() if told in wide)}


HEARD = {
    CAPTURES / name
    for name in (
        "teeworlds/ddnet_clean.pcap", "teeworlds/tw07_rcon.pcap", "knet/knet2010_clean.pcap",
        "knet/udp_clean_session.pcap", "eoudp/late_clean.pcap", "eoudp/rfc02_clean.pcap",
        "netplay/bin1_lossy__client_side.pcap", "eoudp/early_clean.pcap",
        "knet/udp_malformed_to_client.client.pcap", "eoudp/mid_clean.pcap",
    )
}  # fmt: skip
UNPROVEN = {CAPTURES / "netplay" / "bin1_length_wrap.pcap"}  # what its server sends is nobody's


@pytest.mark.parametrize("side", [0, 1], ids=SIDES)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem, marks=() if path in HEARD | UNPROVEN else pytest.mark.slow
        )
        for protocol in PROTOCOLS
        for path in captures(protocol)
    ],
)
def test_a_direction_that_is_not_captured_is_not_silent(path: Path, side: int) -> None:
    """What one side sends shows that the other is there: nobody fell silent, nobody is to blame,
    and where the capture stands cannot be told.
    """
    frames = frames_of(path)
    whole = concluded(frames)[0]
    senders = {(report.client, report.server)[side] for report in whole}
    found = concluded(heard(frames, senders))[0]
    assert path not in HEARD or any(report.misses_frames for report in found)
    for report in found:
        assert report.vantage == "unknown"
        if side and report.transport == "udp" and report.roles_from in {"handshake", "protocol"}:
            assert report.misses_frames or report.datagrams[0]
        known = any((report.client, report.server) == (one.client, one.server) for one in whole)
        if report.datagrams[1 - side] or not report.misses_frames or not known:
            continue
        assert not [span for span in report.quiet if span.direction != side]
        assert report.handshake != "unanswered"
        told = diagnose(report)
        assert told.ending.how not in {"never-answered", "gave-up", "silent"}
        assert (told.ending.how, told.ending.by) != ("open", "nobody")
        if told.cause.what in {"none", "closed"} and report.datagrams[side]:
            assert f"only what the {SIDES[side]} sent" in told.cause.text


@pytest.mark.parametrize(
    ("name", "side"),
    [("eoudp/rfc02_lossy_server", 0), ("teeworlds/ddnet_loss_server_side", 0)],
)
def test_nothing_is_unacknowledged_while_the_acknowledgements_are_not_heard(
    name: str, side: int
) -> None:
    """One direction is missing for a third of the capture: its acknowledgements may have come."""
    frames = frames_of(CAPTURES / f"{name}.pcap")
    whole, *_ = concluded(frames)
    port = int((whole[0].client, whole[0].server)[side].rpartition(":")[2]).to_bytes(2, "big")
    third = len(frames) // 3
    part, *_ = concluded(
        [
            frame
            for place, frame in enumerate(frames)
            if place // third != 1 or frame[3][34:36] != port
        ]
    )
    for before, now in zip(whole[0].spaces, part[0].spaces, strict=True):
        if before.direction != side:
            assert (now.units, now.unacked <= before.unacked) == (before.units, True)


@pytest.mark.parametrize("octets", [64, 96])
@pytest.mark.parametrize("name", ["knet/udp_loss8.client", "knet/knet2010_loss.server"])
def test_nothing_is_lost_because_a_snap_length_cut_its_acknowledgement(
    name: str, octets: int
) -> None:
    frames = frames_of(CAPTURES / f"{name}.pcap")
    cut = [(number, at, link, data[:octets], size) for number, at, link, data, size in frames]
    _, _, whole = concluded(frames)
    (report,), _, lost = concluded(cut)
    assert report.misses_frames
    assert lost <= whole


def begun_late(
    name: str, side: int, start: float = 0.0, end: float = 0.5
) -> tuple[ConnectionReport, ConnectionReport]:
    """Return the report of a capture, and that without what a side sent in a part of it."""
    frames = frames_of(CAPTURES / f"{name}.pcap")
    (whole, *_), *_ = concluded(frames)
    part = frames[int(start * len(frames)) : int(end * len(frames))]
    missing = {frame[0] for frame in heard(part, {(whole.client, whole.server)[side]})}
    (report, *_), *_ = concluded([frame for frame in frames if frame[0] not in missing])
    return whole, report


def test_a_server_heard_late_had_accepted_the_client_that_answers_it() -> None:
    whole, report = begun_late("knet/udp_loss8.server", 1)
    assert (report.handshake, report.state) == (whole.handshake, whole.state)
    assert diagnose(report).ending.how == diagnose(whole).ending.how


@pytest.mark.parametrize(
    ("name", "side"),
    [("teeworlds/tw07_blackout_server_side", 1), ("teeworlds/ddnet_full", 1),
     ("teeworlds/ddnet_kicked", 1)],
)  # fmt: skip
def test_what_was_sent_before_a_side_was_heard_gives_no_round_trip(name: str, side: int) -> None:
    """It may have been acknowledged long before: the quickest answer seemed to take seconds."""
    whole, report = begun_late(name, side)
    assert report.vantage in {whole.vantage, "unknown"}


@pytest.mark.parametrize(
    ("name", "side"),
    [("knet/urho_fork_loss.client", 0), ("riptide/udp_2.2.1_lossy_clientleg", 0),
     ("teeworlds/tw07_loss_server_side", 1)],
)  # fmt: skip
def test_a_side_that_was_acknowledged_before_it_was_heard_had_not_stopped(
    name: str, side: int
) -> None:
    _, report = begun_late(name, side)
    assert report.misses_frames
    cause = diagnose(report).cause
    assert (cause.what, cause.confidence) != ("silence", "certain")


@pytest.mark.parametrize(
    ("name", "side"),
    [("knet/udp_rmn_over_32767", 1), ("teeworlds/tw07_big_snap", 0), ("eoudp/late_clean", 0)],
)
def test_what_was_sent_before_a_side_was_heard_may_have_been_acknowledged(
    name: str, side: int
) -> None:
    whole, report = begun_late(name, side)
    known = {(one.space, one.direction): one.unacked for one in whole.spaces}
    for space in report.spaces:
        if space.direction != side:
            assert space.unacked <= known[space.space, space.direction]


@pytest.mark.parametrize("part", [(0.2, 0.5), (0.4, 0.7)])
@pytest.mark.parametrize(
    ("name", "side"),
    [("eoudp/early_clean", 0), ("eoudp/rfc02_clean", 0), ("knet/udp_content_id.client", 1)],
)
def test_what_was_sent_while_the_other_side_was_not_captured_may_have_been_acknowledged(
    name: str, side: int, part: tuple[float, float]
) -> None:
    """Only questions without an answer show that it was not heard."""
    whole, report = begun_late(name, side, *part)
    known = {(one.space, one.direction): one.unacked for one in whole.spaces}
    for space in report.spaces:
        if space.direction != side:
            assert space.unacked <= known[space.space, space.direction]


def test_a_single_jump_of_the_numbers_is_no_loss_on_the_way() -> None:
    """Forged numbers left 59 out; without the client's answers, it seemed to be far away."""
    frames = frames_of(CAPTURES / "riptide" / "udp_main_malformed.pcap")
    clients = {report.client for report in concluded(frames)[0]}
    middle = heard(frames[len(frames) // 3 : 2 * len(frames) // 3], clients)
    missing = {frame[0] for frame in middle}
    found = concluded([frame for frame in frames if frame[0] not in missing])[0]
    assert {report.vantage for report in found} == {"unknown"}


def all_snapped(name: str, octets: int) -> list[ConnectionReport]:
    frames = frames_of(CAPTURES / f"{name}.pcap")
    cut = [(number, at, link, data[:octets], size) for number, at, link, data, size in frames]
    return list(concluded(cut)[0])


def snapped(name: str, octets: int) -> ConnectionReport:
    return all_snapped(name, octets)[0]


@pytest.mark.parametrize("octets", [68, 96, 1500])
def test_a_client_comes_back_although_its_padding_is_cut_off(octets: int) -> None:
    reports = all_snapped("teeworlds/tw07_reconnect", octets)
    assert [report.first_frame for report in reports] == [1, 140, 304]
    copied = sum(space.duplicates + space.retransmissions for one in reports for space in one.spaces)
    assert not copied


@pytest.mark.parametrize("name", ["eoudp/late_reconnect", "eoudp/late_resend_peer_server"])
def test_a_client_whose_answer_is_cut_off_did_not_give_up(name: str) -> None:
    """What accepted it is not whole in the capture; its goodbye is."""
    report = snapped(name, 68)
    assert (report.handshake, report.misses_frames) == ("unanswered", True)
    assert diagnose(report).ending.how == "said"


def test_a_client_that_was_served_did_not_give_up() -> None:
    _, report = begun_late("eoudp/late_oversize_resend", 1)
    assert diagnose(report).ending.how == "said"


def test_a_refusal_is_not_certain_where_the_acceptance_may_be_missing() -> None:
    ending = diagnose(snapped("teeworlds/ddnet_kicked", 54)).ending
    assert (ending.how, ending.confidence) == ("rejected", "likely")
