"""A capture that was given away tells the same of its connections, and nothing of the people."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import (
    IP,
    UDP,
    IPOption_LSRR,
    IPOption_NOP,
    IPOption_RR,
    IPOption_Timestamp,
)
from scapy.layers.inet6 import (
    HAO,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    IPv6ExtHdrSegmentRouting,
    Pad1,
)
from scapy.layers.l2 import Ether

import console_docs
import twocaptures
from netdissect.capture import open_capture
from netdissect.edit.pseudonyms import Pseudonyms
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.privacy import _start_of
from netdissect.pipeline.privacy_parts import rewritten
from netdissect.protocols.netplay.privacy import PACKERS
from netdissect.wire.teeworlds_snapshots import pack_string, read_delta, unpack_string
from netdissect.wire.varint import TEEWORLDS
from packetbuild import (
    block,
    enhanced,
    interface,
    ipv4,
    ipv6,
    link_frame,
    option,
    pcap_file,
    section,
    tcp,
    udp,
)
from published import reports, run, texts

pytest.importorskip("cryptography")
CAPTURES = console_docs.ROOT / "captures"
ALL = sorted(path for path in CAPTURES.glob("*/*.pcap*"))
SAMPLE = [
    CAPTURES / name
    for name in (
        "eoudp/late_reject.pcap", "knet/knet2010_clean.pcap", "knet/udp_any_interface.pcapng",
        "netplay/bin1_example_chat.pcap", "netplay/bin3_multichunk.pcap",
        "netplay/text_ipv6_example_chat.pcap", "netplay/bin1_port_closed.pcap",
        "riptide/udp_2.2.1_reject_custom.pcap", "riptide/tcp_2.2.1_split.pcap",
        "teeworlds/ddnet_clean.pcap", "teeworlds/tw064_server_info.pcap",
        "teeworlds/tw07_wrong_password.pcap",
    )
]  # fmt: skip
NAMES = Pseudonyms(b"0123456789abcdef")
NAMED = Pseudonyms(bytes(range(32)))
"""Those of the fixture `key`."""
CLIENT_INFO = 11
"""Type of the items with names in snapshots of 0.6."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    return path


def anonymised(source: Path, key: Path, target: Path, *more: str) -> Path:
    run("anonymise", source, "-o", target, "--key-file", key, *more, status=(0, 4))
    return target


def check(source: Path, key: Path, tmp_path: Path) -> None:
    target = anonymised(source, key, tmp_path / f"out{source.suffix}")
    assert reports(target) == reports(source)
    assert not texts(target) & texts(source)
    with open_capture(source) as before, open_capture(target) as after:
        for old, new in zip(before, after, strict=True):
            assert (old[0], old[1], old[2], old[4]) == (new[0], new[1], new[2], new[4])


@pytest.mark.parametrize("source", SAMPLE, ids=lambda path: path.stem)
def test_the_analysis_is_the_same(source: Path, key: Path, tmp_path: Path) -> None:
    check(source, key, tmp_path)


def test_a_text_that_is_not_all_utf8_keeps_its_length() -> None:
    """The length of 34 looks like a quotation mark, and was overwritten with the text."""
    assert _start_of("message \ufffda\x12JN", b"\0\x22message \xb2a\x12JN") == 2
    assert _start_of("another", b"\0\x22message") == 0


@pytest.mark.parametrize(
    ("rest", "room"),
    [(b"\x07", 0), (b"\x07", 1), (b"\x07", 2), (b"\0\xff\xff\0\0", 0)],
    ids=["damaged", "damaged, 1", "damaged, 2", "cut off"],
)
def test_a_damaged_stream_fails_behind_its_new_content(rest: bytes, room: int) -> None:
    def content(stream: bytes) -> tuple[bytes, bool]:
        opener, found = zlib.decompressobj(-15), b""
        try:
            for octet in stream[2:]:
                found += opener.decompress(bytes([octet]))
        except zlib.error:
            return found, False
        return found, not opener.eof

    old, new = b"\0\5lossy\0\x22message 139", b"\0\5QweRt\0\x22VjwWAmn 780"
    coder = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_FIXED)
    body = bytearray(coder.compress(old) + coder.flush())
    body[0] &= 0xFE
    body[-1] |= 0xE0 if rest == b"\x07" else 0  # three bits are unused
    packed = b"\x78\xda" + bytes(body) + (b"" if rest == b"\x07" else rest[1:]) + b"\xff" * room
    assert content(packed)[0] == old
    done = PACKERS["decompressed"](packed, old, new)
    assert done is not None
    assert len(done) == len(packed)
    assert content(done) == (new, content(packed)[1])


