from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter

import pytest

from agreement import CAPTURES
from netdissect.fuzz import (
    CONNECTED,
    Generator,
    Seed,
    Step,
    Traits,
    collect_seeds,
    driver_class,
    seeds_from_capture,
)
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.fuzz.generator import check_mutators
from netdissect.model.errors import UsageError

CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"
HASH_OF_10000 = "647234b293faacac431f14078afdf06bea6db4150120edd9913b4b4dc3c53bc4"


HASHES_OF_1000 = {
    ("teeworlds", "udp", "teeworlds-0.7", "tw07_clean"):
        "b9824f85b7ecbcc69656ac32c64079299a5297bc871d0bf280217298e7c2efb5",
    ("knet", "udp", "knet-2.x", "udp_clean_session"):
        "00bb869e2801b7403df68be852ab03c4347cf6a72966ebe8313cf8a61d068830",
    ("eoudp", "udp", "exodia-late", "late_two_clients"):
        "955032524e20bea8ef005e0baa3365738fd89e7f7aff8f9a31c19b078d6b2611",
    ("netplay", "tcp", "netplay-bin1", "bin1_types"):
        "7c74317ad2e32f5ff63d03e07de3d04c54dc07047b6fc03a43ad205120f493e0",
    ("netplay", "tcp", "netplay-bin3", "bin3_multichunk"):
        "ec16b38e986eb08427af0f5397aa637a60dc9966b6aa72eb1ee5bfceebee4ddd",
    ("riptide", "tcp", "riptide-2.2", "tcp_2.2.1_clean"):
        "dd1146d214750633e3b8b414dfdef5b8b16645e2707398fe3a2b81029de37917",
    ("knet", "tcp", "knet-tcp", "tcp_clean_session"):
        "5b238a915a4d8a730aea1cdadb01ba9bc9b966487c1e555d8e779c823a4fa6b6",
}  # fmt: skip
"""(protocol, transport, dialect, capture) -> hash. Seen on Python 3.11."""


def generator(seed: int = 1) -> Generator:
    pool = seeds_from_capture("riptide", "riptide-2.2", CLEAN)
    return Generator(pool.seeds, RiptideDriver.traits, seed)


def digest(cases: Generator, count: int) -> str:
    total = hashlib.sha256()
    for number in range(count):
        case = cases.case(number)
        row = [case.number, case.mutation, case.stage, [step.to_json() for step in case.steps]]
        total.update(json.dumps(row, sort_keys=True).encode())
    return total.hexdigest()


def test_ten_thousand_cases_are_the_same_everywhere() -> None:
    """The hash is written down: any machine, any supported Python, any hash seed gives it."""
    assert digest(generator(), 10_000) == HASH_OF_10000


@pytest.mark.parametrize("row", HASHES_OF_1000, ids="-".join)
def test_a_thousand_cases_of_every_protocol_are_the_same_everywhere(
    row: tuple[str, str, str, str],
) -> None:
    protocol, transport, dialect, capture = row
    driver = driver_class(protocol, transport)
    pool = collect_seeds(driver, dialect, [CAPTURES / protocol / f"{capture}.pcap"])
    cases = Generator(pool.seeds, driver.traits, 1)
    assert digest(cases, 1000) == HASHES_OF_1000[row]


def test_hash_seed_of_the_interpreter_does_not_matter() -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1].split('|')\n"
        "from test_generator import digest, generator\n"
        "print(digest(generator(5), 300))"
    )
    here = "|".join([*(str(CAPTURES.parent / "tests" / name) for name in ("fuzz", "support"))])
    printed = {
        subprocess.run(
            [sys.executable, "-c", script, here],
            env={"PYTHONHASHSEED": number, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout.strip()
        for number in ("0", "4242")
    }  # fmt: skip
    assert printed == {digest(generator(5), 300)}


def test_a_case_needs_no_case_before_it() -> None:
    assert generator().case(777) == generator().case(777)
    assert generator(1).case(777) != generator(2).case(777)


def test_every_kind_of_mutation_is_made() -> None:
    cases = generator()
    kinds = Counter(
        cases.case(number).mutation.split(" ")[0].split("+")[0] for number in range(4000)
    )
    for kind in (
        "none", "field:boundary", "field:neighbour", "field:flip", "field:content", "field:remove",
        "field:duplicate", "field:splice", "octets:flip", "octets:truncate", "order:repeat",
        "order:swap", "order:drop", "order:sequence", "order:ack",
    ):  # fmt: skip
        assert kinds[kind] > 5, kind
    assert any(kind.startswith("direction:") for kind in kinds)


def test_controls_are_what_was_captured() -> None:
    pool = seeds_from_capture("riptide", "riptide-2.2", CLEAN)
    cases = Generator(pool.seeds, RiptideDriver.traits, 1)
    known = {seed.octets for seed in pool.seeds if seed.type == "Reliable" and seed.direction == 0}
    controls = [case for case in map(cases.case, range(2000)) if case.is_control]
    assert 30 < len(controls) < 200
    assert all(step.octets in known for case in controls for step in case.steps)
    assert {case.stage for case in controls} == {CONNECTED}


def test_cases_come_in_every_state() -> None:
    cases = generator()
    stages = Counter(cases.case(number).stage for number in range(3000))
    assert set(stages) == set(RiptideDriver.traits.stages)
    assert stages[CONNECTED] > 2500


def test_mutated_numbers_are_not_overwritten_later() -> None:
    cases = generator()
    for case in map(cases.case, range(3000)):
        if case.mutation.startswith("field:boundary") and case.mutation.endswith(" sequence_id"):
            assert case.steps[0].hold == ("sequence",)
            break
    else:
        pytest.fail("no case mutates a sequence id")


def test_no_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="no seed"):
        Generator([], Traits(), 1)


def test_what_no_layer_reads_is_mutated_as_octets() -> None:
    cases = Generator([Seed(b"\x01\x02\x03\x04", "unknown", 0, None, "test")], Traits(), 1)
    mutations = {cases.case(number).mutation.split(":")[0] for number in range(200)}
    assert mutations <= {"octets", "order"}


def test_steps_survive_json() -> None:
    step = Step(b"\x01\xff", "Reliable", ("ack",), (("sequence", -3),), 0)
    assert Step.from_json(json.loads(json.dumps(step.to_json()))) == step


def test_drivers_name_fields_that_layers_have() -> None:
    assert driver_class("riptide") is RiptideDriver
    with pytest.raises(UsageError, match="riptide"):
        driver_class("nonsense")


def test_every_mutation_has_the_name_of_a_mutator() -> None:
    cases = generator()
    for number in range(1000):
        case = cases.case(number)
        if not case.is_control:
            check_mutators([case.mutation.partition(" ")[0].rstrip(",")])
    check_mutators(["*", "field:*", "f*:fl*", "order:repeat", "dictionary:*", "octets:flip+add"])
