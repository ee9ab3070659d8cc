from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from struct import pack

import lz4.frame
import pytest
import zstandard

from netdissect.capture import CaptureError, open_capture
from netdissect.capture.account import MAX_COMMENTS, MAX_TEXT
from netdissect.capture.blocks import PACKET, BlockReader
from netdissect.capture.pcap import MAX_FRAME_OCTETS
from netdissect.capture.pcapng import MAX_BLOCK_OCTETS, MAX_INTERFACES
from netdissect.pipeline import analyze
from packetbuild import block, enhanced, interface, option, pcap_file, section

PACKED = [
    gzip.compress,
    zstandard.compress,
    lzma.compress,
    lambda content: bz2.compress(content, 1),  # in small blocks
    lz4.frame.compress,
]
RECORDS = [(10, 20, b"abc", 3), (11, 999_999, b"", 0), (4_294_967_295, 1, b"xyz!" * 30, 500)]
CAPTURES = Path(__file__).parents[2] / "captures"


def read(content: bytes):
    reader = open_capture(io.BytesIO(content))
    return list(reader), reader


def expected(scale, link=1):
    return [
        (number, seconds * 10**9 + fraction * scale, link, data, wire)
        for number, (seconds, fraction, data, wire) in enumerate(RECORDS, 1)
    ]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "scale"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_of_both_byte_orders_and_resolutions(order, magic, scale):
    frames, reader = read(pcap_file(RECORDS, order=order, magic=magic, link=101))
    assert frames == expected(scale, link=101)
    assert reader.info.format == "pcap"
    assert reader.info.nanosecond is (scale == 1)
    assert reader.info.link_types == ["RAW"]
    assert (reader.info.frames, reader.info.octets) == (3, 503)
    assert reader.info.first_time_ns == frames[0][1]
    assert reader.info.last_time_ns == frames[2][1]
    assert reader.damage is None


def test_the_modified_format_has_longer_record_headers():
    content = pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1)
    content += pack("<IIII", 1, 2, 3, 3) + bytes(8) + b"abc"
    frames, _ = read(content)
    assert frames == [(1, 1_000_002_000, 1, b"abc", 3)]


def test_flags_in_the_link_type_word_are_no_part_of_it():
    frames, _ = read(pcap_file(RECORDS[:1], link=0x5400_0001))
    assert frames[0][2] == 1


def test_times_are_the_earliest_and_the_latest():
    _, reader = read(
        pcap_file([(5, 0, b"a", 1), (3, 0, b"b", 1), (9, 0, b"c", 1), (7, 0, b"d", 1)])
    )
    assert (reader.info.first_time_ns, reader.info.last_time_ns) == (3 * 10**9, 9 * 10**9)


def test_sections_of_both_orders_with_several_interfaces():
    ns = option("<", 9, b"\x09")
    binary = option(">", 9, b"\x8a")  # 2^-10 s
    late = option(">", 14, pack(">q", 100))
    content = section("<", option("<", 1, b"whole file"))
    content += interface("<", 1, option("<", 2, b"eth0\0") + ns)
    content += interface("<", 101, option("<", 1, b"the second"))
    content += enhanced("<", 1_700_000_000_123_456_789, b"one", number=0)
    content += enhanced("<", 1_700_000_000_123_456, b"two", number=1, wire=99)
    content += section(">") + interface(">", 276, binary + late)
    content += enhanced(">", 1536, b"three", number=0, options=option(">", 1, "grüße".encode()))
    frames, reader = read(content)
    assert frames == [
        (1, 1_700_000_000_123_456_789, 1, b"one", 3),
        (2, 1_700_000_000_123_456_000, 101, b"two", 99),
        (3, 101_500_000_000, 276, b"three", 5),
    ]
    info = reader.info
    assert info.link_types == ["EN10MB", "RAW", "LINUX_SLL2"]
    assert info.interfaces == ["eth0", "interface 1", "interface 0"]
    assert info.comments == ["whole file", "the second", "frame 3: grüße"]
    assert info.nanosecond
    assert reader.damage is None


