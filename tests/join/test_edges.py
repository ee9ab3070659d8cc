"""What captures of two machines are really like: other clocks, cards, snap lengths and addresses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdissect.capture import PcapWriter
from netdissect.join import (
    NotJoinedError,
    engine,
    join,
    join_all,
    matching,
    pairing,
    rows,
    sample,
    streams,
    tokens,
    weigh,
    write_joined,
)
from netdissect.join.clock import Clock, ClockPiece
from netdissect.join.joined import Joined
from netdissect.join.observed import Observed
from netdissect.lookup import hot_path
from netdissect.model.joined import Burst, Fate
from netdissect.model.packets import SIDES
from netdissect.model.reports import CaptureInfo
from packetbuild import A4, B4, ipv4, link_frame, udp
from twocaptures import (
    CAPTURES,
    Record,
    ethernet,
    fragmented,
    interleaved,
    jittered,
    over_ipv6,
    padded,
    records,
    rewritten,
    shifted,
    snapped,
    stepped,
    thinned,
    with_ip,
    with_port,
)

LOSSY = (
    CAPTURES / "teeworlds" / "tw07_loss_client_side.pcap",
    CAPTURES / "teeworlds" / "tw07_loss_server_side.pcap",
)
TCP = (
    CAPTURES / "netplay" / "bin1_lossy__client_side.pcap",
    CAPTURES / "netplay" / "bin1_lossy__server_side.pcap",
)
KNET = (
    CAPTURES / "knet" / "udp_loss8.client.pcap",
    CAPTURES / "knet" / "udp_loss8.server.pcap",
)
EARLY = (
    CAPTURES / "eoudp" / "early_lossy_client.pcap",
    CAPTURES / "eoudp" / "early_lossy_server.pcap",
)
S = 1_000_000_000


def fates(found: Joined) -> list[dict[int, tuple[Fate, int | None]]]:
    return [
        {frame: (row.fate, row.partner) for frame, row in found.fates(capture)}
        for capture in (0, 1)
    ]


@cache
def as_shipped(pair: tuple[Path, Path]) -> list[dict[int, tuple[Fate, int | None]]]:
    with join(str(pair[0]), str(pair[1])) as found:
        return fates(found)


def counts(found: Joined) -> Counter[Fate]:
    return Counter(row.fate for capture in (0, 1) for _, row in found.fates(capture))


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    offset=st.integers(-(10**9) * S // 10, 10**8 * S),
    drift=st.sampled_from([0.0, 200e-6, -200e-6, 37e-6]),
    pair=st.sampled_from([LOSSY, KNET, TCP]),
    nanosecond=st.booleans(),
)
def test_an_injected_clock_is_found_within_the_printed_bound(
    tmp_path: Path, offset: int, drift: float, pair: tuple[Path, Path], nanosecond: bool
) -> None:
    there = rewritten(pair[1], tmp_path / "b.pcap", shifted(offset, drift), nanosecond=nanosecond)
    with join(str(pair[0]), there) as found:
        bound = (found.report.clock.bound_ms or 0) * 1e6
        start = records(pair[1])[0][0]
        for place in (0, 5 * S, 11 * S):
            by_b = start + place + offset + round(place * drift)
            assert abs(found.common_ns(1, 1, by_b) - (start + place)) <= bound
        told = found.report.clock
        assert abs(told.drift_ppm - drift * 1e6) <= told.drift_bound_ppm
        lost = Counter(fate for fate, _ in fates(found)[0].values())[Fate.LOST]
    assert lost == Counter(fate for fate, _ in as_shipped(pair)[0].values())[Fate.LOST]


@pytest.mark.parametrize("span", [10 * S, -10 * S])
@pytest.mark.parametrize("which", [0, 1])
def test_a_clock_that_is_set_by_ten_seconds(tmp_path: Path, span: int, which: int) -> None:
    paths = [str(path) for path in LOSSY]
    paths[which] = rewritten(LOSSY[which], tmp_path / "stepped.pcap", stepped(500, span))
    with join(paths[0], paths[1]) as found:
        ((capture, frame, by_ms),) = found.report.clock.steps
        assert (capture, frame) == (which, 501)
        assert abs(by_ms - span / 1e6) < 100
        shipped = as_shipped(LOSSY)
        for mine, was in zip(fates(found), shipped, strict=True):
            assert {frame: told for frame, told in mine.items() if told != was[frame]} == {}


@pytest.mark.parametrize(
    ("name", "at"), [("eoudp/late_accept_lost_{}", 295), ("riptide/udp_2.2.1_burst_gap_{}leg", 252)]
)
def test_a_clock_that_is_set_while_much_is_on_its_way(tmp_path: Path, name: str, at: int) -> None:
    """In the order of the other capture, old and new time stamps alternate around the step."""
    client, server = (CAPTURES / f"{name.format(side)}.pcap" for side in SIDES)
    stepping = rewritten(server, tmp_path / "stepped.pcap", stepped(at, 10 * S))
    with join(str(client), stepping) as found:
        ((capture, frame, by_ms),) = found.report.clock.steps
        assert (capture, frame) == (1, at + 1)
        assert abs(by_ms - 10_000) < 100
        assert fates(found) == as_shipped((client, server))


@pytest.mark.parametrize(("which", "span"), [(1, 10 * S), (0, -10 * S)])
def test_a_clock_that_is_set_in_a_long_pause(tmp_path: Path, which: int, span: int) -> None:
    """With its pause of 3.5 s the jump was too far from the step, and no clock fitted."""
    pair = tuple(CAPTURES / "knet" / f"udp_blackout_c2s_zombie.{side}.pcap" for side in SIDES)
    paths = [str(path) for path in pair]
    paths[which] = rewritten(pair[which], tmp_path / "stepped.pcap", stepped(30, span))
    with join(paths[0], paths[1]) as found:
        ((capture, frame, by_ms),) = found.report.clock.steps
        assert (capture, frame) == (which, 31)
        assert abs(by_ms - span / 1e6) < 100
        assert fates(found) == as_shipped(pair)


@pytest.mark.parametrize("span", [10 * S, -10 * S])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("riptide/udp_2.2.1_poorconnection_attempts_{}leg", -3),  # only equal payloads follow
        ("riptide/udp_2.2.1_poorconnection_attempts_{}leg", 8),
        ("riptide/udp_2.0.0_giveup_{}leg", 3),
        ("knet/udp_blackout_both.{}", 69),  # one datagram arrives afterwards, then none does
        ("knet/udp_blackout_c2s_zombie.{}", 2),
        ("knet/udp_connect_dup_late.{}", 1),  # a copy of the first datagram comes after the step
        ("eoudp/late_connect_retry_{}", 6),
    ],
)
def test_a_clock_that_is_set_near_the_end_of_what_confirms_it(
    tmp_path: Path, name: str, at: int, which: int, span: int
) -> None:
    """Few datagrams beyond the step or none show the new time: what they cannot tell is in doubt."""
    pair = tuple(CAPTURES / f"{name.format(side)}.pcap" for side in SIDES)
    paths = [str(path) for path in pair]
    place = at if at > 0 else len(records(pair[which])) + at
    paths[which] = rewritten(pair[which], tmp_path / "stepped.pcap", stepped(place, span))
    with join(paths[0], paths[1]) as found:
        for capture, shipped in enumerate(as_shipped(pair)):
            for frame, row in found.fates(capture):
                sure = not row.ambiguous and row.fate is not Fate.OUTSIDE
                if sure and shipped[frame][0] is not Fate.OUTSIDE:
                    assert (row.fate, row.partner) == shipped[frame], (capture, frame)


def test_drift_over_a_long_capture_is_found(tmp_path: Path) -> None:
    """Stretched to ten minutes, 200 ppm are 120 ms, more than any delay."""
    start = min(records(path)[0][0] for path in KNET)

    def stretched(found: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
        return [
            (time + (time - start) // (S // 10) * 4 * S, data, wire) for time, data, wire in found
        ]

    ours = rewritten(KNET[0], tmp_path / "a.pcap", stretched)
    theirs = rewritten(KNET[1], tmp_path / "b.pcap", stretched, shifted(3 * S, 200e-6))
    with join(ours, theirs) as found:
        told = found.report.clock
        assert abs(told.drift_ppm - 200) <= told.drift_bound_ppm <= 100
        assert counts(found)[Fate.DELIVERED] > 800


@pytest.mark.parametrize("pair", [LOSSY, TCP], ids=["udp", "tcp"])
def test_snap_lengths_and_trailers_change_nothing(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    ours = rewritten(pair[0], tmp_path / "a.pcap", snapped(90))
    theirs = rewritten(pair[1], tmp_path / "b.pcap", padded(4), snapped(120))
    with join(ours, theirs) as found:
        shipped = as_shipped(pair)
        mine = fates(found)
        ambiguous = {
            (capture, frame)
            for capture in (0, 1)
            for frame, row in found.fates(capture)
            if row.ambiguous
        }
        for capture in (0, 1):
            for frame, fate in mine[capture].items():
                assert fate == shipped[capture][frame] or (capture, frame) in ambiguous
        assert len(ambiguous) < 40


@pytest.mark.parametrize("pair", [LOSSY, KNET, TCP], ids=["teeworlds", "knet", "tcp"])
def test_what_a_capture_misses_is_no_loss(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """The server's side misses a twentieth: what was answered was there."""
    theirs = rewritten(pair[1], tmp_path / "b.pcap", thinned(0.05, 7))
    with join(str(pair[0]), theirs) as found:
        shipped = as_shipped(pair)[0]
        told = dict(found.fates(0))
    wrong = [
        frame
        for frame, row in told.items()
        if row.fate is Fate.LOST and shipped[frame][0] is Fate.DELIVERED
    ]
    assert all(told[frame].ambiguous for frame in wrong)
    truly = sum(fate is Fate.LOST for fate, _ in shipped.values())
    missed = [frame for frame, row in told.items() if row.fate in {Fate.UNSEEN, Fate.DOUBTFUL}]
    assert any(row.fate is Fate.UNSEEN for row in told.values())
    assert all(shipped[f][0] is Fate.DELIVERED for f in missed if told[f].fate is Fate.UNSEEN)
    assert len(wrong) <= 0.1 * truly
    assert len(missed) >= len(wrong)


