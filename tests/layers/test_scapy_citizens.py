"""What Scapy users expect of every class: bound by port, pickled, shown, never raising."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from scapy.config import conf
from scapy.fields import ByteField
from scapy.layers.inet import IP, TCP, UDP
from scapy.packet import Packet, Raw, bind_layers, fuzz, ls, rfc, split_layers
from scapy.utils import PcapReader

from agreement import CAPTURES, payloads
from netdissect import layers
from netdissect.craft.layers import exported_layers
from netdissect.dissect import choice
from netdissect.dissect.choice import choose, likeliest, reading_layer
from netdissect.dissect.engine import dissect
from netdissect.layers import PROTOCOLS, knet, netplay, riptide, teeworlds
from netdissect.layers.base import Knowledge, Layer, make_layer
from netdissect.layers.binding import is_reader
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, Items, innermost
from netdissect.pipeline.iterate import iter_records

PORT = 45_321
NAMES: dict[str, Any] = {
    name: getattr(module, name)
    for protocol in PROTOCOLS
    for module in [import_module(f"netdissect.layers.{protocol}")]
    for name in module.__all__
}
"""What a Scapy shell has after `load_contrib` of every protocol."""
CLASSES = [each for each in NAMES.values() if isinstance(each, type) and issubclass(each, Layer)]


@pytest.fixture(autouse=True)
def _unbound() -> Iterator[None]:
    """Leave Scapy's tables as they were."""
    before = [(carrier, list(carrier.payload_guess)) for carrier in (UDP, TCP)]
    yield
    for carrier, rows in before:
        carrier.payload_guess = rows


def shown(packet: Any) -> None:
    assert packet.summary()
    assert isinstance(packet.hashret(), bytes)
    packet.show(dump=True)
    packet.show2(dump=True)
    packet.command()
    packet.json()
    repr(packet)
    for other in (packet, Raw(b"a"), IP(), type(packet)()):
        assert packet.answers(other) in (True, False)
    assert not packet.answers(Raw(b"a"))


def reads_back(layer: Any) -> None:
    """A default packet is read as what it was built from."""
    octets = bytes(layer())
    again = layer(octets)
    assert bytes(again) == octets
    if again.fault is not None:
        # Receivers of kNet refuse a message without content, and so do we.
        assert again.fault.code in ("knet-zero-content", "knet-tcp-length")
    else:
        again.clear_cache()
        assert bytes(again) == octets
        assert eval(again.command(), dict(NAMES)) == again  # noqa: S307 - our own


def comes_back_as_itself(layer: Any) -> None:
    """Also the base of many, whose bytes are those of another class, and a class of a user's."""
    base = type(layer())  # `layer` may only choose among others.
    fields = [*base.fields_desc, ByteField("users_own", 1)]
    own = make_layer(globals(), "UserLayer", base, "", fields_desc=fields)
    for packet in (layer(), own()):
        pickled = pickle.loads(pickle.dumps(packet))  # noqa: S301 - our own
        for again in (pickled, copy.copy(packet), copy.deepcopy(packet)):
            assert type(again) is type(packet)
            assert bytes(again) == bytes(packet)
            assert again.fields == packet.fields or again is pickled


