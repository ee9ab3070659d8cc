"""Drivers against the minimal servers, and against the real programs where they are installed."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agreement import CAPTURES
from fuzzing import free_target, running
from netdissect.craft.layers import message_types
from netdissect.fuzz import (
    CONNECTED,
    Chance,
    Generator,
    Link,
    Step,
    Target,
    collect_seeds,
    driver_class,
    fuzz_target,
)
from netdissect.fuzz.drivers import Driver, driven
from netdissect.fuzz.drivers.eoudp_form import FORMS as EOUDP_FORMS
from netdissect.fuzz.drivers.knet import Builder, packet_id, put_packet_id, reliable_base
from netdissect.fuzz.drivers.netplay import chunked, frames, joined, lines
from netdissect.fuzz.drivers.riptide import (
    FILL_FROM,
    Messages,
    Received,
    RiptideDriver,
    bit_slots,
    gap,
    patch,
)
from netdissect.fuzz.drivers.riptide_tcp import frame
from netdissect.fuzz.drivers.teeworlds import TeeworldsDriver
from netdissect.fuzz.drivers.teeworlds_form import Opened, chunk_heads, number_chunks
from netdissect.layers import knet, netplay, riptide, teeworlds
from netdissect.wire import huffman
from netdissect.wire.eoudp_names import DISCONNECT
from netdissect.wire.netplay import split_frame
from netdissect.wire.teeworlds_forms import FORMS

SERVED = [
    (protocol, transport, dialect)
    for protocol, rows in sorted(driven().items())
    for transport in rows
    for dialect in driver_class(protocol, transport).dialects
    # The minimal server of Teeworlds speaks 0.7; the others are held against the real programs.
    if protocol != "teeworlds" or dialect == "teeworlds-0.7"
]
CAPTURE = {
    "riptide-2.2": "udp_2.2.1_clean", "riptide-2.1": "udp_2.1.2_clean",
    "riptide-2.1dev": "udp_2.1dev_clean", "riptide-2.0": "udp_2.0.0_lossy_clientleg",
    "teeworlds-0.7": "tw07_clean",
    "exodia-late": "late_two_clients", "exodia-mid": "mid_clean", "exodia-early": "early_clean",
    "exodia-30": "pad30_session", "exodia-late-long32": "late_long32_session",
    "rfc01": "rfc01_numbering", "rfc02": "rfc02_clean", "rfc03": "rfc03_session",
    "knet-2.x": "udp_clean_session", "knet-2010": "knet2010_clean",
    "knet-urho3d": "urho3d_scene_clean",
    "netplay-bin1": "bin1_types", "netplay-bin2": "bin2_types_and_nulls",
    "netplay-bin3": "bin3_multichunk", "netplay-text": "text_types",
}  # fmt: skip
"""Dialect -> capture over its usual transport."""
CAPTURE_TCP = {
    "riptide-2.2": "tcp_2.2.1_clean", "riptide-2.1": "tcp_2.1.2_clean",
    "riptide-2.0": "tcp_2.0.0_clean", "knet-tcp": "tcp_clean_session",
}  # fmt: skip


def captures(protocol: str, transport: str, dialect: str) -> list[Path]:
    """Return the capture of a dialect as a list; an empty one where there is none."""
    usual = transport == next(iter(driven()[protocol]))
    name = (CAPTURE if usual else CAPTURE_TCP).get(dialect)
    return [] if name is None else [CAPTURES / protocol / f"{name}.pcap"]


@pytest.mark.parametrize(("protocol", "transport", "dialect"), SERVED)
def test_a_driver_connects_lives_and_leaves(protocol: str, transport: str, dialect: str) -> None:
    with running(protocol, dialect, transport=transport) as (target, _server):
        session = driver_class(protocol, transport).connect(target, dialect)
        assert session.state == CONNECTED
        assert session.alive(5.0, certain=True)
        session.close()
        assert not session.is_open


@pytest.mark.parametrize("protocol", ["riptide", "teeworlds", "eoudp", "knet"])
def test_nobody_there_is_no_session(protocol: str) -> None:
    session = driver_class(protocol).connect(free_target(), timeout=1.0)
    assert session.state == "closed"
    session.close()


@pytest.mark.parametrize(
    ("dialect", "size", "content", "over"),
    [
        ("exodia-late", 0, b"", True),
        # What follows a size of 0 is ignored.
        ("exodia-late", 0, b"more", True),
        ("exodia-late", 5, b"more", False),
        ("exodia-late", 4, b"more", True),
        # The key event of the first releases.
        ("exodia-early", 5, b"\1\0\0\0\1", False),
        ("exodia-early", 0, b"\1\0\0\0\1", True),
    ],
)
def test_a_disconnect_of_eoudp_ends_the_session(
    dialect: str, size: int, content: bytes, *, over: bool
) -> None:
    form = EOUDP_FORMS[dialect]
    disconnect = bytes(form.layer(cmd=DISCONNECT, size=size)) + content
    with running("eoudp", dialect) as (target, _server):
        session = driver_class("eoudp").connect(target, dialect)
        assert session.ends(disconnect) is over
        session.send(disconnect)
        # Others are asked with a CONNECT, which begins a new session.
        assert not form.by_flag or session.alive(0.5) is not over
        session.close()


SILENT = {
    "exodia-mid", "exodia-mid-long32", "exodia-30", "exodia-early", "rfc02",
}  # fmt: skip
"""Dialects of which nothing that the client of the capture sends is acknowledged."""


@pytest.mark.parametrize(("protocol", "transport", "dialect"), SERVED)
def test_mutants_of_a_capture_leave_a_minimal_server_well(
    protocol: str, transport: str, dialect: str, tmp_path: Path
) -> None:
    with running(protocol, dialect, transport=transport) as (target, server):
        report = fuzz_target(
            protocol, target, tmp_path / "run", dialect=dialect, transport=transport,
            captures=captures(protocol, transport, dialect), cases=200, rate=0,
        )  # fmt: skip
    assert report.findings == {}
    assert report.cases == 200
    assert server.delivered > 10  # type: ignore[attr-defined]
    known = {*report.types, *message_types(protocol, dialect, transport), "unreadable"}
    # A server of Netplay sends on what it gets, whatever its type is.
    assert protocol == "netplay" or {name for name, _state in report.reached} <= known
    share = report.share("control")
    if dialect in SILENT:
        assert share is None
    else:
        assert share is not None
        assert share >= 0.9
        assert report.expected["control"] > 0


@pytest.mark.parametrize(("protocol", "transport", "dialect"), SERVED)
def test_seeds_of_every_protocol_write_themselves_again(
    protocol: str, transport: str, dialect: str
) -> None:
    found = captures(protocol, transport, dialect)
    driver = driver_class(protocol, transport)
    pool = collect_seeds(driver, dialect, found)
    assert len(pool.seeds) > (10 if found else 0)
    assert len(pool.raw) <= len(pool.seeds) // 20


# --- live values ------------------------------------------------------------------------------


def test_riptide_slots_are_where_the_layers_write() -> None:
    for dialect in RiptideDriver.dialects:
        messages = Messages(dialect)
        data = messages.build("Reliable", sequence_id=1, message_id=5, data=b"abc")
        layer = type(messages.read(data))
        patched = patch(data, bit_slots(layer)["sequence_id"], 0xBEEF)
        assert messages.read(patched).sequence_id == 0xBEEF  # type: ignore[union-attr]
        assert patched == messages.build("Reliable", sequence_id=0xBEEF, message_id=5, data=b"abc")


def test_riptide_window_is_that_of_the_reference() -> None:
    received = Received()
    assert received.take(1)
    assert (received.newest, received.bits) == (1, 1)
    assert received.take(3)
    assert (received.newest, received.bits) == (3, 0b110)
    assert received.take(2)
    assert not received.take(2)
    assert not received.take(3)
    assert (received.newest, received.bits) == (3, 0b111)
    assert gap(2, 65535) == 3
    assert gap(65535, 2) == -3


@pytest.fixture
def session() -> Any:
    with running("riptide") as (target, _server):
        driver = driver_class("riptide").connect(target)
        yield driver
        driver.close()


@pytest.mark.parametrize("dialect", ["riptide-2.2", "riptide-2.1"])
@pytest.mark.parametrize(
    ("newest", "step", "ends"),
    [
        (0, {"hold": ("ack",)}, True),
        (0, {}, False),
        (0, {"shift": (("ack", 3),)}, True),
        (0, {"shift": (("ack", -3),)}, False),
        (0, {"shift": (("ack", 1 << 15),)}, True),
        (20_000, {"hold": ("ack",)}, False),
    ],
)
def test_riptide_losses_that_a_notify_claims_would_end_the_session(
    dialect: str, newest: int, step: dict[str, Any], ends: bool
) -> None:
    """Real servers take ids for lost that a Notify skips: one of these goes to a spare session."""
    driver = RiptideDriver(Link(free_target(), "udp"), dialect)
    driver._notified.newest = newest
    notify = Step(bytes(riptide.RiptideNotify(last_received=16_384, sequence_id=1, data=b"a")), **step)
    assert driver.risks(notify) is ends
    reliable = Step(bytes(riptide.RiptideReliable(sequence_id=1)), **step)
    assert not driver.risks(reliable)
    driver.close()


@pytest.mark.parametrize("dialect", ["teeworlds-0.7", "teeworlds-ddnet-0.6"])
@pytest.mark.parametrize(("payload", "ends"), [(b"", True), (b"\4", True), (b"\0", False)])
def test_teeworlds_controls_that_end_a_session(dialect: str, payload: bytes, ends: bool) -> None:
    """An empty one is what the packet before has left in the server's buffer: the close of another
    session, for teeworlds-server 0.7.5.
    """
    driver = TeeworldsDriver(Link(free_target(), "udp"), dialect)
    driver._put(head := driver._head(driver._form.control, 0), payload)
    assert driver.ends(head + payload) is ends
    driver.shut()


def test_riptide_steps_get_the_next_number_and_may_keep_or_shift_theirs(session: Any) -> None:
    octets = bytes(riptide.RiptideReliable(sequence_id=77, message_id=1, data=b"x"))

    def number(step: Step) -> int:
        return int(riptide.Riptide(session.stamp(step)[0]).sequence_id)

    assert [number(Step(octets)) for _ in range(3)] == [2, 3, 4]
    assert number(Step(octets, hold=("sequence",))) == 77
    assert number(Step(octets, shift=(("sequence", 100),), advance=0)) == 105
    assert number(Step(octets, shift=(("sequence", -1),), advance=0)) == 4
    assert number(Step(octets)) == 5
    ack = session.stamp(Step(bytes(riptide.RiptideAck(last_received=9)), shift=(("ack", 3),)))[0]
    assert riptide.Riptide(ack).last_received == 4
    assert session.stamp(Step(b"")) == (b"", None)
    assert session.stamp(Step(b"\x07"))[0] == b"\x07"


def test_riptide_gaps_are_counted_from_the_oldest_id_that_is_missing() -> None:
    """Real servers end a connection in which an id is 1,024 behind that they never received."""
    driver = RiptideDriver(Link(free_target(), "udp"), "riptide-2.2")
    driver._sequence = 300
    ahead = Step(bytes(riptide.RiptideReliable(sequence_id=1_100)), hold=("sequence",))
    assert not driver.risks(ahead)
    reliable = Step(bytes(riptide.RiptideReliable(message_id=1, data=b"x")))
    driver._sequence = 100
    # What a mutant of the order leaves out is missing like what did not arrive.
    driver.stamp(replace(reliable, shift=(("sequence", 1),)))
    driver._sequence = 300
    assert driver.risks(ahead)
    driver._take(bytes(riptide.RiptideAck(last_received=100)))
    assert not driver.risks(ahead)
    driver.shut()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_riptide_sessions_outlive_a_second_of_a_busy_machine(transport: str) -> None:
    """Real servers repeat what they tell a client, and end the connection after 15 copies: within
    0.75 s, or 0.2 s where its heartbeat named a short round trip, as mutants do.
    """
    short = bytes(riptide.RiptideHeartbeat(ping_id=99, rtt_ms=1))
    driver = driver_class("riptide", transport)
    with running("riptide", transport=transport) as (target, server):
        session = driver.connect(target)
        assert session.alive(5.0, certain=True)
        session.link.send(frame(short, "riptide-2.2") if transport == "tcp" else short)
        driver.connect(target).close()
        time.sleep(0.9)
        assert server.connected == 1  # type: ignore[attr-defined]
        assert session.alive(5.0, certain=True)
        assert session.received["ClientDisconnected", "connected"] >= 1
        session.close()


def test_riptide_ids_that_nobody_acknowledged_are_filled(session: Any) -> None:
    """A mutant that is too large does not arrive: real servers would end the connection for it."""
    octets = bytes(riptide.RiptideReliable(message_id=1, data=b"x"))
    lost, key = session.stamp(Step(octets))
    session._pending[key] = ("mutant", 0)
    assert lost
    for _ in range(FILL_FROM + 1):
        session.send(*session.stamp(Step(octets)), "control")
        session.pump()
    assert session.until(lambda: not session._pending, 5.0)
    assert session.accepted["mutant"] == 0
    assert session.accepted["control"] == FILL_FROM + 1


def test_riptide_sessions_outlive_ids_that_the_order_of_mutants_leaves_out() -> None:
    """A swap whose second message was changed leaves an id out for good. Real servers end the
    connection once such an id is 1,024 behind, and more than ten a second may be left out.
    """
    octets = bytes(riptide.RiptideReliable(message_id=1, data=b"x"))
    with running("riptide") as (target, server):
        session = driver_class("riptide").connect(target)
        for number in range(1400):
            shift = (("sequence", 1),) if number % 10 == 0 else ()
            session.send(*session.stamp(Step(octets, shift=shift)))
            session.pump(0.001)
        assert session.alive(5.0, certain=True)
        assert server.connected == 1  # type: ignore[attr-defined]
        session.close()


def test_teeworlds_packets_that_are_sent_again_hold_255_chunks_at_most() -> None:
    """A slow server may have taken none of 400 mutants, in whose place short messages go out."""
    session = driver_class("teeworlds")(Link(free_target(), "udp"), "teeworlds-0.7")
    sent: list[tuple[int, bytes]] = []
    session._put = lambda head, payload: sent.append((head[2], payload))
    for number in range(1, 401):
        session._outbox[number] = (b"\x07", None)
    session._resend(100.0)
    assert [count for count, _payload in sent] == [255, 145]
    assert len(b"".join(payload for _count, payload in sent)) == 4 * 400
    session.shut()


@pytest.mark.parametrize("family", ["0.6", "0.7"])
def test_teeworlds_heads_are_where_the_layers_write(family: str) -> None:
    header, chunks, chunk, ping = {
        "0.6": (teeworlds.Tw06, teeworlds.Tw06Chunks, teeworlds.Tw06Chunk, teeworlds.Tw06SysPing),
        "0.7": (teeworlds.Tw07, teeworlds.Tw07Chunks, teeworlds.Tw07Chunk, teeworlds.Tw07SysPing),
    }[family]
    form = FORMS[f"teeworlds-{family}"]
    for number in (0, 1, 63, 64, 255, 256, 700, 1023):
        items = [
            chunk(vital=1, sequence=5, body=ping()),
            chunk(body=ping()),
            chunk(vital=1, sequence=6, body=ping()),
        ]
        opened = Opened.of(bytes(header(ack=3, compressed_flag=0) / chunks(chunks=items)), form)
        assert opened is not None
        assert opened.ack == 3
        assert [head.number for head in chunk_heads(opened.payload, 3, form) if head.vital] == [
            5,
            6,
        ]
        assert opened.is_whole
        numbers = iter((number, (number + 1) % 1024))
        number_chunks(opened, lambda numbers=numbers: next(numbers))
        opened.ack = 1000
        items[0] = chunk(vital=1, sequence=number, body=ping())
        items[2] = chunk(vital=1, sequence=(number + 1) % 1024, body=ping())
        assert opened.octets() == bytes(header(ack=1000, compressed_flag=0) / chunks(chunks=items))


def test_knet_numbers_are_where_the_layer_writes() -> None:
    def datagram(number: int, base: int) -> bytes:
        message = knet.KnetMessage(reliable=1, content=knet.KnetPingRequest(ping_id=1))
        low, high = number & 0x3F, number >> 6
        return bytes(
            knet.KnetDatagram(
                packet_id_low=low,
                packet_id_high=high,
                reliable=1,
                reliable_base=base,
                messages=[message],
            )
        )

    data = datagram(1, 3)
    for number in (0, 63, 64, 70000, (1 << 22) - 1):
        assert packet_id(put_packet_id(data, number)) == number
        assert put_packet_id(data, number) == datagram(number, 3)
    for base in (0, 300, 32767, 32768, (1 << 31) - 1):
        assert reliable_base(data, base) == datagram(1, base)
        assert reliable_base(datagram(1, 40000), base) == datagram(1, base)


@pytest.mark.parametrize("dialect", ["knet-2.x", "knet-2010"])
def test_knet_datagrams_are_those_of_the_layers(dialect: str) -> None:
    old = "2010" if dialect == "knet-2010" else ""
    builder, header = Builder(dialect), getattr(knet, f"Knet{old}Datagram")
    item = header().get_field("messages").item

    def built(number: int, contents: list[Any], base: int | None) -> bytes:
        flag = int(base is not None)
        messages = [
            item(reliable=flag, reliable_delta=at, in_order=1, content=each)
            for at, each in enumerate(contents)
        ]
        return bytes(
            header(
                packet_id=number,
                reliable=flag,
                in_order=1,
                reliable_base=base or 0,
                messages=messages,
            )
        )

    pings = [getattr(knet, f"Knet{old}PingRequest")(ping_id=each) for each in (1, 200)]
    for base in (None, 5, 40000):
        data = builder.build(70000, ("PingRequest", b"\1"), ("PingRequest", b"\xc8"), base=base)
        assert data == built(70000, pings, base)
        read = builder.read(data)
        assert read is not None
        assert [message.name for message in read] == ["PingRequest"] * 2
        assert [message.payload for message in read] == [b"\1", b"\xc8"]
        assert [message.delta for message in read] == ([None] * 2 if base is None else [0, 1])
    ack = getattr(knet, f"Knet{old}PacketAck")(acked_packet_id=77, sequence_bits=5)
    assert builder.ack(9, 77, 5) == built(9, [ack], None)
    assert builder.build(9, ("Disconnect", b""), base=3) == built(9, [knet.KnetDisconnect()], 3)
    assert builder.read(b"\0\0\0\xff\x07a") is None
    start = item(reliable=1, fragment=1, fragment_start=1, fragment_count=300, content=pings[0])
    later = item(
        reliable=1, fragment=1, fragment_number=4, content=knet.KnetFragmentData(data=b"abc")
    )
    read = builder.read(bytes(header(reliable=1, messages=[start, later])))
    assert read is not None
    assert [(message.name, message.fragments) for message in read] == [
        ("PingRequest", 300),
        ("fragment", None),
    ]


@pytest.mark.parametrize("dialect", ["knet-2.x", "knet-2010"])
def test_knet_servers_drop_transfers_of_no_fragments_and_long_acks(dialect: str) -> None:
    builder = Builder(dialect)
    old = "2010" if dialect == "knet-2010" else ""
    header = getattr(knet, f"Knet{old}Datagram")
    item = header().get_field("messages").item

    def start(count: int, content: Any) -> bytes:
        message = item(
            reliable=1, fragment=1, fragment_start=1, fragment_count=count, content=content
        )
        return bytes(header(reliable=1, messages=[message]))

    ping, ack = (getattr(knet, f"Knet{old}{name}")() for name in ("PingRequest", "PacketAck"))
    assert [count for count in (0, 1, 2, 300) if builder.drops(start(count, ping))] == [0, 1]
    # With the fragment that is missing it would be longer than an acknowledgement may be.
    assert builder.drops(start(2, ack))
    assert not builder.drops(builder.ack(9, 77, 5))


def test_knet_sessions_end_where_the_server_takes_them_for_strangers() -> None:
    with running("knet") as (target, server):
        session = driver_class("knet").connect(target)
        assert session.alive(5.0)
        server._peers.clear()  # type: ignore[attr-defined]
        assert not session.alive(5.0)
        assert (session.state, session.close_reason) == ("closed", "taken for a stranger")
        session.close()


@pytest.mark.parametrize("octets", [b"\x80\1", b"\x80\1\0"])
def test_knet_sessions_that_were_dropped_leave_no_client_behind(octets: bytes) -> None:
    """Where the server has dropped us a good-bye would be a stranger's first datagram."""
    with running("knet") as (target, server):
        session = driver_class("knet").connect(target)
        session.send(*session.stamp(Step(octets)))
        session.pump(0.05)
        before = session.link.journal[-1]
        session.leave()
        assert session.left() == (len(octets) < 3)
        assert (session.link.journal[-1] is before) == (len(octets) < 3)
        session.until(session.left, 5.0)
        assert not server._peers  # type: ignore[attr-defined]
        session.shut()


