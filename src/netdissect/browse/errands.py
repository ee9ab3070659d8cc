"""Work that takes long: done in threads of its own, its result handed over when it is asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from netdissect.model.errors import NetdissectError, reason

__all__ = ["Errands"]


class Errands:
    """Runs work beside the one thread that owns the state, and keeps what it brings until then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take what tells of errors."""
        self._say = say
        self._inbox: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], Callable[[], None] | None]) -> None:
        """Run `work`; what it returns is called by `take`."""

        def body() -> None:
            try:
                then = work()
            except KeyboardInterrupt:
                pass  # a signal: whoever waits for the work ends too
            except Exception as error:  # noqa: BLE001 - it is told, whatever it is
                text = f"{type(error).__name__}: {error}"
                if isinstance(error, NetdissectError):
                    text = str(error)
                elif isinstance(error, OSError):
                    named = "" if error.filename is None else f"{error.filename}: "
                    text = f"{named}{reason(error)}"
                self._inbox.append(lambda: self._say(text))
            else:
                if then is not None:
                    self._inbox.append(then)

        # With the context: what was opened before is to be the same file.
        threading.Thread(target=copy_context().run, args=(body,), daemon=True).start()

    def take(self) -> bool:
        """Take what has been brought; return whether there was anything."""
        brought = bool(self._inbox)
        while self._inbox:
            self._inbox.popleft()()
        return brought