@pytest.mark.parametrize(
    ("resolution", "ticks", "time_ns"),
    [
        (0, 7, 7 * 10**9),
        (3, 1234, 1_234_000_000),
        (12, 5_000_000_001_999, 5_000_000_001),
        (127, 1, 0),
        (0x80, 7, 7 * 10**9),
        (0xA0, 1 << 31, 500_000_000),
        (0xFF, 2**64 - 1, 0),
        (0, 2**64 - 1, 2**62 - 1),
    ],
)
def test_every_resolution_gives_nanoseconds(resolution, ticks, time_ns):
    content = section() + interface(options=option("<", 9, bytes([resolution])))
    frames, _ = read(content + enhanced("<", ticks, b"x"))
    assert frames[0][1] == time_ns


def test_the_latest_times_can_be_added_to():
    """Compiled, a time and what a timer adds to it have 64 bits."""
    frame = bytes.fromhex("ffffffffffff0000000000000800450000200000000040110000010203040506070800040005000c0000")
    times = [5, 2**64 - 1, 0, 2**63, 2**64 - 1]
    packets = b"".join(enhanced("<", ticks, frame + b"abcd") for ticks in times)
    analysis = analyze(io.BytesIO(section() + interface() + packets))
    assert analysis.other_datagrams == len(times)


def test_an_offset_before_the_epoch_is_held_at_it():
    content = section() + interface(options=option("<", 14, pack("<q", -(2**63))))
    assert read(content + enhanced("<", 5, b"x"))[0][0][1] == 0


def test_simple_and_old_packet_blocks():
    content = section() + interface(snap=4) + enhanced("<", 7_000_000, b"first")
    content += block("<", 3, pack("<I", 9) + b"12345678")
    old = pack("<HHIIII", 0, 3, 0, 9_000_000, 2, 2) + b"ab\0\0"
    content += block("<", 2, old)
    frames, reader = read(content)
    assert frames == [
        (1, 7_000_000_000, 1, b"first", 5),
        (2, 7_000_000_000, 1, b"1234", 9),
        (3, 9_000_000_000, 1, b"ab", 2),
    ]
    assert reader.info.drops == 3


def test_statistics_count_before_what_packets_say():
    counts = option("<", 5, pack("<Q", 40)) + option("<", 7, pack("<Q", 2))
    content = section() + interface() + interface()
    content += enhanced("<", 1, b"a", number=0, options=option("<", 4, pack("<Q", 11)))
    content += enhanced("<", 2, b"b", number=1, options=option("<", 4, pack("<Q", 5)))
    assert read(content)[1].info.drops == 16
    content += block("<", 5, pack("<III", 0, 0, 3) + option("<", 5, pack("<Q", 1)))
    content += block("<", 5, pack("<III", 0, 0, 3) + counts)
    assert read(content)[1].info.drops == 47
    content += section() + interface()
    content += block("<", 5, pack("<III", 0, 0, 3) + counts)
    assert read(content)[1].info.drops == 89
    assert read(section() + interface() + enhanced("<", 1, b"a"))[1].info.drops is None


def test_unknown_blocks_are_passed_over():
    content = section() + block("<", 0xBAD, b"secret") + interface() + block("<", 10, b"k" * 70_000)
    assert len(read(content + enhanced("<", 1, b"a"))[0]) == 1


FRAME = bytes.fromhex("ffffffffffff0000000000000800450000200000000040110000010203040506070800040005000c0000")
CUSTOM = pack("<I", 32473) + b"12345678"
WITHOUT_PACKETS = {
    "names": (4, pack("<HHI", 1, 4, 16909060) + bytes(4)),
    "statistics": (5, pack("<III", 0, 0, 1)),
    "timestamps": (7, bytes(24)),
    "journal": (9, b"__REALTIME_TIMESTAMP=1700000001123456\nMESSAGE=hi\n"),
    "secrets": (10, pack("<II", 0x544C534B, 4) + b"abcd"),
    "custom": (0xBAD, CUSTOM),
    "custom-private": (0x40000BAD, CUSTOM),
    "sysdig-machine": (0x201, bytes(24)),
    "sysdig-event": (0x204, bytes(24)),
    "sysdig-event-flags": (0x208, bytes(28)),
    "sysdig-event-2": (0x216, bytes(28)),
    "sysdig-event-2-large": (0x221, bytes(28)),
    "sysdig-event-2-flags": (0x222, bytes(28)),
    "process": (0x80000001, bytes(24)),
    "unknown": (0x4D3C2B1A, b"12345678"),
}
"""Blocks without a packet, little-endian."""
NUMBERED = ("journal", "custom", "sysdig-event", "sysdig-event-2")
"""Beginnings of the names of those that Wireshark gives a number of their own."""


