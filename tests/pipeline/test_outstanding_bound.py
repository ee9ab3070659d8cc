"""Many messages in every datagram, none acknowledged: all connections together have a bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.packets import Packet, PacketKind, reverse_key
from netdissect.pipeline import Options, Pipeline, table
from netdissect.track.unit import MADE
from packetbuild import frame

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SESSION = CAPTURES / "knet" / "udp_clean_session.pcap"
STREAM, STREAM_FRAMES = CAPTURES / "netplay" / "text_big.pcap", 60
HANDSHAKE = 12
"""Frames of that session: from the connect datagram to the first messages."""
MESSAGES = 250


def client(number: int) -> bytes:
    return bytes([10, 1, number >> 8, number & 255, 10, 0, 0, 2]) + b"\xc3\x50\x1e\x61"


def datagram(number: int, step: int) -> bytes:
    """Return a kNet datagram with MESSAGES reliable messages, whose numbers have this step."""
    head = bytes([0x40 | number & 0x3F, number >> 6 & 255, number >> 14])
    base = 2 * MESSAGES * number
    deltas = range(0, MESSAGES * step, step) if step > 0 else range(-MESSAGES * step, 0, step)
    messages = (
        b"\x01\x10" + (bytes([at]) if at < 128 else bytes([0x80 | at & 127, at >> 7])) + b"\x42"
        for at in deltas
    )
    return head + base.to_bytes(2, "little") + b"".join(messages)


def packets(connections: int, count: int, step: int) -> Iterator[Packet]:
    """Yield the packets of clients that send `count` such datagrams each, one after another."""
    with open_capture(SESSION) as capture:
        head = list(Decapsulator().packets(capture))[:HANDSHAKE]
    frame, first = 0, head[0][3]
    for number in range(connections):
        ours = client(number)
        rows = [(head_key == first, payload) for _, _, _, head_key, payload, _, _ in head]
        rows += [(True, datagram(10 + at, step)) for at in range(count)]
        for up, payload in rows:
            frame += 1
            key = ours if up else reverse_key(ours)
            yield PacketKind.UDP, frame, frame * 1_000, key, payload, None, ()


@pytest.mark.parametrize(("step", "together"), [(1, 1), (-2, 1), (1, 2)])
def test_all_outstanding_units_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch, step: int, together: int
) -> None:
    monkeypatch.setattr(table, "MAX_ALL_OUTSTANDING", 8 * MESSAGES * together)
    pipeline = Pipeline(Options(strict=True, together=together))
    most = 0
    for packet in packets(20, 4, step):
        pipeline.feed(packet)
        most = max(most, sum(map(table._held, pipeline._table.flows())))
    pipeline.finish()
    # One datagram more than the bound and the sixteenth of it that is not looked for.
    assert 6 * MESSAGES < most < 8 * MESSAGES + MESSAGES // 2 + 2 * MESSAGES + 100
    cut = [report for report in pipeline.reports if not report.complete]
    assert 0 < pipeline.limits_hit["MAX_ALL_OUTSTANDING"] <= len(cut)
    units = sum(space.units for one in pipeline.reports for space in one.spaces)
    assert units > 20 * 4 * MESSAGES


def stream_packets(connections: int, segments: int) -> Iterator[Packet]:
    """Yield the packets of clients that send the rest of a message in segments of one byte."""
    with open_capture(STREAM) as capture:
        head = [(time_ns, data[14:]) for _, time_ns, _, data, _ in capture][:STREAM_FRAMES]
    ours = head[0][1][12:16]
    sent = [packet for _, packet in head if packet[12:16] == ours and packet[33] & 2 == 0][-1]
    octets = sent[20 + (sent[32] >> 4) * 4 :]
    start = int.from_bytes(sent[24:28], "big") + len(octets)
    rest = [
        sent[:24] + (start + at).to_bytes(4, "big") + sent[28:32] + b"\x50" + sent[33:40] + b"0"
        for at in range(segments)
    ]
    frames, time_ns = [], head[0][0]
    for number in range(connections):
        ends = bytes([10, 1, 0, number]), bytes([10, 2, 0, number])
        for packet in [packet for _, packet in head] + rest:
            time_ns += 1_000
            source, target = ends if packet[12:16] == ours else ends[::-1]
            fixed = packet[:2] + len(packet).to_bytes(2, "big") + packet[4:12] + source + target
            frames.append(frame(len(frames) + 1, fixed + packet[20:], time_ns=time_ns))
    yield from Decapsulator().packets(frames)


def test_segments_of_streams_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_ALL_OUTSTANDING", 4_000)
    pipeline = Pipeline(Options(strict=True))
    most = 0
    for packet in stream_packets(12, 500):
        pipeline.feed(packet)
        most = max(most, sum(map(table._held, pipeline._table.flows())))
    pipeline.finish()
    assert 3_000 < most < 4_500
    assert pipeline.limits_hit["MAX_ALL_OUTSTANDING"] > 2
    assert len(pipeline.reports) >= 12


def test_units_are_counted_again_only_after_many_more() -> None:
    """To count those of all connections at each datagram would take time that grows with them."""
    held = Pipeline()._table
    held.due_units = MADE.count - 1
    assert held.overloading() == []
    assert held.due_units == MADE.count + table.MAX_ALL_OUTSTANDING
