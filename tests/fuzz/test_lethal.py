from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from agreement import CAPTURES
from fuzzing import free_target, server_command
from netdissect.fuzz import Step, fuzz_target
from netdissect.fuzz.cases import Case
from netdissect.fuzz.lethal import Lethal, Mask

CRASH, HANG = "exit: a crash", "no-answer: a hang"
# Messages of Netplay's bin1: one as it should be, one of which the text is too short, and the same of another type.
WHOLE = bytes.fromhex("000a0000000005616c696365")
SHORT = bytes.fromhex("000a0000000009616c696365")
OTHER = bytes.fromhex("000a0000010009616c696365")


def case(octets: bytes, mutation: str = "octets:flip", number: int = 0) -> Case:
    return Case(number, mutation, (Step(octets),))


@pytest.fixture
def lethal() -> Lethal:
    return Lethal("netplay", "netplay-bin1", "tcp")


def masks(lethal: Lethal) -> list[str]:
    return [mask.text for mask in lethal.masks]


def test_what_no_survivor_has_is_held_back(lethal: Lethal) -> None:
    lethal.survived(case(WHOLE))
    assert lethal.expects(case(SHORT)) is None
    lethal.killed([case(SHORT)], CRASH, known=True)
    assert masks(lethal) == ["finding payload-underrun"]
    # Of whatever type, however it was made; but not what is well.
    for each in (case(SHORT, "octets:noise"), case(OTHER, "octets:insert")):
        mask = lethal.expects(each)
        assert mask is not None
        assert mask.signature == CRASH
    assert lethal.expects(case(WHOLE, "octets:noise")) is None


def test_what_a_survivor_has_is_not_the_reason(lethal: Lethal) -> None:
    lethal.survived(case(OTHER))
    lethal.killed([case(SHORT)], CRASH, known=True)
    (mask,) = masks(lethal)
    assert mask == "finding payload-underrun: username (string): N bytes wanted, N left"
    # Survived after all: there is something about how the first was made.
    lethal.survived(case(SHORT, "octets:noise"))
    (mask,) = masks(lethal)
    assert "mutation octets:flip" in mask


def test_a_kind_is_avoided_only_once_it_is_known(lethal: Lethal) -> None:
    lethal.survived(case(WHOLE))
    lethal.killed([case(SHORT)], CRASH, known=False)
    assert lethal.masks == []
    lethal.killed([case(SHORT, "octets:noise")], CRASH, known=True)
    assert masks(lethal) == ["finding payload-underrun"]
    # Another kind is not.
    lethal.killed([case(bytes.fromhex("0003000001"))], HANG, known=False)
    assert masks(lethal) == ["finding payload-underrun"]


def test_of_several_suspects_none_is_avoided_before_one_is_confirmed(lethal: Lethal) -> None:
    lethal.survived(case(WHOLE))
    lethal.killed([case(WHOLE, "order:repeat"), case(SHORT)], HANG, known=True)
    assert lethal.masks == []
    lethal.killed([case(OTHER)], HANG, known=True)
    assert masks(lethal) == ["finding payload-underrun"]


def test_equally_likely_suspects_are_all_avoided_once_much_is_known(lethal: Lethal) -> None:
    for number in range(20):
        lethal.survived(case(WHOLE + bytes(number + 1), f"octets:{'x' * number}"))
    # One with reserved options.
    odd = case(bytes.fromhex("000aff000000056c6963650000"), "octets:insert")
    lethal.killed([case(SHORT), odd], HANG, known=True)
    assert lethal.expects(case(SHORT, "octets:noise"))
    assert lethal.expects(odd)
    # One of them is certain, and explains the failure.
    lethal.killed([case(OTHER)], HANG, known=True)
    assert masks(lethal) == ["finding payload-underrun"]


