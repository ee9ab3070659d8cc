from __future__ import annotations

import io
import shutil
import subprocess

import pytest

from netdissect.capture import PcapngWriter, PcapWriter, open_capture
from netdissect.capture import writer as module

TIME = 1_700_000_000_123_456_789
FRAMES = [(TIME, b"first", 5), (TIME + 1, b"", 0), (TIME + 7, b"cut" * 50, 1500)]


def written(frames=FRAMES, **options):
    out = io.BytesIO()
    with PcapWriter(out, 101, **options) as writer:
        for time_ns, data, wire in frames:
            writer.write(time_ns, data, wire)
    return out.getvalue()


def test_pcap_comes_back_to_the_nanosecond():
    with open_capture(io.BytesIO(written())) as reader:
        assert [(t, d, w) for _, t, _, d, w in reader] == FRAMES
        assert reader.info.nanosecond


def test_microseconds_are_cut():
    with open_capture(io.BytesIO(written(nanosecond=False))) as reader:
        assert [frame[1] for frame in reader] == [t // 1000 * 1000 for t, _, _ in FRAMES]


def test_pcapng_comes_back_with_interfaces_comments_and_drops():
    out = io.BytesIO()
    with PcapngWriter(out, comment="all of it") as writer:
        assert writer.add_interface(1, "eth0") == 0
        assert writer.add_interface(276) == 1
        writer.write(TIME, b"one")
        writer.write(TIME + 1, b"second", 99, interface=1, comment="späte Antwort")
        writer.write_statistics(TIME + 2, received=2, dropped=3)
    with open_capture(io.BytesIO(out.getvalue())) as reader:
        assert list(reader) == [(1, TIME, 1, b"one", 3), (2, TIME + 1, 276, b"second", 99)]
    assert reader.info.comments == ["all of it", "frame 2: späte Antwort"]
    assert reader.info.interfaces == ["eth0", "interface 1"]
    assert reader.info.drops == 3
    assert reader.damage is None


def test_an_interface_must_be_described_first():
    with pytest.raises(ValueError, match="interface 0"):
        PcapngWriter(io.BytesIO()).write(TIME, b"x")


def test_a_written_header_alone_is_a_capture(tmp_path):
    """What a capturing process that is killed at once leaves behind."""
    path = tmp_path / "new.pcap"
    writer = PcapWriter(path, 1)
    with open_capture(path) as reader:
        assert list(reader) == []
        assert reader.damage is None
    writer.close()


def test_flushed_records_are_in_the_file_before_it_is_closed(tmp_path):
    path = tmp_path / "live.pcapng"
    writer = PcapngWriter(path)
    writer.add_interface(1)
    for time_ns, data, wire in FRAMES:
        writer.write(time_ns, data, wire)
    writer.flush()
    with open_capture(path) as reader:
        assert len(list(reader)) == 3
        assert reader.damage is None
    writer.close()


def test_much_is_written_unasked(tmp_path):
    path = tmp_path / "big.pcap"
    writer = PcapWriter(path, 1)
    for _ in range(10):
        writer.write(TIME, bytes(module.FLUSH_OCTETS // 4))
    assert path.stat().st_size > module.FLUSH_OCTETS
    writer.close()


def test_standard_output_is_named_by_a_dash(monkeypatch):
    class Stdout:
        buffer = io.BytesIO()

    monkeypatch.setattr("sys.stdout", Stdout)
    with PcapWriter("-", 1) as writer:
        writer.write(TIME, b"x")
    assert not Stdout.buffer.closed
    assert len(list(open_capture(io.BytesIO(Stdout.buffer.getvalue())))) == 1


class _Full:
    """A file on a disk that takes `room` bytes more, then writes in part and fails."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(28, "No space left on device")
        part = data[: self.room]
        self.room -= len(part)
        return self.file.write(part)

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_disk_that_is_full_only_at_the_end_is_named(tmp_path):
    class Remote(_Full):
        """Of a file on another machine the last bytes may be sent when it is closed."""

        def close(self):
            raise OSError(28, "No space left on device")

    writer = PcapWriter(tmp_path / "full.pcap", 1)
    writer._file.close()
    writer._file = Remote(writer._file, 1000)
    with pytest.raises(OSError, match=r"No space left on device: .*full\.pcap"):
        writer.close()


def test_a_full_disk_leaves_the_last_whole_record(tmp_path):
    path = tmp_path / "full.pcap"
    writer = PcapWriter(path, 1)
    writer.write(*FRAMES[0])
    writer.flush()
    writer._file = _Full(writer._file, 30)
    writer.write(*FRAMES[2])
    with pytest.raises(OSError, match="No space"):
        writer.flush()
    with open_capture(path) as reader:
        assert [frame[3] for frame in reader] == [b"first"]
        assert reader.damage is None
    writer.close()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("capinfos") is None, reason="needs capinfos")
def test_capinfos_accepts_both_formats(tmp_path):
    (tmp_path / "a.pcap").write_bytes(written())
    with PcapngWriter(tmp_path / "b.pcapng", comment="c") as writer:
        writer.add_interface(101, "lo")
        for time_ns, data, wire in FRAMES:
            writer.write(time_ns, data, wire, comment="k")
        writer.write_statistics(TIME, received=3, dropped=0)
    for name in ("a.pcap", "b.pcapng"):
        result = subprocess.run(
            ["capinfos", "-T", "-r", "-m", "-c", "-a", "-e", "-S", tmp_path / name],
            capture_output=True,
            text=True,
            check=True,
        )
        _, count, first, last = result.stdout.strip().split(",")
        assert (count, first, last) == ("3", "1700000000.123456789", "1700000000.123456796")