def test_knet_sessions_outlive_a_reliable_datagram_of_three_bytes() -> None:
    """The library reads no base where there is none; the minimal server does as it does."""
    with running("knet") as (target, _server):
        session = driver_class("knet").connect(target)
        session.send(b"\xc0\1\0")
        assert session.alive(5.0)
        session.close()


def test_knet_numbers_that_mutants_have_taken_are_skipped() -> None:
    """A server ignores a later datagram, or reliable message, that has one of them."""
    message = bytes.fromhex("c0 0000 0000 0530 00 14 61626364")
    with running("knet") as (target, _server):
        session = driver_class("knet").connect(target)
        first, _key = session.stamp(Step(message))
        ahead, _key = session.stamp(Step(message, shift=(("sequence", 2), ("base", 2)), advance=0))
        kept = put_packet_id(message, packet_id(first) + 3)
        held, _key = session.stamp(Step(kept, hold=frozenset({"sequence"})))
        later = [session.stamp(Step(message))[0] for _ in range(4)]
        sent = [packet_id(each) - packet_id(first) for each in (first, ahead, held, *later)]
        assert sent == [0, 3, 3, 1, 2, 4, 5]
        bases = [int.from_bytes(each[3:5], "little") for each in (first, ahead, held, *later)]
        assert bases == [0, 3, 2, 4, 5, 6, 7]
        # The server is as strict: it answers no ping in a datagram whose PacketID it knows.
        session.send(ahead)
        session.pump(0.05)
        ping, answers = Builder("knet-2.x").build(0, ("PingRequest", b"\x63")), session.answers
        session.send(put_packet_id(ping, packet_id(ahead)))
        session.pump(0.05)
        assert session.answers == answers
        session.send(put_packet_id(ping, packet_id(ahead) + 1))
        assert session.until(lambda: session.answers > answers, 5.0)
        assert session.alive(5.0)
        session.close()