def test_what_was_never_survived_waits_for_a_trial(lethal: Lethal) -> None:
    for number in range(3):
        lethal.survived(case(WHOLE, f"octets:{'x' * number}"))
    lethal.survived(Case(0, "octets:flip", (Step(OTHER),), "connecting"))
    lethal.killed([case(bytes.fromhex("0003000001"))], HANG, known=True)
    assert not lethal.is_untried(case(WHOLE, "octets:noise"))
    # Its type was survived, and its finding, but not both in one message.
    assert lethal.is_untried(case(SHORT))
    assert lethal.postpone(case(SHORT))
    assert not lethal.postpone(case(SHORT))
    assert lethal.postpone(case(WHOLE, "field:flip"))
    assert lethal.next_postponed() == case(SHORT)
    assert lethal.next_postponed() == case(WHOLE, "field:flip")
    assert lethal.next_postponed() is None


def test_failures_that_recur_outweigh_a_few_survivors(lethal: Lethal) -> None:
    for mutation in ("octets:flip", "octets:noise", "octets:insert", "order:repeat"):
        lethal.survived(case(WHOLE, mutation))
    lethal.survived(case(SHORT, "octets:truncate"))
    for mutation in ("octets:flip", "octets:noise", "octets:insert"):
        lethal.killed([case(SHORT, mutation)], CRASH, known=True)
    assert masks(lethal) == ["finding payload-underrun"]


def test_a_few_of_what_a_mask_holds_back_are_sent_all_the_same(lethal: Lethal) -> None:
    lethal.killed([case(SHORT)], CRASH, known=True)
    mask = lethal.expects(case(SHORT, "field:flip"))
    assert mask is not None
    sent = []
    for cases in (0, 20_000):
        while lethal.may_dare(mask, cases):
            lethal.dare(mask)
            sent.append(cases)
    assert 2 <= sent.count(0) <= 8
    assert 50 <= sent.count(20_000) <= 200
    # Another mask has its own.
    assert lethal.may_dare(Mask(frozenset({"another"}), CRASH), 0)


def test_what_is_counted_for_masks_stays_bounded(lethal: Lethal) -> None:
    for number in range(1000):
        lethal.dare(Mask(frozenset({str(number)}), CRASH))
    lethal.killed([case(SHORT)], CRASH, known=True)
    assert len(lethal._dared) < 300


def test_cases_of_many_messages_do_not_stop_the_run(lethal: Lethal) -> None:
    def many(number: int) -> Case:
        chance = random.Random(number)
        return Case(number, "order:repeat", tuple(Step(chance.randbytes(9)) for _ in range(64)))

    for number in range(300):
        lethal.survived(many(number))
    begin = time.process_time()
    for number in range(300, 340, 8):
        lethal.killed([many(number + at) for at in range(8)], CRASH, known=True)
    assert time.process_time() - begin < 15


@pytest.mark.parametrize(
    ("protocol", "capture", "bugs"),
    [
        ("riptide", "udp_2.2.1_clean", ["length"]),
        ("teeworlds", "tw07_clean", ["length", "off-by-one"]),
    ],
)
def test_a_frequent_crash_is_avoided_and_another_found(
    protocol: str, capture: str, bugs: list[str], tmp_path: Path
) -> None:
    target = free_target()
    report = fuzz_target(
        protocol, target, tmp_path / "run", captures=[CAPTURES / protocol / f"{capture}.pcap"],
        seed=4, cases=1500, rate=0, examples=1, answer_seconds=0.5,
        monitors=[server_command(protocol, target, *bugs)],
    )  # fmt: skip
    counts = [each.count for each in report.findings.values()]
    assert len(counts) == len(bugs)
    # Without masks, it would be hundreds.
    assert sum(counts) < 30
    assert report.held_back.total() > 5
    # If the frequent crash were not avoided, no session would be held for a tenth of the run.
    assert report.held_seconds > report.seconds / 8
    row = report.to_json()["held_back"][0]
    assert row["key"] in {each.key for each in report.findings.values()}
    assert row["cases"] > 0
