"""kNet's `scan`: what it says is what the tree shows; nothing raises; recognition."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from agreement import SHARES, assert_sound, captures, mutations, payloads, udp_payloads
from netdissect.dissect.engine import Request, dissect
from netdissect.model.claims import STRONG, Claim, Hints
from netdissect.model.events import Ev
from netdissect.model.packets import PacketKind, reverse_key
from netdissect.model.reports import Anomaly
from netdissect.model.segments import StreamPiece
from netdissect.pipeline import Options, Pipeline, analyze
from netdissect.protocols.knet import PROTOCOL
from netdissect.protocols.knet.datagrams import _known_values
from netdissect.protocols.knet.framing import VleFramer
from netdissect.protocols.knet.receiver import SHARED
from netdissect.protocols.knet.recognition import recognise
from netdissect.protocols.knet.scan import scan
from netdissect.protocols.knet.scanner import KnetScanner
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.protocols.knet.transfers import MAX_OCTETS, Transfers

OPEN = DecoderState(Phase.OPEN)
DIALECTS = ("knet-2.x", "knet-2010", "knet-2010/2.x", "knet-urho3d")
SCANNERS = KnetScanner(0), KnetScanner(1)
OTHERS = ("riptide", "teeworlds", "eoudp", "netplay")


def hints(dialect: str, state: DecoderState = OPEN) -> Hints:
    return Hints((dialect, dialect), state)


def counted(events: list[Any]) -> Counter[str]:
    """Return the messages by type that events count."""
    found: Counter[str] = Counter()
    for event in events:
        if event[0] in (Ev.MESSAGE, Ev.UNIT, Ev.PLAIN_UNIT) and event[1] is not None:
            found[event[1]] += 1
        elif event[0] == Ev.RUN:
            found.update(event[3])
    return found


def shown(data: bytes, dialect: str) -> Counter[str]:
    tree = dissect("knet", data, Request(dialect, 1, hints=OPEN), strict=True)
    return Counter(view.type for view in tree.messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_scan_counts_what_the_tree_shows(dialect: str) -> None:
    everything = payloads("knet")
    samples = [*everything[::9], *mutations(everything, 1500, seed=5)]
    for data in samples:
        events = scan(data, 1, hints(dialect))
        # What tells an undecided dialect is read in that one.
        told = [event[1].dialects[1] for event in events if event[0] == Ev.HINTS and "/" in dialect]
        assert counted(events) == shown(data, told[0] if told else dialect)
        numbers = [event[3] for event in events if event[0] == Ev.UNIT and event[2] == "reliable"]
        tree = dissect("knet", data, Request(dialect, 1, hints=OPEN), strict=True)
        messages = tree.fields.get("messages", [])
        known = [m["reliable_number"] for m in messages if "reliable_number" in m]
        assert numbers == known[: len(numbers)]


def meaning(events: list[Any]) -> tuple[Any, ...]:
    """Return what events state, whatever form they have."""
    units = []
    for event in events:
        if event[0] == Ev.RUN:
            units += [(event[1], event[2] + index) for index in range(len(event[3]))]
        elif event[0] in (Ev.UNIT, Ev.PLAIN_UNIT):
            units.append((event[2], event[3]))
    rest = [e for e in events if e[0] not in (Ev.RUN, Ev.UNIT, Ev.PLAIN_UNIT, Ev.MESSAGE)]
    return counted(events), sorted(units), sorted(rest, key=repr)


@pytest.mark.parametrize("dialect", DIALECTS[:2])
def test_its_scanner_leaves_control_messages_with_a_long_id_to_scan(dialect: str) -> None:
    data = bytes.fromhex("0703000f00800000000096182e420000a0400081")
    known = hints(dialect)
    for direction in (0, 1):
        assert meaning(SCANNERS[direction].events(data, known)) == meaning(scan(data, direction, known))


@pytest.mark.parametrize("share", SHARES)
def test_its_scanner_means_the_same_as_scan(share: int) -> None:
    every = payloads("knet")
    for data in [*every[::share], *mutations(every, 20_000 // share, seed=6)]:
        for dialect in DIALECTS[:2]:
            for direction in (0, 1):
                known = hints(dialect)
                assert meaning(SCANNERS[direction].events(data, known)) == meaning(scan(data, direction, known))


def phases() -> list[DecoderState]:
    return [
        DecoderState(phase, (0, 5, 3) if phase in (Phase.DISCONNECTING, Phase.CLOSED) else None)
        for phase in range(8)
    ]


def run_mutations(count: int, seed: int, trees: int) -> None:
    """Scan mutated datagrams in every phase, and dissect every so many of them."""
    chance = random.Random(seed)
    states = phases()
    assembler = Transfers()
    for index, data in enumerate(mutations(payloads("knet"), count, seed)):
        direction = index & 1
        dialect = DIALECTS[index % len(DIALECTS)]
        events = SCANNERS[direction].events(data, hints(dialect, chance.choice(states)))
        if events and events[-1][0] == Ev.PART:
            assembler.feed(direction, index, index, events)
        if not index % trees:
            spec = dissect("knet", data, Request("knet-spec", direction), strict=True)
            assert_sound(spec)
            assert_sound(dissect("knet", data, Request(dialect, direction), strict=True))
            stream = Request("knet-tcp", direction, "tcp")
            assert_sound(dissect("knet", data, stream, strict=True))
    assembler.finish()


def test_mutated_datagrams_raise_nothing() -> None:
    run_mutations(20_000, 1, 20)


@pytest.mark.slow
def test_a_million_mutated_datagrams_raise_nothing() -> None:
    run_mutations(1_000_000, 2, 50)


# -- recognition -----------------------------------------------------------------------------------


def test_random_octets_are_not_knet() -> None:
    chance = random.Random(3)
    for _ in range(3000):
        sample = [
            (chance.randrange(2), index, chance.randbytes(chance.randrange(1, 60)))
            for index in range(8)
        ]
        for transport in ("udp", "tcp"):
            claim = PROTOCOL.recognise(sample, transport, final=True)
            assert claim is None or claim.score < STRONG


@pytest.mark.parametrize("protocol", OTHERS)
def test_captures_of_others_are_not_claimed(protocol: str) -> None:
    for path in captures(protocol)[::4]:
        found = {report.protocol for report in analyze(path).connections}
        assert "knet" not in found, path.name
        for size in (1, 2, 4, 8, 16):
            sample = [(i & 1, i, data) for i, data in enumerate(islice(udp_payloads(path), size))]
            claim = PROTOCOL.recognise(sample, "udp", final=True) if sample else None
            assert claim is None or claim.score < STRONG, path.name


def test_the_opening_tells_dialect_and_roles() -> None:
    opening = bytes.fromhex("8100000220010102200102")
    claim = PROTOCOL.recognise([(0, 0, bytes(8)), (1, 1, opening)], "udp", final=False)
    assert claim is not None
    assert (claim.client, claim.roles_from) == (0, "handshake")
    assert claim.dialects == ("knet-2.x", "knet-2.x")
    old = bytes.fromhex("0000000200000102000002")
    claim = PROTOCOL.recognise([(1, 0, bytes(8)), (0, 1, old)], "udp", final=False)
    assert claim is not None
    assert (claim.client, claim.dialects[0]) == (1, "knet-2010")


# -- a left-over bit of 2010 ---------------------------------------------------------------------------


def test_a_left_over_fragment_bit_is_no_fragment() -> None:
    # Two PingRequests; the second one's header says Fragment. Source: docs/protocols/knet.md 4.1.
    data = bytes.fromhex("000000 0240 0001 0200 0002")
    events = scan(data, 1, hints("knet-2010"))
    assert counted(events) == {"PingRequest": 2}
    assert [event[1] for event in events if event[0] == Ev.NOTE] == ["knet-stray-fragment-bit"]


# -- fragments ---------------------------------------------------------------------------------------


def part(
    transfer: int, index: int | None, count: int | None, number: int | None, octets: bytes
) -> Any:
    return (Ev.PART, transfer, index, count, number, octets)


def codes(events: list[Any]) -> list[str]:
    return [event[1] for event in events if event[0] == Ev.NOTE]


def test_fragments_of_2010_have_no_number_of_their_own() -> None:
    """Each carries reliable number 0, and the first free transfer is number 0: no resends, no fault."""
    first = bytes.fromhex("40010000" "00" "03d0" "00" "02" "00" "14ab" "63")
    second = bytes.fromhex("40020000" "00" "0250" "00" "00" "01" "cdef")
    events = [scan(data, 0, hints("knet-2010")) for data in (first, second)]
    for found in events:
        assert [event[2] for event in found if event[0] == Ev.UNIT] == ["datagram"]
        assert not codes(found)
    transfers = Transfers()
    for number, found in enumerate(events, 1):
        transfers.feed(0, number, number, found)
    assert transfers.last == [bytes.fromhex("14ab63cdef")]
    modern = scan(first, 0, hints("knet-2.x"))
    assert [event[2] for event in modern if event[0] == Ev.UNIT] == ["datagram", "reliable"]
    assert "knet-transfer-zero" in codes(modern)


def test_fragments_are_joined_by_number() -> None:
    transfers = Transfers()
    transfers.feed(0, 1, 1, [part(1, None, 3, 10, b"\x14ab")])
    assert codes(transfers.feed(0, 2, 2, [part(1, 2, None, 12, b"ef")])) == []
    found = transfers.feed(0, 3, 3, [part(1, 1, None, 11, b"cd")])
    assert codes(found) == ["knet-transfer-complete", "knet-transfer-scrambled"]
    assert transfers.last == [b"\x14abcdef"]
    assert codes(transfers.finish()[0]) == []


def test_an_early_fragment_is_kept_by_us_and_discarded_by_its_receiver() -> None:
    transfers = Transfers()
    assert codes(transfers.feed(1, 1, 1, [part(2, 1, None, 6, b"cd")])) == ["knet-orphan-fragment"]
    found = transfers.feed(1, 2, 2, [part(2, None, 2, 5, b"\x14ab")])
    assert codes(found) == ["knet-transfer-complete", "knet-transfer-undelivered"]
    assert transfers.last == [b"\x14abcd"]


def test_a_transfer_number_is_used_again_where_messages_have_no_numbers() -> None:
    transfers = Transfers()
    for text in (b"ab", b"cd"):
        first, second = part(1, None, 2, None, b"\x14" + text), part(1, 1, None, None, text)
        found = transfers.feed(0, 1, 1, [first, second])
        assert codes(found) == ["knet-transfer-complete"]
        assert transfers.last == [b"\x14" + text + text]
        assert not transfers.feed(0, 2, 2, [first, second])  # copies of both


def sent(packet: int, *parts: Any) -> list[Any]:
    return [(Ev.UNIT, None, "datagram", packet, None, b""), *parts]


def test_a_transfer_of_2010_is_opened_once_and_filled_by_anything() -> None:
    """All fragments have one reliable number: a first one counts only as long as that is new."""
    transfers = Transfers()
    first, last = part(0, None, 3, SHARED, b"\x14ab"), part(0, 2, None, SHARED, b"ef")
    assert not codes(transfers.feed(0, 1, 1, sent(1, first, last)))
    # The next message of that number: its first fragment is ignored, its others fill the old one.
    following = [part(0, None, 3, SHARED, b"\x15gh"), part(0, 1, None, SHARED, b"ij")]
    found = transfers.feed(0, 2, 2, sent(2, *following))
    assert codes(found) == [
        "knet-transfer-replaced", "knet-transfer-incomplete", "knet-fragment-misfiled",
        "knet-transfer-mixed",
    ]  # fmt: skip
    # Nothing is open now, and nothing opens any more. A copy of a datagram is not read at all.
    rest = sent(3, part(0, 2, None, SHARED, b"kl"))
    assert codes(transfers.feed(0, 3, 3, rest)) == [
        "knet-orphan-fragment", "knet-transfer-complete", "knet-transfer-undelivered",
    ]  # fmt: skip
    assert not transfers.feed(0, 4, 4, rest)


def test_a_whole_message_takes_the_number_of_all_fragments() -> None:
    transfers = Transfers()
    whole = bytes.fromhex("400100" "0000" "0110" "00" "1e")
    events = scan(whole, 0, hints("knet-2010"))
    assert [event[2] for event in events if event[0] == Ev.UNIT] == ["datagram", "reliable"]
    transfers.feed(0, 1, 1, events)
    pieces = [part(0, None, 2, SHARED, b"\x14ab"), part(0, 1, None, SHARED, b"cd")]
    assert codes(transfers.feed(0, 2, 2, sent(2, *pieces))) == [
        "knet-orphan-fragment", "knet-transfer-complete", "knet-transfer-undelivered",
    ]  # fmt: skip


def test_fragments_of_the_next_message_fill_an_old_transfer() -> None:
    """In 2.x too: its first fragment was lost, the old transfer of that number lacks one."""
    transfers = Transfers()
    transfers.feed(0, 1, 1, sent(1, part(1, None, 3, 10, b"\x14ab"), part(1, 2, None, 12, b"ef")))
    found = transfers.feed(0, 2, 2, sent(2, part(1, 1, None, 21, b"ij")))
    assert codes(found) == ["knet-fragment-misfiled", "knet-transfer-mixed"]
    counted = [event[1] for event in found if event[0] == Ev.COUNTER]
    assert counted == ["misfiled_fragments", "transfers_assembled", "transfers_mixed"]
    # The one that was missing comes late: known by number to us, by nothing open to its receiver.
    late = codes(transfers.feed(0, 3, 3, sent(3, part(1, 1, None, 11, b"cd"))))
    assert late == [
        "knet-orphan-fragment", "knet-transfer-complete", "knet-transfer-undelivered",
    ]  # fmt: skip
    # Its receiver knows the number now: sent again, it is not read.
    assert not transfers.feed(0, 4, 4, sent(4, part(1, 1, None, 11, b"cd")))


def test_what_is_missing_is_named() -> None:
    transfers = Transfers()
    transfers.feed(0, 1, 1, [part(1, None, 4, 10, b"\x14ab"), part(1, 2, None, 12, b"ef")])
    (note,) = [event for event in transfers.finish()[0] if event[0] == Ev.NOTE]
    assert note[1] == "knet-transfer-incomplete"
    assert (note[2]["missing"], note[2]["present"], note[2]["count"]) == ([1, 3], 2, 4)


@pytest.mark.parametrize("direction", [0, 1])
def test_fragments_before_a_fault_reach_the_assembler(direction: int) -> None:
    for data in payloads("knet"):
        parts = [e for e in scan(data, direction, hints("knet-2.x")) if e[0] == Ev.PART]
        if not parts or scan(data, direction, hints("knet-2.x"))[0][0] == Ev.RESTART:
            continue
        for phase in (Phase.IDENTIFYING, Phase.OPEN, Phase.RECONNECTING, Phase.STOPPED_READING):
            events = scan(data + bytes(2), direction, hints("knet-2.x", DecoderState(phase)))
            assert "knet-zero-content" in codes(events)
            assert events[-len(parts) :] == parts


def test_read_shows_the_rejoined_message() -> None:
    from netdissect.pipeline.iterate import iter_records

    path = next(path for path in captures("knet") if path.stem == "udp_fragments_clean")
    whole = [
        message.fields["reassembled"]
        for record in iter_records(path)
        for message in getattr(record, "messages", [])
        if "reassembled" in message.fields
    ]
    truth = json.loads(path.with_suffix(".truth.json").read_text())["expect"]
    sides = truth["fragment_reception"].values()
    wanted = [log["nfrag"] for side in sides for log in side["assembled"]]
    # 318 bytes a fragment, the last one shorter.
    assert sorted(-(-len(item["payload"]) // 318) for item in whole) == sorted(wanted)


def test_transfers_are_bounded() -> None:
    transfers = Transfers()
    seen = set()
    piece = bytes([20]) + bytes(2000)
    for index in range(2 * MAX_OCTETS // len(piece)):
        name = index % 250 + 1
        events = [part(name, None if index < 250 else index, 1 << 30, index, piece)]
        events[0] = part(name, *(events[0][2:4]), name + (0 if index < 250 else index), piece)
        seen.update(codes(transfers.feed(0, index, index, events)))
    assert "knet-transfer-limit" in seen
    huge = [part(1, None, (1 << 30) - 1, 0, b"\x14")]
    transfers.feed(1, 1, 1, huge)
    assert len(transfers.finish()[1]) == 2


def test_fragments_that_came_early_count_for_the_bound() -> None:
    transfers, seen = Transfers(), set()
    for name in range(1, 251):
        early = [part(name, at, None, 1000 * name + at, bytes(2000)) for at in range(1, 61)]
        transfers.feed(0, name, name, early)
        first = [part(name, None, 1 << 30, 1000 * name, b"\x14")]
        seen.update(codes(transfers.feed(0, name, name, first)))
    assert "knet-transfer-limit" in seen


# -- TCP ---------------------------------------------------------------------------------------------


def piece(data: bytes, offset: int, gap: int = 0) -> StreamPiece:
    return StreamPiece(offset, data, (offset,), gap)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_framing_at_any_cut(size: int) -> None:
    stream = bytes.fromhex("020101020201") + b"\x80\x01\x14" + bytes(127) + b"\x01\x14"
    framer = VleFramer()
    found = []
    for start in range(0, len(stream), size):
        found += framer.feed(piece(stream[start : start + size], start))
    assert [octets for octets, *_ in found] == [b"\x01\x01", b"\x02\x01", b"\x14" + bytes(127), b"\x14"]
    assert [offset for *_, offset in found] == [1, 4, 8, 137]
    assert framer.finish() == []


@pytest.mark.parametrize("length", ["00", "ffffffff", "81808002"])
def test_an_impossible_length_ends_the_stream(length: str) -> None:
    framer = VleFramer()
    found = framer.feed(piece(b"\x02\x01\x01" + bytes.fromhex(length) + b"\x02\x01\x02", 0))
    assert [faults for *_, faults, _ in found][-1][0][0] == "knet-tcp-length"
    assert framer.feed(piece(b"\x02\x01\x03", 20)) == []


def test_a_stream_is_taken_up_behind_a_gap() -> None:
    framer = VleFramer()
    framer.feed(piece(b"\x05\x14ab", 0))
    assert framer.feed(piece(b"xyz\xff\x00", 100, gap=90)) == []
    found = framer.feed(piece(b"\x02\x01\x09", 105))
    assert found[0][0] == b"\x01\x09"


def test_octets_behind_a_gap_that_happen_to_be_a_message_are_none() -> None:
    framer = VleFramer()
    framer.feed(piece(b"\x05\x14ab", 0))
    middle = [b"xyz", b"\x03\x14ab", b"qqq", b"\x01\x02", b"\x01\x14", b"\x02\x14c", b"\x01\x15"]
    found = []
    for place, octets in enumerate(middle):
        found += framer.feed(piece(octets, 100 + place, gap=90 * (place == 0)))
    assert [octets for octets, *_ in found] == [b"\x14", b"\x14c", b"\x15"]


# -- who speaks what -------------------------------------------------------------------------------


def built(number: int, *messages: bytes, reliable: int | None = None) -> bytes:
    """Return a datagram of messages; `reliable`: their base."""
    head = bytes([number & 63 | (0x40 if reliable is not None else 0), number >> 6 & 255, 0])
    if reliable is None:
        bodies = [len(m).to_bytes(2, "little") + m for m in messages]
    else:
        head += reliable.to_bytes(2, "little")
        bodies = [
            (len(m) | 0x1000).to_bytes(2, "little") + bytes([delta]) + m
            for delta, m in enumerate(messages)
        ]
    return head + b"".join(bodies)


def test_each_direction_has_its_dialect() -> None:
    """A client of 2010 at a server of 2.x: their control messages differ by one."""
    acks = [b"\x03" + bytes([n, 0, 0]) + bytes(4) for n in range(1, 4)]
    sample = [(0, 0, bytes(8)), (1, 10, built(1, b"\x01\x01", b"\x01\x02"))]
    sample += [
        (0, 1000 + n, built(n, b"\x00" + bytes([n]), acks[n], reliable=n)) for n in range(3)
    ]
    sample += [
        (1, 2000 + n, built(2 + n, b"\x04" + bytes([n, 0, 0]) + bytes(4), b"\x14hi", reliable=n))
        for n in range(3)
    ]
    claim = PROTOCOL.recognise(sample, "udp", final=True)
    assert claim is not None
    assert (claim.client, claim.dialects) == (0, ("knet-2010", "knet-2.x"))


def test_replies_of_a_client_of_2010_alone_are_no_pings_of_a_server() -> None:
    rows = [bytes(8), built(0, b"\x01\x01", b"\x01\x02")]
    for size in (1, 2):
        sample = [(0, n, octets) for n, octets in enumerate(rows[:size])]
        for final in (False, True):
            assert PROTOCOL.recognise(sample, "udp", final=final) is None
    rows += [built(n, b"\x00" + bytes([n]), b"\x03" + bytes([n, 0, 0]) + bytes(4)) for n in (1, 2, 3)]
    claim = PROTOCOL.recognise([(0, n, octets) for n, octets in enumerate(rows)], "udp", final=False)
    assert claim is not None
    assert (claim.client, claim.dialects[0]) == (None, "knet-2010")


def test_a_wrong_dialect_is_taken_back() -> None:
    known = hints("knet-2.x")
    for number in range(2):
        events = scan(built(9 + number, b"\x03\x05\0\0" + bytes(4)), 0, known)
        known = next(event[1] for event in events if event[0] == Ev.HINTS)
    assert known.dialects == ("knet-2010", "knet-2.x")
    assert "knet-dialect-revised" in [event[1] for event in events]
    assert any(e[0] == Ev.ACK for e in scan(built(11, b"\x03\x05\0\0" + bytes(4)), 0, known))


@pytest.mark.parametrize(
    ("pings", "server"),
    [
        ([(1, 3), (0, 2)], "knet-2.x"),
        ([(0, 1), (1, 3), (0, 2)], "knet-2.x"),
        ([(1, 0), (0, 255)], "knet-2.x"),
        ([(0, 2), (1, 2), (0, 2), (0, 3), (1, 3), (0, 3)], "knet-2010/2.x"),
        ([(1, 2), (0, 3), (1, 3)], "knet-2010/2.x"),  # begun between a ping and its reply
    ],
)
def test_what_comes_before_its_ping_is_no_reply(pings: list[tuple[int, int]], server: str) -> None:
    """Message 1 is a reply in 2010 and a ping in 2.x, whose server is always one ping ahead."""
    known = Hints(("knet-2010", "knet-2010/2.x"), OPEN)
    for place, (side, number) in enumerate(pings):
        events = scan(built(9 + place, bytes([side, number])), side, known)
        assert not {event[0] for event in events} & {Ev.REPLY, Ev.NOTE}
        known = next((event[1] for event in events if event[0] == Ev.HINTS), known)
    assert known.dialects == ("knet-2010", server)


def test_acknowledgements_count_before_their_dialect_is_known() -> None:
    events = scan(built(9, b"\x03\x05\0\0" + bytes(4)), 0, hints("knet-2.x"))
    assert (Ev.ACK, "datagram", 5, 0) in events
    events = scan(built(9, b"\x02\x07"), 0, hints("knet-2010"))
    assert (Ev.REPLY, "ping", 7) in events


def acked(number: int) -> bytes:
    """Return the payload of a PacketAck."""
    return number.to_bytes(3, "little") + bytes(4)


def test_a_client_of_2010_does_not_tell_what_its_server_speaks() -> None:
    """In mid-stream, a server without a control message may speak either dialect."""
    rows = [(0, built(48 + n, b"\x03" + acked(49 + n))) for n in range(2)]
    rows.insert(1, (1, built(52, b"\x3dsome", reliable=9)))
    rows += [(1, built(53, b"\x3dmore", reliable=10)), (1, built(54, b"\x04" + acked(48)))]
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    assert report.dialects == ("knet-2010", "knet-2.x")
    assert report.messages[1]["PacketAck"] == 1


def test_one_side_is_known_while_it_sends_again_what_is_not_answered() -> None:
    """New messages take turns with old ones, and some datagrams overtake others."""
    rows = [(0, built(300 + n, b"\x3dsome", reliable=(90, 20)[n % 2] + n // 2)) for n in range(40)]
    rows[7], rows[11] = rows[11], rows[7]
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    assert report.protocol == "knet"
    rows = [(0, built(300 + n, b"\x3dsome", reliable=n * 7 % 64)) for n in range(40)]
    assert not fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])


def test_many_numbers_that_lie_close_together_are_known_in_any_order() -> None:
    """Of a long backlog, a slow network lets little through, in no order."""
    chance = random.Random(3)
    numbers = chance.sample(range(900), 64)

    def report(numbers: list[int], ids: list[int]) -> list[Any]:
        rows = [built(300 + n, b"\x3dsome", reliable=number) for n, number in zip(ids, numbers, strict=True)]
        return fed([(0, n * 20_000_000, octets) for n, octets in enumerate(rows)])

    ids = chance.sample(range(200), 64)
    assert [one.protocol for one in report(numbers, ids)] == ["knet"]
    assert not report([n * 37 for n in numbers], ids)
    assert not report(numbers, [n * 37 for n in ids])
    assert not report([n % 40 for n in numbers], ids)


def test_fragments_without_numbers_tell_that_a_side_speaks_2010() -> None:
    def rows(base: int, first: int) -> list[tuple[int, int, bytes]]:
        """Whole messages from number `first` on; every third datagram is a fragment of `base`."""
        parts = [built(300 + n, b"\x3dsome", reliable=first + n - n // 3) for n in range(60)]
        for n in range(0, 60, 3):
            message = (20 | 0x5000).to_bytes(2, "little") + bytes([0, 5, n]) + bytes(20)
            parts[n] = parts[n][:3] + base.to_bytes(2, "little") + message
        return [(0, n * 20_000_000, octets) for n, octets in enumerate(parts)]

    def dialect(base: int, first: int) -> str:
        return str(fed(rows(base, first))[0].dialects[0])

    assert dialect(0, 500) == "knet-2010"
    assert dialect(0, 20) == "knet-2010/2.x"  # its first messages, which are due again
    assert dialect(200, 500) == "knet-2010/2.x"


@pytest.mark.parametrize(("step", "dialect"), [(0, "knet-2010"), (1, "knet-2.x")])
def test_fragments_of_one_message_share_its_number_in_2010_alone(step: int, dialect: str) -> None:
    first = (9 | 0xD000).to_bytes(2, "little") + bytes([0, 3, 5]) + b"\x3d" + bytes(8)
    part = (9 | 0x5000).to_bytes(2, "little") + bytes([step, 5, 1]) + bytes(9)
    known = Hints(("knet-2010/2.x",) * 2, OPEN)
    for fragments, told in ((first, "knet-2010/2.x"), (part, "knet-2010/2.x"), (first + part, dialect)):
        head = built(9, reliable=700)
        for claim in (False, True):
            if claim:
                sample = [(0, n, built(n, b"\x3dsome", reliable=n)) for n in range(40, 60)]
                found = PROTOCOL.recognise([*sample, (0, 99, head + fragments)], "udp", final=True)
                assert found is not None
                assert found.dialects[0] == told
                continue
            events = scan(head + fragments, 0, known)
            learned = next((event[1] for event in events if event[0] == Ev.HINTS), known)
            assert learned.dialects[0] == told
            units = [event for event in events if event[0] == Ev.UNIT and event[2] == "reliable"]
            # Which numbers are its own is unknown until it is decided.
            assert len(units) == (2 if told == "knet-2.x" else 0)


def test_fragments_alone_are_known() -> None:
    """A side of 2010 that sends fragments, which have no numbers that could go on."""

    def rows(step: int) -> list[tuple[int, int, bytes]]:
        found = []
        for n in range(20):
            parts = [
                (9 | 0x5000).to_bytes(2, "little") + bytes([0, 5 + n * step, 1 + place]) + bytes(9)
                for place in (2 * n, 2 * n + step)
            ]
            found.append((0, n * 20_000_000, built(300 + n, reliable=0) + b"".join(parts)))
        return found

    (report,) = fed(rows(1))
    assert (report.protocol, report.dialects[0]) == ("knet", "knet-2010")
    assert not fed(rows(0))  # the same fragment twice


def test_a_dialect_that_nothing_proves_is_no_release() -> None:
    """In mid-stream, a side without a control message may speak either dialect."""
    rows = []
    for n in range(48, 112, 2):
        rows += [(0, built(n, b"\x3dsome", reliable=n // 2)), (0, built(n + 1, b"\x03" + acked(n)))]
        rows += [(1, built(n, b"\x3dsome", reliable=n // 2))]
    assert spoken(rows) == ("knet-2010", "knet-2010/2.x")
    assert assumed(rows) == [(1, len(rows), "server read as knet-2010/2.x")]
    silent = [(side, one) for side, one in rows if b"some" in one]
    assert spoken(silent) == ("knet-2010/2.x", "knet-2010/2.x")
    assert assumed(silent) == [(None, 64, "client read as knet-2010/2.x, server read as knet-2010/2.x")]
    for last, dialect in (
        (b"\x03" + acked(111), "knet-2010"), (b"\x04" + acked(111), "knet-2.x"),
        (b"\x00\x07", "knet-2010"), (b"\x02\x07", "knet-2.x"),
    ):  # fmt: skip
        told = [*rows, (1, built(112, last))]
        assert spoken(told) == ("knet-2010", dialect)
        assert assumed(told) == []


def spoken(rows: list[tuple[int, bytes]]) -> tuple[str, str]:
    """Return the dialects of the one connection, by the side of its first datagram."""
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    first, second = report.dialects
    return (first, second) if report.client == "10.0.0.1:50000" else (second, first)


def test_only_a_peer_of_2010_is_answered_by_message_1() -> None:
    """Message 1 is a reply to a ping of 2010, which 2.x does not send, or a ping of 2.x."""
    for peer, dialect in (("knet-2.x", "knet-2.x"), ("knet-urho3d", "knet-2.x"), ("knet-2010", None)):
        known = Hints((peer, "knet-2010/2.x"), OPEN)
        events = scan(built(9, b"\x01\x05"), 1, known)
        learned = next(event[1] for event in events if event[0] == Ev.HINTS)
        assert learned.dialects == (peer, dialect or "knet-2010/2.x")
        assert ((Ev.PROBE, "ping", 5) in events) == (dialect is not None)


def test_what_a_malformed_datagram_does_to_an_undecided_receiver_is_unknown() -> None:
    """2.x gives up the connection, 2010 goes on."""
    cut = built(9, b"\x3dsome")[:-2]
    for receiver, ends in (("knet-2.x", True), ("knet-2010", False), ("knet-2010/2.x", False)):
        events = scan(cut, 1, Hints((receiver, "knet-2.x"), OPEN))
        assert any(event[0] == Ev.HINTS for event in events) == ends
    trees = {
        dialect: dissect("knet", cut, Request(dialect, 1)).fields
        for dialect in ("knet-2.x", "knet-2010", "knet-2010/2.x")
    }
    assert trees["knet-2.x"]["receiver_drops_connection"] is True
    assert trees["knet-2010"]["receiver_drops_connection"] is False
    assert "receiver_drops_connection" not in trees["knet-2010/2.x"]


def test_a_silent_side_is_named_like_the_other_one_until_it_speaks() -> None:
    for name, spoken_by in (("knet-2.x", "knet-2010/2.x"), ("knet-urho3d", "knet-urho3d")):
        claim = Claim("knet", 80, (name, name), 0, "protocol", ("-",), doubtful=(True, False))
        known = PROTOCOL.initial_hints(claim)
        assert known.dialects == (name, name)
        for _ in range(2):
            events = scan(built(9, b"\x3dsome", reliable=7), 0, known)
            known = next((event[1] for event in events if event[0] == Ev.HINTS), known)
            assert known.dialects == (spoken_by, name)
        asked = Claim("knet", 80, (name, name), 0, "protocol", ("-",), (True, False), forced=True)
        assert not any(PROTOCOL.initial_hints(asked).extra.silent)
        events = scan(built(9, b"\x04" + acked(7)), 0, PROTOCOL.initial_hints(claim))
        known = next(event[1] for event in events if event[0] == Ev.HINTS)
        assert known.dialects == (name, name)
        assert (Ev.ACK, "datagram", 7, 0) in events


def test_a_connect_datagram_tells_nothing() -> None:
    """What looks like a PacketAck of 2010 is what the application gives the client to send."""
    payload = built(9, b"\x03" + acked(7))
    known = Hints(("knet-2010/2.x", "knet-2.x"), DecoderState(Phase.CONNECT_FIRST))
    events = scan(payload, 0, known)
    known = next(event[1] for event in events if event[0] == Ev.HINTS)
    assert known.dialects[0] == "knet-2010/2.x"
    assert all(event[0] != Ev.HINTS for event in scan(payload, 0, known))  # its copy


def test_a_side_with_several_connection_objects_is_known() -> None:
    """A server of 2.x makes a ghost of each early datagram: their PacketIDs take turns."""

    def claim(ids: list[int]) -> Any:
        rows: list[tuple[int, bytes]] = []
        for n, number in enumerate(ids):
            rows += [(1, built(number, b"\x3dsome", reliable=40 + n // 3))]
            rows += [(0, built(700 + n, b"\x04" + acked(number)))]
        sample = [(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)]
        return PROTOCOL.recognise(sample, "udp", final=True)

    found = claim([(20, 400, 900)[n % 3] + n // 3 for n in range(30)])
    assert found is not None
    assert found.dialects == ("knet-2.x", "knet-2010/2.x")
    assert claim([n * 1000 % 9973 for n in range(30)]) is None


def assumed(rows: list[tuple[int, bytes]]) -> list[tuple[int | None, int | None, str]]:
    """Return (direction, frame, text) of the notes on dialects that nothing proves."""
    found: list[Anomaly] = []
    fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)], found.append)
    return [
        (item.direction, item.frame, item.message)
        for item in found
        if item.code == "knet-ambiguous-dialect"
    ]


def test_a_server_beside_a_client_of_2010_is_known_by_its_acknowledgements() -> None:
    """It acknowledges only after the sample, which has bare headers as well."""
    rows = []
    for n in range(48, 112, 2):
        rows += [(0, built(n, b"\x3dsome", reliable=n)), (1, built(n + 1, b"\x03" + acked(n)))]
    rows[2::8] = [(0, built(50 + n, reliable=None)) for n in range(0, 64, 8)]
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    assert set(report.dialects) == {"knet-2010", "knet-2010/2.x"}
    rows += [(0, built(112 + n, b"\x04" + acked(49 + n))) for n in range(2)]
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    assert set(report.dialects) == {"knet-2010", "knet-2.x"}


def test_bare_headers_do_not_hide_a_conversation() -> None:
    rows = []
    for n in range(20):
        rows += [(1, built(9 + 2 * n, b"\x3dsome", reliable=n)), (1, built(10 + 2 * n))]
        rows += [(1, built(10 + 2 * n))]
        rows += [(0, built(30 + n, b"\x04" + acked(9 + 2 * n)))] if n % 2 else []
    sample = [(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)]
    claim = PROTOCOL.recognise(sample, "udp", final=True)
    assert claim is not None
    assert claim.dialects[0] == "knet-2.x"


def test_a_client_of_2010_and_a_later_server() -> None:
    rows = [
        (0, bytes(8)),
        (1, built(1, b"\x01\x01", b"\x01\x02")),
        (0, built(0, b"\x00\x01")),
        (1, built(2, b"\x14some", reliable=0)),
        (0, built(1, b"\x03\x02\0\0" + bytes(4))),
    ]
    (report,) = fed([(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)])
    assert report.dialects == ("knet-2010", "knet-2.x")
    assert report.messages[0] == {"PingRequest": 1, "PacketAck": 1}
    assert "knet-dialect-revised" not in report.codes


def test_a_network_copy_of_a_connect_datagram_takes_no_number() -> None:
    """Five bytes parse as a header with a reliable number and no messages."""
    for at in (1, 2):
        rows = opened(b"hello", *((0, built(3 + n, b"\x14some", reliable=n)) for n in range(9)))
        rows.insert(at, (0, rows[at - 1][1] + 1, b"hello"))
        (report,) = fed(rows)
        sent = next(one for one in report.spaces if one.direction == 0 and one.space == "datagram")
        assert (sent.units, sent.duplicates, sent.first_seq, sent.never_seen) == (11, 0, 1, 0)


def test_of_what_a_server_says_twice_the_second_is_the_copy() -> None:
    """Its first answer waits, as the connect datagram behind early data may begin a connection. A
    ghost may have answered as well.
    """
    opening = built(1, b"\x01\x01", b"\x01\x02")
    rows = [(0, built(3, b"\x14some", reliable=3)), (0, built(2, b"\x14some", reliable=2))]
    rows += [(0, bytes(8)), (1, opening), (0, built(4, b"\x14some", reliable=4)), (1, opening)]
    rows += [(1, built(n, b"\x14some", reliable=n)) for n in range(2, 9)]
    found: list[Anomaly] = []
    fed([(side, n * 10_000_000, octets) for n, (side, octets) in enumerate(rows)], found.append)
    assert [item.frame for item in found if item.code == "unknown-copy"] == [6]
    assert "duplicate" not in {item.code for item in found}


def opened(connect: bytes, *more: tuple[int, bytes]) -> list[tuple[int, int, bytes]]:
    rows = [
        (0, connect),
        (1, built(1, b"\x01\x01", b"\x01\x02")),
        (0, built(1, b"\x02\x01", b"\x02\x02")),
        (0, built(2, b"\x01\x01")),
        (1, built(2, b"\x02\x01")),
        *more,
    ]
    return [(side, n * 20_000_000, octets) for n, (side, octets) in enumerate(rows)]


def fed(rows: list[tuple[int, int, bytes]], noted: Any = None) -> Any:
    key = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"\xc3\x50\x09\x29"
    keys = key, reverse_key(key)
    pipeline = Pipeline(Options(strict=True, on_anomaly=noted))
    pipeline.run(
        (PacketKind.UDP, frame, 10**9 + at, keys[side], octets, None, ())
        for frame, (side, at, octets) in enumerate(rows, 1)
    )
    pipeline.finish()
    return list(pipeline.reports)


@pytest.mark.parametrize(
    "connect", [bytes(8), b"hello", built(77, b"\x14some"), built(1, b"\x14app data")]
)
def test_the_connect_datagram_is_told_by_its_position(connect: bytes) -> None:
    (report,) = fed(opened(connect))
    assert report.handshake == "accepted"
    assert report.messages[0] == {"PingReply": 2, "PingRequest": 1}
    numbers = next(s for s in report.spaces if s.space == "datagram" and not s.direction)
    assert (numbers.units, numbers.first_seq) == (2, 1)


def test_where_the_connect_datagram_was_lost_the_first_one_counts() -> None:
    rows = opened(b"")[1:]
    rows[0:1] = [(0, 0, built(1, b"\x14early")), (1, 5, built(1, b"\x01\x01", b"\x01\x02"))]
    del rows[2]
    (report,) = fed(rows)
    assert report.messages[0]["msg_20"] == 1


ENDED = (
    (0, built(3, b"\xff\xff\xff\xff\xff"[:0] + b"\xff\xff\xff\xff", reliable=0)),
    (1, built(3, b"\xfe\xff\xff\xff")),
)


@pytest.mark.parametrize("late", [(0,), (0, 2), (2,)])
def test_a_late_copy_begins_no_connection(late: tuple[int, ...]) -> None:
    rows = opened(bytes(8), *ENDED)
    at = rows[-1][1]
    rows += [(side, at + 300_000_000 + n, octets) for n, (side, _, octets) in
             enumerate(rows[place] for place in late)]  # fmt: skip
    (report,) = fed(rows)
    assert report.state == "closed"


@pytest.mark.parametrize("connect", [bytes(8), built(77, b"\x14some")])
def test_a_new_client_on_the_same_addresses_begins_one(connect: bytes) -> None:
    rows = opened(bytes(8), *ENDED)
    at = rows[-1][1]
    again = opened(connect, (0, built(3, b"\x14more", reliable=0)))
    again[2] = (0, again[2][1], built(1, b"\x02\x01", b"\x02\x02", b"\x14new"))
    first, second = fed([*rows, *((side, at + 10**9 + t, octets) for side, t, octets in again)])
    assert (first.state, second.handshake) == ("closed", "accepted")
    assert second.datagrams == (4, 2)


@pytest.mark.parametrize("end", [ENDED, ENDED[:1]])
@pytest.mark.parametrize("more", [0, 20])
def test_a_new_client_that_answers_as_the_one_before_begins_one(end: Any, more: int) -> None:
    # Most clients answer the first two pings in their first datagram, and nothing else.
    rows = opened(bytes(8), *end)
    at = rows[-1][1]
    again = opened(bytes(8), (0, built(3, b"\x14more", reliable=0)))
    sent = [(1, again[1][1] + n, built(2 + n, b"\x14news")) for n in range(more)]
    again = [*again[:2], *sent, *again[2:4], *again[5:]]
    first, second = fed([*rows, *((side, at + 10**9 + t, octets) for side, t, octets in again)])
    assert (first.state, second.handshake) == ("closed", "accepted")
    assert (first.datagrams, second.datagrams) == ((4, 1 + len(end)), (4, 1 + more))


def test_a_server_that_begins_again_for_a_late_copy_has_no_new_client() -> None:
    rows = opened(bytes(8), *ENDED)
    at = rows[-1][1]
    rows += [(0, at + 300_000_000, bytes(8)), (1, at + 310_000_000, rows[1][2])]
    rows += [(1, at + 4_000_000_000, built(2, b"\x01\x03"))]
    (report,) = fed(rows)
    assert (report.state, report.datagrams) == ("closed", (5, 5))


@pytest.mark.parametrize(("dialect", "reads_on"), [("knet-2010", True), ("knet-2.x", False)])
def test_a_client_of_2010_reads_on_after_a_malformed_datagram(dialect: str, reads_on: bool) -> None:
    # A PacketAck of the library whose left-over bits look like those of a first fragment.
    events = scan(bytes.fromhex("9a040008e00328010000000000"), 1, hints(dialect))
    assert "truncated" in codes(events)
    assert reads_on is not any(event[0] == Ev.HINTS for event in events)


@pytest.mark.parametrize("header", ["070000", "4700000500", "470000408c0100"])
def test_a_malformed_datagram_is_read_once(header: str) -> None:
    # To recognise its connection, to find out the dialect, and for its events.
    payload = bytes.fromhex(header) + bytes.fromhex("0300146f6e0200141f0000")
    _known_values.cache_clear()
    assert recognise([(0, 0, payload)], "udp", final=True) is None
    for dialect in ("knet-2.x", "knet-urho3d"):
        assert "knet-zero-content" in codes(scan(payload, 0, hints(dialect)))
    found = _known_values.cache_info()
    assert found.misses == 2  # of the two layouts
    for dialect in ("knet-2010", "knet-2010/2.x"):
        scan(payload, 0, hints(dialect))
    assert _known_values.cache_info().misses == found.misses
