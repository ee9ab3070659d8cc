from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.flow import Decapsulator, ordering, streams
from netdissect.flow.ordering import ACKED_GAP_GRACE_NS
from netdissect.model.packets import PacketKind
from packetbuild import A4, B4, frame, ipv4, tcp

FIN, SYN, RST, ACK = 1, 2, 4, 16
MS = 1_000_000
DATA = bytes(range(256)) * 8


class Talk:
    """Builds the frames of a connection; offsets count from the byte behind each SYN."""

    def __init__(self, isn=1000, peer_isn=5000, link="ethernet"):
        self.isn, self.peer_isn, self.link = isn, peer_isn, link
        self.frames = []

    def send(self, offset=0, data=b"", *, ack=None, flags=ACK, at_ms=None, cut=None, **options):
        """Client to server. `ack`: offset in the server's stream."""
        return self._add(
            tcp(
                data,
                seq=self.isn + 1 + offset,
                ack=0 if ack is None else self.peer_isn + 1 + ack,
                flags=flags if ack is not None else flags & ~ACK,
                **options,
            ),
            {"src": A4, "dst": B4},
            at_ms,
            cut,
        )

    def reply(self, offset=0, data=b"", *, ack=None, flags=ACK, at_ms=None, cut=None):
        """Server to client. `ack`: offset in the client's stream."""
        return self._add(
            tcp(
                data,
                seq=self.peer_isn + 1 + offset,
                ack=0 if ack is None else self.isn + 1 + ack,
                flags=flags if ack is not None else flags & ~ACK,
                sport=7777,
                dport=4000,
            ),
            {"src": B4, "dst": A4},
            at_ms,
            cut,
        )

    def shake(self):
        self.send(-1, flags=SYN)
        self.reply(-1, flags=SYN | ACK, ack=0)
        return self.send(0, ack=0)

    def _add(self, segment, addresses, at_ms, cut):
        number = len(self.frames) + 1
        time_ns = number * 1000 if at_ms is None else at_ms * MS
        packet = ipv4(segment, 6, ident=number, **addresses)
        self.frames.append(frame(number, packet, time_ns=time_ns, cut=cut))
        return self

    def run(self):
        flow = Decapsulator()
        return list(flow.packets(self.frames)), flow.stats


def stream_of(packets, source=A4, connection=1):
    """Return one direction's pieces as {offset: bytes}, and its gaps as (offset, length)."""
    pieces, gaps = [], []
    for packet in packets:
        segment = packet[5]
        if packet[3][:4] == source and segment.connection == connection:
            for piece in segment.stream:
                pieces.append((piece.offset, piece.data))
                if piece.gap_octets:
                    gaps.append((piece.offset - piece.gap_octets, piece.gap_octets))
    expected = 0
    for offset, data in pieces:
        missing = {at + size: size for at, size in gaps}.get(offset, 0)
        assert offset == expected + missing
        expected = offset + len(data)
    return b"".join(data for _, data in pieces), gaps


def test_a_segment_says_what_was_on_the_wire_and_what_it_made_readable():
    talk = Talk().shake().send(0, b"hello", ack=0, flags=ACK | 8, window=321)
    packet = talk.run()[0][3]
    segment = packet[5]
    assert packet[:3] == (PacketKind.TCP, 4, 4000)
    assert packet[4] == b"hello"
    assert (segment.seq, segment.ack, segment.flags, segment.window) == (1001, 5001, 24, 321)
    assert (segment.payload_length, segment.ip_id, segment.stream_start) == (5, 4, 0)
    assert (segment.connection, segment.mid_stream) == (1, False)
    (piece,) = segment.stream
    assert (piece.offset, piece.data, piece.frames, piece.gap_octets) == (0, b"hello", (4,), 0)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 400)), max_size=12),
    st.sampled_from([1000, 2**32 - 700, 2**32 - 1, 2**31 - 5]),
    st.randoms(use_true_random=False),
)
def test_any_order_duplicates_and_overlaps_give_the_same_octets(sizes, extra, isn, rng):
    data = DATA[: sum(sizes)]
    cuts, at = [], 0
    for size in sizes:
        cuts.append((at, at + size))
        at += size
    cuts += [(start, min(start + size, at)) for start, size in extra if start < at]
    rng.shuffle(cuts)
    talk = Talk(isn=isn).shake()
    for start, end in cuts:
        talk.send(start, data[start:end], ack=0)
    packets, stats = talk.run()
    assert stream_of(packets) == (data, [])
    assert all(packet[0] is PacketKind.TCP and packet[6] == () for packet in packets)
    assert stats.tcp_gaps == stats.tcp_overlaps == 0
    assert stats.tcp == len(talk.frames)


