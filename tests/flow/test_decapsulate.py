from __future__ import annotations

from struct import pack

import pytest

from netdissect.flow import FLOW_CODES, Decapsulator, packets
from netdissect.flow.ip import MAX_EXTENSION_HEADERS
from netdissect.flow.links import MAX_TAGS
from netdissect.flow.tunnels import MAX_DEPTH
from netdissect.model.annotations import code_rows
from netdissect.model.packets import PacketKind
from packetbuild import (
    A4,
    A6,
    B4,
    B6,
    LINK_WRAPPERS,
    fragments4,
    fragments6,
    frame,
    ipv4,
    ipv6,
    link_frame,
    tcp,
    udp,
)

KEY4 = A4 + B4 + pack(">HH", 4000, 7777)
KEY6 = A6 + B6 + pack(">HH", 4000, 7777)
GAME = b"the payload of a game"


def run(*frames):
    flow = Decapsulator()
    return list(flow.packets(frames)), flow.stats


def one(packet, **options):
    found, _ = run(frame(1, packet, **options))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("link", LINK_WRAPPERS)
@pytest.mark.parametrize(("packet", "key"), [(ipv4(udp(GAME)), KEY4), (ipv6(udp(GAME)), KEY6)])
def test_every_link_layer_gives_the_same_packet(link, packet, key):
    assert one(packet, link=link) == (PacketKind.UDP, 1, 1_000_000, key, GAME, None, ())


def told(found):
    """Return packets with what is compared of their segments."""
    return [
        (*packet[:5], packet[5] and (packet[5].seq, packet[5].stream_start), packet[6])
        for packet in found
    ]


def test_a_whole_session_is_the_same_in_every_link_layer():
    session = [ipv4(udp(bytes([i]) * i, sport=4000 + i % 3)) for i in range(40)]
    session += [*fragments4(udp(b"f" * 3000), [1480, 1000]), ipv4(tcp(b"stream", seq=9), 6)]
    session += [ipv6(udp(b"six")), ipv4(udp(b"opt"), options=b"\x94\x04\0\0")]
    reference, _ = run(*(frame(i, p) for i, p in enumerate(session, 1)))
    assert len(reference) == 44
    for link in LINK_WRAPPERS:
        found, _ = run(*(frame(i, p, link=link) for i, p in enumerate(session, 1)))
        assert told(found) == told(reference)


def test_padding_behind_the_packet_is_no_payload():
    link, data = link_frame("ethernet", ipv4(udp(b"short")))
    found, _ = run((1, 0, link, data + bytes(20), len(data) + 20))
    assert found[0][4:] == (b"short", None, ())


def test_an_unknown_link_type_is_counted():
    found, stats = run((1, 0, 147, b"x" * 60, 60), (2, 0, 147, b"", 0), (3, 0, 195, b"", 0))
    assert found == []
    assert stats.unknown_link == {147: 2, 195: 1}
    assert stats.frames == 3


def test_what_is_not_ip_is_counted():
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    spanning_tree = bytes(12) + b"\0\x26BB\x03" + bytes(40)
    null = pack("<I", 7) + bytes(40)
    frames = [
        (1, 0, 1, arp, 42),
        (2, 0, 1, spanning_tree, 60),
        (3, 0, 0, null, 44),
        (4, 0, 1, b"", 0),
    ]
    found, stats = run(*frames, (5, 0, 101, b"", 0))
    assert found == []
    assert stats.non_ip == 5


def test_tags_are_bounded():
    def tagged(count):
        data = bytes(12) + b"\x81\0\0\x05" * count + b"\x08\0" + ipv4(udp(GAME))
        return run((1, 0, 1, data, len(data)))

    assert len(tagged(MAX_TAGS)[0]) == 1
    found, stats = tagged(MAX_TAGS + 1)
    assert found == []
    assert stats.too_deep == 1


