from __future__ import annotations

import pytest

from agreement import CAPTURES
from netdissect.dissect.engine import Request, layer_module
from netdissect.fuzz import Seed, driver_class, seeds_from_capture, seeds_from_layers
from netdissect.fuzz.drivers import driven
from netdissect.fuzz.fields import reread
from netdissect.fuzz.runs import collect_seeds
from netdissect.fuzz.seeds import PER_TYPE, make_seed

CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"


def test_all_seeds_of_a_capture_write_themselves_again() -> None:
    pool = seeds_from_capture("riptide", "riptide-2.2", CLEAN)
    assert len(pool.seeds) == 562
    assert pool.raw == []
    for seed in pool.seeds:
        assert bytes(reread(seed)) == seed.octets
    assert {"Connect", "Welcome", "Reliable", "Notify", "Ack", "Heartbeat"} <= {
        seed.type for seed in pool.seeds
    }
    assert {seed.direction for seed in pool.seeds} == {0, 1}
    assert pool.seeds[0].type == "Connect"
    assert pool.seeds[0].direction == 0


def test_repeated_messages_are_counted_not_kept() -> None:
    pool = seeds_from_capture("riptide", "riptide-2.2", CLEAN)
    assert len({(seed.octets, seed.direction) for seed in pool.seeds}) == len(pool.seeds)
    assert pool.skipped["repeated"] == 104


def test_a_type_is_not_kept_without_bound() -> None:
    pool = seeds_from_layers("riptide", "riptide-2.2")
    for number in range(PER_TYPE + 5):
        pool.add(Seed(number.to_bytes(2, "big"), "Reliable", 0, None, "test"))
    assert pool.skipped["enough of its type"] == 5


def test_what_no_layer_writes_again_is_kept_raw() -> None:
    request = Request("riptide-2.2", 0)
    # A varULong in two groups that one would hold: the layer writes the short form.
    overlong = make_seed("riptide", bytes.fromhex("1700000108000000"), request, "test")
    whole = make_seed("riptide", bytes.fromhex("1701050001"), request, "test")
    cut = make_seed("riptide", b"\x18\x00", request, "test")
    assert whole.layer is not None
    assert overlong.layer is None or bytes(reread(overlong)) == overlong.octets
    assert cut.layer is None


def test_another_protocol_is_left_out() -> None:
    pool = seeds_from_capture("riptide", "riptide-2.2", CAPTURES / "teeworlds" / "tw07_clean.pcap")
    assert pool.seeds == []
    assert pool.skipped["not riptide"] == 654


def test_the_client_is_known_in_the_middle_of_a_conversation() -> None:
    capture = CAPTURES / "riptide" / "udp_2.2.1_seqwrap_serverleg.pcap"
    pool = seeds_from_capture("riptide", "riptide-2.2", capture)
    forms = {(len(seed.octets), seed.direction) for seed in pool.seeds if seed.type == "Heartbeat"}
    assert forms == {(4, 0), (2, 1)}


FORMS = {"netplay": 1}
"""Message forms of a dialect at least; Netplay's messages are the application's, in one frame."""


@pytest.mark.parametrize("protocol", driven())
def test_layers_are_seeds_where_there_is_no_capture(protocol: str) -> None:
    driver = driver_class(protocol)
    for dialect in driver.dialects:
        pool = collect_seeds(driver, dialect, ())
        assert len(pool.seeds) >= FORMS.get(protocol, 4), dialect
        assert all(seed.origin.startswith("layer ") for seed in pool.seeds)
        for seed in pool.seeds:
            assert seed.layer is None or bytes(reread(seed)) == seed.octets
        assert layer_module(protocol) is not None
