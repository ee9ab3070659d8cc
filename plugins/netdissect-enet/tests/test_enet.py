"""Layers, meaning, recognition and truth of ENet on captures of the real library."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.capture import open_capture
from netdissect.cli import cli
from netdissect.dissect.engine import Request, dissect
from netdissect.flow import packets
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.pipeline import analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records
from netdissect_enet import PROTOCOL
from netdissect_enet.commands import read_datagram
from netdissect_enet.layers import COMMANDS, EnetPacket, EnetPacketCrc
from netdissect_enet.rules import ACK, CRC, NAMES, PLAIN
from netdissect_enet.scan import Learnt

CAPTURES = Path(__file__).parents[1] / "captures"
OURS = Path(__file__).parents[3] / "captures"
NAMED = sorted(path.name.removesuffix(".truth.json") for path in CAPTURES.glob("*.truth.json"))
LEGS = [f"{name}_{side}leg" for name in NAMED for side in ("client", "server")]
_TYPED = {Ev.MESSAGE, Ev.UNIT, Ev.PLAIN_UNIT}


def truth(name: str) -> dict:
    return json.loads((CAPTURES / f"{name}.truth.json").read_text())


def capture(leg: str) -> str:
    return str(CAPTURES / f"{leg}.pcap")


def payloads(leg: str) -> list[bytes]:
    with open_capture(capture(leg)) as reader:
        return [packet[4] for packet in packets(reader)]


def dialect_of(leg: str) -> str:
    return truth(leg.rpartition("_")[0])["dialect"]


@pytest.fixture(scope="module")
def everything() -> list[tuple[str, bytes]]:
    return [(dialect_of(leg), octets) for leg in LEGS for octets in payloads(leg)]


# -- one description -------------------------------------------------------------------------------


def test_layers_readers_and_scan_agree(everything: list[tuple[str, bytes]]) -> None:
    seen: Counter[str] = Counter()
    for dialect, octets in everything:
        request = Request(dialect)
        tree = dissect("enet", octets, request, module="netdissect_enet.layers", strict=True)
        assert tree.annotations == []
        _, commands, fault = read_datagram(octets, dialect)
        assert fault == ""
        listed = tree.fields["commands"]
        assert [list(each.values()) for each in listed] == [
            list(each[:-1]) for each in commands
        ]
        kinds = [message.type for message in tree.messages]
        assert kinds == [NAMES[each[3]] for each in commands]
        seen.update(kinds)
        events = PROTOCOL.scan(octets, 0, Hints((dialect, dialect)))
        assert [event[1] for event in events if event[0] in _TYPED] == kinds
    assert set(seen) >= set(NAMES.values()) - {"throttle_configure"}


def test_scapy_builds_what_it_reads(everything: list[tuple[str, bytes]]) -> None:
    for dialect, octets in everything:
        packet = (EnetPacketCrc if dialect == CRC else EnetPacket)(octets)
        packet.clear_cache()
        assert bytes(packet) == octets


@pytest.mark.parametrize("leg", [leg for leg in LEGS if "crc" in leg])
def test_every_checksum_is_right(leg: str) -> None:
    hints = Hints((CRC, CRC), None)
    checked = 0
    for octets in payloads(leg):
        for event in PROTOCOL.scan(octets, 0, hints):
            hints = event[1] if event[0] == Ev.HINTS else hints
        for extra, wanted in ((hints.extra, []), (Learnt(connect_id=1), ["enet-checksum"])):
            request = Request(CRC, hints=extra)
            tree = dissect("enet", octets, request, module="netdissect_enet.layers")
            if octets[0] & 0xF != 0xF:
                assert [note.code for note in tree.annotations] == wanted
                checked += 1
    assert checked > 20


def test_any_octets_are_read(everything: list[tuple[str, bytes]]) -> None:
    chance = random.Random(3)
    for _ in range(1500):
        dialect, octets = chance.choice(everything)
        data = bytearray(octets)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data = bytes(data[: chance.randrange(len(data) + 1)])
        PROTOCOL.scan(data, 0, Hints((dialect, dialect), None))
        dissect("enet", data, Request(dialect), module="netdissect_enet.layers", strict=True)


@pytest.mark.parametrize(
    ("digits", "code"),
    [
        ("8000 0000 0f000000", "enet-bad-command"),
        ("0000 85ff0001", "enet-sent-time"),
        ("4000 01", "enet-compression"),
        ("8000 0000 86000001 0010 61", "length-beyond-end"),
    ],
)
def test_faults_are_named(digits: str, code: str) -> None:
    tree = dissect(
        "enet", bytes.fromhex(digits), Request(PLAIN), module="netdissect_enet.layers", strict=True
    )
    assert code in [note.code for note in tree.annotations]
    assert PROTOCOL.scan(bytes.fromhex(digits), 0, Hints((PLAIN, PLAIN)))


# -- truth -----------------------------------------------------------------------------------------


def sent_again(report, direction: int) -> int:
    return sum(row.retransmissions for row in report.spaces if row.direction == direction)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(("side", "direction"), [("client", 0), ("server", 1)])
def test_what_was_sent_again_is_what_the_library_counted(
    name: str, side: str, direction: int
) -> None:
    """The library counts a timer that expires; of a peer that is given up no copy follows it."""
    found = analyze(capture(f"{name}_{side}leg"))
    counted = truth(name)[side]
    total = sum(sent_again(report, direction) for report in found.connections)
    assert counted["resent"] - 4 * (name in {"blackout", "reconnect"}) <= total <= counted["resent"]
    assert found.other_datagrams == 0
    datagrams = sum(report.datagrams[direction] for report in found.connections)
    assert datagrams == counted["datagrams_sent"]


@pytest.mark.parametrize("name", NAMED)
def test_what_arrived_is_what_the_library_got(name: str) -> None:
    expected = truth(name)
    for side, direction in (("client", 1), ("server", 0)):
        found = analyze(capture(f"{name}_{side}leg"))
        arrived = sum(report.datagrams[direction] for report in found.connections)
        # A host that has ended counts no more; nor does one count what it takes for a stranger's.
        assert expected[side]["datagrams_received"] <= arrived + 1


def test_copies_of_the_network_are_told_from_the_senders() -> None:
    total = 0
    for name in ("lossy", "lossy_crc"):
        for side, way, direction in (("client", "s2c", 1), ("server", "c2s", 0)):
            (report,) = analyze(capture(f"{name}_{side}leg")).connections
            copies = sum(row.duplicates for row in report.spaces if row.direction == direction)
            rows = [row.payload for row in iter_records(capture(f"{name}_{side}leg"))
                    if row.direction == direction]  # fmt: skip
            # Equal bytes with a sent time: its sender makes no two of these.
            repeated = Counter(row for row in rows if row[0] & 0x80)
            wanted = sum(
                (count - 1) * sum(each[3] != ACK for each in read_datagram(octets, dialect_of(f"{name}_x"))[1])
                for octets, count in repeated.items()
            )
            assert copies == wanted
            total += wanted
            expected = truth(name)["relay"][way].get("copied", 0)
            assert sum(repeated.values()) - len(repeated) <= expected
        near = sum(
            row.duplicates
            for report in analyze(capture(f"{name}_clientleg")).connections
            for row in report.spaces
            if row.direction == 0
        )
        assert near == 0
    assert total > 5


def test_round_trips_are_exact_also_of_what_was_sent_again() -> None:
    (report,) = analyze(capture("lossy_clientleg")).connections
    row = next(row for row in report.spaces if row.space == "reliable[0]" and not row.direction)
    assert row.retransmissions > 5
    assert row.rtt.ambiguous == 0
    assert row.rtt.samples == row.acked
    assert 39 < row.rtt.minimum < 60
    assert row.rtt.maximum < 120


def test_a_handshake_tells_who_is_who() -> None:
    (report,) = analyze(capture("clean_serverleg")).connections
    assert (report.handshake, report.state, report.close["reason"]) == (
        "accepted", "closed", "data 4",
    )  # fmt: skip
    facts = report.identity
    assert (facts["mtu"], facts["channels"], facts["data"]) == (1400, 4, 7)
    assert facts["sessions"] == "0/0"


def test_two_lives_of_one_address_pair_go_on_side_by_side() -> None:
    """The client forgets the first without a word; the server goes on with it until it gives up."""
    first, second = sorted(
        analyze(capture("reconnect_serverleg")).connections, key=lambda report: report.first_frame
    )
    assert first.client == second.client
    assert (first.identity["sessions"], second.identity["sessions"]) == ("0/0", "1/1")
    assert first.last_time_ns > second.first_time_ns
    assert first.state != "closed"
    assert second.state == "closed"
    assert sent_again(first, 1) >= 4
    assert sent_again(second, 1) == 0


def test_nobody_answers() -> None:
    (report,) = analyze(capture("nobody_clientleg")).connections
    assert report.handshake == "unanswered"
    (unit,) = (item for item in iter_timeline(capture("nobody_clientleg")) if hasattr(item, "copies"))
    gaps = [later.time_ns - copy.time_ns for copy, later in pairwise(unit.copies)]
    assert [round(gap / 5e8) for gap in gaps] == [1, 2, 4]
    for later in unit.copies[1:]:
        assert abs((later.due_ns or 0) - later.time_ns) < 100e6


def test_channels_have_spaces_of_their_own() -> None:
    (report,) = analyze(capture("lossy_clientleg")).connections
    assert {row.space for row in report.spaces} >= {
        "control", "reliable[0]", "unreliable[1]", "unsequenced", "reliable[2]",
    }  # fmt: skip
    keys = {
        message.reliability.space
        for record in iter_records(capture("lossy_clientleg"))
        for message in record.messages
        if message.reliability is not None
    }
    assert "reliable[0]" in keys


# -- recognition -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leg", [leg for leg in LEGS if "nobody" not in leg])
def test_the_middle_is_recognised_too(leg: str, tmp_path: Path) -> None:
    data = Path(capture(leg)).read_bytes()
    head, at = data[:24], 24
    for _ in range(4):  # the handshake and its acknowledgements
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(head + data[at:])
    found = analyze(str(cut))
    assert {report.protocol for report in found.connections} == {"enet"}


def test_nothing_else_is_taken_for_enet() -> None:
    if not OURS.is_dir():
        pytest.skip("no captures of other protocols")
    for path in sorted(OURS.glob("*/*.pcap"))[::3]:
        found = analyze(str(path))
        assert "enet" not in found.protocols, path.name


# -- commands --------------------------------------------------------------------------------------


def run(*words: str, text: str | None = None):
    result = CliRunner().invoke(cli, list(words), input=text, env={"NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_know_enet() -> None:
    assert "reliable[channel]" in run("protocols", "enet")
    digits = run("encode", "enet", "send_reliable", "data=text:hi", "channel=3").strip()
    assert digits == "8000000086030001" + "00026869"
    shown = run("decode", "enet", digits, "--json")
    assert json.loads(shown)["messages"][0]["type"] == "send_reliable"
    assert run("encode", "enet", "-", text=shown).strip() == digits
    assert "enet-checksum" in run("explain")
    lossy = capture("lossy_clientleg")
    rows = run("read", lossy, "-Y", "msg.key == 2 and msg.kind == retransmission", "--json")
    assert all("send_reliable" in row for row in rows.splitlines())
    assert "reliable[0]" in run("timeline", lossy)
    for command in ("ladder", "stats", "anomalies", "follow"):
        run(command, lossy, *(["1"] if command in {"ladder", "follow"} else []))
    assert run("decode", "enet", "--dialect", "1.3", run("encode", "enet", "connect").strip())
    assert {layer.__name__ for layer in COMMANDS.values()} == {
        "Enet" + "".join(word.title() for word in name.split("_")) for name in NAMES.values()
    }
    assert "disabled" not in run("doctor").split("protocol enet")[1].splitlines()[0]


def test_an_application_s_text_does_not_leave(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    clean, given = capture("clean_clientleg"), tmp_path / "given.pcap"
    run("anonymise", clean, "-o", str(given))
    text = b"0123456789:;<="
    assert text in Path(clean).read_bytes()
    assert text not in given.read_bytes()
    before, after = (analyze(str(path)).connections[0] for path in (clean, given))
    assert after.spaces == before.spaces


def test_the_layers_load_in_a_scapy_shell() -> None:
    script = (
        "from scapy.config import conf; conf.exts.load('netdissect')\n"
        "from scapy.contrib.enet import EnetPing\n"
        "print(bytes(EnetPing()).hex())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "85ff0001"