def test_netplay_streams_are_cut_into_messages() -> None:
    first, second = bytes.fromhex("000500000161 62"), bytes.fromhex("0003000002")
    assert list(frames(first + second + b"\x00\x09\x00")) == [first, second]
    assert list(frames(b"\x00\x01\xff")) == []
    message = bytes(netplay.NetplayFrame(type=1, body=bytes(3000)))
    stream = b"".join(split_frame(message) + split_frame(second))
    assert [joined(each) for each in chunked(stream + b"\x00\x00")] == [message, second]
    assert list(lines(b"A\n{}\nB\nnull\nC\n")) == [b"A\n{}\n", b"B\nnull\n"]


# --- lies about compression -------------------------------------------------------------------


def lies(protocol: str, octets: bytes) -> dict[str, list[bytes]]:
    """Return what the lies of a protocol make of a message, by note."""
    chance = Chance(protocol)
    (lie,) = driver_class(protocol).traits.lies
    made: dict[str, list[bytes]] = {}
    for _ in range(200):
        lied = lie(octets, chance)
        assert lied is not None
        made.setdefault(lied[1], []).append(lied[0])
    return made


def test_teeworlds_packets_lie_about_their_compression() -> None:
    header, form = teeworlds.Tw07(ack=3, compressed_flag=0), FORMS["teeworlds-0.7"]
    body = teeworlds.Tw07Chunk(vital=1, sequence=5, body=teeworlds.Tw07SysInfo(version=b"a" * 40))
    plain = bytes(header / teeworlds.Tw07Chunks(chunks=[body]))
    made = lies("teeworlds", plain)
    assert {"not compressed", "no end", "too much", "endless", "bytes behind the end", "noise",
            "empty"} == set(made)  # fmt: skip
    assert all(each[0] & form.compressed for some in made.values() for each in some)
    assert all(each[form.head :] == plain[form.head :] for each in made["not compressed"])
    inflated = [len(huffman.decompress(each[form.head :], 1 << 14)) for each in made["too much"]]
    assert max(inflated) > 1391
    for each in made["no end"]:
        with pytest.raises(huffman.HuffmanError):
            huffman.decompress(each[form.head :], 1 << 14)
    assert driver_class("teeworlds").traits.lies[0](b"\x20abc", Chance(1)) is None