def keeps_what_it_reads(layer: Any) -> None:
    """Any bytes: nothing raises, nothing is lost, copies and pickled ones are the same."""
    default, chance = bytes(layer()), random.Random(7)
    cut = [default[: len(default) // 2], default[:-1]]
    made = [chance.randbytes(length) for length in (5, 60)]
    for octets in filter(None, (b"\0", bytes(range(40)), b"\xff" * 30, *cut, *made)):
        packet = layer(octets)
        assert bytes(packet) == octets
        shown(packet)
        pickled = pickle.loads(pickle.dumps(packet))  # noqa: S301 - our own
        for again in (pickled, packet.copy(), copy.deepcopy(packet)):
            assert type(again) is type(packet)
            assert bytes(again) == octets
            assert again.fault is None or again.fault.code == packet.fault.code


def draws(layer: Any) -> None:
    """`fuzz` makes what can be shown, built, and read."""
    for seed in range(2):
        random.seed(seed)
        drawn = fuzz(layer())
        shown(drawn)
        layer(bytes(drawn)).show(dump=True)


def is_named(layer: Any) -> None:
    assert layer._name, "a title"
    for field in layer.fields_desc:
        # kNet's `fragment` is a field of its documents; `FragmentBit` makes it readable.
        assert field.name == "fragment" or not hasattr(Packet, field.name), field.name


def keeps_off_what_follows(layer: Any) -> None:
    """Scapy's lists and streams lose what an item takes for its payload."""
    for field in layer.fields_desc:
        inner = innermost(field)
        if inner.holds_packets and inner.islist:
            assert inner.max_count is not None
            assert inner.item().extract_padding(b"abc") == (b"", b"abc")


def refuses_other_kinds(layer: Any) -> None:
    with pytest.raises(AttributeError):
        layer(no_such_field=1)
    for field in layer.fields_desc:
        inner = innermost(field)
        other = {} if inner.holds_packets else 1.5 if isinstance(inner.default, bytes) else b"zz"
        for wrong in (object(), other):
            with pytest.raises((TypeError, ValueError), match=field.name):
                layer(**{field.name: wrong})
            with pytest.raises((TypeError, ValueError), match=field.name):
                setattr(layer(), field.name, wrong)


def is_listed(layer: Any) -> None:
    ls(layer)
    assert rfc(layer, ret=True)
    module = f"scapy.contrib.{layer.__module__.split('.')[2]}"
    assert layer in conf.layers.ldict[module]
    assert NAMES[layer.__name__] is layer


CHECKS = (
    lambda layer: shown(layer()), reads_back, comes_back_as_itself, keeps_what_it_reads, draws,
    refuses_other_kinds, is_listed, is_named, keeps_off_what_follows,
)  # fmt: skip


@pytest.mark.parametrize("layer", CLASSES, ids=lambda layer: layer.__name__)
def test_every_public_class_is_what_scapy_users_expect(layer: Any) -> None:
    for check in CHECKS:
        check(layer)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_a_capture_holds_is_of_public_classes(protocol: str) -> None:
    """Or `command()` would name what a shell does not have, and nothing would unpickle it."""
    public = set(CLASSES) | {Raw}
    for octets in payloads(protocol)[::7]:
        for dialect in import_module(f"netdissect.layers.{protocol}").DIALECTS:
            packet = reading_layer(protocol, octets, dialect, "udp", None)(octets)
            assert {type(each) for each in packets_in(packet)} <= public, packet.command()


def packets_in(packet: Any) -> Iterator[Any]:
    """Yield a packet, its payloads, and the packets in their fields."""
    while packet:
        yield packet
        for value in packet.fields.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Packet):
                    yield from packets_in(each)
        packet = packet.payload


def test_a_bound_port_is_that_of_packets_built_without_one() -> None:
    riptide.bind(PORT)
    try:
        packet = IP(bytes(IP(dst="127.0.0.1") / UDP() / riptide.RiptideConnect()))
        assert (packet[UDP].sport, packet[UDP].dport) == (49152, PORT)
        assert riptide.RiptideConnect in packet
        assert (UDP(sport=5) / riptide.RiptideConnect()).sport == 5
        framed = TCP() / riptide.RiptideFrame(data=riptide.RiptideConnect())
        assert framed.dport == PORT
    finally:
        for layer in conf.layers.ldict["scapy.contrib.riptide"]:
            layer._overload_fields = {}


def test_users_can_bind_layers_to_what_is_not_known() -> None:
    class Mine(Packet):
        name = "mine"

    bind_layers(layers.eoudp.EoudpLate, Mine, cmd=0x77)  # type: ignore[attr-defined]
    bind_layers(teeworlds.Tw07, Mine, control_flag=1)
    try:
        assert Mine in layers.eoudp.EoudpLate(bytes(layers.eoudp.EoudpLate(cmd=0x77) / Raw(b"x")))  # type: ignore[attr-defined]
        assert Mine not in layers.eoudp.EoudpLate(bytes(layers.eoudp.EoudpLate() / layers.eoudp.EoudpEvent()))  # type: ignore[attr-defined]
        assert Mine in teeworlds.Tw07(bytes(teeworlds.Tw07(control_flag=1) / Raw(b"\x63")))
        assert teeworlds.Tw07ControlToken in teeworlds.Tw07(
            bytes(teeworlds.Tw07(control_flag=1) / teeworlds.Tw07ControlToken())
        )
    finally:
        split_layers(layers.eoudp.EoudpLate, Mine, cmd=0x77)  # type: ignore[attr-defined]
        split_layers(teeworlds.Tw07, Mine, control_flag=1)


def test_counts_are_filled_in_and_kept_where_they_are_given() -> None:
    built = knet.KnetSpecHeader(in_order=1, in_order_deltas=[4, 5], in_order_datagram_indexes=[0, 1])
    assert knet.KnetSpecHeader(bytes(built)).in_order_deltas == [4, 5]
    several = knet.KnetSpecMessage(in_order_code=7, multi_in_order_indexes=[1, 2, 3])
    assert knet.KnetSpecMessage(bytes(several)).multi_in_order_indexes == [1, 2, 3]
    several.multi_in_order_index_count = 9
    assert bytes(several)[2] == 9


@pytest.mark.parametrize(
    "frame",
    [riptide.RiptideFrame(data=riptide.RiptideConnect()), netplay.NetplayFrame(type=1, body=b"abc"),
     netplay.NetplayText(class_name=b"A"), netplay.NetplayShortFrame(length=2, octets=b"ab")],
    ids=lambda frame: type(frame).__name__,
)  # fmt: skip
def test_what_follows_a_frame_of_a_stream_is_no_part_of_it(frame: Any) -> None:
    read = type(frame)(bytes(frame) + b"next")
    assert read.getlayer("Padding").load == b"next"
    assert bytes(read) == bytes(frame) + b"next"


def test_padding_in_a_field_of_an_item_is_not_what_follows_the_item() -> None:
    class Inner(Layer):
        name = "inner"
        is_item = True
        fields_desc = [ByteField("one", 0)]

    class Outer(Layer):
        name = "outer"
        is_item = True
        fields_desc = [Embedded("inner", lambda _fields, _octets: Inner, E("2"))]

    class Whole(Layer):
        name = "whole"
        fields_desc = [Items("parts", Outer)]

    packet = Whole(b"abcdef")
    assert [part.inner.one for part in packet.parts] == [0x61, 0x63, 0x65]
    assert bytes(packet) == b"abcdef"


def test_a_base_class_gives_the_class_of_the_dialect() -> None:
    base = {"teeworlds": teeworlds.TwPacket, "eoudp": NAMES["EoudpHeader"]}
    for protocol, capture, dialect, _ in TRUTH:
        path = CAPTURES / protocol / f"{capture}.pcap"
        if protocol in base and path.exists():
            records = iter_records(str(path))
            right = [
                isinstance(base[protocol](each.payload), reading_layer(protocol, each.payload, dialect, "udp", None))
                for each in itertools.islice(records, 40)
                if each.dialect == dialect
            ]
            assert len(right) > 20
            assert sum(right) >= 0.95 * len(right)
    assert type(teeworlds.TwPacket(ack=3)) is teeworlds.Tw07
    assert type(base["eoudp"](b"")) is NAMES["EoudpLate"]


def test_a_list_at_the_end_is_one_value() -> None:
    item = teeworlds.Tw06GameSvTeamsStateLegacy(teams=[1, 2, 3, 4, 5, 6])
    assert teeworlds.Tw06GameSvTeamsStateLegacy(bytes(item)).teams == [1, 2, 3, 4, 5, 6]


def test_a_fault_that_is_kept_holds_no_other() -> None:
    """A pickler that follows the chain of exceptions (tblib's, for one) meets no other class."""
    faults = [packet.fault for layer in CLASSES if (packet := layer(b"\0")).fault]
    assert len(faults) > 5
    for fault in faults:
        assert (fault.__context__, fault.__cause__, fault.__traceback__) == (None, None, None)


def test_titles_name_the_type() -> None:
    assert "###[ Riptide Reliable ]###" in riptide.RiptideReliable().show(dump=True)
    assert "###[ Riptide 2.0 Ack ]###" in riptide.Riptide20Ack().show(dump=True)
    assert "###[ Riptide 2.1 Ack ]###" in riptide.Riptide21Ack().show(dump=True)
    pinged = knet.KnetDatagram(messages=[knet.KnetMessage(content=knet.KnetPingRequest())])
    assert "kNet PingRequest" in pinged.show(dump=True)
    assert "###[ Netplay frame of type 300 ]###" in netplay.NetplayFrame(type=300).show(dump=True)
    said = netplay.NetplayText(class_name=b"ChatMessage\x1b[2J")
    assert "###[ Netplay text message 'ChatMessage\\x1b[2J' ]###" in said.show(dump=True)
    assert netplay.NetplayText().name == "Netplay text message"


def test_titles_name_the_dialect_that_is_known() -> None:
    riptide.bind(PORT, dialect="2.2")
    octets = bytes(riptide.RiptideReliable(sequence_id=301, message_id=3, data=b"some words"))
    named = sent(octets)
    for packet in (named, named.copy(), pickle.loads(pickle.dumps(named))):  # noqa: S301
        assert "###[ Riptide Reliable, riptide-2.2 ]###" in packet.show(dump=True)
        assert "riptide-2.2" not in packet.summary() + packet[UDP].payload.name
    # It may be 2.1 just as well.
    riptide.bind(PORT)
    assert "###[ Riptide Reliable ]###" in sent(octets).show(dump=True)
    layer = sent(octets)[UDP].payload
    layer.knowledge = Knowledge(1, dialect="riptide-2.1")
    assert "###[ Riptide Reliable, riptide-2.1 ]###" in layer.show(dump=True)


def test_aliases_can_be_given_read_and_set() -> None:
    chunk = teeworlds.Tw07Chunk(vital=1, sequence=700, body=teeworlds.Tw07SysReady())
    assert (chunk.sequence, chunk.size) == (700, 1)
    chunk.sequence, chunk.size = 3, 70
    assert (chunk.sequence, chunk.size) == (3, 70)
    assert (chunk.sequence_high, chunk.sequence_low, chunk.size_high, chunk.size_low) == (0, 3, 1, 6)
    old = teeworlds.Tw06Chunk(bytes(teeworlds.Tw06Chunk(vital=1, sequence=1023)))
    assert old.sequence == 1023
    datagram = knet.KnetDatagram(packet_id=70_000)
    assert datagram.packet_id == 70_000
    datagram.packet_id = 5
    assert knet.KnetDatagram(bytes(datagram)).packet_id == 5


def test_every_field_can_be_read_by_its_name() -> None:
    """Scapy's packets have methods: a field of their name would be hidden by them."""
    for layer in CLASSES:
        packet = layer()
        for field in layer.fields_desc:
            assert not callable(getattr(packet, field.name)), (layer, field.name)
    message = knet.KnetMessage(fragment=1)
    message.fragment = 0
    assert message.fragment == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_module_says_what_it_is_as_contribs_do(protocol: str) -> None:
    """Source: scapy's contributor rules, and `scapy.main.list_contrib`, which reads these lines."""
    head = Path(import_module(f"netdissect.layers.{protocol}").__file__ or "").read_text()[:300]
    assert "# SPDX-License-Identifier: GPL-2.0-or-later\n" in head
    assert "# scapy.contrib.description = " in head
    assert "# scapy.contrib.status = loads\n" in head


def test_a_token_is_a_number_hex_digits_or_octets() -> None:
    for given in (0xDEADBEEF, "deadbeef", "0xDEADBEEF", b"\xde\xad\xbe\xef"):
        assert bytes(teeworlds.Tw07(token=given))[3:7].hex() == "deadbeef"
    for wrong in (1 << 32, -1, "xyz", "dead", b"12345", b"123", b""):
        with pytest.raises(ValueError, match="token"):
            teeworlds.Tw07(token=wrong)
    for wrong in (1.5, [1], True):
        with pytest.raises(TypeError, match="token"):
            teeworlds.Tw07(token=wrong)


DIALECTS = {"teeworlds": teeworlds.DIALECTS, "riptide": riptide.DIALECTS, "eoudp": layers.eoudp.DIALECTS}  # type: ignore[attr-defined]
TRUTH = [
    ("teeworlds", "tw064_clean", "teeworlds-0.6", 0.98),
    ("teeworlds", "tw07_clean", "teeworlds-0.7", 1.0),
    ("teeworlds", "ddnet_clean", "teeworlds-ddnet-0.6", 1.0),
    ("riptide", "udp_2.2.1_clean", "riptide-2.2", 0.9),
    ("riptide", "udp_2.0.0_lossy_clientleg", "riptide-2.0", 0.95),
    ("eoudp", "late_clean", "exodia-late", 1.0),
    ("eoudp", "rfc02_clean", "rfc02", 1.0),
]


@pytest.mark.parametrize(("protocol", "capture", "dialect", "share"), TRUTH)
def test_a_datagram_alone_tells_its_dialect(
    protocol: str, capture: str, dialect: str, share: float
) -> None:
    path = CAPTURES / protocol / f"{capture}.pcap"
    if not path.exists():
        pytest.skip(f"no {capture}")
    records = [
        record
        for record in itertools.islice(iter_records(str(path)), 400)
        if record.dialect == dialect and record.transport == "udp"
    ]
    assert len(records) > 30
    right = sum(
        choose(protocol, each.payload, DIALECTS[protocol], "udp", each.direction).dialects[0] == dialect
        for each in records
    )
    assert right >= share * len(records)


@pytest.mark.parametrize(("protocol", "capture", "_dialect", "_share"), TRUTH)
def test_the_likeliest_dialect_is_the_first_candidate(
    protocol: str, capture: str, _dialect: str, _share: float
) -> None:
    path = CAPTURES / protocol / f"{capture}.pcap"
    for record in itertools.islice(iter_records(str(path)), 150):
        for direction in (record.direction, None):
            for octets in (record.payload, record.payload[:-3], record.payload + b"x"):
                asked = (protocol, octets, DIALECTS[protocol], record.transport, direction)
                assert likeliest(*asked) == choose(*asked).dialects[0]


def test_only_who_looks_at_the_candidates_pays_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        choice, "dissect",
        lambda protocol, octets, request: asked.append(request.dialect) or dissect(protocol, octets, request),
    )  # fmt: skip
    octets = bytes(riptide.RiptideReliable(sequence_id=302, message_id=4, data=b"other words"))
    riptide.bind(PORT)
    message = sent(octets)[UDP].payload
    assert asked == ["riptide-2.2"]
    assert message.candidates == ("riptide-2.2", "riptide-2.1")
    assert {*asked} == {*riptide.DIALECTS}