@pytest.mark.parametrize("name", WITHOUT_PACKETS)
def test_some_blocks_without_a_packet_have_a_frame_number(name):
    numbered = name.startswith(NUMBERED) and not name.endswith("flags")
    packet = enhanced("<", 1_700_000_000_000_000, FRAME + b"abcd")
    content = section() + interface() + packet + block("<", *WITHOUT_PACKETS[name]) + packet
    frames, reader = read(content)
    assert [frame[0] for frame in frames] == [1, 2 + numbered]
    assert reader.info.frames == 2 + numbered
    alone, reader = read(section() + block("<", *WITHOUT_PACKETS[name]))
    assert (alone, reader.info.frames, reader.info.first_time_ns) == ([], numbered, None)
    assert analyze(io.BytesIO(content)).info.frames == 2 + numbered


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")
def test_frame_numbers_and_times_are_those_of_wireshark(tmp_path):
    micro, frame, content = 1_700_000_000_123_456, FRAME + b"abcd", b""
    for order in "<>":
        interfaces = [
            (option(order, 9, bytes([resolution])) + option(order, 14, pack(order + "q", offset)), at)
            for resolution, offset, at in (
                (6, 0, micro), (9, -100, micro * 1000), (0x94, 0, 1_700_000_000 << 20 | 12_345),
                (0x8A, 3600, 1_700_000_000 << 10 | 512), (0, 0, 1_700_000_000), (3, 7, micro // 1000),
            )
        ]  # fmt: skip
        content += section(order)
        for options, _ in interfaces:
            content += interface(order, 1, options)
        for number, (_, at) in enumerate(interfaces):
            content += enhanced(order, at, frame, number=number)
            high, low = at >> 32, at & 0xFFFFFFFF
            old = pack(order + "HHIIII", number, 0xFFFF, high, low, len(frame), 99) + frame
            content += block(order, 2, old)
        for kind, body in WITHOUT_PACKETS.values():
            if order == "<":
                content += block(order, kind, body) + enhanced(order, micro, frame)
        content += block(order, 3, pack(order + "I", len(frame)) + frame)
    path = tmp_path / "all.pcapng"
    path.write_bytes(content)
    fields = ("number", "time_epoch", "cap_len", "len")
    run = subprocess.run(
        ["tshark", "-n", "-r", str(path), "-Y", "udp", "-T", "fields", *(f"-eframe.{one}" for one in fields)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    frames, reader = read(content)
    assert reader.damage is None
    rows = [line.split("\t") for line in run.stdout.splitlines()]
    assert [(int(number), int(cut), int(wire)) for number, _, cut, wire in rows] == [
        (number, len(data), wire) for number, _, _, data, wire in frames
    ]
    # A Simple Packet Block has no time: ours is that of the frame before it.
    assert all(
        time == f"{ns // 10**9}.{ns % 10**9:09}"
        for (_, time, *_), (_, ns, *_) in zip(rows, frames, strict=True)
        if time
    )


@pytest.mark.parametrize("pack_it", [*PACKED, lambda c: c])
def test_compression_is_seen_through_by_content(pack_it, tmp_path):
    content = pcap_file([(i, i, bytes([i % 256]) * (i % 400), 1000) for i in range(3000)])
    plain, _ = read(content)
    path = tmp_path / "named.pcap"
    path.write_bytes(pack_it(content))
    with open_capture(path) as reader:
        assert list(reader) == plain
        assert reader.progress() == (path.stat().st_size, path.stat().st_size)
        assert reader.info.format.startswith("pcap")
        assert reader.damage is None


def test_several_members_and_padding_are_one_file():
    content = pcap_file(RECORDS)
    assert read(gzip.compress(content[:60]) + gzip.compress(content[60:]) + bytes(9))[
        0
    ] == expected(1000)
    frames, reader = read(zstandard.compress(content[:60]) + zstandard.compress(content[60:]))
    assert frames == expected(1000)
    assert reader.info.format == "pcap.zst"
    for name, pack_it in (("xz", lzma.compress), ("bz2", bz2.compress), ("lz4", lz4.frame.compress)):
        frames, reader = read(pack_it(content[:60]) + pack_it(content[60:]))
        assert frames == expected(1000)
        assert reader.info.format == f"pcap.{name}"
    skippable = b"\x53\x2a\x4d\x18" + pack("<I", 3) + b"abc"
    assert read(skippable + zstandard.compress(content))[0] == expected(1000)


@pytest.mark.parametrize("pack_it", PACKED)
def test_damage_in_compressed_octets_ends_the_frames(pack_it):
    noise = random.Random(1)
    content = pcap_file([(i, 0, noise.randbytes(200), 200) for i in range(5000)])
    packed = pack_it(content)
    frames, reader = read(packed[: len(packed) // 2])
    assert 0 < len(frames) < 5000
    assert "cut short" in reader.damage
    broken = bytearray(packed)
    broken[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    frames, reader = read(bytes(broken))
    assert len(frames) < 5000
    assert reader.damage


@pytest.mark.parametrize(
    "pack_it",
    [gzip.compress, lambda c: zstandard.compress(c, 19), lzma.compress, bz2.compress, lz4.frame.compress],
)
def test_a_compression_bomb_is_read_in_bounded_steps(pack_it):
    # 64 MiB in a single record: the length is refused before the bytes are asked for.
    content = pcap_file([(1, 1, b"ok", 2)]) + pack("<IIII", 1, 1, 1 << 26, 1 << 26) + bytes(1 << 26)
    frames, reader = read(pack_it(content))
    assert len(frames) == 1
    assert reader.info.truncated_at == 24 + 18
    assert str(1 << 26) in reader.damage


def test_records_are_handed_on_as_they_arrive():
    read_end, write_end = os.pipe()
    content = pcap_file(RECORDS)
    with os.fdopen(read_end, "rb") as source:
        os.write(write_end, content[:43])
        reader = open_capture(source)
        frames = iter(reader)
        assert next(frames) == expected(1000)[0]

        # Later bytes come only after the first frame was handed on, in single bytes.
        def feed():
            for octet in content[43:]:
                os.write(write_end, bytes([octet]))
            os.close(write_end)

        thread = threading.Thread(target=feed)
        thread.start()
        assert list(frames) == expected(1000)[1:]
        thread.join()
    assert reader.progress()[1] is None
    assert reader.damage is None


def test_standard_input_is_named_by_a_dash(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(pcap_file(RECORDS))

    monkeypatch.setattr("sys.stdin", Stdin)
    with open_capture("-") as reader:
        assert len(list(reader)) == 3
    assert not Stdin.buffer.closed


@pytest.mark.parametrize(
    "content",
    [b"", b"\xd4", b"PK\x03\x04zip", b"\x1f\x8b", gzip.compress(b"text", mtime=0), b"\x1f\x8b" + b"x" * 40],
)
def test_what_is_no_capture_is_refused(content):
    with pytest.raises(CaptureError):
        open_capture(io.BytesIO(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + bytes(40), "a ZIP archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(40), "a 7z archive"),
        (b"LZIP\x01" + bytes(40), "compressed by lzip"),
        (b"a.pcap".ljust(257, b"\0") + b"ustar" + bytes(250), "a tar archive"),
        (gzip.compress(b"a.pcap".ljust(257, b"\0") + b"ustar" + bytes(250), mtime=0), "a tar archive"),
        (gzip.compress(gzip.compress(bytes(40), mtime=0), mtime=0), "a file compressed twice"),
        (lzma.compress(zstandard.compress(bytes(40))), "a file compressed twice"),
    ],
    ids=["zip", "7z", "lzip", "tar", "tar in gzip", "gzip in gzip", "zstandard in xz"],
)
def test_other_compressions_are_named(content, said):
    with pytest.raises(CaptureError, match=f"{said} is not read; unpack it first"):
        open_capture(io.BytesIO(content))


@pytest.mark.parametrize(
    ("magic", "name"),
    [(b"snoop\0\0\0", "snoop"), (b"GMBU", "Network Monitor")],
)
def test_a_format_that_can_be_converted_is_named(magic, name):
    with pytest.raises(CaptureError, match=f"format of {name} is not read; `editcap "):
        open_capture(io.BytesIO(magic + bytes(40)))


def test_brotli_is_named_by_the_name_of_its_file(tmp_path):
    path = tmp_path / "x.pcap.br"
    path.write_bytes(b"\x8b\x02\x80" + bytes(40))
    with pytest.raises(CaptureError, match="compressed by Brotli is not read; unpack it first"):
        open_capture(path)


def test_without_its_package_lz4_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(CaptureError, match=r"netdissect\[lz4\]"):
        open_capture(io.BytesIO(lz4.frame.compress(pcap_file(RECORDS))))


def test_an_xz_header_cannot_ask_for_all_memory(monkeypatch):
    monkeypatch.setattr("netdissect.capture.source.MAX_XZ_MEMORY_OCTETS", 1 << 20)
    content = lzma.compress(pcap_file(RECORDS), preset=6)  # asks for 9 MiB
    with pytest.raises(CaptureError, match="emory usage limit"):
        open_capture(io.BytesIO(content))


def test_a_path_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "missing.pcap", tmp_path, "nul\0byte"):
        with pytest.raises(CaptureError):
            open_capture(path)


@pytest.mark.parametrize("captured", [MAX_FRAME_OCTETS + 1, 2**31, 2**32 - 1])
def test_an_impossible_record_length_is_damage(captured):
    content = pcap_file(RECORDS)
    frames, reader = read(content + pack("<IIII", 1, 1, captured, 60) + bytes(100))
    assert len(frames) == 3
    assert reader.info.truncated_at == len(content)
    assert str(captured) in reader.damage


LONG = MAX_FRAME_OCTETS + 4
LONG_BLOCKS = {
    2: pack("<HHIIII", 0, 0xFFFF, 0, 0, LONG, LONG),
    3: pack("<I", LONG),
    6: pack("<IIIII", 0, 0, 0, LONG, LONG),
}
"""Block type -> the head of a packet that is longer than any that is captured."""


@pytest.mark.parametrize("behind", [b"", enhanced("<", 1, b"x")], ids=["last", "not last"])
@pytest.mark.parametrize("kind", LONG_BLOCKS)
def test_a_packet_that_is_too_long_is_damage_though_it_is_there(kind, behind):
    before = section() + interface() + enhanced("<", 1, b"first")
    long = block("<", kind, LONG_BLOCKS[kind] + bytes(LONG))
    for content in (before + long + behind, section() + interface() + long + behind):
        frames, reader = read(content)
        assert [len(frame[3]) for frame in frames] == [5] * (content.startswith(before))
        assert str(LONG) in reader.damage
        with BlockReader(io.BytesIO(content)) as blocks:
            assert sum(block.kind == PACKET for block in blocks) == len(frames)
        assert str(LONG) in blocks.damage
    many = section() + interface() + block("<", 6, pack("<IIIII", 0, 0, 0, 4, 4) + b"four")
    assert len(read(many)[0]) == 1


class Endless(io.RawIOBase):
    """A file that begins with some bytes and never ends; it is not read very far."""

    def __init__(self, head):
        self.head, self.taken = head, 0

    def read(self, count=-1):
        assert self.taken < MAX_BLOCK_OCTETS // 4
        at, self.taken = self.taken, self.taken + count
        return self.head[at : self.taken].ljust(count, b"\0")


@pytest.mark.parametrize("size", [MAX_BLOCK_OCTETS + 4, 2**31, 2**32 - 4])
def test_a_block_that_is_too_long_is_not_read(size):
    named = pack("<I", size)
    for head in (section() + pack("<I", 0xBAD) + named, section()[:4] + named + section()[8:]):
        with open_capture(Endless(head)) as reader:
            assert list(reader) == []
            assert str(size) in reader.damage


def test_the_longest_record_is_read():
    frames, reader = read(pcap_file([(1, 1, bytes(MAX_FRAME_OCTETS), MAX_FRAME_OCTETS)] * 3))
    assert [len(f[3]) for f in frames] == [MAX_FRAME_OCTETS] * 3
    assert reader.damage is None


@pytest.mark.parametrize(
    "tail",
    [
        pack("<III", 6, 0, 0),
        pack("<III", 6, 8, 8),
        pack("<III", 0xBAD, 2**31, 0),
        pack("<III", 0xBAD, 2**32 - 4, 0),
        pack("<III", 0xBAD, MAX_BLOCK_OCTETS + 4, 0),
        pack("<IIII", 0xBAD, 16, 0, 20),
        pack("<IIII", 6, 16, 0, 16),
        pack("<IIIIIIII", 6, 32, 0, 0, 0, 1, 1, 32),
        pack("<IIIIIIII", 6, 32, 0, 0, 0, 2**32 - 1, 1, 32),
        pack("<IIIIIIII", 6, 32, 1, 0, 0, 0, 0, 32),
        pack("<III", 0x0A0D0D0A, 28, 0x12345678),
        section()[:4] + pack("<I", 12) + section()[8:],
        section()[:-4] + pack("<I", 32),
        block("<", 1, b""),
        block("<", 5, b"1234"),
    ],
)
def test_impossible_blocks_are_damage_behind_what_was_read(tail):
    content = section() + interface() + enhanced("<", 1, b"good")
    frames, reader = read(content + tail + bytes(60))
    assert [f[3] for f in frames] == [b"good"]
    assert reader.info.truncated_at == len(content)
    assert reader.damage


def test_options_that_overrun_end_the_options_only():
    wrong = pack("<HH", 1, 500) + b"text"
    frames, reader = read(
        section() + interface(options=wrong) + enhanced("<", 1, b"x", options=wrong)
    )
    assert len(frames) == 1
    assert reader.info.comments == []
    assert reader.damage is None


def test_interfaces_are_bounded():
    many = section() + interface(options=option("<", 2, b"if")) * MAX_INTERFACES
    frames, reader = read(many + enhanced("<", 1, b"x", number=MAX_INTERFACES - 1))
    assert len(frames) == 1
    assert len(reader.info.interfaces) == 1000
    assert reader.info.limits_hit == {"MAX_INTERFACE_NAMES": MAX_INTERFACES - 1000}
    frames, reader = read(many + interface() + enhanced("<", 1, b"x"))
    assert frames == []
    assert reader.info.truncated_at == len(many)


def test_comments_are_bounded():
    text = option("<", 1, b"y" * 60_000)
    _, reader = read(section() + interface() + enhanced("<", 1, b"x", options=text) * 1500)
    assert len(reader.info.comments) == MAX_COMMENTS
    assert reader.info.limits_hit == {"MAX_COMMENTS": 500}
    assert max(map(len, reader.info.comments)) <= MAX_TEXT + 20


def test_a_failing_read_is_damage_behind_what_was_read():
    class Failing(io.BytesIO):
        def read1(self, size=-1):
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read1(size)

    reader = open_capture(Failing(pcap_file(RECORDS)[:-5]))
    assert len(list(reader)) == 2
    assert "Input/output error" in reader.damage


def test_the_callers_file_stays_open():
    source = io.BytesIO(pcap_file(RECORDS))
    with open_capture(source) as reader:
        list(reader)
    assert not source.closed


def test_batches_are_the_same_frames():
    content = pcap_file(RECORDS * 400)
    assert [f for batch in open_capture(io.BytesIO(content)).batches() for f in batch] == read(
        content
    )[0]


@pytest.mark.parametrize("name", ["knet/udp_any_interface.pcapng", "netplay/bin1_types.pcap"])
def test_every_prefix_of_a_capture_gives_its_whole_records(name):
    content = (CAPTURES / name).read_bytes()
    whole, _ = read(content)
    count = 0
    for size in range(len(content) + 1):
        if size < 4:
            with pytest.raises(CaptureError):
                read(content[:size])
            continue
        frames, reader = read(content[:size])
        assert frames == whole[: len(frames)]
        assert len(frames) >= count
        count = len(frames)
        whole_here = reader.damage is None
        assert whole_here == (reader.info.truncated_at is None)
        if not whole_here:
            assert 0 <= reader.info.truncated_at < size
    assert count == len(whole)


@pytest.mark.skipif(sys.platform != "linux", reason="no file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_closed():
    path = "/proc/self/mem"  # nothing is mapped at its start
    with pytest.raises(CaptureError, match="Input/output error"):
        open_capture(path)
    links = Path("/proc/self/fd").iterdir()
    assert not any(os.path.realpath(link).endswith("/mem") for link in links)