def test_acknowledgements_that_a_capture_misses_are_not_called_lost(tmp_path: Path) -> None:
    """What nobody answers shows its arrival by nothing; and that none of 60 answered segments was
    missed, counted by their messages and bytes, seemed to show that the capture misses none.
    """
    pair = [
        CAPTURES / "netplay" / f"bin1_blackout_recovers__{side}_side.pcap"
        for side in ("client", "server")
    ]
    left = (32, 46, 55, 96, 160, 186, 199, 214, 233)
    ours = rewritten(
        pair[0], tmp_path / "a.pcap",
        lambda found: [each for at, each in enumerate(found, 1) if at not in left],
    )  # fmt: skip
    with join(str(pair[0]), str(pair[1])) as whole, join(ours, str(pair[1])) as joined:
        for frame, row, _ in whole.sent(1):
            if row.fate is Fate.DELIVERED:
                assert joined.fate(1, frame).fate is not Fate.LOST, frame


def test_twins_of_which_captures_miss_some_are_not_called_lost(tmp_path: Path) -> None:
    """Where all is sent twice, what one capture has once is mostly what it missed the twin of."""
    ours = rewritten(EARLY[0], tmp_path / "a.pcap", thinned(0.03, 1))
    theirs = rewritten(EARLY[1], tmp_path / "b.pcap", thinned(0.03, 2))
    with join(ours, theirs) as found:
        (one,) = found.report.conversations
        for way, truly in zip(one.ways, (105, 92), strict=True):
            assert truly / 2 <= way.lost <= truly + 0.05 * way.sent


