"""Every Riptide flow is found from its first datagrams, and nothing else is taken for one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.claims import STRONG
from netdissect.model.packets import PacketKind, reverse_key
from netdissect.protocols.claiming import SAMPLE_SIZES
from netdissect.protocols.riptide import PROTOCOL
from netdissect.protocols.riptide.framing import PREFIXES, messages_of
from netdissect.protocols.riptide.recognition import recognise
from netdissect.wire.riptide import UNDECIDED
from streams import streams

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
OTHERS = [
    path
    for name in ("knet", "teeworlds", "eoudp", "netplay")
    for path in sorted((CAPTURES / name).glob("*.pcap*"))
]
SECOND = 1_000_000_000


def flows(path):
    """Return {(transport, key): sample} of a capture."""
    found = {}
    with open_capture(path) as reader:
        for packet in Decapsulator().packets(reader):
            kind, _, time_ns, key, payload, segment, _ = packet
            if kind == PacketKind.UDP:
                pieces, transport = [payload], "udp"
            elif kind == PacketKind.TCP:
                pieces, transport = [piece.data for piece in segment.stream], "tcp"
            else:
                continue
            name = (transport, key)
            if (transport, reverse_key(key)) in found:
                name = (transport, reverse_key(key))
            sample = found.setdefault(name, [])
            sample += [(int(name[1] != key), time_ns, piece) for piece in pieces]
    return found


def claims(sample, transport):
    """Return every claim that the pipeline would hear, in order."""
    sizes = [size for size in sorted(SAMPLE_SIZES) if size <= len(sample)]
    heard = [recognise(sample[:size], transport, final=False) for size in sizes]
    heard.append(recognise(sample[: max(SAMPLE_SIZES)], transport, final=True))
    return [claim for claim in heard if claim is not None]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_other_protocols_are_left_alone(path) -> None:
    for (transport, _), sample in flows(path).items():
        for claim in claims(sample, transport):
            assert claim.score < STRONG, claim


@pytest.mark.parametrize("seed", range(4))
def test_random_octets_are_left_alone(seed) -> None:
    rng = random.Random(seed)
    for _ in range(1500):
        sample = []
        at = 0
        for _ in range(16):
            at += rng.randrange(SECOND)
            octets = rng.randbytes(rng.choice((1, 2, 4, 5, 5, 7, rng.randrange(40))))
            sample.append((rng.randrange(2), at, octets))
        for transport in ("udp", "tcp"):
            assert all(claim.score < STRONG for claim in claims(sample, transport))


def knock(octets, count, gap=SECOND):
    return [(0, n * gap, octets) for n in range(count)]


@pytest.mark.parametrize(
    ("sample", "final", "claimed", "client"),
    [
        (knock(b"\x02", 5), True, True, 0),
        (knock(b"\x03", 5), True, True, 0),
        (knock(b"\x02", 5), False, False, None),  # more may come
        (knock(b"\x02", 2), True, False, None),
        (knock(b"\x02", 5, SECOND // 3), True, False, None),
        (knock(b"\x07", 5), True, False, None),
        (knock(b"\x82\x2a\x01\0\0\1", 3), True, False, None),  # as of DNS
        (knock(b"\x82\x2a\x01\0\0\1", 5), True, True, 0),
        ([(0, 0, b"\x02"), (1, 5, b"\x02")], True, True, 0),
        ([(1, 0, b"\x02"), (0, 5, b"\x02")], True, True, 1),
        ([(0, 0, b"\x02"), (1, 5, b"\x03")], True, False, None),
        ([(0, 0, b"\x02"), (1, 5, bytes.fromhex("1800100000"))], False, True, 0),
        ([(1, 0, b"\x03"), (0, 5, bytes.fromhex("0801000100"))], False, True, 1),
        ([(0, 0, b"\x02"), (1, 5, bytes.fromhex("18001000f0"))], False, False, None),
        ([(0, 0, b"\x02"), (1, 5, bytes.fromhex("2800100000"))], False, False, None),
        ([(0, 0, b"\x02")] + [(1, 5, b"\x23\x00")] * 3, False, True, 0),
        ([(0, 0, b"\x03"), (1, 5, b"\x04\x03")], True, True, 0),
        ([(0, 0, b"\x02")], True, False, None),
    ],
)
def test_short_exchanges(sample, final, claimed, client) -> None:
    claim = recognise(sample, "udp", final=final)
    assert (claim is not None and claim.score >= STRONG) is claimed
    if claimed:
        assert claim.client == client
        assert claim.reasons


@pytest.mark.parametrize(
    ("connect", "early", "welcome"),
    [(b"\x03", b"\x00\x05\x00\x07", "0801000100"), (b"\x02", b"\x50\x00", "1800100000")],
)
def test_a_welcome_that_other_messages_overtook_is_known_by_the_one_that_comes_back(
    connect, early, welcome
) -> None:
    """No Ack or heartbeat may come for long behind it, where the network loses many datagrams."""
    welcome = bytes.fromhex(welcome)

    def claim(*later):
        sample = [(0, 0, connect), (1, 5, early), (1, 6, welcome), *later]
        return recognise(sample, "udp", final=False)

    assert claim((0, 9, welcome)).score >= STRONG
    for later in ((1, 9, welcome), (0, 9, welcome[:-1] + b"\x0f"), (0, 9, early)):
        assert claim(later) is None
    assert recognise([(0, 0, connect), (0, 1, early), (1, 6, welcome), (0, 9, welcome)], "udp", final=False) is None


def test_heartbeats_alone_tell_dialect_and_roles() -> None:
    sample = []
    for ping in range(3):
        ask = (0x4 | ping << 4 | 20 << 12).to_bytes(4, "little")
        answer = (0x4 | ping << 4).to_bytes(2, "little")
        sample += [(1, ping * SECOND, ask), (0, ping * SECOND + 5_000_000, answer)]
    claim = recognise(sample, "udp", final=False)
    assert claim.score >= STRONG
    assert (claim.client, claim.roles_from) == (1, "protocol")
    assert claim.dialects == ("riptide-2.1/2.2", "riptide-2.1/2.2")


def test_answers_of_another_number_prove_nothing() -> None:
    sample = []
    for ping in range(4):
        ask = (0x4 | ping << 4 | 20 << 12).to_bytes(4, "little")
        sample += [(1, ping * SECOND, ask), (0, ping * SECOND + 9, b"\x94\x09")]
    assert recognise(sample, "udp", final=True).score < STRONG


def test_hints_of_a_claim_put_the_dialects_by_direction() -> None:
    sample = [(1, 0, b"\x02"), (0, 5, bytes.fromhex("1800100000"))]
    sample += [(1, 9, bytes.fromhex("11001000200000"))]  # a 2.1 client, which is endpoint 1
    claim = recognise(sample, "udp", final=False)
    assert PROTOCOL.initial_hints(claim).dialects == ("riptide-2.1", "riptide-2.1/2.2")


def middle(ids, *, bits=False):
    """Return reliable messages and their acks from the middle of a connection."""
    sample = []
    for place, number in enumerate(ids):
        at = place * 20_000_000
        if bits:
            message = (7 | number << 4 | 5 << 20 | 7 << 28).to_bytes(5, "little")
            ack = (1 | number << 4 | 0xFFFF << 20).to_bytes(5, "little")
        else:
            message = b"\x07" + number.to_bytes(2, "little") + b"\x05\x00\x07"
            ack = b"\x01" + number.to_bytes(2, "little") + b"\xff\xff"
        sample += [(0, at, message), (1, at + 1_000_000, ack)]
    return sample


def test_whole_octets_are_not_taken_for_bits() -> None:
    # Shifted by four bits, messages and acks agree as well: every number is a multiple of 16.
    claim = recognise(middle(range(0x141, 0x151)), "udp", final=True)
    assert claim.score >= STRONG
    assert claim.dialects == ("riptide-2.0/2.1dev", "riptide-2.0/2.1dev")
    claim = recognise(middle(range(0x141, 0x151), bits=True), "udp", final=True)
    assert claim.dialects == ("riptide-2.1/2.2", "riptide-2.2")


@pytest.mark.parametrize(("octets", "known"), [
    (b"\x30\x00", True), (b"\xf0\x07", True), (b"\xf0\x08", False), (b"\x30\x10", False),
    (b"\x30", False),
])  # fmt: skip
def test_a_message_without_data_is_possible(octets, known) -> None:
    """Bit-packed, an unreliable one has two bytes if its id has one, and the last bits are zero."""
    sample = middle(range(0x141, 0x151), bits=True)
    sample.insert(5, (0, sample[5][1], octets))
    claim = recognise(sample, "udp", final=True)
    assert (claim is not None and claim.score >= STRONG) == known


def test_what_tells_the_byte_packings_apart_is_waited_for() -> None:
    sample = middle(range(0x141, 0x149))
    assert recognise(sample, "udp", final=False).waits
    ask = (0, 10**9, b"\x05\x07\x14\x00")
    claim = recognise([*sample, ask], "udp", final=False)
    assert (claim.score >= STRONG, claim.dialects) == (True, ("riptide-2.0", "riptide-2.0"))
    ask = (0, 10**9, b"\x04\x07\x14\x00")
    assert recognise([*sample, ask], "udp", final=False).dialects[0] == "riptide-2.1dev"


def test_a_connect_with_data_and_one_reject_prove_nothing() -> None:
    # Two datagrams of a counter look the same.
    assert recognise([(0, 0, b"\x03\x01"), (1, 5, b"\x04\x02")], "udp", final=True).score < STRONG
    assert recognise([(0, 0, b"\x03"), (1, 5, b"\x04\x03")], "udp", final=True).score >= STRONG


@pytest.mark.parametrize("cut", [3, 17, 40])
def test_a_stream_is_found_from_its_middle(cut) -> None:
    streams = [b"", b""]
    for side, _, octets in middle(range(0x141, 0x155), bits=True):
        streams[side] += len(octets).to_bytes(4, "little") + octets
    sample = [(side, 0, stream[cut:]) for side, stream in enumerate(streams)]
    claim = recognise(sample, "tcp", final=True)
    assert claim.score >= STRONG
    assert claim.dialects[1] == "riptide-2.2"


def test_the_messages_of_a_stream_with_a_gap_are_found_on_both_sides_of_it() -> None:
    """Segments that are lost before they reach a capture are gaps: what follows does not go on with
    what was before.
    """
    octets = next(octets for name, octets in streams("riptide") if name == "tcp_2.2.1_clean.pcap")
    pieces = [(0, at, octets[at : at + 300]) for at in range(7, len(octets), 300)]
    prefix = PREFIXES[UNDECIDED]
    whole = messages_of(pieces, prefix, search=True)
    found = messages_of(pieces[:20] + pieces[21:], prefix, search=True)
    assert len(found) > len(whole) * 9 // 10
    assert {message for _, _, message in found} <= {message for _, _, message in whole}


def test_what_a_stalled_peer_leaves_unacknowledged_proves_a_stream() -> None:
    """One side repeats some of its reliable messages, and nothing counts up by one."""
    ids = [*range(70, 90), *range(95, 120), *range(70, 90)]

    def stream(tail):
        bodies = [bytes([7 | number << 4 & 0xF0, number >> 4, 0, *tail(number, at)]) for at, number in enumerate(ids)]
        return [(0, at * 10**6, len(body).to_bytes(4, "little") + body) for at, body in enumerate(bodies)]

    same = recognise(stream(lambda number, _: b"\x50" + bytes([number] * 9)), "tcp", final=True)
    assert same is not None
    assert same.score >= STRONG
    other = recognise(stream(lambda _, at: b"\x50" + bytes([at] * 9)), "tcp", final=True)
    assert other is None or other.score < STRONG


def test_sequence_ids_that_lie_close_together_prove_a_stream() -> None:
    """A window full of what waits for its answer; the other side has sent part of one message."""
    ids = random.Random(3).sample(range(120, 170), 40)

    def stream(*ids):
        bodies = [bytes([7 | n << 4 & 0xF0, n >> 4 & 0xFF, n >> 12, 0x50]) + bytes([n & 0xFF] * 600) for n in ids]
        return [(0, at * 10**6, len(body).to_bytes(4, "little") + body) for at, body in enumerate(bodies)]

    part = (1, 5, b"abc" * 300)
    known = recognise([*stream(*ids), part], "tcp", final=True)
    assert known is not None
    assert known.score >= STRONG
    alone = [(0, at, octets[4:]) for _, at, octets in stream(*sorted(ids))]
    assert recognise(alone, "udp", final=True).score >= STRONG
    for count, enough in ((8, True), (7, False)):
        few = [(0, at, bytes([*octets])) for at in range(4) for _, _, octets in alone[:count]]
        assert (recognise(few, "udp", final=True).score >= STRONG) == enough
    for foreign in (range(0, 65536, 1999), [16 * n + 3 for n in ids]):
        claim = recognise([*stream(*foreign), part], "tcp", final=True)
        assert claim is None or claim.score < STRONG


def reliable(number, *, bits=False):
    head = bytes([7 | number << 4 & 0xF0, number >> 4 & 0xFF, number >> 12]) if bits else b"\x07" + number.to_bytes(2, "little")
    return head + b"\x05\x00" + bytes([number & 0xFF] * 9)


def test_what_waits_for_its_answer_proves_one_side_of_whole_octets() -> None:
    """The other direction is dark: its peer sends what is due again, in the order of its timers."""
    due = [*range(70, 90), *range(60, 70), *range(90, 100)]

    def claim(ids, tail=reliable):
        return recognise([(0, at * 10**6, tail(n)) for at, n in enumerate(ids)], "udp", final=True)

    def is_known(found):
        return found is not None and found.score >= STRONG

    assert is_known(claim([*due, 71, 64, 72]))
    assert is_known(claim([n + late for n in range(300, 320) for late in (0, 40)]))
    # A counter and the copies and disorder of a network are no proof.
    assert not is_known(claim([*range(300, 340)]))
    assert not is_known(claim([n for n in range(300, 330) for _ in (0, 1)]))
    assert not is_known(claim([n ^ 3 for n in range(300, 340)]))
    other = iter(range(100))
    assert not is_known(claim([*due, 71, 64, 72], lambda n: reliable(n) + bytes([next(other)])))


@pytest.mark.parametrize("bits", [False, True])
def test_acks_of_what_was_sent_before_the_capture_are_known(bits) -> None:
    def ack(number):
        if bits:
            return bytes([1 | number << 4 & 0xF0, number >> 4 & 0xFF, number >> 12 | 0xF0, 0xFF, 0x0F])
        return b"\x01" + number.to_bytes(2, "little") + b"\xff\xff"

    def claim(far):
        sample = [(0, n * 10**6, reliable(500 + n, bits=bits)) for n in range(6)]
        sample += [(1, n * 10**6, ack(480 + n + far)) for n in range(10)]
        return recognise(sample, "udp", final=True)

    assert claim(0).score >= STRONG
    assert claim(6000).score < STRONG
