"""What `scan` states of one message: sections 3, 9 and 11 of the reference, and any bytes at all."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.annotations import code_rows
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.protocols.riptide import PROTOCOL
from netdissect.protocols.riptide.scanner import scan
from netdissect.protocols.riptide.state import DecoderState, Phase

DIALECTS = ("riptide-2.0", "riptide-2.1dev", "riptide-2.1", "riptide-2.2", "riptide-2.1/2.2")
KNOWN = {row.code for row in (*code_rows("common"), *code_rows("riptide"))}
LIMITS = {"riptide-2.0": 1230, "riptide-2.2": 1231}
CAPTURES = Path(__file__).resolve().parents[3] / "captures" / "riptide"


def of(text, dialect="riptide-2.2", direction=0, extra=None):
    return scan(bytes.fromhex(text), direction, Hints((dialect, dialect), extra))


def notes(events):
    return [event[1] for event in events if event[0] == Ev.NOTE]


def plain(events):
    """Return the events without notes and without the bytes of units."""
    return [event[:5] for event in events if event[0] not in (Ev.NOTE, Ev.HINTS)]


@pytest.mark.parametrize(
    ("dialect", "direction", "text", "expected"),
    [
        ("riptide-2.0", 0, "03", [(Ev.MESSAGE, "Connect"), (Ev.STATE, "connect", None)]),
        ("riptide-2.2", 0, "02", [(Ev.MESSAGE, "Connect"), (Ev.STATE, "connect", None)]),
        ("riptide-2.2", 1, "02", [(Ev.MESSAGE, "Connect"), (Ev.STATE, "pending", None)]),
        (
            "riptide-2.1",
            0,
            "11001000200000",
            [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", 1, 1)],
        ),
        ("riptide-2.2", 0, "1100100000", [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", 1, 1)]),
        ("riptide-2.0", 0, "0101000100", [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", 1, 1)]),
        (
            "riptide-2.0",
            1,
            "02090001000700",
            [(Ev.MESSAGE, "AckExtra"), (Ev.ACK, "reliable", 7, 0), (Ev.ACK, "reliable", 9, 1)],
        ),
        (
            "riptide-2.1dev",
            1,
            "01090001000700",
            [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", 7, 0), (Ev.ACK, "reliable", 9, 1)],
        ),
        (
            "riptide-2.2",
            0,
            "04f0ff0f",
            [
                (Ev.MESSAGE, "Heartbeat"),
                (Ev.STATE, "alive", None),
                (Ev.PROBE, "heartbeat", 0),
            ],
        ),
        (
            "riptide-2.0",
            0,
            "05070e00",
            [
                (Ev.MESSAGE, "Heartbeat"),
                (Ev.STATE, "alive", None),
                (Ev.PROBE, "heartbeat", 7),
                (Ev.RTT, 14),
            ],
        ),
        (
            "riptide-2.2",
            1,
            "7400",
            [
                (Ev.MESSAGE, "Heartbeat"),
                (Ev.STATE, "alive", None),
                (Ev.REPLY, "heartbeat", 7),
            ],
        ),
        (
            "riptide-2.2",
            0,
            "86ed4fd16b0000000050",
            [
                (Ev.UNIT, "Notify", "notify", 1725, None),
                (Ev.NACK, "notify", 65240, 20),
            ],
        ),
        ("riptide-2.2", 0, "2700907e7000000010a00a", [(Ev.UNIT, "Reliable", "reliable", 2, None)]),
        ("riptide-2.0", 0, "0702000a00", [(Ev.UNIT, "Reliable", "reliable", 2, None)]),
        ("riptide-2.0", 0, "000a00", [(Ev.MESSAGE, "Unreliable")]),
        (
            "riptide-2.2",
            1,
            "1800100000",
            [
                (Ev.UNIT, "Welcome", "reliable", 1, None),
                (Ev.STATE, "welcome", None),
                (Ev.IDENTITY, "client_id", 1),
            ],
        ),
        ("riptide-2.0", 1, "0403", [(Ev.MESSAGE, "Reject"), (Ev.STATE, "reject", "ServerFull")]),
        ("riptide-2.2", 1, "2300", [(Ev.MESSAGE, "Reject"), (Ev.STATE, "reject", "ServerFull")]),
        (
            "riptide-2.2",
            0,
            "05",
            [(Ev.MESSAGE, "Disconnect"), (Ev.STATE, "disconnect", "Disconnected")],
        ),
        (
            "riptide-2.2",
            1,
            "5500",
            [(Ev.MESSAGE, "Disconnect"), (Ev.STATE, "disconnect", "ServerStopped")],
        ),
        (
            "riptide-2.2",
            1,
            "0505",  # defect D5
            [(Ev.MESSAGE, "Disconnect"), (Ev.STATE, "disconnect", "ServerStopped")],
        ),
        ("riptide-2.0", 1, "0a03000200", [(Ev.UNIT, "ClientDisconnected", "reliable", 3, None)]),
    ],
)
def test_messages(dialect, direction, text, expected) -> None:
    assert plain(of(text, dialect, direction)) == expected


@pytest.mark.parametrize(
    ("dialect", "direction", "text", "code"),
    [
        ("riptide-2.2", 0, "", "riptide-empty-datagram"),  # D10
        ("riptide-2.2", 1, "0505", "riptide-misencoded-stop"),  # D5
        ("riptide-2.2", 0, "3b0000", "riptide-invalid-type"),
        ("riptide-2.0", 0, "c80300", "riptide-invalid-type"),
        ("riptide-2.2", 0, "27", "truncated"),
        ("riptide-2.2", 0, "8600000000", "truncated"),
        ("riptide-2.0", 0, "070200", "riptide-missing-message-id"),
        ("riptide-2.2", 0, "270000", "riptide-missing-message-id"),
        ("riptide-2.2", 0, "00", "riptide-missing-message-id"),
        ("riptide-2.2", 0, "11001000", "truncated"),
        ("riptide-2.2", 0, "1100100010", "truncated"),  # flag 1, no extra id
        ("riptide-2.0", 0, "020900010007", "truncated"),
        ("riptide-2.2", 0, "0400", "riptide-heartbeat-form"),
        ("riptide-2.2", 1, "04f0ff0f", "riptide-heartbeat-form"),
        ("riptide-2.2", 0, "04e0ff0f", "riptide-implausible-rtt"),
        ("riptide-2.2", 0, "110010000000", "trailing-bytes"),
        ("riptide-2.2", 0, "180010000000", "trailing-bytes"),
        ("riptide-2.2", 0, "2300", "riptide-wrong-direction"),
        ("riptide-2.2", 0, "3900200000", "riptide-wrong-direction"),
        ("riptide-2.2", 0, "0504", "riptide-wrong-direction"),
        ("riptide-2.2", 0, "f0ffffff", "truncated"),  # unterminated varULong
        ("riptide-2.2", 0, "27009078" + "00" * 1300, "riptide-oversize"),
        ("riptide-2.0", 0, "07020001" + "00" * 1300, "riptide-oversize"),
    ],
)
def test_malformed_input(dialect, direction, text, code) -> None:
    assert code in notes(of(text, dialect, direction))


@pytest.mark.parametrize("text", ["3b0000", "4c0000", "270000"])
def test_what_a_real_receiver_acknowledges_is_a_unit(text) -> None:
    """Section 11: types 11 to 15 and a Reliable without message id are acknowledged."""
    assert any(event[0] == Ev.UNIT for event in of(text))


def test_an_ack_tells_the_release_of_its_sender() -> None:
    undecided = "riptide-2.1/2.2"
    for text, found in (("1100100000", "riptide-2.2"), ("11001000200000", "riptide-2.1")):
        hints = [event[1] for event in of(text, undecided, 1) if event[0] == Ev.HINTS]
        assert hints[0].dialects == (undecided, found)
    both = of("11001000300000", undecided, 1)  # flag 1: both releases write it so
    assert not [event for event in both if event[0] == Ev.HINTS]


def test_a_new_connection_on_the_same_addresses() -> None:
    assert of("02", extra=DecoderState(Phase.CLOSED, 1))[0] == (Ev.RESTART, "*")
    held = of("02", extra=DecoderState(Phase.CONNECTED, 1))
    assert held[0] == (Ev.RESTART, "?")
    assert held[-1][1].extra == DecoderState(Phase.RECONNECTING, 1)
    assert of("1800200000", direction=1, extra=DecoderState(Phase.RECONNECTING, 1)) == [(Ev.RESTART, "*")]
    again = of("1800100000", direction=1, extra=DecoderState(Phase.CONNECTED, 1))
    assert [event[0] for event in again] == [Ev.UNIT]  # the first Welcome, sent again
    other = of("2800200000", direction=1, extra=DecoderState(Phase.CONNECTED, 1))
    assert notes(other) == ["riptide-welcome-again"]


def check(events):
    """Every event is laid out as `Ev` says and names what exists."""
    sizes = {Ev.MESSAGE: 2, Ev.UNIT: 6, Ev.ACK: 4, Ev.NACK: 4, Ev.PROBE: 3, Ev.REPLY: 3}
    sizes |= {Ev.RTT: 2, Ev.STATE: 3, Ev.IDENTITY: 3, Ev.RESTART: 2, Ev.NOTE: 3, Ev.HINTS: 2}
    assert events
    for event in events:
        assert len(event) == sizes[event[0]]
        if event[0] == Ev.NOTE:
            assert event[1] in KNOWN
        if event[0] == Ev.UNIT:
            assert 0 <= event[3] <= 0xFFFF
            hash(event[5])


@given(
    payload=st.binary(max_size=40),
    dialect=st.sampled_from(DIALECTS),
    direction=st.integers(0, 1),
    phase=st.integers(0, 4),
)
def test_any_octets(payload, dialect, direction, phase) -> None:
    check(scan(payload, direction, Hints((dialect, dialect), DecoderState(phase, 3))))


def real_payloads(limit):
    for path in sorted(CAPTURES.glob("udp_*.pcap")):
        with open_capture(path) as reader:
            yield from (packet[4] for packet in list(Decapsulator().packets(reader))[:limit])


def test_mutations_of_real_messages() -> None:
    rng = random.Random(7)
    count = 0
    for payload in real_payloads(120):
        mutant = bytearray(payload or b"\0")
        for _ in range(rng.randint(1, 4)):
            mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
        cut = bytes(mutant[: rng.randint(0, len(mutant))])
        for octets in (bytes(mutant), cut):
            for dialect in DIALECTS:
                check(scan(octets, count & 1, Hints((dialect, dialect))))
        count += 2
    assert count > 5_000


@pytest.mark.slow
def test_a_million_octet_strings() -> None:
    rng = random.Random(11)
    hints = [Hints((dialect, dialect)) for dialect in DIALECTS]
    for count in range(1_000_000):
        check(scan(rng.randbytes(rng.randrange(24)), count & 1, hints[count % 5]))


def steps():
    for path in sorted(CAPTURES.glob("*_malformed.truth.json")):
        file = json.loads(path.read_text())
        for index, step in enumerate(file["expect"]["steps"]):
            yield pytest.param(
                f"riptide-{file['dialect']}", step, id=f"{path.name.split('_')[1]}-{index}"
            )


@pytest.mark.parametrize(("dialect", "step"), list(steps()))
def test_each_datagram_sent_to_a_real_server(dialect, step) -> None:
    """Where the real server acknowledged a reliable message, `scan` states a unit with its id."""
    text, _, long = step["hex"].partition("...")
    if long:  # the file gives the first 16 bytes of a long one
        text = text.ljust(2 * step["len"], "0")
    events = of(text, dialect)
    check(events)
    assert ("riptide-oversize" in notes(events)) == (step["len"] > LIMITS[dialect])
    got = [entry["seq"] for entry in step["server"] if entry["ev"] == "rel_recv"]
    units = [event[3] for event in events if event[0] == Ev.UNIT and event[2] == "reliable"]
    if step["reached_protocol_layer"] and step["len"] <= 1200:
        assert units == got
    warned = any(entry.get("lvl") in ("warning", "error") for entry in step["server"])
    if warned and "header" in step["case"]:
        assert "riptide-invalid-type" in notes(events)


def test_counted_types_are_those_listed() -> None:
    for payload in real_payloads(60):
        for row in PROTOCOL.dialects:
            for event in scan(payload, 1, Hints((row.name, row.name))):
                if event[0] in (Ev.MESSAGE, Ev.UNIT):
                    kind = event[1]
                    assert kind in row.message_types or kind == "Empty" or "Invalid" in kind


def test_what_the_byte_packings_number_differently_decides_them() -> None:
    undecided = "riptide-2.0/2.1dev"
    for payload, direction, dialect in (
        ("05071400", 0, "riptide-2.0"),
        ("04071400", 0, "riptide-2.1dev"),
        ("02130000001200", 1, "riptide-2.0"),
        ("01130000001200", 1, "riptide-2.1dev"),
        ("0601000001000000", 1, "riptide-2.1dev"),
    ):
        events = scan(bytes.fromhex(payload), direction, Hints((undecided, undecided)))
        assert events[0] == (Ev.HINTS, Hints((dialect, dialect)))
        assert events[1:] == scan(bytes.fromhex(payload), direction, Hints((dialect, dialect)))
    plain = bytes.fromhex("071300e9030600")
    events = scan(plain, 0, Hints((undecided, undecided)))
    assert events == scan(plain, 0, Hints(("riptide-2.0", "riptide-2.0")))
