from __future__ import annotations

import threading
from typing import Any

import pytest

from netdissect.browse.background import Background


@pytest.mark.parametrize(
    ("error", "said"),
    [(None, []), (OSError("no file"), ["no file"]),
     (OSError(28, "No space left on device", "x.pcap"), ["x.pcap: No space left on device"]), (KeyError("x"), ["KeyError: 'x'"]),
     (KeyboardInterrupt(), [])],
)  # fmt: skip
def test_an_error_in_the_background_is_shown_once_and_never_printed(
    error: BaseException | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a signal: the main thread ends, and has to restore the terminal."""
    printed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    shown: list[str] = []
    brought = []

    def work() -> Any:
        if error is not None:
            raise error
        return lambda: brought.append(1)

    background = Background(shown.append)
    before = set(threading.enumerate())
    background.run(work)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert background.collect() is (not isinstance(error, KeyboardInterrupt))
    assert (shown, printed, brought) == (said, [], [] if error else [1])