@pytest.mark.parametrize("chunks", [False, True], ids=["bin1", "bin3"])
def test_netplay_frames_lie_about_their_compression(chunks: bool) -> None:
    frame = bytes(netplay.NetplayFrame(type=7, body=b"some values"))
    made = lies("netplay", b"".join(split_frame(frame)) if chunks else frame)
    for note, some in made.items():
        for each in some:
            lied = joined(each) if chunks else each
            assert len(lied) == int.from_bytes(lied[:2], "big") + 2, note
            assert lied[2] & 1
            told = zlib.decompressobj()
            try:
                values, whole = told.decompress(lied[5:]), told.eof and not told.unused_data
            except zlib.error:
                continue
            assert values != b"some values" or not whole, note
            assert (len(values) > 1000) == (note == "too much")
    assert len(made) == 9


@pytest.mark.parametrize(
    ("protocol", "dialect"), [("teeworlds", "teeworlds-0.7"), ("netplay", "netplay-bin3")]
)
def test_cases_lie_about_compression(protocol: str, dialect: str) -> None:
    driver = driver_class(protocol)
    pool = collect_seeds(driver, dialect, captures(protocol, driver.transport, dialect))
    cases = Generator(pool.seeds, driver.traits, 1)
    kinds = {cases.case(number).mutation.partition(":")[0] for number in range(300)}
    assert "compression" in kinds


