"""What stalls a TCP stream: a closed receive window, and waits for the retransmission timer."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.units import STREAM
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder

RTO_MIN_NS: Final = 200_000_000
"""A retransmission at least this long after the last transmission, in ns, was sent by the timer and
not for duplicate acknowledgements. *Source:* Linux `TCP_RTO_MIN`; RFC 6298 section 2.4 asks for a
second.
"""
MAX_HOLES: Final = 1024
"""Missing ranges remembered."""
MAX_RESENT: Final = 4096
"""Ranges remembered with the time of their last transmission."""


class StallTracker:
    """The waits of one direction's sender, and the receive window that this sender announces."""

    __slots__ = (
        "_direction", "_findings", "_first", "_holes", "_last", "_opened", "_recorder", "closed_ns",
        "closures", "held_ns", "longest_ns", "timed",
    )  # fmt: skip

    def __init__(
        self, direction: int, recorder: ConnectionRecorder | None, findings: Findings
    ) -> None:
        self._direction = direction
        self._findings = findings
        self._recorder = recorder
        self.closed_ns: int | None = None
        """Since when the receive window is closed; None while it is open."""
        self.closures = 0
        """How often it was closed."""
        self.held_ns = 0
        """How long it was closed in total."""
        self._first = self._opened = (0, 0)
        """(frame, time) of the first segment that closed it, and of the last that opened it."""
        self.timed = 0
        """Retransmissions sent by the timer."""
        self.longest_ns = 0
        """The longest wait before one of them."""
        self._last: dict[int, int] = {}
        self._holes: dict[int, tuple[int, int]] = {}
        """Offset -> (offset after the last byte, time) of missing ranges; only for events."""

    def close(self, frame: int, time_ns: int) -> None:
        """Process a segment that closes the window."""
        if self.closed_ns is not None:
            return
        if not self.closures:
            self._first = (frame, time_ns)
        self.closed_ns = time_ns
        self.closures += 1
        if self._recorder is not None:
            self._recorder.event(
                "window", time_ns, frame, self._direction, "receive window is closed",
                {"open": False},
            )  # fmt: skip

    def open(self, frame: int, time_ns: int) -> None:
        """Process a segment that opens the window again."""
        if self.closed_ns is None:
            return
        held_ns = time_ns - self.closed_ns
        self.closed_ns = None
        self._opened = (frame, time_ns)
        self.held_ns += held_ns
        if self._recorder is not None:
            text = f"receive window is open again after {held_ns / 1e6:.1f} ms"
            self._recorder.event(
                "window", time_ns, frame, self._direction, text,
                {"open": True, "closed_ms": held_ns / 1e6},
            )  # fmt: skip

    def wait(self, start: int, first_ns: int, time_ns: int) -> int:
        """Return the time since the last transmission of the bytes from `start` on.

        They were first sent at `first_ns`.
        """
        last = self._last
        waited = time_ns - last.get(start, first_ns)
        if len(last) >= MAX_RESENT and start not in last:
            self._findings.hit("MAX_RESENT", self._direction, STREAM)
            last.clear()
        last[start] = time_ns
        return waited

    def retransmitted(self, start: int, waited: int, copies: int, frame: int, time_ns: int) -> None:
        """Process a retransmission of the bytes from `start` on, `waited` ns after the last one."""
        if waited < RTO_MIN_NS:
            return
        self.timed += 1
        self.longest_ns = max(self.longest_ns, waited)
        if self._recorder is not None:
            waited_ms = f"{waited / 1e6:.0f} ms"
            text = f"bytes from {start} on retransmitted after {waited_ms} (copy {copies})"
            self._recorder.event(
                "rto", time_ns, frame, self._direction, text,
                {"offset": start, "waited_ms": waited / 1e6, "copy": copies},
            )  # fmt: skip

    def hole(self, start: int, end: int, frame: int, time_ns: int) -> None:
        """Process a gap: the bytes were overtaken, or lost before they reached the capture."""
        if self._recorder is None:
            return
        if len(self._holes) >= MAX_HOLES:
            self._findings.hit("MAX_GAPS_TIMED", self._direction, STREAM)
            self._holes.clear()
        self._holes[start] = (end, time_ns)
        self._recorder.event(
            "hole", time_ns, frame, self._direction, f"bytes {start} to {end - 1} are missing",
            {"open": True, "offset": start, "octets": end - start},
        )  # fmt: skip

    def arrived_late(self, start: int, end: int, frame: int, time_ns: int) -> None:
        """Process bytes that come late."""
        for low in [low for low in self._holes if low < end]:
            high, since_ns = self._holes[low]
            if high <= start:
                continue
            del self._holes[low]
            # What is left of the gap before and after these bytes.
            for left in ((low, min(start, high)), (max(end, low), high)):
                if left[0] < left[1]:
                    self._holes[left[0]] = (left[1], since_ns)
            first, behind = max(low, start), min(high, end)
            if self._recorder is not None:
                waited_ms = (time_ns - since_ns) / 1e6
                self._recorder.event(
                    "hole", time_ns, frame, self._direction,
                    f"bytes {first} to {behind - 1} came after {waited_ms:.1f} ms",
                    {"open": False, "offset": first, "octets": behind - first,
                     "waited_ms": waited_ms},
                )  # fmt: skip

    def report(self, end_ns: int) -> dict[str, Any]:
        """Return the figures at the end of the capture."""
        still_ns = 0 if self.closed_ns is None else max(0, end_ns - self.closed_ns)
        found: dict[str, Any] = {}
        if self.closures:
            frame, time_ns = self._opened if self.closed_ns is None else (None, None)
            span = {"from_ns": self._first[1], "to_ns": time_ns, "frames": [self._first[0], frame]}
            found["window_closed"] = span
        return {
            **found,
            "window_closures": self.closures,
            "window_closed_ms": (self.held_ns + still_ns) / 1e6,
            "timer_resends": self.timed,
            "longest_wait_ms": self.longest_ns / 1e6,
        }