def wrongly_certain(path: Path, count: int) -> list[str]:
    """Datagrams that are read in another dialect than that of their connection, and nothing said."""
    wrong = []
    for record in itertools.islice(iter_records(str(path)), count):
        protocol, dialect, octets = record.protocol, record.dialect, record.payload
        if protocol is None or dialect is None or not octets or record.transport != "udp":
            continue
        known = tuple(import_module(f"netdissect.layers.{protocol}").DIALECTS)
        for direction in (record.direction, None):
            found = choose(protocol, octets, known, "udp", direction).dialects
            asked = (octets, dialect, "udp", record.direction)
            right = reading_layer(protocol, *asked)
            others = [reading_layer(protocol, octets, each, *asked[2:]) for each in found]
            # Of a connection that has told no release either, several are named.
            undecided = dialect not in known and len(found) > 1
            if right not in others and not undecided:
                wrong.append(f"{path.name} {record.frame}: {dialect} as {found}")
    return wrong


def wrongly_certain_of_segments(path: Path, count: int) -> list[str]:
    """Segments that are read in another dialect than that of their stream, and nothing said."""
    dialects: dict[int, tuple[str, int | None]] = {}
    for record in itertools.islice(iter_records(str(path)), count):
        if record.transport == "tcp" and record.dialect:
            dialects |= dict.fromkeys(record.frames, (record.dialect, record.direction))
    wrong = []
    protocol = path.parent.name
    known = tuple(import_module(f"netdissect.layers.{protocol}").DIALECTS)
    with PcapReader(str(path)) as packets:
        for frame, packet in enumerate(itertools.islice(packets, count), start=1):
            dialect, direction = dialects.get(frame, ("", None))
            if dialect not in known or TCP not in packet:
                continue
            octets = bytes(packet[TCP].payload.getlayer(Raw) or b"")
            found = choose(protocol, octets, known, "tcp", direction).dialects
            asked = ("tcp", direction)
            right = reading_layer(protocol, octets, dialect, *asked)
            if octets and right not in [reading_layer(protocol, octets, each, *asked) for each in found]:
                wrong.append(f"{path.name} {frame}: {dialect} as {found}")
    return wrong


