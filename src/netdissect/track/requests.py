"""What the receiver of a space asked its sender to send again, for `Repeats`.

A sender that answers every such request at once sends a unit as often as it is asked. Only this
many of its copies can be retransmissions, however close together they come.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_REQUESTS: Final = 256
"""The newest requests that are remembered."""
MAX_ASKED: Final = 256
"""Units whose retransmissions are counted."""
UNDER_WAY_NS: Final = 250_000_000
"""A request seen at most this long before the first copy of a unit, in ns, may have reached the
sender after it had sent that copy. Round trips of games are shorter.
"""


class Requests:
    """The requests of one space, and how often each unit was sent again since they came."""

    __slots__ = ("_answers", "_first_ns", "_times")

    def __init__(self) -> None:
        self._times: deque[int] = deque(maxlen=MAX_REQUESTS)
        self._first_ns: dict[int, int] = {}
        self._answers: dict[int, int] = {}
        """Number -> retransmissions, without those that came soon after the copy before."""

    def note(self, time_ns: int) -> None:
        """Note a request."""
        self._times.append(time_ns)

    def permit(self, seq: int, before_ns: int, *, again: bool) -> bool:
        """Return whether a further copy of a unit may answer a request, that is, whether there were
        more of them than retransmissions of the unit. `before_ns` is the time of the copy before;
        `again` says that this one came too late for a network copy, wherever it was captured.
        """
        if not self._times:
            return False
        first_ns = self._first_ns.get(seq)
        if first_ns is None or first_ns > before_ns:
            # The unit has no other further copy yet, or is another one with the same number.
            self._first_ns[seq] = first_ns = before_ns
            if len(self._first_ns) > MAX_ASKED:
                oldest = next(iter(self._first_ns))
                del self._first_ns[oldest]
                self._answers.pop(oldest, None)
        asked = 0
        for time_ns in reversed(self._times):
            if time_ns < first_ns - UNDER_WAY_NS:
                break
            asked += 1
        answers = self._answers.get(seq, 0)
        if again:
            self._answers[seq] = answers + 1
        return asked > answers
