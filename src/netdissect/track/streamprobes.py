"""What the kernels of a TCP connection show: questions, SYNs, how quickly they acknowledge."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT
from netdissect.model.packets import ACK, FIN, HALF_SEQ_SPAN, RST, SEQ_SPAN, SYN
from netdissect.model.segments import TcpSegment
from netdissect.track.tcp import StreamHalf
from netdissect.track.vantage import Evidence

CROSSING_NS: Final = 200_000_000
"""Ends of both sides cross if they are no further apart than this, in ns, and the way there and
back: no sender repeats its FIN sooner. *Source:* Linux (TCP_RTO_MIN).
"""
MAX_PROBES: Final = 64
"""Unanswered questions of a kernel remembered per direction: the newest ones."""
_SPECIAL: Final = FIN | SYN | RST


class KernelQuestions:
    """The keep-alives of both sides since anything else of their peer came, and the FINs that it
    did not acknowledge.

    A keep-alive begins before the next byte, although all bytes before that are acknowledged. The
    kernel of the peer answers it and a FIN at once, and a keep-alive with no RST if it knows the
    connection. *Source:* RFC 9293, sections 3.6 and 3.8.4.
    """

    __slots__ = ("_fins", "times")

    def __init__(self) -> None:
        self.times: list[list[int]] = [[], []]
        """Side -> when it sent them, in ns."""
        self._fins: list[tuple[int, int] | None] = [None, None]
        """Side -> (when it sent the first FIN that has no answer, sequence number after it)."""

    def take(self, side: int, half: StreamHalf, segment: TcpSegment, time_ns: int) -> None:
        """Process a segment of a side before `half`, what this side sent, takes it."""
        behind = segment.payload_length <= 1 and segment.stream_start == half.highest - 1
        keeps_alive = behind and not (half.outstanding or segment.flags & _SPECIAL)
        if segment.flags & FIN or keeps_alive:
            sent = self.times[side]
            if len(sent) == MAX_PROBES:
                del sent[0]
            sent.append(time_ns)
        if segment.flags & FIN and self._fins[side] is None:
            self._fins[side] = (time_ns, segment.seq + segment.payload_length + 1)
        if self.times[1 - side] and not (keeps_alive or segment.flags & RST):
            self._answer(1 - side, segment)

    def _answer(self, side: int, segment: TcpSegment) -> None:
        """Process a segment that answers what a side asked, but for FINs that were still on their
        way.
        """
        fin = self._fins[side]
        if fin is None:
            self.times[side] = []
        elif segment.flags & ACK and (segment.ack - fin[1]) % SEQ_SPAN < HALF_SEQ_SPAN:
            self.times[side], self._fins[side] = [], None
        else:
            self.times[side] = [time_ns for time_ns in self.times[side] if time_ns >= fin[0]]


def answered_syn(syns: list[tuple[int, int | None]], segment: TcpSegment) -> int:
    """Return the time of the SYN, of (time, time stamp), whose time stamp a SYN-ACK echoes."""
    stamps = segment.timestamps
    for time_ns, stamp in syns:
        if stamps is not None and stamp == stamps[1]:
            return time_ns
    return syns[-1][0]


def evidence(halves: list[StreamHalf]) -> tuple[Evidence, Evidence]:
    """Return the evidence about (client, server): how each acknowledges, and how many of its
    segments were late.
    """
    return _evidence(halves[1], halves[0]), _evidence(halves[0], halves[1])


def _evidence(asked: StreamHalf, own: StreamHalf) -> Evidence:
    late = own.counts["hole_filling"]
    if not asked.rtt.samples:
        return Evidence(ABSENT, 0, late)
    slow_ns = int(asked.rtt.slow_ms() * 1e6)
    return Evidence(asked.quickest_ns, asked.rtt.samples, late, slow_ns=slow_ns)