DOUBTFUL = [
    "teeworlds/tw065_loss_client_side", "teeworlds/ddnet_antispoof_broken", "riptide/udp_2.0.0_malformed",
    "riptide/udp_2.1dev_clean", "eoudp/late_long32_client_vs_64_server", "eoudp/rfc01_numbering",
    "knet/udp_malformed_to_client.client", "knet/knet2010_clean",
]  # fmt: skip


@pytest.mark.parametrize("capture", DOUBTFUL)
def test_what_a_datagram_does_not_tell_is_said(capture: str) -> None:
    assert wrongly_certain(CAPTURES / f"{capture}.pcap", 120) == []


def test_what_a_segment_does_not_tell_is_said() -> None:
    """Frames of bin1 that a client sent to a server of text."""
    assert wrongly_certain_of_segments(CAPTURES / "netplay" / "text_malformed.pcap", 250) == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_datagram_of_any_capture_is_read_as_a_sibling_unsaid(protocol: str) -> None:
    wrong: list[str] = []
    for path in sorted((CAPTURES / protocol).glob("*.pcap*")):
        wrong += wrongly_certain(path, 300) + wrongly_certain_of_segments(path, 300)
    assert wrong == []


def test_candidates_are_shown_kept_and_dropped() -> None:
    octets = bytes.fromhex("0801000100")
    riptide.bind(PORT)
    for packet in (sent(octets), sent(octets).copy(), pickle.loads(pickle.dumps(sent(octets)))):  # noqa: S301
        message = packet[UDP].payload
        assert isinstance(message, riptide.Riptide20Ack) or message.candidates
        assert message.candidates[0] != message.candidates[1]
        doubt = f"(or {', '.join(message.candidates[1:])})"
        assert doubt in packet.show(dump=True)
        assert doubt in packet.summary()
        assert doubt not in message.name
    # A dialect that was named is none of several, nor is one that the bytes tell.
    riptide.bind(PORT, dialect="2.2")
    assert sent(octets)[UDP].payload.candidates == ()
    # One that shows the same is no reason for a word.
    riptide.bind(PORT)
    plain = sent(bytes(riptide.RiptideReliable(sequence_id=301, message_id=3, data=b"some words")))
    assert plain[UDP].payload.candidates == ("riptide-2.2", "riptide-2.1")
    assert "(or" not in plain.show(dump=True) + plain.summary()
    some = teeworlds.TwPacket(bytes.fromhex("10000002")).candidates
    assert some[:3] == ("teeworlds-ddnet-0.6", "teeworlds-0.6", "teeworlds-0.6.5")
    assert teeworlds.Tw06(bytes.fromhex("10000002")).candidates == ()