@pytest.mark.parametrize("isn", [2**32 - 3, 2**32 - 2000, 100])
def test_long_streams_wrap(isn):
    talk = Talk(isn=isn).shake()
    step = 1 << 29
    # Jumps of half a GiB, each acknowledged as if captured elsewhere, pass the wrap twice.
    for turn in range(20):
        talk.send(turn * step, b"x" * 10, ack=0, at_ms=turn * 100)
        talk.reply(0, ack=turn * step + 10, at_ms=turn * 100 + 1)
        talk.reply(0, ack=(turn + 1) * step, at_ms=turn * 100 + 90)
    packets, stats = talk.run()
    starts = [p[5].stream_start for p in packets if p[0] is PacketKind.TCP and p[4]]
    assert starts == [turn * step for turn in range(20)]
    assert stats.tcp_gaps == 19
    assert stream_of(packets)[0] == b"x" * 200


def test_out_of_order_octets_wait_for_the_missing_ones():
    packets, _ = Talk().shake().send(5, b"world", ack=0).send(0, b"hello", ack=0).run()
    assert packets[3][5].stream == ()
    assert [(p.data, p.frames) for p in packets[4][5].stream] == [
        (b"hello", (5,)),
        (b"world", (4,)),
    ]


def test_a_changed_retransmission_is_marked_and_the_first_copy_stays():
    talk = Talk().shake().send(0, b"hello", ack=0).send(0, b"hELLo world", ack=0)
    talk.send(20, b"later", ack=0).send(20, b"LATER", ack=0).send(11, b"123456789", ack=0)
    packets, stats = talk.run()
    assert [p[6] for p in packets[3:]] == [(), ("tcp-overlap",), (), ("tcp-overlap",), ()]
    assert stream_of(packets) == (b"hello world123456789later", [])
    assert stats.tcp_overlaps == 2


def test_an_equal_retransmission_is_not_marked():
    talk = Talk().shake().send(0, b"hello", ack=0).send(0, b"hello", ack=0).send(2, b"llo!", ack=0)
    packets, _ = talk.run()
    assert all(p[6] == () for p in packets)
    assert stream_of(packets)[0] == b"hello!"


def test_a_keep_alive_octet_is_no_data():
    talk = Talk().shake().send(0, b"hello", ack=0).send(4, b"\0", ack=0).send(5, b"!", ack=0)
    packets, _ = talk.run()
    assert packets[4][6] == ()
    assert stream_of(packets)[0] == b"hello!"


def test_a_gap_that_the_peer_acknowledged_is_given_up_after_a_grace():
    talk = Talk().shake().send(0, b"one", ack=0, at_ms=0).send(10, b"two", ack=0, at_ms=1)
    talk.reply(0, ack=13, at_ms=2)
    grace = ACKED_GAP_GRACE_NS // MS
    talk.reply(0, b"early", ack=13, at_ms=2 + grace - 1).reply(5, b"late", ack=13, at_ms=2 + grace)
    packets, stats = talk.run()
    kinds = [p[0] for p in packets]
    assert kinds[5:] == [PacketKind.TCP, PacketKind.TCP, PacketKind.TCP_STREAM, PacketKind.TCP]
    released = packets[7]
    assert released[1:3] == (8, (2 + grace) * MS)
    assert released[4] == b""
    assert (released[5].flags, released[5].payload_length) == (0, 0)
    (piece,) = released[5].stream
    assert (piece.offset, piece.data, piece.frames, piece.gap_octets) == (10, b"two", (5,), 7)
    assert (stats.tcp_gaps, stats.tcp_gap_octets, stats.tcp) == (1, 7, 8)


def test_octets_captured_late_still_fill_an_acknowledged_gap():
    talk = Talk().shake().send(0, b"one", ack=0, at_ms=0).send(6, b"three", ack=0, at_ms=1)
    talk.reply(0, ack=11, at_ms=2).send(3, b"two", ack=0, at_ms=3).send(11, b"!", ack=0, at_ms=500)
    assert stream_of(talk.run()[0]) == (b"onetwothree!", [])


def test_a_gap_known_to_be_acknowledged_is_given_up_by_its_own_side_too():
    talk = Talk().shake().reply(0, ack=7, at_ms=0).send(7, b"after", ack=0, at_ms=1)
    talk.send(12, b"more", ack=0, at_ms=100)
    packets, _ = talk.run()
    assert stream_of(packets) == (b"aftermore", [(0, 7)])
    assert {p[0] for p in packets} == {PacketKind.TCP}


@pytest.mark.parametrize("isn", [100, 2**32 - 6])
def test_an_open_gap_is_marked_at_the_end_of_the_capture(isn):
    talk = Talk(isn=isn).shake().send(0, b"one", ack=0).send(10, b"two", ack=0).send(20, b"three", ack=0)
    packets, _ = talk.run()
    assert stream_of(packets) == (b"onetwothree", [(3, 7), (13, 7)])
    assert packets[-1][0] is PacketKind.TCP_STREAM
    assert packets[-1][1] == 6
    # The number of the first byte that was released, however close it is to the wrap.
    assert packets[-1][5].seq == (isn + 1 + packets[-1][5].stream_start) % 2**32


