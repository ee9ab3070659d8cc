from __future__ import annotations

import threading
from typing import Any

import pytest

from netdissect.browse.errands import Errands


@pytest.mark.parametrize(
    ("error", "said"),
    [(None, []), (OSError("no file"), ["no file"]),
     (OSError(28, "No space left on device", "x.pcap"), ["x.pcap: No space left on device"]), (KeyError("x"), ["KeyError: 'x'"]),
     (KeyboardInterrupt(), [])],
)  # fmt: skip
def test_what_ends_an_errand_is_told_once_and_never_printed(
    error: BaseException | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal too: the thread that waits ends with it, and has the terminal to put in order."""
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    told: list[str] = []
    brought = []

    def work() -> Any:
        if error is not None:
            raise error
        return lambda: brought.append(1)

    errands = Errands(told.append)
    before = set(threading.enumerate())
    errands.run(work)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert errands.take() is (not isinstance(error, KeyboardInterrupt))
    assert (told, printed, brought) == (said, [], [] if error else [1])