def sent(octets: bytes, port: int = PORT) -> IP:
    return IP(bytes(IP(dst="127.0.0.1") / UDP(sport=5000, dport=port) / Raw(octets)))


def test_a_bound_port_reads_the_named_dialect_and_else_the_one_of_the_octets() -> None:
    old = bytes(riptide.Riptide20Reliable(sequence_id=300, message_id=2, data=b"hi"))
    riptide.bind(PORT)
    assert riptide.Riptide20Reliable in sent(old)
    assert riptide.RiptideReliable in sent(bytes(riptide.RiptideReliable(sequence_id=301)))
    riptide.bind(PORT, dialect="2.2")
    assert riptide.Riptide20Reliable not in sent(old)
    riptide.bind(PORT, dialect="riptide-2.0")
    assert riptide.Riptide20Reliable in sent(old)
    assert sum(is_reader(each) and each.port == PORT for _, each in UDP.payload_guess) == 2
    teeworlds.bind(PORT + 1)
    six = bytes(teeworlds.Tw06(control_flag=1) / teeworlds.Tw06ControlConnect())
    assert teeworlds.Tw06 in sent(six, PORT + 1)
    seven = bytes(teeworlds.Tw07(control_flag=1, num_chunks=0) / teeworlds.Tw07ControlToken())
    assert teeworlds.Tw07 in sent(seven, PORT + 1)
    with pytest.raises(ValueError, match="known: "):
        teeworlds.bind(PORT, dialect="0.9")
    for port in (0, -1, 1 << 16, "8303", None):
        with pytest.raises(ValueError, match="is no port"):
            teeworlds.bind(port)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "first", "second"),
    [
        (riptide, bytes(riptide.RiptideFrame(data=b"\x07\0\0\0")), bytes(riptide.RiptideFrame(data=b"\x02"))),
        (knet, bytes.fromhex("020101"), bytes.fromhex("020102")),
        (netplay, bytes.fromhex("000400000141"), bytes.fromhex("0003000001")),
    ],
    ids=["riptide", "knet", "netplay"],
)
def test_a_stream_is_put_together(module: object, first: bytes, second: bytes) -> None:
    module.bind(PORT)  # type: ignore[attr-defined]
    reader = next(
        each for _, each in TCP.payload_guess if is_reader(each) and each.port == PORT
    )
    assert reader.tcp_reassemble(first[:-1], {}, {}) is None
    whole = reader.tcp_reassemble(first, {}, {})
    assert bytes(whole) == first
    more = reader.tcp_reassemble(first + second[:2], {}, {})
    assert bytes(more) == first + second[:2]
    assert "Padding" in more.summary() or more.haslayer("Padding")


