"""What the editor's tools write is what they read, to the bit: by our reader and by Wireshark's."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from struct import pack

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect import analyze
from netdissect.capture import PcapngWriter, open_capture
from netdissect.capture.blocks import BlockReader
from netdissect.cli import cli
from netdissect.edit import notes
from netdissect.model.records import FrameNote
from packetbuild import block, enhanced, interface, option, pcap_file, section

CAPTURES = console_docs.ROOT / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
KNET = CAPTURES / "knet" / "knet2010_loss.client.pcap"
NETPLAY = CAPTURES / "netplay" / "bin1_lossy__client_side.pcap"


def run(*words: object, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words], prog_name="netdissect")
    assert result.exit_code == status, result.stderr
    return result


def frames(path: Path) -> list[tuple[int, int, bytes, int]]:
    with open_capture(path) as reader:
        return [frame[1:] for frame in reader]


def pcapng(order: str = "<") -> bytes:
    """Return a file with two interfaces and a block that nobody knows, in either byte order."""
    ticks = 1_700_000_000_000_000
    content = section(order) + interface(order, 1) + interface(order, 101)
    for number in range(30):
        content += enhanced(order, ticks + number, bytes([number]) * number, number=number % 2)
    return content + block(order, 0x7777, b"what?...")


def test_a_slice_of_everything_is_the_file(tmp_path: Path) -> None:
    target = tmp_path / "all.pcap"
    assert "1,073 of 1,073 frames" in run("slice", LOSSY, "-w", target).stderr
    assert target.read_bytes() == LOSSY.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_slice_keeps_interfaces_and_unknown_blocks(tmp_path: Path, order: str) -> None:
    source, target = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    source.write_bytes(pcapng(order))
    run("slice", source, "-w", target, "--frames", "2-3,29-")
    assert frames(target) == [frames(source)[at] for at in (1, 2, 28, 29)]
    assert target.read_bytes().endswith(block(order, 0x7777, b"what?..."))


@pytest.mark.parametrize("begin", [("--frames", "1-5,2000-"), ("--around", "#2000"), ("--from", "60m")])
def test_a_refused_slice_leaves_the_file_that_it_would_replace(
    begin: tuple[str, str], tmp_path: Path
) -> None:
    target = tmp_path / "part.pcap"
    target.write_bytes(KNET.read_bytes())
    run("slice", LOSSY, "-w", target, *begin, status=2)
    assert target.read_bytes() == KNET.read_bytes()


def test_a_slice_by_time_number_connection_and_filter(tmp_path: Path) -> None:
    target = tmp_path / "part.pcap"
    every = frames(LOSSY)
    run("slice", LOSSY, "-w", target, "--from", "1s", "--to", "2s", "--frames", "1-200")
    start = every[0][0]
    assert frames(target) == [
        frame for frame in every[:200] if 10**9 <= frame[0] - start <= 2 * 10**9
    ]
    run("slice", LOSSY, "-w", target, "-Y", "msg.resend")
    resends = run("read", LOSSY, "-Y", "msg.resend", "-T", "csv", "-e", "frame.number").stdout
    numbers = dict.fromkeys(int(line) for line in resends.split()[1:])
    assert frames(target) == [every[number - 1] for number in numbers]
    run("slice", LOSSY, "-w", target, "--connection", "1")
    assert frames(target) == every


def test_a_connection_over_tcp_comes_with_every_segment(tmp_path: Path) -> None:
    merged, target = tmp_path / "both.pcapng", tmp_path / "one.pcapng"
    run("merge", NETPLAY, LOSSY, "-w", merged)
    number = next(
        report.connection for report in analyze(merged).connections if report.protocol == "netplay"
    )
    run("slice", merged, "-w", target, "--connection", number)
    alone, cut = analyze(NETPLAY).connections, analyze(target).connections
    assert [report.spaces for report in cut] == [report.spaces for report in alone[:1]]


def test_a_merge_is_in_order_of_time_and_tracks_the_same(tmp_path: Path) -> None:
    target = tmp_path / "both.pcapng"
    done = run("merge", LOSSY, KNET, "-w", target).stderr
    assert "1,527 frames of 2 interfaces" in done
    times = [frame[0] for frame in frames(target)]
    assert times == sorted(times)
    assert sorted(frames(target)) == sorted(frames(LOSSY) + frames(KNET))
    alone = [*analyze(LOSSY).connections, *analyze(KNET).connections]
    together = analyze(target).connections
    assert sorted((r.protocol, r.datagrams, r.octets, r.messages) for r in together) == sorted(
        (r.protocol, r.datagrams, r.octets, r.messages) for r in alone
    )


def simple(order: str, data: bytes) -> bytes:
    return block(order, 3, pack(order + "I", len(data)) + data)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("described", "per_second"),
    [(b"", 10**6), (option("<", 9, b"\x09"), 10**9), (option("<", 9, b"\x8a"), 2**10)],
    ids=["microseconds", "nanoseconds", "1/1024 s"],
)
def test_a_frame_without_a_timestamp_stays_where_it_is(
    order: str, described: bytes, per_second: int, tmp_path: Path
) -> None:
    """It had the time 0, which made the result 50 years long."""
    source, other, target = tmp_path / "in.pcapng", tmp_path / "other.pcap", tmp_path / "out.pcapng"
    described = described and option(order, 9, described[4:5])
    content = section(order) + interface(order, 1, described)
    content += enhanced(order, 1_700_000_000 * per_second, b"first") + simple(order, b"second")
    source.write_bytes(content + enhanced(order, 1_700_000_002 * per_second, b"third"))
    other.write_bytes(pcap_file([(1_700_000_001, 0, b"between", 7)]))
    said = run("merge", source, other, "-w", target).stderr
    assert "; 1 had no timestamp and have that of the frame before them" in said
    assert frames(target) == sorted(frames(source) + frames(other), key=lambda frame: frame[0])
    assert [frame[2] for frame in frames(target)] == [b"first", b"second", b"between", b"third"]
    with open_capture(target) as reader:
        list(reader)
    assert [text for text in reader.info.comments if text.startswith("frame 2: This frame had no")]
    run("slice", source, "-w", target, "--to", "1s")
    assert [frame[2] for frame in frames(target)] == [b"first", b"second"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_merge_keeps_times_interfaces_and_options(tmp_path: Path, order: str) -> None:
    source, nano, target = tmp_path / "in.pcapng", tmp_path / "ns.pcapng", tmp_path / "out.pcapng"
    source.write_bytes(pcapng(order))
    with PcapngWriter(nano) as writer:
        writer.add_interface(1, "eth0")
        writer.write(1_700_000_000_000_000_123, b"precise", comment="seen")
        writer.write_statistics(1_700_000_000_000_000_124, received=1, dropped=7)
    run("merge", source, nano, "-w", target)
    assert sorted(frames(target)) == sorted(frames(source) + frames(nano))
    with open_capture(target) as reader:
        list(reader)
    assert reader.info.interfaces == ["interface 0", "interface 1", "eth0"]
    assert [text for text in reader.info.comments if text.endswith(": seen")]
    assert reader.info.drops == 7


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_obsolete_packet_block_keeps_its_options(tmp_path: Path, order: str) -> None:
    source, target = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    words = option(order, 2, pack(order + "I", 1)) + option(order, 1, b"mine") + bytes(4)
    content = section(order) + interface(order, 1)
    with open_capture(LOSSY) as reader:
        for number, time_ns, _, data, _ in list(reader)[:9]:
            ticks, drops = time_ns // 1000, 3 if number == 2 else 0xFFFF
            head = pack(order + "HHIIII", 0, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
            content += block(order, 2, head + data + bytes(-len(data) % 4) + words)
    source.write_bytes(content)
    for command in (["merge", source, "-w"], ["export", source, "--pcapng-notes"]):
        run(*command, target)
        assert frames(target) == frames(source)
        with open_capture(target) as reader:
            list(reader)
        assert [text for text in reader.info.comments if text.endswith(": mine")] == [
            f"frame {number}: mine" for number in range(1, 10)
        ]
        assert reader.info.drops == 3
    assert any(text.startswith("frame 1: c1 c2s riptide") for text in reader.info.comments)


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_snap_length_of_a_pcap_is_that_of_its_interface(tmp_path: Path, order: str) -> None:
    source, target = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    content = bytearray(pcap_file([(5, 0, b"abc", 3)], order=order))
    content[16:20] = pack(order + "I", 96)
    source.write_bytes(content)
    for command in (["merge", source, "-w"], ["export", source, "--pcapng-notes"]):
        run(*command, target)
        assert pack("<HHI", 1, 0, 96) in target.read_bytes()


def test_a_pcap_of_nanoseconds_and_big_endian_is_merged_exactly(tmp_path: Path) -> None:
    source, target = tmp_path / "ns.pcap", tmp_path / "out.pcapng"
    rows = [(5, 123_456_789, b"abc", 3), (6, 1, b"", 0)]
    source.write_bytes(pcap_file(rows, order=">", magic=0xA1B23C4D))
    run("merge", source, "-w", target)
    assert frames(target) == frames(source)


def test_notes_leave_frames_as_they_are_and_say_what_is_known(tmp_path: Path) -> None:
    target = tmp_path / "noted.pcapng"
    assert "1,073 frames written" in run("export", LOSSY, "--pcapng-notes", target).stderr
    assert frames(target) == frames(LOSSY)
    with open_capture(target) as reader:
        list(reader)
    assert any(
        text.startswith("frame 5: c1 s2c") and "retransmission of #2, +92.5 ms" in text
        for text in reader.info.comments
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_notes_come_behind_the_comments_that_are_there(tmp_path: Path, order: str) -> None:
    source, target = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    content = section(order) + interface(order, 1)
    with open_capture(LOSSY) as reader:
        for number, time_ns, _, data, _ in reader:
            mine = b"" if number > 1 else option(order, 1, b"mine") + bytes(4)
            content += enhanced(order, time_ns // 1000, data, options=mine)
    source.write_bytes(content)
    run("export", source, "--pcapng-notes", target)
    assert frames(target) == frames(source)
    with open_capture(target) as reader:
        list(reader)
    assert reader.info.comments[0] == "frame 1: mine"
    assert reader.info.comments[1].startswith("frame 1: c1 c2s riptide")


def writing(source: Path) -> list[list[object]]:
    return [
        ["slice", source, "-w"],
        ["merge", source, "-w"],
        ["export", source, "--pcapng-notes"],
    ]


def test_a_cut_source_gives_all_before_the_cut_and_6(tmp_path: Path) -> None:
    source, target = tmp_path / "cut.pcap", tmp_path / "out.pcap"
    source.write_bytes(LOSSY.read_bytes()[:-7])
    for words in writing(source):
        assert "cut short" in run(*words, target, status=6).stderr
        assert frames(target) == frames(LOSSY)[:-1]


def test_nothing_is_written_over_what_is_read(tmp_path: Path) -> None:
    source, link = tmp_path / "game.pcap", tmp_path / "link.pcap"
    source.write_bytes(LOSSY.read_bytes())
    link.symlink_to(source)
    for words in writing(source):
        assert "is also an input" in run(*words, link, status=2).stderr
    assert source.read_bytes() == LOSSY.read_bytes()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("order", ["<", ">"])
def test_wireshark_reads_all_of_it(tmp_path: Path, order: str) -> None:
    source, part = tmp_path / "in.pcapng", tmp_path / "part.pcapng"
    merged, noted = tmp_path / "merged.pcapng", tmp_path / "noted.pcapng"
    source.write_bytes(pcapng(order))
    run("slice", source, "-w", part, "--frames", "3-")
    run("merge", part, LOSSY, "-w", merged)
    run("export", merged, "--pcapng-notes", noted)
    fields = ("frame.time_epoch", "frame.len", "frame.comment")
    for path in (part, merged, noted):
        words = ["tshark", "-r", path, "-T", "fields", *(f"-e{name}" for name in fields)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert [(int(row[0].replace(".", "")), int(row[1])) for row in rows] == [
            (frame[0], frame[3]) for frame in frames(path)
        ]
    assert sum("retransmission of #" in row[2] for row in rows) > 50


def test_a_comment_that_is_cut_ends_with_a_whole_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "MAX_COMMENT_OCTETS", 6)
    target = tmp_path / "out.pcapng"
    with BlockReader(KNET) as reader:
        note = FrameNote(1, "12345\N{LATIN SMALL LETTER E WITH ACUTE}")
        notes.annotate(reader, target, iter([note]))
    assert option("<", 1, b"12345") in target.read_bytes()