# --- the real programs --------------------------------------------------------------------------

REAL = [
    ("teeworlds-server", "teeworlds-0.7", "tw07_clean.pcap"),
    ("DDNet-Server", "teeworlds-ddnet-0.6", "ddnet_clean.pcap"),
    ("DDNet-Server", "teeworlds-0.6", "tw064_clean.pcap"),
    ("DDNet-Server", "teeworlds-0.6.5", "tw065_clean.pcap"),
    ("DDNet-Server", "teeworlds-0.7", "tw07_clean.pcap"),
]


def real_server(program: str, target: Target) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/games")
    if found is None:
        pytest.skip(f"{program} is not installed")
    words = [
        found, f"'sv_port {target.port}'", "'sv_register 0'", "'sv_max_clients_per_ip 16'",
        "'sv_spamprotection 0'",
    ]  # fmt: skip
    if program == "DDNet-Server":
        words += ["'sv_connlimit 1000'", "'conn_timeout 5'"]
    return f"exec:{' '.join(words)}"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder of the test's own: servers write into the one that they are started in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fuzz_real(
    program: str, dialect: str, capture: str, folder: Path, *, cases: int, rate: float
) -> Any:
    target = free_target()
    return fuzz_target(
        "teeworlds", target, folder, dialect=dialect, captures=[CAPTURES / "teeworlds" / capture],
        cases=cases, rate=rate, monitors=[real_server(program, target)],
    )  # fmt: skip