@pytest.mark.parametrize(
    ("first", "extensions"),
    [
        (0, bytes([17, 0]) + bytes(6)),
        (43, bytes([17, 2]) + bytes(22)),
        (60, bytes([17, 1]) + bytes(14)),
        (51, bytes([17, 4]) + bytes(22)),
        (0, bytes([60, 0]) + bytes(6) + bytes([51, 0]) + bytes(6) + bytes([17, 2]) + bytes(14)),
        (44, bytes([17, 0, 0, 0]) + bytes(4)),
        (44, bytes([60, 0, 0, 0]) + bytes(4) + bytes([17, 0]) + bytes(6)),
    ],
)
def test_extension_headers_are_passed_over(first, extensions):
    assert one(ipv6(udp(GAME), first, extensions=extensions))[3:] == (KEY6, GAME, None, ())


def test_extension_headers_are_bounded():
    def stacked(count):
        following = [60] * (count - 1) + [17]
        chain = b"".join(bytes([protocol, 0]) + bytes(6) for protocol in following)
        return run(frame(1, ipv6(udp(GAME), 60, extensions=chain)))

    assert len(stacked(MAX_EXTENSION_HEADERS)[0]) == 1
    found, stats = stacked(MAX_EXTENSION_HEADERS + 1)
    assert found == []
    assert stats.malformed == 1


def test_options_and_authentication_of_ipv4_are_passed_over():
    assert one(ipv4(udp(GAME), options=b"\x01" * 12))[3:5] == (KEY4, GAME)
    authentication = bytes([17, 4]) + bytes(22)
    assert one(ipv4(authentication + udp(GAME), 51))[3:5] == (KEY4, GAME)


def test_udp_length_is_held_to_ip_length():
    shorter = one(ipv4(udp(GAME, length=8 + 4)))
    assert shorter[4:] == (GAME[:4], None, ("udp-length",))
    for length in (0, 7, 8 + len(GAME) + 1, 65535):
        assert one(ipv4(udp(GAME, length=length)))[4:] == (GAME, None, ("udp-length",))


def test_ip_length_is_held_to_wire_length():
    packet = ipv4(udp(GAME), total=20 + 8 + len(GAME) + 100)
    assert one(packet)[4:] == (GAME, None, ("ip-length",))
    assert one(ipv6(udp(GAME), length=500))[4:] == (GAME, None, ("ip-length",))


def test_a_length_of_zero_means_all_there_is():
    assert one(ipv4(udp(GAME), total=0))[4:] == (GAME, None, ())
    assert one(ipv6(udp(GAME), length=0))[4:] == (GAME, None, ())


@pytest.mark.parametrize("packet", [ipv4(udp(GAME)), ipv6(udp(GAME))])
def test_a_snapped_datagram_says_so(packet):
    whole = link_frame("ethernet", packet)[1]
    start = len(whole) - len(GAME)
    for cut in range(len(whole)):
        found, stats = run(frame(1, packet, cut=cut))
        if cut < start:
            assert found == []
            assert stats.malformed + stats.non_ip == 1
        else:
            assert found[0][4:] == (whole[start:cut], None, ("snapped",))
            assert stats.snapped == 1


