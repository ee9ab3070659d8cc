"""Each call into a plug-in is guarded: whatever raises disables it, and the caller gets nothing."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from netdissect.dissect import foreign as record
from netdissect.model.claims import Claim, Hints
from netdissect.model.policy import Policy
from netdissect.model.segments import StreamPiece
from netdissect.protocols import foreign
from netdissect.protocols.base import DialectRow, Protocol
from netdissect.protocols.foreign import Foreign, ForeignError

HINTS = Hints(("mine-1", "mine-1"))
CLAIM = Claim("mine", 61, ("mine-1", "mine-1"), 0, "protocol", ())
PIECE = StreamPiece(0, b"x", (1,))


class Part:
    """What a plug-in makes for one connection; every method raises."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return fail


def fail(*_: object, **__: object) -> Any:
    raise ValueError("odd")


class Mine(Protocol):
    name = "mine"
    title = "A protocol of a test"
    dialects = (DialectRow("mine-1", "the only one", ("all",)),)
    transports = ("udp", "tcp")
    layer_module = "mine_layers"

    def recognise(self, sample: Any, transport: str, *, final: bool) -> Claim | None:
        return None

    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Any]:
        return []

    def policy(self, dialect: str) -> Policy:
        return Policy("mine-1", ())

    def framer(self, dialect: str, direction: int) -> Any:
        return Part()

    def assembler(self) -> Any:
        return Part()

    def inspector(self) -> Any:
        return Part()


CALLS: dict[str, tuple[Callable[[Foreign], Any], Any]] = {
    "recognise": (lambda mine: mine.recognise([], "udp", final=True), None),
    "initial_hints": (lambda mine: mine.initial_hints(CLAIM), HINTS),
    "informed": (lambda mine: mine.informed(HINTS, None), HINTS),  # type: ignore[arg-type]
    "next_hints": (lambda mine: mine.next_hints(HINTS), HINTS),
    "fragment": (lambda mine: mine.fragment(b"x", packet=True), None),
    "framer": (lambda mine: mine.framer("mine-1", 0), None),
    "assembler": (lambda mine: mine.assembler(), None),
    "inspector": (lambda mine: mine.inspector(), None),
}
PARTS: dict[str, tuple[Callable[[Foreign], Any], Any]] = {
    "framer.feed": (lambda mine: made(mine.framer("mine-1", 0)).feed(PIECE), []),
    "framer.finish": (lambda mine: made(mine.framer("mine-1", 0)).finish(), []),
    "assembler.finish": (lambda mine: made(mine.assembler()).finish(), ([], [])),
    "inspector.wants": (lambda mine: made(mine.inspector()).wants([]), True),
    "inspector.follow": (lambda mine: made(mine.inspector()).follow(b"x", "mine-1", 0, []), False),
    "inspector.inspect": (lambda mine: made(mine.inspector()).inspect(None), None),
}


def made(part: Any) -> Any:
    assert part is not None
    return part


@pytest.fixture(autouse=True)
def nothing_disabled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in set(record.faults):
        monkeypatch.delitem(record._faults, name)
    yield
    record._faults.clear()


@pytest.mark.parametrize("method", CALLS)
def test_a_call_that_raises_disables_the_plug_in(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, instead = CALLS[method]
    mine = Foreign(Mine(), "mine")
    monkeypatch.setattr(Mine, method, fail)
    assert call(mine) == instead
    assert record.faults["mine"].startswith("ValueError: odd")


@pytest.mark.parametrize("method", PARTS)
def test_a_part_that_raises_disables_the_plug_in(method: str) -> None:
    call, instead = PARTS[method]
    mine = Foreign(Mine(), "mine")
    assert call(mine) == instead
    assert record.faults["mine"].startswith("ValueError: odd")


def test_what_the_pipeline_reports_is_raised_once() -> None:
    mine = Foreign(Mine(), "mine")
    part = made(mine.assembler())
    with pytest.raises(ForeignError, match="nothing more of it is read"):
        part.feed(0, 1, 0, [])
    assert part.feed(0, 2, 0, []) == []


def test_a_plug_in_claims_in_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, claimed in (("mine", True), ("riptide", False)):
        claim = Claim(name, 61, ("mine-1", "mine-1"), 0, "protocol", ())
        monkeypatch.setattr(Mine, "recognise", lambda *_, claim=claim, **__: claim)
        assert (Foreign(Mine(), "mine").recognise([], "udp", final=True) == claim) is claimed


def loop() -> None:
    while True:
        pass


def test_a_plug_in_that_does_not_end_is_interrupted_in_a_forked_process_too() -> None:
    with pytest.raises(record.Overrun):
        record.attempt(loop, seconds=record._TICK_SECONDS)
    pid = os.fork()
    if not pid:
        try:
            record.attempt(loop, seconds=record._TICK_SECONDS)
        except record.Overrun:
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(200):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail("the call goes on")
    assert os.waitstatus_to_exitcode(status) == 0


def test_importing_a_plug_in_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = record._TICK_SECONDS
    monkeypatch.setattr(foreign, "LOAD_SECONDS", limit)
    # Without the limit, the import would succeed after five times as long.
    end = time.process_time() + 5 * limit

    def load() -> Protocol:
        while time.process_time() < end:
            sum(range(100_000))
        return Mine()

    assert foreign.admitted("mine", load) is None
    assert record.faults["mine"].startswith("Overrun: does not end")


def test_a_disabled_plug_in_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "netdissect"):
        record.disable("mine", "one")
        record.disable("mine", "two")
    assert [one.getMessage() for one in caplog.records] == ["protocol mine is disabled: one"]
    assert record.faults["mine"] == "one"