@pytest.mark.parametrize(("program", "dialect", "capture"), REAL)
def test_real_servers_let_the_good_messages_in(
    program: str, dialect: str, capture: str, elsewhere: Path
) -> None:
    report = fuzz_real(program, dialect, capture, elsewhere / "run", cases=400, rate=500)
    assert report.cases == 400
    assert report.share("control") >= 0.9
    accept = "control.accept" if dialect == "teeworlds-0.7" else "control.connect_accept"
    assert report.reached[accept, "connecting"] >= report.sessions
    assert (
        sum(
            count
            for (name, state), count in report.reached.items()
            if name.startswith("sys.snap") and state == CONNECTED
        )
        > 10
    )
    assert sum(report.mutated[name, "fresh"] for name in report.types) > 0
    # What came is counted under the names that messages are sent under.
    names = {name for name, _state in report.reached} - {"unknown", "unreadable"}
    assert names <= set(report.types) | set(message_types("teeworlds", dialect, "udp"))


@pytest.mark.slow
@pytest.mark.parametrize(("program", "dialect", "capture"), REAL)
def test_real_servers_are_held_for_ten_seconds_under_500_mutants_a_second(
    program: str, dialect: str, capture: str, elsewhere: Path
) -> None:
    """Of 700 messages a second a twelfth are unchanged ones, and starting takes its time."""
    report = fuzz_real(program, dialect, capture, elsewhere / "run", cases=5600, rate=700)
    assert report.share("control") >= 0.9
    assert report.undecided <= report.expected["control"] // 10
    assert report.seconds >= 10
    assert sum(report.mutated.values()) / report.seconds >= 500
    # A mutant may be a message that rightly ends the session; most of the time it is one.
    assert report.held_seconds >= report.seconds / 2