@pytest.mark.parametrize("packet", [
    ipv4(udp(GAME), total=19), ipv4(b""), ipv4(b"\0" * 7), b"\x44" + ipv4(udp(GAME))[1:],
    b"\x55" + ipv4(udp(GAME))[1:], ipv4(tcp()[:19], 6), ipv4(tcp()[:12] + b"\x40" + tcp()[13:], 6),
    ipv4(tcp()[:12] + b"\xf0" + tcp()[13:], 6), ipv6(b""), ipv6(b"", 60), ipv6(b"\0" * 7, 44),
])  # fmt: skip
def test_broken_headers_are_set_aside(packet):
    link, data = 1, bytes(12) + (b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\0") + packet
    found, stats = run((1, 0, link, data, len(data)))
    assert found == []
    assert stats.malformed == 1


def test_other_protocols_are_counted():
    found, stats = run(frame(1, ipv4(bytes(20), 2)), frame(2, ipv6(bytes(20), 59)))
    assert found == []
    assert stats.other_protocols == 2


def quote4(inner, code=3):
    return ipv4(bytes([3, code]) + bytes(6) + inner, 1, src=B4, dst=A4)


def quote6(inner, code=4):
    return ipv6(bytes([1, code]) + bytes(6) + inner, 58, src=B6, dst=A6)


@pytest.mark.parametrize(
    ("packet", "key", "error"),
    [
        (quote4(ipv4(udp(GAME))), KEY4, b"udp port unreachable"),
        (quote4(ipv4(udp(GAME))[:28]), KEY4, b"udp port unreachable"),
        (quote4(ipv4(udp(GAME), options=bytes(8))[:40]), KEY4, b"udp port unreachable"),
        (quote4(fragments4(udp(b"f" * 2000), [1480])[0][:28]), KEY4, b"udp port unreachable"),
        (quote4(ipv4(udp(GAME)), 10), KEY4, b"udp host administratively prohibited"),
        (quote4(ipv4(tcp(), 6)[:28], 1), KEY4, b"tcp host unreachable"),
        (quote6(ipv6(udp(GAME))), KEY6, b"udp port unreachable"),
        (quote6(ipv6(udp(GAME)), 1), KEY6, b"udp communication administratively prohibited"),
    ],
)
def test_unreachable_names_what_it_quotes(packet, key, error):
    found = one(packet)
    assert found[0] is PacketKind.ICMP_UNREACHABLE
    assert found[3:5] == (key, error)


@pytest.mark.parametrize("packet", [
    ipv4(b"\x08\0" + bytes(6) + ipv4(udp(GAME)), 1), quote4(ipv4(udp(GAME)), 4),
    quote4(ipv4(udp(GAME), 47)), quote4(ipv4(udp(GAME))[:27]), quote4(b""),
    # Type 3 of ICMPv6: the hop limit was exceeded.
    quote6(ipv6(udp(GAME)), 2), ipv6(b"\x03\0" + bytes(6) + ipv6(udp(GAME)), 58), quote4(fragments4(udp(b"f" * 2000), [1480])[1]),
    ipv4(b"\x03", 1),
])  # fmt: skip
def test_other_icmp_is_counted_only(packet):
    found, stats = run(frame(1, packet))
    assert found == []
    assert stats.other_protocols == 1


def vxlan(inner):
    return udp(b"\x08\0\0\0\0\0\x07\0" + link_frame("ethernet", inner)[1], 50000, 4789)


@pytest.mark.parametrize(
    "outer",
    [
        lambda p: ipv4(p, 4),
        lambda p: ipv6(p, 4),
        lambda p: ipv4(b"\0\0\x08\0" + p, 47),
        lambda p: ipv4(b"\xb0\0\x08\0" + bytes(12) + p, 47),
        lambda p: ipv4(b"\0\0\x65\x58" + link_frame("vlan", p)[1], 47),
        lambda p: ipv4(vxlan(p), src=B4, dst=A4),
        lambda p: ipv6(vxlan(p)),
    ],
)
def test_packets_inside_tunnels_are_found(outer):
    found, stats = run(frame(1, outer(ipv4(udp(GAME)))))
    assert [p[3:5] for p in found] == [(KEY4, GAME)]
    assert stats.tunnelled == 1


def test_ipv6_inside_ipv4_is_found():
    assert one(ipv4(ipv6(udp(GAME)), 41))[3:5] == (KEY6, GAME)


def test_tunnels_are_bounded():
    def nested(count):
        packet = ipv4(udp(GAME))
        for _ in range(count):
            packet = ipv4(packet, 4)
        return run(frame(1, packet))

    assert len(nested(MAX_DEPTH)[0]) == 1
    found, stats = nested(MAX_DEPTH + 1)
    assert found == []
    assert stats.too_deep == 1


def test_a_game_on_the_vxlan_port_keeps_its_datagrams():
    for payload in (b"\x09game", b"", b"\x08\0\0\0\0\0\x07\0" + bytes(30)):
        assert one(ipv4(udp(payload, dport=4789)))[4] == payload


@pytest.mark.parametrize("make", [ipv4, ipv6])
def test_fragments_are_joined_with_the_frame_that_completes_them(make):
    payload = bytes(range(256)) * 12
    cut = fragments4 if make is ipv4 else fragments6
    pieces = cut(udp(payload), [1480, 1000])
    order = [2, 0, 0, 1]
    found, stats = run(*(frame(n, pieces[i]) for n, i in enumerate(order, 1)))
    key = KEY4 if make is ipv4 else KEY6
    assert found == [(PacketKind.UDP, 4, 4_000_000, key, payload, None, ())]
    assert (stats.fragments, stats.fragments_joined, stats.fragments_duplicate) == (4, 1, 1)


def test_fragments_of_tcp_are_joined():
    pieces = fragments4(tcp(b"s" * 999, seq=5), [480], protocol=6)
    found, _ = run(*(frame(n, p) for n, p in enumerate(pieces, 1)))
    assert found[0][5].stream[0].data == b"s" * 999


def test_the_usual_and_the_general_way_agree():
    """The same datagram with and without a reason to leave the fast loop."""
    for size in (0, 1, 500, 65_507):
        packet = ipv4(udp(b"z" * size))
        assert one(packet)[2:] == one(packet, link="vlan")[2:]


def test_copies_on_other_interfaces_are_marked():
    def sight(number, packet, place, link=276):
        kind, index = place
        data = pack(">HHIHBB8s", 0x0800, 0, index, 1, kind, 6, bytes(8)) + packet
        return (number, number * 1000, link, data, len(data))

    packet = ipv4(udp(GAME), ident=77)
    routed = packet[:8] + b"\x3f" + packet[9:10] + b"\x12\x34" + packet[12:]
    out, into = (4, 6), (1, 5)
    frames = [
        sight(1, packet, out), sight(2, routed, into), sight(3, packet, out),
        sight(4, packet, into), sight(5, ipv4(udp(GAME), ident=78), into),
    ]  # fmt: skip
    found, stats = run(*frames)
    assert [p[6] for p in found] == [(), ("capture-duplicate",), (), ("capture-duplicate",), ()]
    assert stats.capture_duplicates == 2
    late = (*sight(6, packet, into)[:1], 10**12, *sight(6, packet, into)[2:])
    assert run(sight(1, packet, out), late)[0][1][6] == ()


def test_copies_are_told_in_the_older_cooked_capture_too():
    def sight(number, kind, packet):
        data = pack(">HHH8sH", kind, 1, 6, bytes(8), 0x86DD) + packet
        return (number, number, 113, data, len(data))

    lower = bytearray(ipv6(udp(GAME)))
    lower[7] -= 1
    found, _ = run(sight(1, 4, ipv6(udp(GAME))), sight(2, 0, bytes(lower)))
    assert [p[6] for p in found] == [(), ("capture-duplicate",)]


def test_every_code_is_in_the_catalogue():
    codes = [row.code for row in FLOW_CODES]
    assert len(set(codes)) == len(codes)
    assert "snapped" in {row.code for row in code_rows("common")}
    assert {"capture-duplicate", "ip-fragment-overlap", "ip-length", "udp-length"} <= set(codes)


def test_the_short_form_gives_the_same_packets():
    frames = [frame(1, ipv4(udp(GAME))), frame(2, ipv4(tcp(b"x"), 6))]
    assert told(packets(frames)) == told(run(*frames)[0])