SHELL = """
from scapy.all import *
conf.exts.load("netdissect")
load_contrib("riptide")
load_contrib("teeworlds")
bind_riptide(7790)
bind_teeworlds(8300)
explore("riptide")
"""


def test_bind_functions_of_two_contribs_stand_side_by_side() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHELL], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "RiptideReliable" in done.stdout


def test_summaries_say_what_the_messages_are() -> None:
    ping = teeworlds.Tw07Chunk(body=teeworlds.Tw07SysPing())
    packet = teeworlds.Tw07(bytes(teeworlds.Tw07(ack=0) / teeworlds.Tw07Chunks(chunks=[ping] * 6)))
    assert packet.summary() == "Tw07 / sys.ping, sys.ping, sys.ping, sys.ping and 2 more"
    assert teeworlds.Tw07Chunks(chunks=[Raw(b"x")]).summary() == "?"
    ping = knet.KnetMessage(content=knet.KnetPingRequest())
    part = knet.KnetMessage(fragment=1, content=knet.KnetFragmentData(data=b"ab"))
    datagram = knet.KnetDatagram(bytes(knet.KnetDatagram(packet_id=7, messages=[ping, part])))
    assert datagram.summary() == "kNet datagram #7: PingRequest, fragment"
    assert knet.KnetDatagram().summary() == "kNet datagram #0: no messages"
    assert knet.KnetStream(bytes.fromhex("020101")).summary() == "kNet stream: PingRequest"
    framed = riptide.RiptideFrame(data=riptide.RiptideConnect())
    assert framed.summary() == "Riptide frame: Riptide Connect"
    frames = netplay.NetplayStream(bytes(netplay.NetplayFrame(type=7, body=b"x")))
    assert frames.summary() == "Netplay frame of type 7"
    assert netplay.NetplayStream().summary() == "Netplay frames"
    hostile = netplay.NetplayTextStream(b"\x1b[2Jchat\n{}\n")
    assert hostile.summary() == "Netplay text message"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_defaults_make_what_is_read_without_a_fault(protocol: str) -> None:
    """kNet's receivers refuse a message without a content."""
    for name, layer in exported_layers(protocol).items():
        octets = bytes(layer())
        assert not octets or layer(octets).fault is None, name
        assert list(faulted(layer(octets))) == [], name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_octet_is_lost_or_made_up_without_the_cache(protocol: str) -> None:
    """A layer that a fault has ended has no field for the rest of its bytes."""
    for name, layer in exported_layers(protocol).items():
        octets = bytes(layer())
        for cut in (*range(1, min(len(octets), 24)), len(octets)):
            packet = layer(octets[:cut]) if cut else layer()
            packet.clear_cache()
            assert bytes(packet) == octets[:cut], (name, cut)
    refused = knet.KnetTcpMessage(b"\0")
    refused.clear_cache()
    assert bytes(refused) == b"\0"
    refused.content_length = 3
    assert bytes(refused) == b"\3\x14\0"


def faulted(packet: Any) -> Iterator[Any]:
    """Yield the layers in a packet that a fault has ended."""
    if getattr(packet, "fault", None) is not None:
        yield packet
    for value in packet.fields.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Packet):
                yield from faulted(each)
    if packet.payload:
        yield from faulted(packet.payload)