def test_a_control_that_the_target_may_not_have_read_is_not_decided() -> None:
    """What arrives just after a control may answer what was sent before it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        now = [0.0]
        link = Link(Target("127.0.0.1", server.getsockname()[1]), "udp")
        session = driver_class("riptide")(link, clock=lambda: now[0])
        session.start("connecting")
        peer = server.recvfrom(1 << 16)[1]
        session.send(b"\x07", 1, "control")
        for moment, undecided in ((0.1, 1), (1.0, 0)):
            now[0] = moment
            server.sendto(bytes(riptide.RiptideHeartbeat(ping_id=1)), peer)
            while not link.closed and session.answers < (1 if moment < 1 else 2):
                session.pump()
            assert session.undecided() == undecided
        session.shut()


def test_a_stream_of_riptide_ends_with_a_message_above_the_limit() -> None:
    """Source: `TcpConnection.Receive`: such a length means that the stream is out of step."""
    driver = driver_class("riptide", "tcp")
    with running("riptide", transport="tcp") as (target, _server):
        session = driver.connect(target)
        fits, too_long = (frame(b"\x07" + bytes(size), "riptide-2.2") for size in (1230, 1231))
        assert (session.ends(fits), session.ends(too_long)) == (False, True)
        session.send(*session.stamp(Step(fits)))
        assert session.alive(5.0, certain=True)
        session.send(*session.stamp(Step(too_long)))
        assert not session.alive(5.0, certain=True)
        session.close()


def test_what_was_lost_before_a_session_ends_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of nine unchanged messages is more than a tenth."""
    with running("teeworlds") as (target, server):
        session = driver_class("teeworlds").connect(target)
        handle, dropped = server.handle, iter([True])

        def loses_one(data: bytes, peer: Any, now: float) -> Any:
            chat = b"something said" in data
            return [] if chat and next(dropped, False) else handle(data, peer, now)

        monkeypatch.setattr(server, "handle", loses_one)
        said = teeworlds.Tw07GameClSay(message=b"something said")
        chunk = session._chunk(bytes(said), 0)  # type: ignore[attr-defined]
        packet = session._head(0, 1) + chunk  # type: ignore[attr-defined]
        session.send(*session.stamp(Step(packet)), "control")
        session.drain(1.0)
        assert (session.expected["control"], session.accepted["control"]) == (1, 1)
        session.close()


def test_teeworlds_messages_are_not_sent_again_before_they_are_sent() -> None:
    """All messages of a case get their numbers before the first is sent, and a server that has
    ignored us for a moment asks for them while the others wait for their turn.
    """
    with running("teeworlds") as (target, server):
        session = driver_class("teeworlds").connect(target)
        session.pump(0.1)
        said = teeworlds.Tw07GameClSay(message=b"something said")
        packet = session._head(0, 1) + session._chunk(bytes(said), 0)  # type: ignore[attr-defined]
        stamped = [session.stamp(Step(packet)) for _ in range(3)]
        session.send(*stamped[0], "control")
        before = server.delivered  # type: ignore[attr-defined]
        # Longer than the time after which what is not acknowledged is sent again.
        session.pump(0.5)
        assert server.delivered <= before + 1  # type: ignore[attr-defined]
        for each in stamped[1:]:
            session.send(*each, "control")
        assert session.until(lambda: session.accepted["control"] == 3, 2.0)
        assert session.expected["control"] == 3
        session.close()


def test_a_server_that_only_sends_is_over() -> None:
    """Riptide on Mono sends heartbeats on when it has ceased to read."""
    now = [0.0]
    with running("riptide") as (target, _server):
        session = driver_class("riptide")(Link(target), clock=lambda: now[0])
        session.start(CONNECTED)
        while not session.reached(CONNECTED):
            session.pump()
        session.send(b"\x07", 9, "control")
        now[0] = 0.9
        session._take(bytes(riptide.RiptideHeartbeat(ping_id=200)))
        assert session.undecided() == 1
        session.probe(now[0])
        while session.undecided():
            session.pump()
        session.shut()


def test_messages_of_bin3_do_not_arrive_in_one_read() -> None:
    """Its server takes what one read returns for one message, and loses what follows."""
    message = bytes.fromhex("00000a00000001000468616e61")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer = listener.accept()[0]
            with peer:
                while peer.recv(1 << 16):
                    peer.sendall(message)
                    time.sleep(0.01)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = Target("127.0.0.1", listener.getsockname()[1])
        session = driver_class("netplay").connect(target, "netplay-bin3")
        for key in range(4):
            session.send(message, key, "control")
        session.until(lambda: session.accepted["control"] == 4, 1.0)
        assert session.accepted["control"] == 4
        session.close()
        thread.join()


