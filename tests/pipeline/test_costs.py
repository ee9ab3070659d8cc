"""Numbers and acknowledgements that somebody made up cost no more than those of a game."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, count, cycle, islice, product, repeat
from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.packets import Frame, Packet, PacketKind, flow_ports, reverse_key
from netdissect.pipeline import Options, Pipeline, recogniser, table
from netdissect.pipeline.parallel import share_of
from netdissect.pipeline.table import BRIEF
from netdissect.track.recorder import Recorder
from packetbuild import frame, ipv4, tcp, udp

MOST = 10
"""What a datagram may cost, as a multiple of one of ordinary numbers."""
DATAGRAMS = 1200
FLOOD = 20_000
FLOOD_MOST = 2
"""What packets of as many flows may cost, as a multiple of those of few flows; reading them, which
costs the same for both, is not counted here.
"""
ROOT = Path(__file__).resolve().parents[2]
CLIENT = bytes([10, 0, 0, 1, 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
WELCOME = bytes.fromhex("1800100000")
HANDSHAKE = [(0, b"\x02"), (1, WELCOME), (0, bytes.fromhex("1100100000")), (0, WELCOME)]
CHANCE = random.Random(1)


def following(seq: int, step: int) -> int:
    return (seq + step) & 0xFFFF


STEPS: dict[str, Callable[[], Iterator[int]]] = {
    "ordinary": lambda: repeat(1),
    "gaps": lambda: repeat(2),
    "bursts": lambda: cycle((1, 1, 1, 40)),
    "jumps": lambda: repeat(1000),
    "as far as counts": lambda: repeat(1024),
    "too far": lambda: repeat(1025),
    "too far, then confirmed": lambda: cycle((1, 9000)),
    "half of all": lambda: repeat(32_768),
    "back": lambda: repeat(-1),
    "back in jumps": lambda: repeat(-900),
    "to and fro": lambda: cycle((1000, -998)),
    "holes filled late": lambda: cycle((1000, *repeat(-2, 400), 801)),
    "any": lambda: (CHANCE.randrange(65_536) for _ in count()),
    "the same": lambda: repeat(0),
}
ANSWERS: dict[str, Callable[[int], tuple[int, int]]] = {
    "newest": lambda seq: (seq, 0xFFFF),
    "none of them": lambda seq: (seq, 0),
    "long ago": lambda seq: (seq - 900, 0xFFFF),
    "never sent": lambda seq: (seq + 30_000, 0x5555),
    "now and then": lambda seq: (seq - seq % 300, 0xFFFF),
}


def reliable(seq: int) -> bytes:
    return (7 | seq << 4).to_bytes(3, "little") + bytes(14)


def acknowledgement(newest: int, bits: int) -> bytes:
    return (1 | (newest & 0xFFFF) << 4 | bits << 20).to_bytes(5, "little")


def notify(seq: int, newest: int, bits: int) -> bytes:
    return (6 | (newest & 0xFFFF) << 4 | (bits & 255) << 20 | seq << 28).to_bytes(6, "little")


def reliable_traffic(steps: str, answers: str) -> Iterator[tuple[int, bytes]]:
    for seq in accumulate(STEPS[steps](), following, initial=0):
        yield 0, reliable(seq)
        yield 1, acknowledgement(*ANSWERS[answers](seq))


def notify_traffic(steps: str, answers: str) -> Iterator[tuple[int, bytes]]:
    """Return unreliable messages that carry the acknowledgements of the others."""
    for seq in accumulate(STEPS[steps](), following, initial=0):
        told = ANSWERS[answers](seq)
        yield 0, notify(seq, *told)
        yield 1, notify(seq, *told)


def made(traffic: Iterator[tuple[int, bytes]], count: int = DATAGRAMS) -> list[Packet]:
    keys = CLIENT, reverse_key(CLIENT)
    return [
        (PacketKind.UDP, frame, frame * 1_000_000, keys[side], payload, None, ())
        for frame, (side, payload) in enumerate([*HANDSHAKE, *islice(traffic, count)], 1)
    ]


def compare(
    usual: Callable[[], float], other: Callable[[], float], most: float, tries: int = 12
) -> None:
    """Fail where the least that something costs is `most` times the least that the usual does, or
    more; measured in turns, as what slows the machine down slows both, without the search for
    garbage, which walks all that other tests have left.
    """
    least, measured = float("inf"), float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(tries):
            least, measured = min(least, usual()), min(measured, other())
            if measured < most * least:
                return
    finally:
        gc.enable()
    pytest.fail(f"{measured / least:.1f} times the usual")


def cost(packets: list[Packet], *, recorded: bool) -> float:
    """Return the processor time of an analysis, seconds."""
    pipeline = Pipeline(Options(strict=True), recorder=Recorder() if recorded else None)
    begin = time.process_time()
    for packet in packets:
        pipeline.feed(packet)
        if pipeline.recorder is not None:
            for _ in pipeline.recorder.ready(pipeline.now_ns):
                pass
    pipeline.finish()
    spent = time.process_time() - begin
    assert sum(report.datagrams[0] for report in pipeline.reports) > DATAGRAMS / 3
    return spent


EVERY = list(product(STEPS, ANSWERS))
SOME = [pair for pair in EVERY if pair[0] in {"jumps", "any"} or pair[1] == "newest"]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("traffic", [reliable_traffic, notify_traffic])
@pytest.mark.parametrize("pairs", [SOME, pytest.param(EVERY, marks=pytest.mark.slow)])
def test_numbers_that_jump_cost_no_more(
    traffic: Callable[[str, str], Iterator[tuple[int, bytes]]],
    recorded: bool,
    pairs: list[tuple[str, str]],
) -> None:
    spent = partial(cost, recorded=recorded)
    usual = partial(spent, made(traffic("ordinary", "newest")))
    for pair in pairs:
        compare(usual, partial(spent, made(traffic(*pair))), MOST)


def test_time_that_jumps_costs_no_walk_over_the_table() -> None:
    """Each datagram is another connection's, each later than any housekeeping waits."""
    runs = []
    for step_ns in (1_000_000, 60_000_000_000):
        packets: list[Packet] = []
        for number in range(160):
            key = bytes([10, 0, 1, number, 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
            for side, payload in HANDSHAKE:
                way = reverse_key(key) if side else key
                packets.append((PacketKind.UDP, len(packets) + 1, 0, way, payload, None, ()))
        for at in range(DATAGRAMS):
            key = bytes([10, 0, 1, at % 160, 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
            time_ns, payload = at * step_ns, reliable(at // 160)
            packets.append((PacketKind.UDP, len(packets) + 1, time_ns, key, payload, None, ()))
        runs.append(partial(cost, packets, recorded=False))
    compare(*runs, MOST)


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a flood come to the bounds of the tables, as a million do in earnest."""
    monkeypatch.setattr(recogniser, "MAX_SAMPLED", 400)
    monkeypatch.setattr(recogniser, "MAX_OTHER", 1000)


def strangers(flows: int, payload: Callable[[int], bytes]) -> list[Packet]:
    """Return datagrams of no protocol, each flow's in turn."""
    keys = [bytes([10, *at.to_bytes(3, "big"), 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
            for at in range(flows)]  # fmt: skip
    return [
        (PacketKind.UDP, at + 1, at * 1000, keys[at % flows], payload(at), None, ())
        for at in range(FLOOD)
    ]


@pytest.mark.parametrize(
    "payload",
    [lambda at: random.Random(at).randbytes(40), lambda _: bytes(40), lambda _: reliable(5)],
    ids=["any", "zeros", "a game's"],
)
@pytest.mark.usefixtures("small_tables")
def test_flows_of_one_datagram_cost_little_more(payload: Callable[[int], bytes]) -> None:
    few, many = strangers(FLOOD // 1000, payload), strangers(FLOOD, payload)
    compare(partial(flood, few), partial(flood, many), FLOOD_MOST)


@pytest.mark.parametrize(
    "data",
    [lambda _: b"", lambda _: b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
     lambda at: random.Random(at).randbytes(40)],
    ids=["a SYN", "text", "any"],
)  # fmt: skip
@pytest.mark.usefixtures("small_tables")
def test_streams_of_one_segment_cost_little_more(data: Callable[[int], bytes]) -> None:
    few, many = segments(FLOOD // 1000, data), segments(FLOOD, data)
    compare(partial(flood, few), partial(flood, many), FLOOD_MOST)


def segments(flows: int, data: Callable[[int], bytes]) -> list[Packet]:
    """Return segments, each flow's in turn; without data each opens its connection."""
    frames: list[Frame] = []
    for at in range(FLOOD // 4):
        octets = data(at)
        seq = at // flows * len(octets)
        whole = tcp(octets, seq=seq, flags=0x18 if octets else 2, dport=7777)
        source = bytes([10, *(at % flows).to_bytes(3, "big")])
        frames.append(frame(at + 1, ipv4(whole, 6, src=source), time_ns=at * 1000))
    return list(Decapsulator().packets(frames))


def flood(packets: list[Packet], known: dict[str, dict[str, int]] | None = None) -> float:
    """Return the processor time of an analysis, seconds; of what belongs to nobody, but `known`."""
    pipeline = Pipeline(Options(strict=True))
    spent = taken(packets, pipeline)
    udp = sum(packet[0] is PacketKind.UDP for packet in packets)
    assert (pipeline.other_datagrams, pipeline.counts) == ((0, known) if known else (udp, {}))
    return spent


def reading(frames: list[Frame]) -> float:
    """Return the processor time of taking the headers off for one share of two, seconds."""
    share = share_of(1, 2)
    begin = time.process_time()
    share.take(frames)
    return time.process_time() - begin


def test_a_share_costs_the_same_whatever_flows_there_are() -> None:
    few, many = (
        [frame(at + 1, ipv4(udp(bytes(12)), src=bytes([10, *(at % flows).to_bytes(3, "big")])))
         for at in range(FLOOD)]
        for flows in (FLOOD // 1000, FLOOD)
    )  # fmt: skip
    compare(partial(reading, few), partial(reading, many), 1.5)


TOKEN = b"\x10\x00\x00\x01TKEN" + b"\xff" * 4
"""What begins a connection of Teeworlds, known alone."""


@pytest.mark.usefixtures("small_tables")
def test_a_flood_of_connections_costs_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first datagrams alone, from forged addresses: what a million cost in earnest."""
    monkeypatch.setattr(table, "MAX_BRIEF", 40)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 10)
    few, many = strangers(FLOOD // 1000, lambda _: bytes(40)), strangers(FLOOD, lambda _: TOKEN)
    known = {"teeworlds": {"datagrams": FLOOD, "connections": FLOOD}}
    compare(partial(flood, few), partial(flood, many, known), MOST)


def lives(flows: int, length: int) -> list[Packet]:
    """Return handshakes that are begun again and again, of each flow in turn."""
    keys = [bytes([10, *at.to_bytes(3, "big"), 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
            for at in range(flows)]  # fmt: skip
    made: list[Packet] = []
    for at in range(FLOOD // 4):
        key = keys[at // length % flows]
        side, payload = HANDSHAKE[at % length]
        way = reverse_key(key) if side else key
        made.append((PacketKind.UDP, at + 1, at * 1_000_000, way, payload, None, ()))
    return made


@pytest.mark.parametrize(("flows", "length"), [(1, 2), (1, 3), (1, 4), (FLOOD, 2), (FLOOD, 4)])
@pytest.mark.usefixtures("small_tables")
def test_connections_begun_again_and_again_cost_no_more(
    monkeypatch: pytest.MonkeyPatch, flows: int, length: int
) -> None:
    monkeypatch.setattr(table, "MAX_BRIEF", 40)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 10)
    usual = made(reliable_traffic("ordinary", "newest"), FLOOD // 4)
    runs = [partial(read, framed(packets)) for packets in (usual, lives(flows, length))]
    compare(runs[0], runs[1], MOST)


def opened(name: str) -> list[tuple[int, bytes]]:
    """Return (side, payload) of the first datagrams of a capture."""
    with open_capture(ROOT / "captures" / f"{name}.pcap") as reader:
        whole = list(islice(Decapsulator().packets(reader), BRIEF + 4))
    return [(int(packet[3] != whole[0][3]), packet[4]) for packet in whole]


def in_turns(flows: int, datagrams: list[tuple[int, bytes]]) -> list[Packet]:
    """Return the datagrams of ever new flows, as many of each; 50 flows take turns."""
    packets: list[Packet] = []
    for begun in range(0, flows, 50):
        for side, payload in datagrams:
            for at in range(begun, begun + 50):
                key = bytes([10, *at.to_bytes(3, "big"), 10, 1, 1, 1]) + b"\xc3\x50\x1e\x61"
                way, number = reverse_key(key) if side else key, len(packets) + 1
                packets.append((PacketKind.UDP, number, number * 1_000_000, way, payload, None, ()))
    return packets


def flows_of(octets: Callable[[], bytes]) -> list[tuple[int, bytes]]:
    return [(0, octets()) for _ in range(BRIEF + 4)]


FLOWS: dict[str, Callable[[], list[tuple[int, bytes]]]] = {
    "any": lambda: flows_of(lambda: CHANCE.randbytes(40)),
    "zeros": lambda: flows_of(lambda: bytes(40)),
    "riptide": lambda: [*HANDSHAKE, *((0, reliable(seq)) for seq in range(BRIEF))],
    "teeworlds": lambda: opened("teeworlds/ddnet_clean"),
    "knet": lambda: opened("knet/udp_loss8.server"),
    "eoudp": lambda: opened("eoudp/late_two_clients_one_killed"),
}
"""The beginnings of flows, from nothing that is known to a connection of each protocol."""


@pytest.mark.parametrize("each", [1, 2, BRIEF - 1, BRIEF + 4])
@pytest.mark.parametrize("kind", FLOWS)
def test_a_flood_costs_the_same_however_much_the_tables_hold(
    monkeypatch: pytest.MonkeyPatch, kind: str, each: int
) -> None:
    """Whatever has to leave is found without a walk over the table."""
    monkeypatch.setattr(table, "MAX_BRIEF", 20)
    monkeypatch.setattr(table, "ADDED_A_LOOK", 10)
    packets = in_turns(max(700, 3000 // each), FLOWS[kind]()[:each])

    def bounded(most: int) -> float:
        for name in ("MAX_SAMPLED", "MAX_QUIET_SAMPLED", "MAX_OTHER"):
            monkeypatch.setattr(recogniser, name, most)
        monkeypatch.setattr(table, "MAX_CONNECTIONS", most)
        return taken(packets)

    compare(partial(bounded, 50), partial(bounded, 500), 1.5)


def framed(packets: list[Packet]) -> list[Frame]:
    """Return frames that hold these datagrams."""
    return [
        frame(number, ipv4(udp(octets, *flow_ports(key)), src=key[:4], dst=key[4:8]),
              time_ns=time_ns)
        for _, number, time_ns, key, octets, _, _ in packets
    ]  # fmt: skip


def read(frames: list[Frame]) -> float:
    """Return the processor time of reading and analysis, seconds."""
    pipeline = Pipeline()
    begin = time.process_time()
    pipeline.run(Decapsulator().packets(frames))
    pipeline.finish()
    return time.process_time() - begin


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "another tail": lambda octets, chance: octets + chance.randbytes(1300),
    "the same again": lambda octets, _: (octets + octets[1:] * 200)[:1400],
    "nothing more": lambda octets, _: octets[:8] + bytes(1392),
    "other numbers": lambda octets, chance: octets[:1] + chance.randbytes(5) + octets[6:],
    "somewhere": lambda octets, chance: chance.randbytes(len(octets) // 2) + octets[-40:],
}


@pytest.mark.parametrize(
    "name",
    ["riptide/udp_2.2.1_lossy_clientleg.pcap", "teeworlds/ddnet_clean.pcap",
     "knet/udp_loss8.server.pcap", "eoudp/late_two_clients_one_killed.pcap"],
)  # fmt: skip
def test_what_is_damaged_costs_no_more(name: str) -> None:
    """After the beginning every datagram is one that somebody made up. One that is longer than the
    usual ones may take as much longer, and what begins connections is compared with as many.
    """
    with open_capture(ROOT / "captures" / name) as reader:
        whole = list(islice(Decapsulator().packets(reader), 600))
    for damage in DAMAGE.values():
        chance = random.Random(1)
        made = whole[:40] + [
            (*packet[:4], damage(packet[4], chance), *packet[5:]) for packet in whole[40:]
        ]
        longer = octets(made) / octets(whole)
        usual = sessions(whole, connections(made))
        compare(partial(taken, usual), partial(taken, made), max(MOST, longer), tries=24)


def pieces(name: str) -> list[tuple[int, bytes]]:
    """Return (side, bytes) of the segments of the first stream of a capture."""
    with open_capture(ROOT / "captures" / "netplay" / f"{name}.pcap") as reader:
        whole = [packet for packet in Decapsulator().packets(reader) if packet[5] is not None]
    key = whole[0][3]
    return [
        (int(packet[3] != key), b"".join(piece.data for piece in packet[5].stream))
        for packet in whole
        if packet[5] is not None and packet[5].stream and packet[3] in {key, reverse_key(key)}
    ]


def streamed(parts: list[tuple[int, bytes]]) -> list[Packet]:
    """Return segments with these bytes, behind a handshake."""
    sent, frames = [1000, 5000], list[Frame]()
    for side, data, flags in [(0, b"", 2), (1, b"", 0x12), *((*part, 0x18) for part in parts)]:
        ports = (4000, 7777)[:: 1 - 2 * side]
        whole = tcp(data, seq=sent[side], ack=sent[1 - side], flags=flags, sport=ports[0], dport=ports[1])
        ends = (b"\x0a\0\0\1", b"\x0a\0\0\2")[:: 1 - 2 * side]
        frames.append(frame(len(frames) + 1, ipv4(whole, 6, src=ends[0], dst=ends[1])))
        sent[side] += len(data) or 1
    return list(Decapsulator().packets(frames))


@pytest.mark.parametrize(
    "name",
    ["bin1_coalesced__client_leg", "bin2_lossy__client_side", "bin3_example_chat",
     "text_lossy__client_side"],
)  # fmt: skip
def test_a_damaged_stream_costs_no_more(name: str) -> None:
    """Compared with ordinary messages in segments of the same lengths."""
    usual = [part for part in pieces(name) if part[1]]
    whole = [b"".join(data for side, data in usual if side == which) for which in (0, 1)]
    hostile = {**DAMAGE, "all zeros": lambda octets, _: bytes(len(octets)),
               "all ones": lambda octets, _: b"\xff" * len(octets)}  # fmt: skip
    for damage in hostile.values():
        chance, ordinary = random.Random(1), [cycle(octets) for octets in whole]
        damaged = ((side, damage(data, chance)) for side, data in cycle(usual[20:]))
        made = [*usual[:20], *islice(damaged, 400)]
        same = [(side, bytes(islice(ordinary[side], len(data)))) for side, data in made]
        compare(partial(taken, streamed(same)), partial(taken, streamed(made)), MOST)


def connections(packets: list[Packet]) -> int:
    """Return the number of connections that an analysis finds."""
    pipeline = Pipeline()
    pipeline.run(packets)
    pipeline.finish()
    return sum(1 for _ in pipeline.reports)


def sessions(packets: list[Packet], most: int) -> list[Packet]:
    """Return beginnings of a session from other addresses: at most so many connections, and as many
    datagrams as the whole.
    """
    short = packets[: len(packets) // most]
    times = max(1, most // connections(short))
    short = packets[: len(packets) // times]
    return [
        (*packet[:3], bytes([packet[3][0] ^ at, *packet[3][1:]]), *packet[4:])
        for at in range(times)
        for packet in short
    ]


def test_one_unit_sent_forever_costs_no_more_each_time() -> None:
    """Each copy comes after a pause that is judged by what was asked before."""
    with open_capture(ROOT / "captures" / "teeworlds" / "tw064_clean.pcap") as reader:
        whole = list(Decapsulator().packets(reader))
    full = max(whole, key=lambda packet: len(packet[4]))
    begin = whole[: whole.index(full)]
    peer = next(packet for packet in reversed(begin) if packet[3] != full[3])

    def asked(times: int) -> list[Packet]:
        again: list[Packet] = [
            (*one[:2], full[2] + at * 60_000_000_000, *one[3:])
            for at, one in enumerate((full, peer) * (times // 2))
        ]
        return [*begin, *again]

    compare(partial(taken, asked(150)), partial(taken, asked(1200)), 8 * 1.5)


def octets(packets: list[Packet]) -> int:
    """Return the length of all payloads."""
    return sum(len(packet[4]) for packet in packets)


def taken(packets: list[Packet], pipeline: Pipeline | None = None) -> float:
    """Return the processor time of an analysis, seconds."""
    pipeline = pipeline or Pipeline()
    begin = time.process_time()
    pipeline.run(packets)
    pipeline.finish()
    return time.process_time() - begin