@pytest.mark.parametrize("span", [0, 10])
@pytest.mark.parametrize("side", [0, 1])
def test_twins_seen_once_are_no_clock_where_they_go_one_way(
    tmp_path: Path, side: int, span: int
) -> None:
    """Ten datagrams were in both captures once, all from the client: no clock follows from them."""
    changed = rewritten(
        EARLY[side], tmp_path / "x.pcap", stepped(800, span * 1_000_000_000), thinned(0.05, 5)
    )
    ours, theirs = (changed, str(EARLY[1])) if side == 0 else (str(EARLY[0]), changed)
    with join(ours, theirs) as found:
        (piece, *_) = found.clock.pieces
        assert abs(piece.offset_ns) <= (piece.bound_ns or 0)
        (one,) = found.report.conversations
        assert all(way.delivered > 0.8 * way.arrived for way in one.ways)


def test_a_nat_that_rebinds_is_one_conversation(tmp_path: Path) -> None:
    port = int.from_bytes(records(LOSSY[1])[0][1][34:36], "big")
    theirs = rewritten(LOSSY[1], tmp_path / "b.pcap", with_port(port, 61_111, since=500))
    with join(str(LOSSY[0]), theirs) as found:
        (one,) = found.report.conversations
        assert len(one.ends[1]) == 2
        assert fates(found) == as_shipped(LOSSY)


def test_clients_that_share_an_upstream_port(tmp_path: Path) -> None:
    """A relay may use one port for all clients: then the server's side is one flow."""
    ours = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    theirs = CAPTURES / "riptide" / "udp_2.2.1_lossy_serverleg.pcap"
    port = int.from_bytes(records(ours)[0][1][34:36], "big")
    split = rewritten(ours, tmp_path / "a.pcap", with_port(port, 50_000, since=400))
    with join(split, str(theirs)) as found:
        (one,) = found.report.conversations
        assert len(one.ends[0]) >= 1
        assert sum(way.sent for way in one.ways) == 560 + 553


