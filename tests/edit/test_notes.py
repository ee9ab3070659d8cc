"""Comments of frames: each frame has one, also those that complete no datagram and no message."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, UDPerror, fragment
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

import console_docs
from netdissect import lookup
from netdissect.capture import open_capture
from netdissect.capture.blocks import PACKET, BlockReader
from netdissect.cli import cli
from netdissect.edit import notes
from netdissect.edit.plain import options
from netdissect.model.records import DatagramRecord, FrameNote
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.records import Records
from packetbuild import pcap_file

CAPTURES = console_docs.ROOT / "captures"
STREAM = CAPTURES / "knet" / "tcp_loss_retransmit.pcap"
RIPTIDE = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
MAC = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
A, B = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}


def comments(source: Path, folder: Path) -> list[str]:
    """Return the comments of each frame, as one text."""
    target = folder / "noted.pcapng"
    words = ["export", str(source), "--pcapng-notes", str(target)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return comments_of(target)


def comments_of(target: Path) -> list[str]:
    with BlockReader(target) as reader:
        return [
            " / ".join(
                value.decode()
                for code, value in options(each.raw, each.options, len(each.raw) - 4, each.order)
                if code == 1
            )
            for each in reader
            if each.kind == PACKET
        ]


def written(folder: Path, *packets: Packet) -> Path:
    """Write Ethernet frames."""
    path = folder / "made.pcap"
    frames = [bytes(MAC / packet) for packet in packets]
    path.write_bytes(pcap_file([(at, 0, data, len(data)) for at, data in enumerate(frames)]))
    return path


def test_segments_say_which_message_they_have_part_in(tmp_path: Path) -> None:
    found = comments(STREAM, tmp_path)
    assert all(found)
    assert found[:3] == [
        "c1 c2s knet-tcp: TCP SYN",
        "c1 s2c knet-tcp: TCP SYN ACK",
        "c1 c2s knet-tcp: TCP ACK",
    ]
    assert found[4] == "c1 s2c knet-tcp: TCP ACK  [acknowledges #4]"
    assert found[9] == "c1 c2s knet-tcp: TCP ACK, 1,448 bytes  [part of #12]"
    assert "[3 frames from #10]" in found[11]
    again = [text for text in found if "[retransmission of #" in text]
    assert again
    assert all(text.startswith("c1 ") and "TCP " in text for text in again)


def test_fragments_and_what_is_no_datagram(tmp_path: Path) -> None:
    pieces = fragment(IP(**A, id=7) / UDP(sport=1000, dport=2000) / bytes(3000), 1400)
    quoted = IPerror(**A) / UDPerror(sport=1000, dport=2000)
    source = written(
        tmp_path,
        *pieces,
        ARP(),
        IP(**B) / ICMP(type=3, code=3) / quoted,
        IP(**B) / ICMP(),
        IP(**A) / TCP(sport=5, dport=6, flags="PA") / b"no game",
        IP(**A, proto=6) / b"cut",
        IP(**A, len=40) / UDP(sport=1, dport=2, len=30) / b"cut short",
    )  # fmt: skip
    assert comments(source, tmp_path) == [
        "an IP fragment  [part of #3]",
        "an IP fragment  [part of #3]",
        "UDP, 3,000 bytes",
        "no IP packet, or one that is not captured",
        "ICMP port unreachable for 10.0.0.1:1000 \N{RIGHTWARDS ARROW} 10.0.0.2:2000",
        "an IP packet with neither UDP nor TCP",
        "TCP ACK, 7 bytes",
        "an IP, UDP or TCP header that is broken or not captured",
        "UDP, 9 bytes  [ip-length]  [udp-length]",
    ]


def test_what_completes_a_message_much_later_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "MAX_AHEAD", 1)
    found = comments(STREAM, tmp_path)
    assert all(found)
    assert found[9] == "c1 c2s knet-tcp: TCP ACK, 1,448 bytes"
    assert found[4] == "c1 s2c knet-tcp: TCP ACK  [acknowledges #4]"


def test_marks_and_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MAX_MARKS", 1)
    monkeypatch.setattr(notes, "MAX_PARTS", 2)
    monkeypatch.setattr(notes, "MAX_STREAMS", 1)
    found = comments(STREAM, tmp_path)
    assert all(found)
    assert max(text.count("  [") for text in found if "TCP " in text) == 1
    assert any(text.startswith("TCP ") for text in found)


def test_the_comments_of_a_frame_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "MAX_COMMENTS", 2)
    target = tmp_path / "noted.pcapng"
    with BlockReader(RIPTIDE) as reader:
        notes.annotate(reader, target, iter([FrameNote(2, f"<{at}>") for at in range(9)]))
    assert comments_of(target)[1] == f"<0> / <1> / {notes._FURTHER}"


def test_records_beyond_the_bound_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that fills a gap completes any number of messages; nothing else changes."""
    source = CAPTURES / "netplay" / "bin1_coalesced__client_leg.pcap"
    usual = comments(source, tmp_path)
    made: list[int] = []
    each = Records.record_of

    def counted(records: Records, item: Datagram) -> DatagramRecord:
        made.append(item.frame)
        return each(records, item)

    if lookup.hot_path() != "compiled":
        monkeypatch.setattr(Records, "record_of", counted)
    monkeypatch.setattr(notes, "MAX_COMMENTS", 1)
    bounded = comments(source, tmp_path)
    assert max(Counter(made).values(), default=2) == 2
    assert any(notes._FURTHER in text for text in bounded)
    for text, full in zip(bounded, usual, strict=True):
        first, *more = full.split(" / ")
        assert text == (f"{first} / {notes._FURTHER}" if more else first)


def test_a_datagram_has_the_comment_of_its_record_alone(tmp_path: Path) -> None:
    found = comments(RIPTIDE, tmp_path)
    with open_capture(RIPTIDE) as reader:
        assert len(found) == sum(1 for _ in reader)
    assert all(text.startswith("c1 ") and "UDP" not in text for text in found)


def test_blocks_and_comments_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MAX_AHEAD", 4)
    written: list[bytes] = []

    class Writer:
        def write(self, raw: bytes) -> None:
            written.append(raw)

    held = notes._Held(Writer())
    # A fragment whose packet is never complete: all after it wait for its comment.
    held.frame(b"first", 0, "<", ["x"], 1, notes.Bare("fragment", unfinished=True))
    for number in range(20):
        held.write(b"%d" % number)
    assert len(written) == 21
    left = iter(range(100))
    ahead = notes._Upcoming(FrameNote(2, f"note {number}") for number in left)
    ahead.of(1, notes.Bare("frame"))
    assert next(left) < 10