def test_octets_missing_before_the_fin_are_marked_at_the_end():
    talk = Talk().shake().send(0, b"one", ack=0).send(10, ack=0, flags=FIN | ACK)
    packets, _ = talk.run()
    piece = packets[-1][5].stream[0]
    assert (piece.offset, piece.data, piece.gap_octets) == (10, b"", 7)


def test_a_fin_at_the_end_leaves_nothing_open():
    talk = Talk().shake().send(0, b"one", ack=0).send(3, b"two", ack=0, flags=FIN | ACK)
    talk.reply(0, ack=7, flags=FIN | ACK).send(7, ack=1)
    packets, stats = talk.run()
    assert stream_of(packets) == (b"onetwo", [])
    assert len(packets) == stats.tcp == 7


def test_snapped_octets_are_a_gap_at_once():
    talk = Talk().shake().send(0, b"x" * 100, ack=0, cut=14 + 40 + 30).send(100, b"next", ack=0)
    packets, stats = talk.run()
    assert packets[3][6] == ("snapped",)
    assert packets[3][5].payload_length == 100
    assert stream_of(packets) == (b"x" * 30 + b"next", [(30, 70)])
    assert stats.snapped == 1


def test_snapped_octets_that_come_whole_before_are_no_gap():
    talk = Talk().shake().send(5, b"WORLD", ack=0).send(0, b"hello", ack=0, cut=14 + 40 + 2)
    assert stream_of(talk.run()[0]) == (b"heWORLD", [(2, 3)])


def test_mid_stream_the_first_octet_seen_is_offset_0():
    talk = (
        Talk().send(700, b"first", ack=90).reply(90, b"answer", ack=705).send(690, b"old", ack=96)
    )
    packets, _ = talk.run()
    assert all(p[5].mid_stream for p in packets)
    assert stream_of(packets) == (b"first", [])
    assert stream_of(packets, B4) == (b"answer", [])
    assert packets[2][5].stream_start == -10
    assert packets[2][6] == ()


def test_a_syn_captured_late_keeps_the_connection():
    talk = Talk().send(0, b"first", ack=0).send(-1, flags=SYN).send(5, b"second", ack=0)
    packets, stats = talk.run()
    assert stream_of(packets) == (b"firstsecond", [])
    assert stats.tcp_connections == 1
    assert [p[5].mid_stream for p in packets] == [True, False, False]


@pytest.mark.parametrize("isn", [100, 2**32 - 1])
def test_a_repeated_syn_is_the_same_connection(isn):
    talk = Talk(isn=isn).send(-1, flags=SYN).send(-1, flags=SYN).shake().send(0, b"x", ack=0)
    packets, stats = talk.run()
    assert {p[5].connection for p in packets} == {1}
    assert stats.tcp_connections == 1


def test_a_new_syn_on_the_same_ports_starts_a_new_connection():
    first = Talk().shake().send(0, b"one", ack=0).send(10, b"held", ack=0)
    first.isn, first.peer_isn = 900_000, 800_000
    # A stray of the old connection between the new SYN and its answer.
    first.send(-1, flags=SYN)
    first.reply(7_000_000, ack=0)
    first.reply(-1, flags=SYN | ACK, ack=0).send(0, b"two", ack=0).reply(0, b"answer", ack=3)
    packets, stats = first.run()
    assert stream_of(packets) == (b"oneheld", [(3, 7)])
    assert stream_of(packets, connection=2) == (b"two", [])
    assert stream_of(packets, B4, connection=2) == (b"answer", [])
    assert stats.tcp_connections == 2
    kinds = [p[0] for p in packets]
    assert kinds.index(PacketKind.TCP_STREAM) == 5
    assert packets[5][1] == packets[6][1] == 6


def test_an_answer_with_another_number_starts_a_new_connection_where_the_syn_was_missed():
    talk = Talk().shake().send(0, b"one", ack=0)
    talk.isn, talk.peer_isn = 900_000, 800_000
    talk.reply(-1, flags=SYN | ACK, ack=0).send(0, b"two", ack=0)
    packets, _ = talk.run()
    assert stream_of(packets, connection=2) == (b"two", [])
    assert not packets[-1][5].mid_stream


def test_data_on_the_syn_is_offset_0():
    talk = Talk().send(-1, b"fast", flags=SYN)
    assert stream_of(talk.run()[0]) == (b"fast", [])