@pytest.mark.parametrize("pair", [LOSSY, TCP], ids=["udp", "tcp"])
def test_ipv4_beside_ipv6(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    theirs = rewritten(pair[1], tmp_path / "b.pcap", with_ip(over_ipv6))
    with join(str(pair[0]), theirs) as found:
        told = [Counter(fate for fate, _ in side.values()) for side in fates(found)]
    assert told == [Counter(fate for fate, _ in side.values()) for side in as_shipped(pair)]


def test_fragments_on_one_side(tmp_path: Path) -> None:
    theirs = rewritten(LOSSY[1], tmp_path / "b.pcap", with_ip(fragmented))
    with join(str(LOSSY[0]), theirs) as found:
        told = Counter(fate for fate, _ in fates(found)[0].values())
    assert told == Counter(fate for fate, _ in as_shipped(LOSSY)[0].values())


def test_twice_the_same_place_says_so(tmp_path: Path) -> None:
    again = rewritten(LOSSY[0], tmp_path / "b.pcap", jittered(9_000, 3), thinned(0.02, 4))
    with join(str(LOSSY[0]), again) as found:
        assert found.report.same_place
        assert {one.kind for one in found.report.conversations} == {"same place"}
        assert all(way.lost == 0 for one in found.report.conversations for way in one.ways)
        assert counts(found)[Fate.UNSEEN] > 0
    with join(str(KNET[0]), str(KNET[0])) as found:
        assert found.report.same_place


def test_segments_that_a_card_joins_are_found_by_their_octets(tmp_path: Path) -> None:
    """Large receive offload: neighbouring segments of one direction become one record."""

    def joined_segments(found: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
        out: list[tuple[int, bytes, int]] = []
        for time, data, wire in found:
            last = out[-1][1] if out else b""
            if (
                last[26:38] == data[26:38]
                and body(data)
                and body(last)
                and int.from_bytes(last[38:42], "big") + len(body(last))
                == int.from_bytes(data[38:42], "big")
            ):
                whole = last + body(data)
                size = len(whole) - 14
                whole = whole[:16] + size.to_bytes(2, "big") + whole[18:]
                out[-1] = (time, whole, len(whole))
            else:
                out.append((time, data, wire))
        return out

    def body(frame: bytes) -> bytes:
        end = 14 + int.from_bytes(frame[16:18], "big")
        return frame[34 + (frame[46] >> 4) * 4 : end]

    pair = (
        CAPTURES / "netplay" / "text_lossy__client_side.pcap",
        CAPTURES / "netplay" / "text_lossy__server_side.pcap",
    )
    theirs = rewritten(pair[1], tmp_path / "b.pcap", joined_segments)
    joined = len(records(pair[1])) - len(records(Path(theirs)))
    assert joined > 0
    with join(str(pair[0]), theirs) as found:
        mine = Counter(fate for fate, _ in fates(found)[0].values())
    shipped = Counter(fate for fate, _ in as_shipped(pair)[0].values())
    assert mine[Fate.LOST] == shipped[Fate.LOST]
    assert mine[Fate.DELIVERED] == shipped[Fate.DELIVERED]


STRANGERS = [
    ("riptide/udp_2.2.1_lossy_clientleg", "riptide/udp_2.2.1_poorconnection_loss_serverleg"),
    ("knet/udp_malformed_to_client.client", "knet/udp_malformed_to_server.server"),
    ("knet/udp_disconnectack_lost.client", "knet/udp_blackout_c2s_zombie.server"),
    ("knet/udp_connect_lost.client", "knet/udp_disconnect_lost.server"),
    ("teeworlds/tw07_loss_client_side", "teeworlds/tw07_blackout_server_side"),
    ("netplay/bin1_lossy__client_side", "netplay/bin2_lossy__server_side"),
    ("knet/tcp_rst.client", "knet/tcp_malformed_length.server"),
    ("riptide/udp_2.2.1_clean", "riptide/udp_main_clean"),
    ("eoudp/late_clean", "netplay/bin1_lossy__client_side"),
]


@pytest.mark.parametrize(("one", "other"), STRANGERS)
def test_strangers_are_refused(one: str, other: str) -> None:
    with pytest.raises(NotJoinedError, match="do not belong together"):
        join(str(CAPTURES / f"{one}.pcap"), str(CAPTURES / f"{other}.pcap"))


def test_captures_whose_times_are_far_apart_need_more_to_be_believed(tmp_path: Path) -> None:
    """A handful of datagrams that anybody may have sent prove nothing a day later."""
    few = CAPTURES / "knet" / "udp_close_before_ack.client.pcap"
    theirs = few.with_name("udp_close_before_ack.server.pcap")
    with join(str(few), str(theirs)):
        pass
    with pytest.raises(NotJoinedError, match="s apart"):
        join(str(few), rewritten(theirs, tmp_path / "b.pcap", shifted(86_400 * S)))


def test_few_tcp_segments_are_proof_enough(tmp_path: Path) -> None:
    """Their numbers are drawn at random; ten of ten were too few a month later."""
    few = [
        CAPTURES / "netplay" / f"bin1_blackout_tcp_timeout__{side}_side.pcap" for side in SIDES
    ]
    with join(str(few[0]), rewritten(few[1], tmp_path / "b.pcap", shifted(30 * 86_400 * S))) as found:
        assert fates(found) == as_shipped((few[0], few[1]))


def test_bounds_are_counted_and_keep_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = as_shipped(LOSSY)
    monkeypatch.setattr(matching, "MAX_WAITING", 50)
    with join(str(LOSSY[0]), str(LOSSY[1])) as found:
        assert found.report.limits_hit["MAX_WAITING"] > 100
        mine = fates(found)
    same = sum(mine[0][frame] == fate for frame, fate in shipped[0].items())
    assert same > 0.98 * len(shipped[0])
    monkeypatch.undo()
    monkeypatch.setattr(sample, "MAX_SAMPLED", 200)
    with join(str(LOSSY[0]), str(LOSSY[1])) as found:
        assert fates(found) == shipped
    monkeypatch.setattr(sample, "MAX_FLOWS", 1)
    with join(str(LOSSY[0]), str(LOSSY[1])) as found:
        assert found.report.limits_hit["MAX_FLOWS"] > 500


def test_too_many_equal_datagrams_are_ambiguous_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twins = CAPTURES / "eoudp" / "mid_lossy_client.pcap"
    monkeypatch.setattr(matching, "MAX_WEIGHED", 1)
    with join(str(twins), str(twins.with_name("mid_lossy_server.pcap"))) as found:
        assert found.report.limits_hit["MAX_WEIGHED"] > 400
        assert sum(way.ambiguous for way in found.report.conversations[0].ways) > 500


@pytest.mark.parametrize("alike", [False, True])
def test_strangers_that_say_the_same_at_once_are_bounded_and_counted(
    tmp_path: Path, alike: bool
) -> None:
    """A flood from forged ports: each datagram might be every other one."""
    pair = [CAPTURES / "riptide" / f"udp_2.2.1_lossy_{side}leg.pcap" for side in SIDES]
    said = records(pair[0])[0][1][42:] if alike else b"hello"

    def flooded(found: list[Record]) -> list[Record]:
        middle = found[len(found) // 2][0]
        frames = [link_frame("ethernet", ipv4(udp(said, port, 22000)))[1] for port in range(10_000, 11_500)]
        return sorted([*found, *((middle + n, data, len(data)) for n, data in enumerate(frames))])

    paths = [rewritten(path, tmp_path / f"{path.stem}.pcap", flooded) for path in pair]
    begin = process_time()
    with join(*paths) as found:
        missed = found.report.limits_hit.get("MAX_SHARED", 0)
    assert process_time() - begin < 30
    # Where nobody else says it, nothing has to be compared.
    assert (missed > 1000) if alike else (missed == 0)


def test_work_with_equal_datagrams_is_bounded(tmp_path: Path) -> None:
    """A thousand payloads, six times each at one time: whatever is assumed is equally likely."""

    def at_once(found: list[Record]) -> list[Record]:
        return [(found[0][0], data, wire) for _ in range(6) for _, data, wire in found]

    source = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    pair = [rewritten(source, tmp_path / f"{name}.pcap", at_once) for name in ("a", "b")]
    begin = process_time()
    with join(*pair) as found:
        assert found.report.limits_hit["MAX_WEIGHED"] > 4000
        assert sum(way.ambiguous for way in found.report.conversations[0].ways) > 4000
    assert process_time() - begin < 30


def test_weighing_prefers_the_delay_and_not_the_order() -> None:
    usual = weigh.Delays([20_000_000 + 10_000 * step for step in range(200)], 10 * S, 30_000_000)
    priors = weigh.Priors(usual, weigh.Delays([], 10 * S, 1), 0.05, 0.01, 1e-4, 0.1, 100_000)
    told = weigh.weigh([0, 50_000_000], [71_000_000], priors)
    assert told.sender == [1]
    assert told.doubtful_sent == [False, False]
    told = weigh.weigh([0, 40_000], [21_000_000], priors)
    assert told.doubtful_sent == [True, True]


def test_what_a_relay_held_back_is_no_copy_for_certain() -> None:
    """The relay copied nothing; it held one datagram back for longer than any other by far, so that
    it came just before the same bytes, sent again."""
    burst = CAPTURES / "riptide" / "udp_main_burst_gap_clientleg.pcap"
    with join(str(burst), str(burst.with_name("udp_main_burst_gap_serverleg.pcap"))) as found:
        rows = [row for capture in (0, 1) for _, row in found.fates(capture)]
    assert [row for row in rows if row.fate is Fate.COPY and not row.ambiguous] == []


def test_three_captures_and_one_file_of_all(tmp_path: Path) -> None:
    middle = rewritten(LOSSY[0], tmp_path / "middle.pcap", shifted(5 * S), jittered(9_000, 3))
    paths = [str(LOSSY[0]), middle, str(LOSSY[1])]
    links = join_all(paths)
    assert [(link.first, link.second) for link in links] == [(0, 1), (0, 2)]
    target = tmp_path / "joined.pcapng"
    written = write_joined(paths, links, target)
    for link in links:
        link.joined.close()
    assert written == sum(len(records(Path(path))) for path in paths)
    times = [time for time, _, _ in records(target)]
    assert times == sorted(times)
    text = target.read_bytes()
    assert b"lost" in text
    assert b"delivered, C frame" in text


def test_ethernet_frames_are_as_they_were() -> None:
    """The helper that the tests above rest on."""
    _, data, _ = records(LOSSY[0])[0]
    assert ethernet(data[14:])[12:] == data[12:]
    assert pairing.MAX_DELAY_NS == 10 * S


def test_captures_of_unequal_size_are_sampled_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only one of both leaves out would seem to be lost, and half of it is too much."""
    more = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    ours = interleaved([LOSSY[0], more], tmp_path / "a.pcap")
    theirs = interleaved([LOSSY[1]], tmp_path / "b.pcap")
    names = len(sample.take_sample(str(theirs), tokens.Tokens()).tokens)
    monkeypatch.setattr(sample, "MAX_SELECTED", names)
    with join(str(ours), str(theirs)) as found:
        (one,) = found.report.conversations
        assert sum(way.lost for way in one.ways) == sum(
            fate is Fate.LOST for side in as_shipped(LOSSY) for fate, _ in side.values()
        )


def test_captures_cut_at_other_lengths_are_sampled_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes by which packets are chosen must be there in both captures."""
    monkeypatch.setattr(sample, "MAX_SELECTED", 100)
    cut = rewritten(LOSSY[0], tmp_path / "a.pcap", snapped(66))
    kept = []
    for path in (cut, str(LOSSY[0])):
        found = sample.take_sample(path, tokens.Tokens(66 - 42))
        found.rows.close()
        kept.append(set(found.tokens))
    assert kept[0] == kept[1]


def test_a_loop_that_multiplies_datagrams(tmp_path: Path) -> None:
    """More copies than datagrams were sent are no share of more than one."""

    def looped(found: list[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
        copies = [
            (time + again * 150_000, data, wire)
            for place, (time, data, wire) in enumerate(found)
            for again in range(8 if place % 3 == 0 else 1)
        ]
        return sorted(copies, key=lambda record: record[0])

    theirs = rewritten(KNET[1], tmp_path / "b.pcap", looped)
    shipped = as_shipped(KNET)[0]
    with join(str(KNET[0]), theirs) as found:
        assert sum(way.copies for way in found.report.conversations[0].ways) > 1000
        told = {frame: row.fate for frame, row in found.fates(0) if not row.ambiguous}
    wrong = [frame for frame, fate in told.items() if fate != shipped[frame][0]]
    assert len(wrong) < 0.01 * len(told)


def key_of(port: int) -> bytes:
    return A4 + B4 + port.to_bytes(2, "big") + (7777).to_bytes(2, "big")


def flow(number: int, key: bytes, prefix: bytes, first_ns: int = 0) -> sample.Flow:
    return sample.Flow(number, key, tcp=True, first_ns=first_ns, prefix=bytearray(prefix))


def test_a_connection_without_data_is_nobodys_stream() -> None:
    """One that was refused began nearer in time than the one that carries on the stream."""
    key = key_of(4000)
    other, third = key_of(4001), key_of(4002)
    sides = [
        sample.Sample(CaptureInfo("x", "pcap"), flows={one.id: one for one in flows})
        for flows in (
            [flow(0, key, b"GET / HTTP/1.1")],
            [flow(0, other, b"", 1), flow(1, third, b"GET / HTTP/1.1", 2)],
        )
    ]
    ((ours, theirs),) = streams.stream_pairs(*sides, set())
    assert (ours[0].key, theirs[0].key) == (key, third)


@pytest.mark.parametrize(("bound", "most"), [("MAX_MARKS", 20), ("MAX_ALL_MARKS", 60)])
def test_of_long_streams_some_segments_are_noted_on_both_sides_alike(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy sends other segments, so that what is noted must not depend on them."""
    pair = [
        str(CAPTURES / "knet" / f"tcp_rechunked.{side}.pcap")
        for side in ("client", "server")
    ]
    with join(*pair) as found:
        whole = found.report.conversations[0].streams
    monkeypatch.setattr(sample, bound, most)
    with join(*pair) as found:
        (one,) = found.report.conversations
    for stream, of_all in zip(one.streams, whole, strict=True):
        assert (stream.octets, stream.equal) == (of_all.octets, True)
        assert 2 <= stream.delay.samples < of_all.delay.samples
        # The clocks are known less well; the delays differ by no more than they did.
        ours, known = stream.delay, of_all.delay
        assert ours.maximum - ours.minimum <= known.maximum - known.minimum


def test_streams_are_looked_for_among_the_nearest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands that all begin alike, or all differ late, are not each compared with all."""
    compared = 0
    alike = streams._alike

    def counted(*pair: streams._Sides) -> bool:
        nonlocal compared
        compared += 1
        return alike(*pair)

    monkeypatch.setattr(streams, "_alike", counted)
    monkeypatch.setattr(streams, "MAX_COMPARED", 10)
    count = 2000
    for same in (True, False):
        sides = [
            sample.Sample(CaptureInfo("x", "pcap"), flows={
                one.id: one for one in (
                    flow(at, key_of(10_000 + at), b"GET / " + (b"" if same else b"%d" % (at + side)) + b" HTTP", at)
                    for at in range(count)
                )
            })
            for side in (0, 5000)
        ]  # fmt: skip
        compared = 0
        found = streams.stream_pairs(*sides, set())
        assert [ours[0].first_ns for ours, _ in found] == [theirs[0].first_ns for _, theirs in found]
        assert (len(found), compared) == ((count, count) if same else (0, 10 * count))


Sides = tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]
"""(time in ns, frame) of each of two captures."""


def captured(folder: Path, sides: Sides) -> list[str]:
    """Write two captures, each in order of time; return their paths."""
    paths = []
    for name, side in zip("ab", sides, strict=True):
        paths.append(str(folder / f"{name}.pcap"))
        with PcapWriter(paths[-1], 1) as writer:
            for time_ns, data in sorted(side):
                writer.write(time_ns, data)
    return paths


def exchange(
    sides: Sides, after_ns: int, body: bytes, delay_ns: int, back_ns: tuple[int, int]
) -> None:
    """Add a datagram that the first side sends, and one that the second side sends and the first
    side gets so long after it."""
    sent_ns = 1_700_000_000 * S + after_ns
    data = ethernet(ipv4(udp(body, 5000, 7777), 17, src=A4, dst=B4))
    back = ethernet(ipv4(udp(b"b%d" % after_ns, 7777, 5000), 17, src=B4, dst=A4))
    sides[0].append((sent_ns, data))
    sides[1].append((sent_ns + delay_ns, data))
    sides[1].append((sent_ns + back_ns[0], back))
    sides[0].append((sent_ns + back_ns[1], back))


def test_a_conversation_that_goes_one_way_only_has_its_direction(tmp_path: Path) -> None:
    """Its delay may be far below that of others: the clocks tell, not the middle of all."""
    sides: Sides = ([], [])
    for number in range(200):
        sent_ns = 1_700_000_000 * S + number * 20_000_000
        for port, delay in (5000, 30_000_000), (6000, 4_000_000):
            back = port == 5000 and number % 5 == 4
            if port == 6000 and number % 4:
                continue
            ports = (7777, port) if back else (port, 7777)
            ends = (B4, A4) if back else (A4, B4)
            body = udp(b"%d %d" % (port, number), *ports)
            data = ethernet(ipv4(body, 17, src=ends[0], dst=ends[1]))
            times = (sent_ns + delay, sent_ns) if back else (sent_ns, sent_ns + delay)
            for side, time in zip(sides, times, strict=True):
                side.append((time, data))
    with join(*captured(tmp_path, sides)) as found:
        ways = [[(way.sent, way.lost) for way in one.ways] for one in found.report.conversations]
    assert sorted(ways) == [[(50, 0), (0, 0)], [(160, 0), (40, 0)]]


def test_a_part_of_a_conversation_is_counted_alone() -> None:
    with join(str(LOSSY[0]), str(LOSSY[1])) as whole:
        middle = whole.report.overlap_ms * 500_000
        every = whole.report.conversations[0].ways
        frames = len(list(whole.fates(0)))
    parts = []
    seen = 0
    for span in ((None, int(middle)), (int(middle) + 1, None)):
        with join(str(LOSSY[0]), str(LOSSY[1]), span=span) as found:
            parts.append(found.report.conversations[0].ways)
            seen += len(list(found.fates(0)))
    assert seen == frames
    for before, after, both in zip(*parts, every, strict=True):
        for name in ("sent", "delivered", "lost", "arrived", "copies", "reordered"):
            assert getattr(before, name) + getattr(after, name) == getattr(both, name), name
        assert 0 < before.sent < both.sent
        assert before.resends.needed + after.resends.needed == both.resends.needed


def test_a_segment_longer_than_a_row_tells_leaves_its_number_alone() -> None:
    """A length of 0 over IPv4 means the rest of the frame, of which a file may say anything."""
    kept = rows.Rows()
    kept.add(S, 1, 1, 1, 12_345, 0xFFFF_FFFF)
    extent = rows.Cursor(0, kept, Clock(())).extent()
    kept.close()
    assert extent is not None
    assert extent[0] == 12_345


def test_rows_beyond_what_stays_in_memory_come_back_as_they_were() -> None:
    kept = rows.Rows()
    count = 2 * rows.MAX_IN_MEMORY // 32 + 5
    for n in range(count):
        kept.add(n * S, -n, n + 1, n % 50_000, (1 << 32) - 1 if n % 2 else -1, 65_535)
    cursor = rows.Cursor(0, kept, Clock(()))
    for n in range(count):
        assert cursor.has_row
        assert (cursor.common_ns, cursor.token, cursor.frame) == (n * S, -n, n + 1)
        assert cursor.flow == n % 50_000
        assert cursor.extent() == (((1 << 32) - 1, 65_535) if n % 2 else None)
        cursor.advance()
    assert not cursor.has_row
    kept.close()


def test_the_longest_silence_is_the_cause_and_not_the_fullest() -> None:
    """What is lost while a side sends little lasts longer than a burst of many datagrams."""
    with join(str(LOSSY[0]), str(LOSSY[1])) as found:
        (report,) = found.reports[0]
        begun = report.first_time_ns
        full = Burst(10, 60, 50, begun + S, begun + S + S // 10)
        long = Burst(80, 90, 11, begun + 2 * S, begun + 7 * S)
        found.report.conversations[0].ways[0].bursts = [full, long]
        # Both directions were dark, but not at the same time.
        later = Burst(200, 210, 12, begun + 9 * S, begun + 12 * S)
        found.report.conversations[0].ways[1].bursts = [later]
        cause = Observed(found).reports()[0].diagnosis.cause
    assert (cause.what, cause.direction, cause.from_ns, cause.to_ns) == (
        "one-way",
        0,
        long.start_ns,
        long.end_ns,
    )


def test_numbers_that_a_sender_left_out_are_no_loss_of_the_network() -> None:
    """One capture says that what is missing was lost; two show that nothing was."""
    with join(str(LOSSY[0]), str(LOSSY[1])) as found:
        (report,) = found.reports[1]
        told = report.diagnosis
        report.diagnosis = replace(
            told, cause=replace(told.cause, what="loss", direction=0, text="9% did not come")
        )
        for way in found.report.conversations[0].ways:
            way.delivered, way.lost, way.ceiling = way.sent, 0, None
            way.bursts = []
        (ours,) = found.reports[0]
        ours.diagnosis = report.diagnosis
        diagnosis = Observed(found).reports()[0].diagnosis
    assert diagnosis.cause.what == "closed"
    assert "lost" not in diagnosis.verdict
    assert diagnosis.cause.text == (
        "The client closed it. 2 messages sent again were acknowledged more than 200 ms late."
    )


def test_a_relay_without_delay_is_no_second_look_at_one_place(tmp_path: Path) -> None:
    """It has other addresses on its other side: what is missing there was lost."""
    at = [time for time, _, _ in records(KNET[0])]
    told = as_shipped(KNET)

    def undelayed(found: list[Record]) -> list[Record]:
        out, moved = [], 0
        for frame, (time, data, wire) in enumerate(found, 1):
            fate, partner = told[1].get(frame, (Fate.APART, None))
            if partner is not None:
                gap = -20_000 if fate is Fate.DELIVERED else 20_000
                moved = at[partner - 1] + gap - time
            out.append((time + moved, data, wire))
        return sorted(out, key=lambda record: record[0])

    there = rewritten(KNET[1], tmp_path / "b.pcap", undelayed)
    with join(str(KNET[0]), there) as found:
        assert not found.report.same_place
        assert counts(found)[Fate.LOST] > 80
        assert counts(found)[Fate.UNSEEN] == 0


@pytest.mark.skipif(hot_path() == "compiled", reason="compiled functions are not replaced")
def test_what_goes_wrong_while_joining_leaves_no_table_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(engine.FateTable, "close", lambda table: closed.append(table))  # noqa: PLW0108 - a method
    monkeypatch.setattr(engine, "mark_outside", lambda *_: 1 // 0)
    first = str(CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
    with pytest.raises(ZeroDivisionError):
        engine.match(first, first.replace("clientleg", "serverleg"))
    assert len(closed) == 2


def test_what_a_stalled_network_held_back_was_neither_lost_nor_made_up(tmp_path: Path) -> None:
    """A client that repeats itself for a dead server: 60 ms in which nothing passed, among equal
    datagrams too many to wait together, made some of them lost here and unsent there, for certain.
    """
    sides: Sides = ([], [])
    for number in range(600):
        body = b"%d" % number if number % 4 else b"again"
        delay = 60_000_000 if number in {400, 408} else 15_000_000 + number % 7 * 100_000
        exchange(sides, number * 50_000_000, body, delay, (1_000_000, 16_000_000))
    with join(*captured(tmp_path, sides)) as found:
        told = Counter(row.fate for capture in (0, 1) for _, row in found.fates(capture))
    assert told == {Fate.DELIVERED: 1200, Fate.ARRIVED: 1200}


def test_what_came_just_before_it_was_sent_may_be_an_older_equal_datagram(tmp_path: Path) -> None:
    """One is held back for so long that it comes 50 us before an equal one is sent, which the error
    of the clocks permits: it was matched with that one, for certain."""
    sides: Sides = ([], [])
    for number in range(600):
        body = b"again" if number in {300, 307} else b"%d" % number
        held = {300: 140_000_000 - 50_000, 307: 25_000_000}
        delay = held.get(number, 20_000 + number * 37 % 500 * 20_000)
        exchange(sides, number * 20_000_000, body, delay, (10_000_000, 10_020_000))
    with join(*captured(tmp_path, sides)) as found:
        doubtful = [[row for _, row in found.fates(side) if row.ambiguous] for side in (0, 1)]
        told = Counter(row.fate for side in (0, 1) for _, row in found.fates(side))
    assert [len(rows) for rows in doubtful] == [2, 2]
    assert told == {Fate.DELIVERED: 1200, Fate.ARRIVED: 1200}


def test_a_clock_that_few_datagrams_show_is_allowed_for() -> None:
    """What its drift may be wrong by is allowed for, and not called a loss."""
    piece = ClockPiece(0, 0.0, 2e-5, 380_000.0, 4e-5, (87_000.0, 88_000.0), 91, 0)
    delays = weigh.Delays([0, 70_000, 40_000], 1)
    assert engine._vagueness((piece,), delays) == 293_000
    assert engine._vagueness((replace(piece, bound_ns=90_000.0),), delays) == 3000
    # The least delay of one direction may be less than any that is known.
    assert engine._vagueness((replace(piece, bound_ns=None),), delays) == 70_000
