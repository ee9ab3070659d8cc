"""What the kernels of a TCP connection show: questions, SYNs, how quickly they acknowledge."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT
from netdissect.model.packets import FIN, RST, SYN
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
    """The keep-alives and FINs of both sides since anything else of their peer came.

    A keep-alive begins before the next byte, although all bytes before that are acknowledged. The
    kernel of the peer answers it and a FIN at once, and a keep-alive with no RST if it knows the
    connection. *Source:* RFC 9293, sections 3.6 and 3.8.4.
    """

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: list[list[int]] = [[], []]
        """Side -> when it sent them, in ns."""

    def take(self, side: int, half: StreamHalf, segment: TcpSegment, time_ns: int) -> None:
        """Process a segment of a side before `half`, what this side sent, takes it."""
        behind = segment.payload_length <= 1 and segment.stream_start == half.highest - 1
        keeps_alive = behind and not (half.outstanding or segment.flags & _SPECIAL)
        if segment.flags & FIN or keeps_alive:
            sent = self.times[side]
            if len(sent) == MAX_PROBES:
                del sent[0]
            sent.append(time_ns)
        if self.times[1 - side] and not (keeps_alive or segment.flags & RST):
            self.times[1 - side] = []


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