def test_octets_on_a_reset_are_no_data():
    talk = Talk().shake().send(0, b"one", ack=0).send(3, b"reason", ack=0, flags=RST | ACK)
    assert stream_of(talk.run()[0]) == (b"one", [])


def test_a_reset_to_a_closed_port_sets_no_base():
    talk = Talk().send(-1, flags=SYN)
    talk.peer_isn = -1
    packets, _ = talk.reply(0, ack=0, flags=RST | ACK).run()
    assert packets[1][5].stream_start == 0


def test_a_segment_beyond_any_window_is_no_part_of_the_stream():
    talk = Talk().shake().send(0, b"one", ack=0).send(ordering.MAX_AHEAD + 10, b"stray", ack=0)
    packets, stats = talk.send(3, b"two", ack=0).run()
    assert packets[4][6] == ("tcp-out-of-window",)
    assert stream_of(packets) == (b"onetwo", [])
    assert stats.tcp_out_of_window == 1


def test_a_connection_with_itself_is_one_stream():
    packet = ipv4(tcp(b"self", seq=1, dport=4000), 6, dst=A4)
    packets = list(Decapsulator().packets([frame(1, packet), frame(2, packet)]))
    assert [len(p[5].stream) for p in packets] == [1, 0]


def test_octets_behind_a_gap_are_bounded(monkeypatch):
    monkeypatch.setattr(ordering, "MAX_STREAM_OCTETS", 1000)
    talk = Talk().shake()
    for turn in range(1, 40):
        talk.send(turn * 100, b"x" * 100, ack=0)
    packets, stats = talk.run()
    assert stream_of(packets) == (b"x" * 3900, [(0, 100)])
    assert stats.tcp_gaps_by_bound == 1
    assert packets[-1][0] is PacketKind.TCP


def test_pieces_behind_gaps_are_bounded(monkeypatch):
    monkeypatch.setattr(ordering, "MAX_STREAM_PIECES", 5)
    talk = Talk().shake()
    for turn in range(1, 12):
        talk.send(turn * 10, b"x", ack=0)
    packets, stats = talk.run()
    assert stats.tcp_gaps_by_bound == 6
    assert len(stream_of(packets)[1]) == 11


def test_all_streams_together_are_bounded(monkeypatch):
    monkeypatch.setattr(ordering, "MAX_BUFFERED_OCTETS", 5000)
    flow = Decapsulator()

    def held():
        number = 0
        for port in range(2000, 2100):
            for data in (tcp(b"a", sport=port), tcp(b"b" * 100, seq=50, sport=port)):
                number += 1
                yield frame(number, ipv4(data, 6))

    list(flow.packets(held()))
    assert flow._streams._pool.buffered == 0
    assert flow.stats.tcp_gaps_by_bound > 80
    assert flow.stats.tcp_gaps == 100


def test_the_history_for_comparison_is_bounded(monkeypatch):
    monkeypatch.setattr(ordering, "MAX_HISTORY_OCTETS", 3000)
    talk = Talk().shake()
    for turn in range(50):
        talk.send(turn * 100, b"x" * 100, ack=0)
    talk.send(4900, b"y" * 100, ack=0).send(0, b"y" * 100, ack=0)
    packets, _ = talk.run()
    assert packets[-2][6] == ("tcp-overlap",)
    assert packets[-1][6] == ()


def test_connections_are_bounded_and_the_longest_idle_goes_first(monkeypatch):
    monkeypatch.setattr(streams, "MAX_TCP_CONNECTIONS", 10)
    flow = Decapsulator()
    frames = [frame(1, ipv4(tcp(b"a", sport=1), 6)), frame(2, ipv4(tcp(b"b", seq=9, sport=1), 6))]
    frames += [frame(n + 1, ipv4(tcp(b"x", sport=n), 6)) for n in range(2, 12)]
    found = list(flow.packets(frames))
    assert flow.stats.tcp_evicted == 1
    released = [p for p in found if p[0] is PacketKind.TCP_STREAM]
    assert [p[5].stream[0].data for p in released] == [b"b"]
    assert found.index(released[0]) == len(found) - 2
    assert len(flow._streams._sides) == 0


def test_those_that_go_on_after_the_idle_ones_were_looked_for_stay(monkeypatch):
    monkeypatch.setattr(streams, "MAX_TCP_CONNECTIONS", 4)
    flow = Decapsulator()
    # Each new connection takes the place of the one idle for longest: of 1, then of 3, 4 and 5.
    ports = [1, 2, 3, 4, 5, 2, 6, 2, 7, 8, 2]
    frames = [frame(n + 1, ipv4(tcp(b"x", sport=port), 6)) for n, port in enumerate(ports)]
    assert len(list(flow.packets(frames))) == len(ports)
    assert flow.stats.tcp_evicted == 4
    assert flow.stats.tcp_connections == len(set(ports))