def test_text_that_must_compress_better_keeps_its_characters_whole() -> None:
    """Else a message would become one with a finding about its UTF-8."""
    text = "bravo é世🚀 ok 世é🚀é " * 4
    for flat in range(9):
        made = NAMES.text(text.encode(), flat=flat).decode()
        assert [len(each.encode()) for each in made] == [len(each.encode()) for each in text]
        assert not set(made.split()) & set(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("source", ALL, ids=lambda path: path.stem)
def test_the_analysis_is_the_same_everywhere(source: Path, key: Path, tmp_path: Path) -> None:
    check(source, key, tmp_path)


def damaged(share: float) -> twocaptures.Change:
    """Replace a share of the bytes behind the headers of UDP and TCP by others."""

    def change(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
        chance = random.Random(7)
        for time, data, wire in records:
            out = bytearray(data)
            for at in range(_behind_headers(data), len(data)):
                if chance.random() < share:
                    out[at] = chance.randrange(256)
            yield time, bytes(out), wire

    return change


def _behind_headers(frame: bytes) -> int:
    """Return where the payload of a packet over Ethernet begins."""
    at = 14 + (4 * (frame[14] & 15) if frame[12:14] == b"\x08\x00" else 40)
    over_udp = frame[23 if frame[12:14] == b"\x08\x00" else 20] == 17
    return at + (8 if over_udp else (frame[at + 12] >> 4) * 4 if len(frame) > at + 12 else len(frame))


@pytest.mark.parametrize(
    ("name", "share"),
    [
        pytest.param("teeworlds/ddnet_kicked", 0.01, id="a token behind trailing bytes"),
        pytest.param("teeworlds/ddnet_full", 0.02, id="a token that is asked for in another dialect"),
        pytest.param("netplay/text_types", 0.02, id="a line that could be a class, and one that could not"),
        pytest.param("netplay/text_aborts", 0.01, id="lines that are alike but for bytes that are no UTF-8"),
        pytest.param("netplay/text_tiny_segments__server_leg", 0.01, id="lines that differ in a digit"),
    ],
)
def test_the_analysis_of_what_is_damaged_is_the_same(name: str, share: float, key: Path, tmp_path: Path) -> None:
    source = Path(twocaptures.rewritten(CAPTURES / f"{name}.pcap", tmp_path / "in.pcap", damaged(share)))
    target = anonymised(source, key, tmp_path / "out.pcap")
    assert reports(target) == reports(source)


def test_short_words_stay_different() -> None:
    """Lines that differed in a number became equal."""
    words = [f"{number:03}" for number in range(1000)] + [one + two for one in "abcXYZé" for two in "abcXYZé"]
    made = [NAMES.text(word.encode()) for word in words]
    assert len(set(made)) == len(words)
    assert [len(each) for each in made] == [len(word.encode()) for word in words]
    assert sum(new.decode() == word for new, word in zip(made, words, strict=True)) < 10


@pytest.mark.parametrize(
    ("name", "word"), [("ddnet_clean", "netlab"), ("ddnet_loss_client_side", "lossy")]
)
def test_names_in_compressed_packets_and_snapshots_are_removed(
    name: str, word: str, key: Path, tmp_path: Path
) -> None:
    source = CAPTURES / "teeworlds" / f"{name}.pcap"
    target = anonymised(source, key, tmp_path / "out.pcap")
    before, after = (run("read", path, "--json").stdout for path in (source, target))
    assert before.count(f'"{word}') > 3
    assert f'"{word}' not in after
    assert "snap-crc" not in after


def names_in_snapshots(path: Path) -> list[str]:
    """Return the names in the snapshots of a capture, with those that two parts share."""
    parts: dict[int, dict[int, bytes]] = {}
    found = []
    for record in iter_records(path):
        for message in record.messages:
            fields = message.fields
            if "num_parts" in fields:
                held = parts.setdefault(fields["tick"], {})
                held[fields["part"]] = fields["data"]
                if len(held) == fields["num_parts"]:
                    delta = read_delta(b"".join(held[index] for index in sorted(held)), "0.6")
                    found += [
                        unpack_string(ints[:4])
                        for (kind, _), ints in delta.updated.items()
                        if kind == CLIENT_INFO
                    ]
    return found


def halves_exchanged(frames: list[Any]) -> list[Any]:
    """Return frames in another order: each two in a row change places."""
    return [frame for at in range(0, len(frames), 2) for frame in reversed(frames[at : at + 2])]


@pytest.mark.parametrize(
    "change", [list, halves_exchanged, lambda frames: [one for frame in frames for one in (frame, frame)]],
    ids=["in order", "disordered", "twice"],
)  # fmt: skip
def test_a_name_that_two_parts_of_a_snapshot_share_is_removed(
    change: Any, key: Path, tmp_path: Path
) -> None:
    source = Path(twocaptures.rewritten(CAPTURES / "teeworlds" / "ddnet_big_snap.pcap", tmp_path / "in.pcap", change))
    target = anonymised(source, key, tmp_path / "out.pcap")
    before, after = names_in_snapshots(source), names_in_snapshots(target)
    assert len(before) == len(after) >= 51 * 3
    assert not set(before) & set(after)
    assert [before.index(name) for name in before] == [after.index(name) for name in after]
    assert reports(target) == reports(source)


def integers_of_names(path: Path) -> set[bytes]:
    """Return the integers of four or five bytes of the names in whole snapshots."""
    return {
        octets
        for name in names_in_snapshots(path)
        for value in pack_string(name.encode("utf-8", "surrogateescape"), 4)
        if len(octets := TEEWORLDS.write(value)) >= 4
    }


@pytest.mark.parametrize("lost", range(3))
def test_half_a_name_in_a_snapshot_whose_other_part_is_missing_is_removed(
    lost: int, key: Path, tmp_path: Path
) -> None:
    whole = CAPTURES / "teeworlds" / "ddnet_big_snap.pcap"
    source = Path(
        twocaptures.rewritten(
            whole, tmp_path / "in.pcap", lambda frames: [one for at, one in enumerate(frames) if at % 3 != lost]
        )
    )
    target = anonymised(source, key, tmp_path / "out.pcap")
    empty = {TEEWORLDS.write(value) for value in pack_string(b"", 4)}
    said = integers_of_names(whole) - empty
    parts = [
        [
            message.fields["data"]
            for record in iter_records(path)
            for message in record.messages
            if "num_parts" in message.fields
        ]
        for path in (source, target)
    ]
    before, after = ({octets for octets in said for part in sort if octets in part} for sort in parts)
    assert len(before) > 10
    assert not after
    assert reports(target) == reports(source)


def members_of(value: Any) -> set[str]:
    """Return the names of members anywhere in a value of JSON."""
    if isinstance(value, dict):
        return set(value).union(*map(members_of, value.values()))
    return set().union(*map(members_of, value)) if isinstance(value, list) else set()


def test_a_name_is_removed_from_the_names_of_members(key: Path, tmp_path: Path) -> None:
    source = CAPTURES / "netplay" / "text_types.pcap"
    target = anonymised(source, key, tmp_path / "out.pcap")
    before, after = (
        members_of([item.fields.get("json") for record in iter_records(path) for item in record.messages])
        for path in (source, target)
    )
    assert {"Charlie", "Ren\u00e9e", "k2"} <= before - after
    assert {"username", "sender", "message"} <= before & after
    assert len(before) == len(after)


def test_what_was_typed_of_why_a_connection_was_closed_is_removed(key: Path, tmp_path: Path) -> None:
    for name in ("ddnet_kicked", "tw07_banned"):
        target = anonymised(CAPTURES / "teeworlds" / f"{name}.pcap", key, tmp_path / "out.pcap")
        said = run("connections", target, "--json").stdout
        assert '"reason":"Kicked (' in said or '"reason":"You have been banned for 5 minutes (' in said
        assert "bad manners" not in said
        assert "not today" not in said


def test_a_password_in_a_stream_of_other_segments_is_removed(key: Path, tmp_path: Path) -> None:
    source = CAPTURES / "netplay" / "text_tiny_segments__client_leg.pcap"
    said = run("follow", source, "1", status=(0, 2)).stdout
    assert said
    target = anonymised(source, key, tmp_path / "out.pcap")
    before, after = texts_of_streams(source), texts_of_streams(target)
    assert len(before) == len(after)
    assert before != after


def texts_of_streams(path: Path) -> list[str]:
    return [json.dumps(item.fields, default=str) for record in iter_records(path) for item in record.messages]


@pytest.mark.parametrize("name", ["netplay/bin1_example_chat.pcap", "riptide/tcp_2.2.1_split.pcap"])
def test_a_retransmission_with_other_bytes_still_has_others(name: str, key: Path, tmp_path: Path) -> None:
    source = Path(twocaptures.rewritten(CAPTURES / name, tmp_path / "again.pcap", sent_twice))
    assert any("tcp-overlap" in each["codes"] for each in reports(source))
    check(source, key, tmp_path)


def sent_twice(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
    """Repeat every TCP segment of some length with another byte, on the wire or by damage."""
    for time, data, wire in records:
        yield time, data, wire
        if len(data) > 14 + 20 + 32 + 12:
            yield time, data[:-8] + bytes([data[-8] ^ 0x15]) + data[-7:], wire


@pytest.mark.parametrize("name", ["netplay/bin1_lossy__client_side.pcap", "netplay/text_lossy__client_side.pcap"])
def test_copies_that_are_cut_at_different_places_stay_equal(name: str, key: Path, tmp_path: Path) -> None:
    """A word of no message became another one where a copy ended within it."""
    source = Path(twocaptures.rewritten(CAPTURES / name, tmp_path / "cut.pcap", cut_and_whole))
    assert not any("tcp-overlap" in each["codes"] for each in reports(source))
    target = anonymised(source, key, tmp_path / "out.pcap")
    assert reports(target) == reports(source)


def cut_and_whole(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
    """Have each TCP segment followed by a copy; both are cut, at another place each."""
    for time, data, wire in records:
        yield time, data[: 66 + 23], wire
        if len(data) > 66 + 23:
            yield time, data[: 66 + 31], wire


def test_messages_in_skipped_bytes_stay_messages(key: Path, tmp_path: Path) -> None:
    """Recognition reads them, although the stream is not in step there: its explanation is the same."""
    text = CAPTURES / "netplay" / "text_types.pcap"
    source = Path(twocaptures.rewritten(text, tmp_path / "own.pcap", of_strangers))
    assert len(reports(source)) > 5
    check(source, key, tmp_path)


def of_strangers(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
    """Give every ninth TCP segment of some length an address of its own."""
    long = 0
    for time, data, wire in records:
        long += len(data) > 14 + 20 + 32 + 12
        if long % 9 == 8 and len(data) > 14 + 20 + 32 + 12:
            yield time, data[:27] + long.to_bytes(2, "big") + data[29:], wire
        else:
            yield time, data, wire


def test_the_same_key_gives_the_same_file_and_another_another(key: Path, tmp_path: Path) -> None:
    source = CAPTURES / "riptide" / "udp_2.2.1_reject_custom.pcap"
    first = anonymised(source, key, tmp_path / "a.pcap").read_bytes()
    assert anonymised(source, key, tmp_path / "b.pcap").read_bytes() == first
    key.write_bytes(bytes(32))
    assert anonymised(source, key, tmp_path / "c.pcap").read_bytes() != first


def test_a_key_is_made_and_printed(tmp_path: Path) -> None:
    source = CAPTURES / "riptide" / "udp_2.2.1_reject_custom.pcap"
    said = run("anonymise", source, "-o", tmp_path / "a.pcap").stderr
    word = said.split("the key was ")[1].split(";")[0]
    again = tmp_path / "key"
    again.write_text(word)
    anonymised(source, again, tmp_path / "b.pcap")
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()


@pytest.mark.parametrize(("octets", "what"), [(None, "makes a key"), (b"short", "needs 16 or more")])
def test_an_unusable_key_file_says_what_to_do(octets: bytes | None, what: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if octets is not None:
        path.write_bytes(octets)
    said = run("anonymise", SAMPLE[0], "-o", tmp_path / "a", "--key-file", path, status=(2,)).stderr
    assert what in said


def test_others_are_cut_behind_their_headers_unless_they_shall_stay(key: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.pcap"
    packet = bytes(12) + b"\x08\x00" + ipv4(udp(b"GET /private", 5000, 9))
    source.write_bytes(pcap_file([(number, 0, packet, len(packet)) for number in range(3)]))
    with open_capture(anonymised(source, key, tmp_path / "cut.pcap")) as reader:
        assert all(len(frame[3]) == 42 and frame[4] == 54 for frame in reader)
    with open_capture(anonymised(source, key, tmp_path / "kept.pcap", "--keep-others")) as reader:
        assert all(frame[3].endswith(b"GET /private") and frame[3][26:30] != bytes([10, 0, 0, 1]) for frame in reader)


TAG = b"\x81\x00\x00\x05"
INNER = bytes.fromhex("020304050607") + bytes.fromhex("08090a0b0c0d")
GRE_KEY_AND_NUMBER = b"\x30\x00\x08\x00" + bytes(range(2, 10))
GRE_ETHERNET = b"\x00\x00\x65\x58"
VXLAN = b"\x08" + bytes(7)


@pytest.mark.parametrize(
    ("protocol", "tunnel", "link"),
    [
        (47, GRE_KEY_AND_NUMBER, b""),
        (47, GRE_ETHERNET, INNER + b"\x08\x00"),
        (47, GRE_ETHERNET, INNER + TAG + b"\x08\x00"),
        (17, udp(VXLAN, 5000, 4789, 8 + 8 + 18 + 20 + 20), INNER + TAG + b"\x08\x00"),
    ],
    ids=["gre", "ethernet in gre", "tagged in gre", "tagged in vxlan"],
)
def test_of_a_tunnel_only_the_addresses_change(
    protocol: int, tunnel: bytes, link: bytes, key: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.pcap"
    inside = ipv4(udp(b"GET /private", 5000, 9))
    packet = bytes(12) + b"\x08\x00" + ipv4(tunnel + link + inside, protocol)
    source.write_bytes(pcap_file([(1, 0, packet, len(packet))]))
    target = anonymised(source, key, tmp_path / "out.pcap", "--keep-others")
    with open_capture(target) as reader:
        ((_, _, _, data, _),) = reader
    macs = data[34 + len(tunnel) :][: len(link)]
    assert data[34 : 34 + len(tunnel)][:6] == tunnel[:6]  # the checksum of UDP follows its bytes
    assert data[34 : 34 + len(tunnel)][8:] == tunnel[8:]
    assert macs[12:] == link[12:]
    if link:
        assert macs[:6] == NAMED.mac(link[:6])
        assert macs[6:12] == NAMED.mac(link[6:12])


@pytest.mark.parametrize("link", [127, 239, 258])
def test_nothing_is_kept_of_a_frame_whose_addresses_cannot_be_replaced(
    link: int, key: Path, tmp_path: Path
) -> None:
    name = {239: "nflog", 258: "pktap"}.get(link, "raw")
    packet = link_frame(name, ipv4(udp(b"GET /private", 5000, 9)))[1]
    source = tmp_path / "in.pcap"
    source.write_bytes(pcap_file([(1, 0, packet, len(packet))], link=link))
    target = anonymised(source, key, tmp_path / "out.pcap", "--keep-others")
    with open_capture(target) as reader:
        assert [(frame[3], frame[4]) for frame in reader] == [(b"", len(packet))]


FAR, FARTHER = "198.51.100.7", "203.0.113.9"
FAR6, FARTHER6 = "2001:db8:7::7", "2001:db8:9::9"


@pytest.mark.parametrize(
    ("packet", "gone"),
    [
        (IP(options=[IPOption_LSRR(routers=[FAR, FARTHER])]), (FAR, FARTHER)),
        (IP(options=[IPOption_NOP(), IPOption_RR(routers=[FAR, FARTHER])]), (FAR, FARTHER)),
        (IP(options=[IPOption_Timestamp(flg=1, internet_address=FAR)]), (FAR,)),
        (IPv6() / IPv6ExtHdrRouting(addresses=[FAR6, FARTHER6], segleft=0), (FAR6, FARTHER6)),
        (IPv6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting(type=2, addresses=[FAR6], segleft=0),
         (FAR6,)),
        (IPv6() / IPv6ExtHdrSegmentRouting(addresses=[FAR6, FARTHER6], segleft=0),
         (FAR6, FARTHER6)),
        (IPv6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(options=[Pad1(), HAO(hoa=FAR6)]),
         (FAR6,)),
    ],
    ids=["source route", "recorded route", "time stamps", "type 0", "type 2", "segments",
         "home address"],
)  # fmt: skip
def test_addresses_of_a_way_are_others(
    packet: Any, gone: tuple[str, ...], key: Path, tmp_path: Path
) -> None:
    octets = bytes(Ether() / packet / UDP(sport=5000, dport=9) / b"hello")
    source = tmp_path / "in.pcap"
    source.write_bytes(pcap_file([(1, 0, octets, len(octets))]))
    target = anonymised(source, key, tmp_path / "out.pcap", "--keep-others")
    with open_capture(target) as reader:
        ((_, _, _, data, _),) = reader
    assert len(data) == len(octets)
    for address in gone:
        other = ip_address(NAMED.address(ip_address(address).packed))
        assert ip_address(address).packed not in data
        assert other.packed in data
    again = Ether(data)  # with the right sums
    if IP in again:
        known, again[IP].chksum = again[IP].chksum, None
        assert Ether(bytes(again))[IP].chksum == known
    for size in range(20, len(octets), 9):  # an incomplete one raises nothing
        source.write_bytes(pcap_file([(1, 0, octets[:size], len(octets))]))
        anonymised(source, key, tmp_path / f"{size}.pcap", "--keep-others")


def test_other_options_of_tcp_and_signals_are_blanked(key: Path, tmp_path: Path) -> None:
    known = b"\x02\x04\x05\xb4\x01\x03\x03\x07\x08\x0a" + bytes(range(8))
    address = b"\x1e\x08\x30\x01" + ip_address(FAR).packed  # of MPTCP (RFC 8684)
    signal = b"\x3b\x03" + bytes(6) + b"\x01\x10" + ip_address(FAR6).packed + bytes(6)
    packets = [ipv4(tcp(options=known + address + bytes(2)), 6), ipv6(signal, 135)]
    octets = [bytes(12) + kind + packet for kind, packet in zip((b"\x08\x00", b"\x86\xdd"), packets, strict=True)]
    source = tmp_path / "in.pcap"
    source.write_bytes(pcap_file([(1, 0, each, len(each)) for each in octets]))
    with open_capture(anonymised(source, key, tmp_path / "out.pcap", "--keep-others")) as reader:
        first, second = (frame[3] for frame in reader)
    assert first[54:80] == known + address[:2] + bytes(6)
    assert second[54:] == signal[:8] + bytes(24)


@pytest.mark.parametrize("link", ["cooked", "cooked2"])
def test_an_address_of_eight_bytes_is_replaced(link: str, key: Path, tmp_path: Path) -> None:
    kind, octets = link_frame(link, ipv4(udp(b"hello", 5000, 9)))
    at = 6 if link == "cooked" else 12
    octets = octets[:at] + ip_address(FAR6).packed[:6] + b"\x12\x34" + octets[at + 8 :]
    source = tmp_path / "in.pcap"
    source.write_bytes(pcap_file([(1, 0, octets, len(octets))], link=kind))
    with open_capture(anonymised(source, key, tmp_path / "out.pcap")) as reader:
        ((_, _, _, data, _),) = reader
    assert data[at : at + 6] == NAMED.mac(ip_address(FAR6).packed[:6])
    assert data[at + 6 : at + 8] == bytes(2)


@pytest.mark.parametrize("order", ["<", ">"])
def test_comments_and_machines_of_pcapng_are_left_out(order: str, key: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.pcapng"
    packet = bytes(12) + b"\x08\x00" + ipv4(udp(b"hello", 5000, 9))
    content = section(order) + interface(order, 1, option(order, 2, b"wlan-Carol") + option(order, 3, b"Alice's card"))
    content += enhanced(order, 1_700_000_000_000_000, packet, options=option(order, 1, b"Bob was here"))
    source.write_bytes(content + block(order, 0x7777, b"what?..."))
    target = anonymised(source, key, tmp_path / "out.pcapng")
    written = target.read_bytes()
    assert not any(word in written for word in (b"Alice", b"Bob", b"Carol", b"what?"))
    with open_capture(target) as reader:
        assert len(list(reader)) == 1


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_simple_packet_block_stays_as_long_as_it_says(order: str, key: Path, tmp_path: Path) -> None:
    """Unlike in other blocks, its captured length follows from its length on the wire."""
    source = tmp_path / "in.pcapng"
    packet = bytes(12) + b"\x08\x00" + ipv4(udp(b"GET /private", 5000, 9))
    padded = packet + bytes(-len(packet) % 4)
    simple = block(order, 3, len(packet).to_bytes(4, "little" if order == "<" else "big") + padded)
    source.write_bytes(section(order) + interface(order, 1) + simple + enhanced(order, 1, packet))
    target = anonymised(source, key, tmp_path / "out.pcapng")
    with open_capture(target) as reader:
        first, second = (frame[3] for frame in reader)
    assert first[:42] == second[:42]
    assert first[42:] == bytes(12)
    assert len(second) == 42


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("source", SAMPLE, ids=lambda path: path.stem)
def test_tshark_finds_every_checksum_right(source: Path, key: Path, tmp_path: Path) -> None:
    target = anonymised(source, key, tmp_path / f"out{source.suffix}")
    words = ["tshark", "-r", str(target), "-o", "ip.check_checksum:TRUE"]
    words += ["-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
    bad = 'ip.checksum.status == "Bad" || udp.checksum.status == "Bad" || tcp.checksum.status == "Bad"'
    told = subprocess.run([*words, "-Y", bad], capture_output=True, text=True, check=True)
    assert not told.stdout


# -- addresses and texts ---------------------------------------------------------------------------


def shared(first: bytes, second: bytes) -> int:
    """Return how many first bits two addresses share."""
    width = 8 * len(first)
    return width - (int.from_bytes(first) ^ int.from_bytes(second)).bit_length()


@given(st.lists(st.binary(min_size=4, max_size=4), min_size=2, max_size=6))
def test_addresses_keep_their_prefixes(addresses: list[bytes]) -> None:
    for first, second in pairwise(addresses):
        assert shared(first, second) == shared(NAMES.address(first), NAMES.address(second))


@given(st.binary(min_size=16, max_size=16), st.integers(0, 128))
def test_addresses_of_ipv6_keep_their_prefixes(address: bytes, bit: int) -> None:
    other = (int.from_bytes(address) ^ (1 << 128 >> bit)).to_bytes(17)[-16:]
    assert shared(address, other) == shared(NAMES.address(address), NAMES.address(other))


@pytest.mark.parametrize(
    "stays", ["00000000", "7f000001", "e0000001", "ffffffff", "0" * 32, "0" * 31 + "1", "ff02" + "0" * 27 + "1"]
)
def test_addresses_that_name_nobody_stay(stays: str) -> None:
    assert NAMES.address(bytes.fromhex(stays)).hex() == stays


@pytest.mark.parametrize("start", ["0a", "c0a8", "fe80", "fd", "ff0200000000000000000001ff"])
def test_an_address_stays_of_its_kind_of_network(start: str) -> None:
    size = 4 if start in {"0a", "c0a8"} else 16
    address = bytes.fromhex(start).ljust(size, b"\x5a")
    other = NAMES.address(address)
    assert other != address
    assert other.hex()[: len(start) - (start == "fd")] == start[: len(start) - (start == "fd")]


def test_hardware_addresses_stay_of_their_kind() -> None:
    assert NAMES.mac(bytes(6)) == bytes(6)
    assert NAMES.mac(b"\xff" * 6) == b"\xff" * 6
    assert NAMES.mac(b"\x01\x00\x5e\x00\x00\x01") == b"\x01\x00\x5e\x00\x00\x01"
    made = NAMES.mac(b"\x00\x1b\x21\x01\x02\x03")
    assert made != b"\x00\x1b\x21\x01\x02\x03"
    assert made[0] & 3 == 2


@given(st.binary(max_size=40))
def test_a_text_costs_what_it_did(octets: bytes) -> None:
    from netdissect.protocols.teeworlds.privacy import COSTS

    new = NAMES.text(octets, COSTS)
    assert len(new) == len(octets)
    if octets.isascii() and any(chr(octet).isalnum() for octet in octets):
        old_cost, new_cost = (sum(COSTS[octet] for octet in text) for text in (octets, new))
        assert old_cost == new_cost or not octets.isalnum()
    assert NAMES.text(octets, COSTS) == new


def test_text_that_a_schema_finds_keeps_its_length_in_front(tmp_path: Path) -> None:
    path = CAPTURES / "netplay" / "bin1_example_chat.pcap"
    for record, new, left in rewritten(iter_records(path), NAMES):
        assert not left
        assert len(new) == len(record.payload)


def test_what_was_said_in_a_message_that_begins_before_the_capture_is_removed(key: Path, tmp_path: Path) -> None:
    source = CAPTURES / "netplay" / "text_midstream_start.pcap"
    target = anonymised(source, key, tmp_path / "out.pcap")
    assert b"midstream chat 17" in source.read_bytes()
    assert b"midstream" not in target.read_bytes()
    assert reports(target) == reports(source)


def only_connection(path: Path, ends: bytes | None = None) -> list[bytes]:
    """Return the frames of a capture's first connection, between other addresses and ports."""
    with open_capture(path) as reader:
        frames = [frame[3] for frame in reader]
    mine = frames[0][34:38]
    ends = frames[0][26:38] if ends is None else ends
    back = ends[4:8] + ends[:4] + ends[10:] + ends[8:10]
    return [
        data[:26] + (ends if data[34:38] == mine else back) + data[38:]
        for data in frames
        if data[34:38] in (mine, mine[2:] + mine[:2])
    ]


def test_equal_endpoints_on_two_interfaces_are_two_streams(key: Path, tmp_path: Path) -> None:
    """What was said on the one was not found in the bytes of the other, and stayed."""
    first = only_connection(CAPTURES / "netplay" / "text_example_chat.pcap")
    second = only_connection(CAPTURES / "netplay" / "bin1_example_chat.pcap", first[0][26:38])
    content = section() + interface() + interface()
    # Interfaces that alternate capture at the same time.
    other = bytes(12) + b"\x08\x00" + ipv4(udp(b"hello", 5000, 9))
    for number in range(4):
        content += enhanced("<", 1_600_000_000_000_000 + number, other, number=number % 2)
    for number, both in enumerate(zip_longest(first, second)):
        for place, data in enumerate(both):
            if data is not None:
                content += enhanced("<", 1_700_000_000_000_000 + number, data, number=place)
    source = tmp_path / "in.pcapng"
    source.write_bytes(content)
    target = anonymised(source, key, tmp_path / "out.pcapng")
    assert reports(target) == reports(source)
    said = {word for word in (b"charlie", b"juliet", b"foxtrot") if word in content}
    assert said
    assert not any(word in target.read_bytes() for word in said)
