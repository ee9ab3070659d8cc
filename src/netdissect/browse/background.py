"""Slow work in threads of its own, whose results are handed over in the thread of the screen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from netdissect.model.errors import NetdissectError, reason


class Background:
    """Runs work in threads, and queues what they return."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take the function that shows the message of an error."""
        self._say = say
        self._results: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], Callable[[], None] | None]) -> None:
        """Run `work` in a thread of its own; `collect` calls the function that it returns."""

        def body() -> None:
            try:
                finish = work()
            except KeyboardInterrupt:
                pass  # a signal, which ends the whole program
            except Exception as error:  # noqa: BLE001 - whatever it is, the user sees it
                text = f"{type(error).__name__}: {error}"
                if isinstance(error, NetdissectError):
                    text = str(error)
                elif isinstance(error, OSError):
                    named = "" if error.filename is None else f"{error.filename}: "
                    text = f"{named}{reason(error)}"
                self._results.append(lambda: self._say(text))
            else:
                if finish is not None:
                    self._results.append(finish)

        # The context holds the open capture: a thread must not open a file of the same name anew.
        threading.Thread(target=copy_context().run, args=(body,), daemon=True).start()

    def collect(self) -> bool:
        """Call the functions that work has returned; return whether there were any."""
        found = bool(self._results)
        while self._results:
            self._results.popleft()()
        return found
