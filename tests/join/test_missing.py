"""What is not in one of both captures: fates that follow from it are certain only if nothing else
can be the reason."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from netdissect.capture import PcapWriter
from netdissect.join import join
from netdissect.model.joined import Fate, FateRow
from packetbuild import ipv4, udp
from twocaptures import CAPTURES, Record, ethernet, records, rewritten, stepped, with_port

S = 1_000_000_000
RIPTIDE = "riptide/udp_2.2.1_lossy_{}leg"
TEXT = "netplay/bin1_lossy__{}_side"
MATCHED = {Fate.DELIVERED, Fate.ARRIVED, Fate.COPY}


def pair_of(name: str) -> list[Path]:
    return [CAPTURES / f"{name.format(side)}.pcap" for side in ("client", "server")]


def kept(pair: list[Path], side: int, frames: list[int], target: Path) -> str:
    """Write a capture with these of its frames."""

    def change(found: list[Record]) -> list[Record]:
        return [found[frame - 1] for frame in frames]

    return rewritten(pair[side], target, change)


def wrong(
    pair: list[Path], paths: list[str], frames: list[list[int]]
) -> list[tuple[int, int, Fate]]:
    """Return (capture, frame, fate) of all certain fates that contradict those of whole captures.

    Args:
        pair: the whole captures.
        paths: the same with frames missing.
        frames: which frames these hold.

    """
    with join(str(pair[0]), str(pair[1])) as whole, join(paths[0], paths[1]) as part:
        found = []
        for side in (0, 1):
            there = set(frames[1 - side])
            for number, row in part.fates(side):
                frame = frames[side][number - 1]
                truth = whole.fate(side, frame)
                if row.ambiguous or truth.ambiguous:
                    continue
                partner = frames[1 - side][row.partner - 1] if row.partner else None
                if not is_right(row, partner, truth, there):
                    found.append((side, frame, row.fate))
    return found


def is_right(row: FateRow, partner: int | None, truth: FateRow, there: set[int]) -> bool:
    if row.fate in MATCHED:
        return partner == truth.partner or (truth.copied and truth.partner not in there)
    if truth.partner in there:
        return False
    # What the other capture misses may be taken for lost where nothing shows that it was not.
    return truth.fate in MATCHED or row.fate in {truth.fate, Fate.OUTSIDE, Fate.DOUBTFUL}


@pytest.mark.parametrize("name", [RIPTIDE, TEXT, "eoudp/late_resend_peer_{}"])
@pytest.mark.parametrize("seed", range(4))
def test_equal_datagrams_of_which_one_is_missing(tmp_path: Path, name: str, seed: int) -> None:
    """A datagram whose sending one capture missed is no copy of an equal one, and where the arrival
    of the equal one is missing as well, it is not that one."""
    assert wrong_with_some_missing(tmp_path, name, seed) == []


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("riptide/udp_2.0.0_burst_gap_{}leg", 4),
        ("riptide/udp_2.0.0_burst_gap_{}leg", 7),
        ("riptide/udp_2.2.1_poorconnection_attempts_{}leg", 1),
        ("knet/udp_same_endpoint_reconnect.{}", 7),
        ("knet/udp_same_endpoint_reconnect.{}", 11),
    ],
)
def test_a_delay_is_no_evidence_of_itself(tmp_path: Path, name: str, seed: int) -> None:
    """Of two equal datagrams one was lost, and one capture missed the other. The delay or lag of
    what is left is like no other but its own."""
    assert wrong_with_some_missing(tmp_path, name, seed) == []


def wrong_with_some_missing(
    tmp_path: Path, name: str, seed: int
) -> list[tuple[int, int, Fate]]:
    """Return what is wrong if both captures miss one frame in twenty."""
    pair, chance = pair_of(name), Random(seed)
    frames = [
        [frame for frame in range(1, len(records(path)) + 1) if chance.random() >= 0.05]
        for path in pair
    ]
    paths = [kept(pair, side, frames[side], tmp_path / f"{side}.pcap") for side in (0, 1)]
    return wrong(pair, paths, frames)


@pytest.mark.parametrize("left", [150, 206])
def test_what_was_sent_after_a_capture_had_ended(tmp_path: Path, left: int) -> None:
    """Its arrival is not that of an equal datagram sent long before, and lost."""
    pair = pair_of("riptide/udp_main_burst_gap_{}leg")
    sizes = [len(records(path)) for path in pair]
    frames = [[*range(1, sizes[0] - left + 1)], [*range(1, sizes[1] + 1)]]
    cut = kept(pair, 0, frames[0], tmp_path / "cut.pcap")
    assert wrong(pair, [cut, str(pair[1])], frames) == []


@pytest.mark.parametrize(
    ("name", "which", "at", "span"),
    [
        ("knet/udp_blackout_both.{}", 0, 73, 4.3),
        ("knet/udp_blackout_both.{}", 0, 122, 3.2),
        ("eoudp/rfc02_blackout_{}", 1, 161, 2.2),
        ("riptide/udp_2.1.2_blackout_timeout_{}leg", 1, 137, 6.6),
    ],
)
def test_a_clock_that_is_set_while_nothing_passes(
    tmp_path: Path, name: str, which: int, at: int, span: float
) -> None:
    """Nothing confirms the new time, by which the other capture had ended: or had it not?"""
    pair = pair_of(name)
    paths = [str(path) for path in pair]
    paths[which] = rewritten(pair[which], tmp_path / "set.pcap", stepped(at, int(span * S)))
    with join(str(pair[0]), str(pair[1])) as whole, join(*paths) as found:
        for side in (0, 1):
            for frame, row in found.fates(side):
                truth = whole.fate(side, frame)
                if not row.ambiguous and not truth.ambiguous:
                    assert row.fate is truth.fate, (side, frame)


def test_clients_of_one_server_decide_together_which_way_is_which(tmp_path: Path) -> None:
    """Each of sixteen clients sends a few datagrams, equal to those of the others."""
    pair = pair_of("knet/udp_malformed_to_server.{}")
    ours = rewritten(pair[0], tmp_path / "a.pcap", lambda found: found[150:])
    with join(ours, str(pair[1])) as found:
        ways = {
            (lane.toward > 0) == (lane.flow[1][-2:] == client)
            for lane in found.lanes
            if lane.capture == 0
            for client in [records(pair[0])[0][1][36:38]]
        }
        assert ways == {True}


def test_equal_requests_are_not_told_apart_by_a_clock_of_one_datagram(tmp_path: Path) -> None:
    """A dead server is asked the same again and again. The only other datagram came late, so that
    by its clock most requests would arrive before they were sent.
    """
    random = Random(5)
    sides: tuple[list[tuple[int, bytes]], ...] = ([], [])
    truth: dict[int, int | None] = {}
    for number in range(60):
        body = b"bye" if number == 59 else b"hello"
        data = ethernet(ipv4(udp(body, 5000, 7777), 17))
        sent_ns = number * S // 2
        sides[0].append((sent_ns, data))
        truth[number + 1] = None
        if random.random() > 0.1 or body == b"bye":
            delay_ms = 48 if body == b"bye" else random.randint(40, 60)
            sides[1].append((sent_ns + delay_ms * S // 1000, data))
            truth[number + 1] = len(sides[1])
    paths = []
    for name, side in zip("ab", sides, strict=True):
        paths.append(str(tmp_path / f"{name}.pcap"))
        with PcapWriter(paths[-1], 1) as writer:
            for time_ns, data in side:
                writer.write(time_ns, data)
    with join(*paths) as found:
        certain = {frame: row for frame, row in found.fates(0) if not row.ambiguous}
        assert {frame: row.partner for frame, row in certain.items()} == {60: truth[60]}
        assert all(row.ambiguous or row.partner == 60 for _, row in found.fates(1))


Gone = list[int] | range
"""Frames that a capture does not hold."""


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        # An arrival some tens of microseconds sooner than any that is known in that direction.
        ("knet/udp_malformed_to_server.{}", ([], [*range(54, 70), *range(138, 144)])),
        ("knet/udp_malformed_to_server.{}", (range(1, 105), [])),
        # Clients one after another say the same: what matches best are those of other clients.
        (
            "knet/udp_malformed_to_server.{}",
            (
                [2, 3, 27, 65, 82, 97, 104, 112, 124, 131, 158, 181, 204, 207, 216, 219, 225, 271, 282],
                [13, 63, 88, 91, 93, 159, 165, 170, 176, 200, 234, 243, 253],
            ),
        ),
        # The times from datagrams that were lost to the arrivals of others are alike: they do not
        # prove each other.
        (
            "riptide/udp_2.0.0_burst_gap_{}leg",
            ([*range(76, 110), *range(284, 321), *range(353, 365), *range(445, 473)], []),
        ),
        # None that was sent once is missing, which does not prove that none is.
        (
            "riptide/udp_2.2.1_burst_gap_{}leg",
            (
                [8, 109, 136, 141, 187, 203, 216, 221, 234, 282, 289, 333, 339, 342, 382, 394],
                [8, 12, 28, 46, 76, 103, 107, 121, 135, 160, 167, 174, 176, 188, 193, 205],
            ),
        ),
        # A lag as long as the time between two that were sent is that of one that is missing.
        ("eoudp/rfc02_timeout_{}", ([], [*range(182, 191), *range(311, 330)])),
        # Bytes of segments that were lost, sent again as one.
        ("netplay/bin1_blackout_recovers__{}_side", ([255], [])),
        # Sent before one capture began, and arrived after the other had begun.
        ("riptide/udp_2.0.0_burst_gap_{}leg", ([*range(1, 58), *range(382, 498)], range(1, 97))),
        ("riptide/udp_2.2.1_burst_gap_{}leg", (range(1, 79), [*range(1, 94), *range(307, 403)])),
    ],
)
def test_what_is_certain_is_right(tmp_path: Path, name: str, gone: tuple[Gone, Gone]) -> None:
    pair = pair_of(name)
    frames = [
        [frame for frame in range(1, len(records(path)) + 1) if frame not in missing]
        for path, missing in zip(pair, gone, strict=True)
    ]
    paths = [kept(pair, side, frames[side], tmp_path / f"{side}.pcap") for side in (0, 1)]
    assert wrong(pair, paths, frames) == []


@pytest.mark.parametrize("since", [14, 15, 16, 17, 18])
def test_a_port_that_changes_soon_after_a_client_came_back(tmp_path: Path, since: int) -> None:
    """What the client says on its old port then looks like its first connection."""
    pair = pair_of("knet/udp_same_endpoint_reconnect.{}")
    port = int.from_bytes(records(pair[1])[0][1][34:36], "big")
    moved = rewritten(pair[1], tmp_path / "b.pcap", with_port(port, 61111, since=since))
    frames = [[*range(1, len(records(path)) + 1)] for path in pair]
    assert wrong(pair, [str(pair[0]), moved], frames) == []


def test_an_answer_may_be_to_what_was_sent_to_another_port(tmp_path: Path) -> None:
    """The first copy arrived, and was sent before the port changed; the second was lost."""
    pair = pair_of("riptide/udp_2.2.1_poorconnection_loss_{}leg")
    port = int.from_bytes(records(pair[1])[0][1][34:36], "big")
    moved = rewritten(pair[1], tmp_path / "b.pcap", with_port(port, 61111, since=19))
    frames = [[*range(1, len(records(path)) + 1)] for path in pair]
    frames[0] = [frame for frame in frames[0] if frame % 20]
    paths = [kept(pair, 0, frames[0], tmp_path / "a.pcap"), moved]
    assert wrong(pair, paths, frames) == []