def test_what_netplay_sends_back_is_no_news_of_the_target() -> None:
    told: list[str] = []
    with running("netplay", "netplay-text") as (target, _server):
        session = driver_class("netplay").connect(target, "netplay-text")
        session.notice = lambda _session, sign: told.append(sign)
        for octets in (b"Mine\n{}\n", b"Nime\n{}\nMine\n1\n"):
            session.send(*session.stamp(Step(octets)))
        assert session.until(lambda: session.answers == 3, 5)
        assert sum(session.received.values()) > 1
        session.close()
    assert not [sign for sign in told if sign.startswith(("Mine", "Nime"))]


def test_netplay_messages_come_back_only_once_they_are_sent() -> None:
    """All messages of a case get their numbers before the first is sent, and servers send on to all
    what another session has sent, which may be equal to one of them.
    """
    with running("netplay", "netplay-text") as (target, _server):
        session, other = (driver_class("netplay").connect(target, "netplay-text") for _ in range(2))
        session.send(*session.stamp(Step(b"Mine\n{}\n")))
        assert session.until(lambda: session.answers == 1, 5)
        stamped = session.stamp(Step(b"Mine\n1\n"))
        other.send(*other.stamp(Step(b"Mine\n1\n")))
        assert session.until(lambda: session.answers == 2, 5)
        session.send(*stamped, "control")
        assert session.until(lambda: session.accepted["control"] == 1, 5)
        session.close()
        other.close()


@contextmanager
def _unanswered(dialect: str = "netplay-bin1") -> Iterator[tuple[Driver, socket.socket]]:
    """A session of Netplay with a server that sends nothing, and its end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = Target("127.0.0.1", listener.getsockname()[1])
        with Link(target, "tcp") as link, listener.accept()[0] as server:
            yield driver_class("netplay")(link, dialect), server


def test_a_netplay_server_that_sends_nothing_back_to_anyone_may_hang() -> None:
    question = bytes.fromhex("000a0000000005616c696365")
    with _unanswered() as (session, _server):
        session.learnt = {"question": question}
        assert not session.open(timeout=0.7)
        assert session.learnt == {"question": question}
        # Another session got something back: only this one does not.
        session.learnt["returns"] = b"\1"
        assert session.until(lambda: session.reached(CONNECTED), 0.2)
        assert session.learnt["missed"] == b"?"


def test_a_netplay_session_in_which_something_came_back_is_asked_for_it() -> None:
    message = bytes.fromhex("000a0000000005616c696365")
    with _unanswered() as (session, server):
        assert session.open()
        session.send(message)
        assert server.recv(1 << 10) == message
        session.handle(message, session.clock())
        assert not session.alive(0.1, certain=True)


only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was read")


@only_linux
def test_a_netplay_server_that_does_not_accept_admits_nobody() -> None:
    """The system accepts connections for a process that hangs, as many as its backlog holds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = Target("127.0.0.1", listener.getsockname()[1])
        with Link(target, "tcp") as link:
            session = driver_class("netplay")(link, "netplay-bin1")
            assert not session.open(timeout=0.2)
            with listener.accept()[0]:
                assert session.until(lambda: session.reached(CONNECTED), 5)


@only_linux
def test_a_netplay_server_that_leaves_messages_unread_is_not_alive() -> None:
    """Nothing came back yet, so there is nothing to ask it."""
    message = bytes.fromhex("000a0000000005616c696365")
    with _unanswered() as (session, server):
        assert session.open()
        session.send(message)
        assert not session.alive(0.2, certain=True)
        session.silence(session.clock())
        assert session.silence(session.clock() + 1.0) >= 1.0
        server.recv(1 << 10)
        assert session.silence(session.clock() + 1.0) == 0
        # It has read what came, but may hang in it: it does not accept another connection.
        assert not session.alive(0.2, certain=True)


@only_linux
def test_bin3_messages_wait_until_those_before_were_read() -> None:
    message = bytes.fromhex("00000a00000001000468616e61")
    with _unanswered("netplay-bin3") as (session, server):
        session.learnt["first"] = b"????"
        session.send(message)
        began = time.monotonic()
        session.send(message)
        assert time.monotonic() - began > 0.1, "not read yet"
        assert server.recv(1 << 10) == 2 * message
        for _ in range(20):
            session.send(message)
            assert server.recv(1 << 10) == message
        assert time.monotonic() - began < 1.5, "it reads, though it sends nothing back"


def test_what_shows_nothing_is_asked_soon_and_then_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    with running("knet") as (target, _server):
        session = driver_class("knet").connect(target, timeout=5)
        monkeypatch.setattr(Driver, "_turn", lambda _self, wait: waits.append(wait))
        assert session.until(lambda: len(waits) == 7, 5.0, pause=0.0002)
        assert waits == [0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.005, 0.005]
        waits.clear()
        assert session.until(lambda: len(waits) == 2, 5.0)
        assert waits == [0.005, 0.005]
        monkeypatch.undo()
        session.close()
