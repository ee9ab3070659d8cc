from __future__ import annotations

from netdissect.fuzz.drivers import driver_class
from netdissect.fuzz.drivers.riptide import Messages, Received
from netdissect.fuzz.monitors import Monitors, Verdict
from netdissect.fuzz.rules import RulesMonitor
from netdissect.fuzz.target import Target, Traffic
from netdissect.fuzz.watch import Watch

LOCAL = ("127.0.0.1", 40000)
MESSAGES = Messages("riptide-2.2")


def judged(*traffic: tuple[bool, bytes]) -> list[Verdict]:
    """Return the verdicts over messages, the first of each pair telling whether it is ours."""
    monitor = RulesMonitor()
    watch = Watch(
        driver_class("riptide"), "riptide-2.2", Target("127.0.0.1", 7777), Monitors([monitor])
    )
    for index, (outgoing, octets) in enumerate(traffic):
        watch.journal.append(Traffic(index * 50_000_000, outgoing, octets, LOCAL))
    found = []
    while (verdict := monitor.check()) is not None:
        found.append(verdict)
    return found


def an_ack(number: int) -> bytes:
    received = Received()
    received.take(number)
    return MESSAGES.ack(received, number)


WELCOME = MESSAGES.build("Welcome", sequence_id=1, client_id=1)
OPENING = [
    (True, MESSAGES.build("Connect")),
    (False, WELCOME),
    (True, an_ack(1)),
    (True, WELCOME),
    (False, an_ack(1)),
]


def reliable(number: int) -> bytes:
    return MESSAGES.build("Reliable", sequence_id=number, message_id=400)


def test_a_target_that_keeps_the_rules() -> None:
    assert judged(*OPENING, (True, reliable(2)), (False, an_ack(2)), (False, an_ack(2))) == []


def test_an_acknowledgement_of_what_was_never_sent() -> None:
    (verdict,) = judged(*OPENING, (True, reliable(2)), (False, an_ack(40)), (False, an_ack(41)))
    assert verdict.kind == "rule"
    assert verdict.place == "ack-of-unsent"
    assert not verdict.fatal
    assert "acknowledged a number that it was never sent" in verdict.detail


def test_a_number_that_a_mutant_has_sent_may_be_acknowledged() -> None:
    assert judged(*OPENING, (True, reliable(40_000)), (False, an_ack(40_000))) == []


def test_behind_octets_that_nobody_can_read_nothing_is_certain() -> None:
    assert judged(*OPENING, (True, b"\x07"), (False, an_ack(40))) == []


def test_a_unit_that_is_sent_too_often() -> None:
    assert judged(OPENING[0], *[(False, WELCOME)] * 15) == []
    (verdict,) = judged(OPENING[0], *[(False, WELCOME)] * 16)
    assert verdict.place == "resend-beyond-limit"
    assert verdict.detail.endswith("16 of 15 times")
