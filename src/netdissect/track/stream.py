"""A TCP connection: its handshake, its end, and the messages in both streams. Knows no protocol.

`StreamHalf` has the bytes of one direction; `StreamTrack` combines the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.model.packets import ACK, FIN, HALF_SEQ_SPAN, RST, SEQ_SPAN, SIDES, SYN
from netdissect.model.reports import Copy, EndHint, SpaceReport, UnitRecord
from netdissect.model.segments import StreamPiece, TcpSegment
from netdissect.model.units import MESSAGES
from netdissect.track.ackstats import PAUSE_NS, SETTLED_NS
from netdissect.track.findings import Findings
from netdissect.track.outcomes import record_acked, record_dropped
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.retired import Listener
from netdissect.track.streamprobes import CROSSING_NS, KernelQuestions, answered_syn
from netdissect.track.streamunits import Messages, PendingMessage, sent_before
from netdissect.track.tcp import MAX_UNITS, StreamHalf
from netdissect.track.totalling import summed

REFUSAL_NS: Final = 150_000_000
"""A server that closes within this time after the handshake, in ns, without sending anything, has
refused its client. The way to the server and back comes on top.
"""
MAX_SETTLED: Final = 128
"""Acknowledged messages of a direction that are remembered for late retransmissions."""
MAX_SYNS = 16
"""SYNs remembered, to find out which one was answered."""
MIN_SKIPPED: Final = 3
"""A side that does not answer was silent all the same if this many of its packets are missing."""

_SPECIAL: Final = FIN | SYN | RST


def _note_retransmission(record: UnitRecord, frame: int) -> None:
    """Note in the record of a message that TCP has retransmitted some of its bytes."""
    record.extra["retransmitted"] = True
    record.extra.setdefault("retransmitted_in", frame)


class StreamTrack(Listener):
    """Tracks one TCP connection; `finish` gives the reports of its spaces."""

    def __init__(
        self, findings: Findings, recorder: ConnectionRecorder | None,
        step: Callable[[str, str | None, int, int, int], None],
    ) -> None:  # fmt: skip
        """Create the state of a connection; `step` is the input of its state machine."""
        self.findings = findings
        self.recorder = recorder
        # Lists, because compiled code copies a tuple to index it with a variable.
        self.halves = [StreamHalf(0, findings, recorder), StreamHalf(1, findings, recorder)]
        self.messages = [
            Messages(summed(recorder, direction, MESSAGES)) for direction in (0, 1)
        ]
        self._step = step
        self.on_pause: Callable[[int, int, int, tuple[int, int]], None] | None = None
        """Called with (direction, frame, time, (time, frame) before) after a silence."""
        self.on_answer: Callable[[int, int, int | None], None] | None = None
        """Called with (direction, time, frame) if what was sent at that time is the first that its
        peer is known to have received in more than a pause.
        """
        self._syns: list[tuple[int, int | None]] = []
        self._syn_ack_ns: int | None = None
        self.syn_to_synack_ms: float | None = None
        self.synack_to_ack_ms: float | None = None
        self.established_ns: int | None = None
        self._handshake_done = False
        """Whether the handshake is over, or was not captured."""
        self.first_fin: tuple[int, int, int] | None = None
        """(direction, frame, time) of the first FIN, or of what shows that there was one."""
        self.fins = [False, False]
        self.fin_acked: list[tuple[int, int, bool] | None] = [None, None]
        """Side -> (frame, time, whether the other side had not ended yet) of an acknowledgement of
        one byte more than the capture has: the byte is the FIN of the side.
        """
        self.fin_unseen = False
        """Whether the first FIN was not captured, but only what shows that there was one."""
        self.reset_by: int | None = None
        """Direction of the first RST."""
        self._reset_frame = 0
        self.refused = False
        self._closer_unknown = False
        """Whether the other side may have ended the connection first."""
        self._ending = (0, 0)
        """(direction, acknowledgement number) of the first captured FIN or RST."""
        self._ended_ns = 0
        """Its time."""
        self._crossed = False
        """Whether the other side ended the connection, too, before it heard of that."""
        self.questions = KernelQuestions()
        self.mid_stream = False
        if recorder is not None:
            recorder.stream = self

    def held(self) -> int:
        """Return how many ranges are unacknowledged, or belong to incomplete messages."""
        return sum([len(half.outstanding) + len(half.arrivals) for half in self.halves])

    def left(self, record: UnitRecord) -> None:
        """Forget an emitted record, except for what a late copy of its unit needs."""
        if record.space == MESSAGES:
            self.messages[record.direction].left()
        else:
            self.halves[record.direction].settled.left()

    def retire(self) -> None:
        """Forget the records of acknowledged segments, which no datagram shows."""
        for half in self.halves:
            half.settled.retire()

    # -- segments ----------------------------------------------------------------------------------

    def segment(self, direction: int, frame: int, time_ns: int, segment: TcpSegment) -> None:
        """Process one segment, before the messages that it completes."""
        flags = segment.flags
        half = self.halves[direction]
        usual = self._handshake_done and not flags & _SPECIAL
        if not usual and segment.mid_stream and not self.mid_stream:
            self.mid_stream = self._handshake_done = True
            self.findings.add("unknown-start", frame, time_ns, direction)
            self._step("data", None, direction, frame, time_ns)
        if time_ns - half.last_ns > PAUSE_NS and half.last_ns:
            self._resumed(direction, frame, time_ns, segment)
        self.questions.take(direction, half, segment, time_ns)
        half.take(segment, frame, time_ns)
        if half.repeated:
            self._sent_again(direction, frame, segment)
        if flags & ACK and segment.ack != self.halves[1 - direction].acked_wire:
            self._acknowledged(direction, frame, time_ns, segment)
        elif segment.sack:
            peer = self.halves[1 - direction]
            newest = peer.offset_of(segment.sack[0][1])
            self._received(1 - direction, sent_before(peer.outstanding, newest), frame)
        if usual:
            return
        if flags & SYN or (self.established_ns is None and self._syn_ack_ns is not None):
            self._handshake(direction, frame, time_ns, segment)
        elif not self._handshake_done and self._syns and flags & ACK and not flags & RST:
            # The SYN was answered, but the answer was not captured.
            self._handshake_done = True
            self._step("established", None, 0, frame, time_ns)
        if flags & (FIN | RST):
            self._end(direction, frame, time_ns, segment)

    def _resumed(self, direction: int, frame: int, time_ns: int, segment: TcpSegment) -> None:
        """Process a pause of a side. If it still does not answer what it was asked a while ago, and
        sent nothing in the pause, then it was not silent: it was not reached, and waited longer and
        longer before it sent its own bytes or its SYN again.
        """
        half, other = self.halves[direction], self.halves[1 - direction]
        skipped = 0 if segment.flags & SYN else half.ids.skipped(segment.ip_id)
        end = other.offset_of(segment.ack)
        deaf = any(
            unit.end > end and unit.first_ns < time_ns - PAUSE_NS for unit in other.outstanding
        )
        if self.on_pause is not None and not (deaf and 0 <= skipped < MIN_SKIPPED):
            self.on_pause(direction, frame, time_ns, (half.last_ns, half.last_frame))

    def _received(self, direction: int, sent_ns: int, frame: int) -> None:
        """Process what shows that the peer of a side has received what was sent at a time."""
        half = self.halves[direction]
        if sent_ns - half.answered_ns > PAUSE_NS and self.on_answer is not None:
            self.on_answer(direction, sent_ns, frame)
        half.answered_ns = max(half.answered_ns, sent_ns)

    def _sent_again(self, direction: int, frame: int, segment: TcpSegment) -> None:
        """Mark the messages in a retransmission: their round trips are ambiguous (Karn)."""
        start = segment.stream_start
        end = start + segment.payload_length
        if self.halves[direction].repeated[-1] != (start, end, frame):
            return
        messages = self.messages[direction]
        for waiting in messages.waiting:
            if waiting.start >= end:
                break
            if waiting.end > start and not waiting.repeated:
                waiting.repeated = True
                messages.repeated += 1
                if waiting.record is not None:
                    _note_retransmission(waiting.record, frame)
        for settled in reversed(messages.settled):
            if settled.end <= start:
                break
            if settled.start < end and settled.record is not None:
                _note_retransmission(settled.record, frame)

    def _acknowledged(
        self, direction: int, frame: int, time_ns: int, segment: TcpSegment
    ) -> None:
        """Process what a segment of `direction` acknowledges."""
        half = self.halves[1 - direction]
        before = half.acked
        if half.outstanding and time_ns - half.outstanding[0].first_ns > PAUSE_NS:
            self._received(1 - direction, half.outstanding[0].last_ns, frame)
        half.acknowledge(segment.ack, frame, time_ns)
        if half.acked == before:
            return
        # One byte more than was captured: a FIN takes a sequence number, too.
        if half.acked == half.highest + 1 and not self.ended and self._begins(half):
            own = self.halves[direction]
            # If nothing of this side is missing up to here, it had not sent its own FIN yet.
            open_yet = own.unseen_before(segment.seq + segment.payload_length) == 0
            self.fin_acked[1 - direction] = (frame, time_ns, open_yet)
        messages = self.messages[1 - direction]
        waiting = messages.waiting
        acked = half.acked
        while waiting and waiting[0].end <= acked:
            message = waiting.pop(0)
            if message.repeated or message.record is not None or messages.totals is not None:
                self._settle(messages, message, frame, time_ns)
                continue
            messages.acked += 1
            messages.rtt.add(max(0, time_ns - message.time_ns))

    def _handshake(self, direction: int, frame: int, time_ns: int, segment: TcpSegment) -> None:
        stamps = segment.timestamps
        if segment.flags & SYN and not segment.flags & ACK:
            if len(self._syns) < MAX_SYNS:
                self._syns.append((time_ns, stamps[0] if stamps else None))
            else:
                self.halves[direction].hit("MAX_SYNS")
            self._step("syn", None, direction, frame, time_ns)
        elif segment.flags & SYN:
            if self.syn_to_synack_ms is None and self._syns:
                self.syn_to_synack_ms = (time_ns - answered_syn(self._syns, segment)) / 1e6
            self._syn_ack_ns = time_ns
            self._step("syn_ack", None, direction, frame, time_ns)
        elif self._syn_ack_ns is not None and segment.flags & ACK and direction == 0:
            self.established_ns = time_ns
            self._handshake_done = True
            self.synack_to_ack_ms = (time_ns - self._syn_ack_ns) / 1e6
            self._step("established", None, direction, frame, time_ns)

    def _end(self, direction: int, frame: int, time_ns: int, segment: TcpSegment) -> None:
        """Process a FIN or RST."""
        flags = segment.flags
        own, ended = self.halves[direction], self.ended
        self._crossed = self._crossed or (ended and self._crosses(direction, time_ns, segment))
        self._ended_ns = self._ended_ns if ended else time_ns
        if not ended and flags & RST and own.unseen_before(segment.seq) == 1 and self._begins(own):
            self._fin_unseen(direction, frame, time_ns)
        elif not ended and flags & ACK:
            self._ending = (direction, segment.ack)
            self._unseen_before(1 - direction, frame, time_ns)
        elif flags & FIN and self._ends_behind(direction, segment.seq):
            self._closer_unknown = False
            if self.first_fin is not None:
                self.first_fin = (self._ending[0], *self.first_fin[1:])
        if not ended and self.first_fin is not None:
            self._step("fin", "FIN", *self.first_fin)  # it was not captured, but it was sent
        if flags & RST:
            self.refused = not self._handshake_done and bool(self._syns) and direction == 1
            if self.reset_by is None:
                self.reset_by, self._reset_frame = direction, frame
                code = "connection-refused" if self.refused else "reset"
                text = f"by the {SIDES[direction]}"
                self.findings.add(code, frame, time_ns, direction, text)
            self._step("reset", "RST", direction, frame, time_ns)
            return
        if self.first_fin is None and self.reset_by is None:
            self.first_fin = (direction, frame, time_ns)
        self.fins[direction] = True
        self._step("fin", "FIN", direction, frame, time_ns)

    def _crosses(self, direction: int, time_ns: int, segment: TcpSegment) -> bool:
        """Return whether a side ends the connection before it has heard that the other one did. A
        RST without an acknowledgement is no such end: it answers a segment.
        """
        first = self.reset_by if self.first_fin is None else self.first_fin[0]
        if first == direction or self.fins[direction] or self.fin_unseen:
            return False
        trip_ms = (self.syn_to_synack_ms or 0.0) + (self.synack_to_ack_ms or 0.0)
        soon = time_ns - self._ended_ns <= CROSSING_NS + int(trip_ms * 1e6)
        other = self.halves[1 - direction]
        unheard = self.first_fin is None or other.offset_of(segment.ack) <= other.highest
        return soon and unheard and bool(segment.flags & ACK)

    def _ends_behind(self, direction: int, seq: int) -> bool:
        """Return whether a FIN comes after everything that the first side to end had received."""
        first, acknowledged = self._ending
        if direction == first or self.fins[direction]:
            return False
        return (seq - acknowledged) % SEQ_SPAN < HALF_SEQ_SPAN

    def _unseen_before(self, side: int, frame: int, time_ns: int) -> None:
        """Process what an ending segment acknowledges beyond the captured bytes of a side. A single
        byte is its FIN; more bytes may or may not include it.
        """
        half = self.halves[side]
        unseen = half.acked - half.highest
        known = self._begins(half)
        if unseen == 1 and known:
            self._fin_unseen(side, frame, time_ns)
        self._closer_unknown = unseen > known or half.base is None

    def _begins(self, half: StreamHalf) -> bool:
        """Return whether it is known where the bytes of a side begin: if only its kernel was
        captured, this may be one byte later, because its first segment may be a keep-alive.
        """
        return half.highest > 0 or not self.mid_stream

    def _fin_unseen(self, side: int, frame: int, time_ns: int) -> None:
        """Assume a FIN of a side that was not captured, at the acknowledgement that shows it, or
        else at this frame.
        """
        answered = self.fin_acked[side]
        if answered is not None:
            frame, time_ns, open_yet = answered
            self._closer_unknown = not open_yet
        self.first_fin = (side, frame, time_ns)
        self.fin_unseen = True

    @property
    def ended(self) -> bool:
        """Return whether a FIN or RST was seen; incomplete messages then stay incomplete."""
        return self.first_fin is not None or self.reset_by is not None

    @property
    def state(self) -> str:
        """Return the state at the end of the capture, as `tcp_state` of the report."""
        if self.reset_by is not None:
            return "refused" if self.refused else "reset"
        if all(self.fins):
            return "closed"
        if any(self.fins):
            return f"half_closed_by_{SIDES[self.fins.index(True)]}"
        return "open"

    def facts(self) -> dict[str, Any]:
        """Return the report's facts about the connection itself."""
        return {
            "tcp_state": self.state,
            "syn_to_synack_ms": self.syn_to_synack_ms,
            "synack_to_ack_ms": self.synack_to_ack_ms,
        }

    def closed(self) -> dict[str, Any]:
        """Return who ended the connection, by the first FIN or RST; empty without any."""
        for side, half in enumerate(self.halves):
            answered = self.fin_acked[side]
            if not self.ended and answered is not None and half.acked == half.highest + 1:
                self._fin_unseen(side, answered[0], answered[1])
        if self.first_fin is not None:
            side, frame, _ = self.first_fin
            close: dict[str, Any] = {"by": self._ender(side), "reason": "FIN", "frame": frame}
            if self.reset_by is not None:
                close |= {"reset_by": SIDES[self.reset_by], "reset_frame": self._reset_frame}
            return close
        if self.reset_by is not None:
            by = self._ender(self.reset_by)
            return {"by": by, "reason": "RST", "frame": self._reset_frame}
        return {}

    def sign(self) -> EndHint | None:
        """Return the sign that the connection had ended before the first captured FIN or RST."""
        side, frame, time_ns = self.first_fin or (self.reset_by, self._reset_frame, self._ended_ns)
        if side is None:
            return None
        if self.first_fin is not None and self.fin_unseen:
            return EndHint("answered", 1 - side, frame, time_ns)
        # If only the other kernel was captured, its program may have ended before the capture.
        quiet = not self._begins(self.halves[1 - side]) and not self.fins[1 - side]
        return EndHint("answered", side, frame, time_ns) if quiet else None

    def _ender(self, side: int) -> str | None:
        by = None if self._closer_unknown else SIDES[side]
        return "both" if self._crossed else by

    # -- bytes and messages -----------------------------------------------------------------------

    def octets(self, direction: int, piece: StreamPiece) -> None:
        """Process bytes of the stream in order."""
        messages = self.messages[direction]
        messages.digest.update(piece.data)
        messages.octets += len(piece.data)
        messages.gaps += piece.gap_octets

    def message(
        self, direction: int, type_: str, span: tuple[int, int], frame: int, time_ns: int
    ) -> int:
        """Process a message at offsets [start, end) that `frame` completed; return its number."""
        start, end = span
        messages = self.messages[direction]
        messages.count += 1
        if messages.count == 1:
            self._step("message", None, direction, frame, time_ns)
        messages.end = end
        parts, resent_in = self.halves[direction].arrivals_of(start, end)
        repeated = resent_in > 0
        messages.repeated += repeated
        newest_ns = parts[-1].time_ns if parts else time_ns
        if len(parts) > 1:
            newest_ns = max([part.time_ns for part in parts])
        waited = time_ns - newest_ns
        if waited > 0:
            messages.blocked += 1
            messages.blocked_ns = max(messages.blocked_ns, waited)
            self.findings.add(
                "head-of-line-blocking", frame, time_ns, direction,
                f"message {messages.count} waited {waited / 1e6:.1f} ms for earlier bytes",
                {"message": messages.count, "blocked_ms": waited / 1e6, "released_by": frame},
            )  # fmt: skip
        record = None
        if messages.totals is not None:
            number = messages.count
            messages.totals.new(time_ns, 1, messages.totals.arrive(number, number, 1))
        elif self.recorder is not None:
            number, copy = messages.count, Copy(frame, time_ns, "original")
            record = self.recorder.open(direction, MESSAGES, number, number, type_, copy)
            record.extra = {
                "offset": start,
                "length": end - start,
                "segments": len(parts),
                "first_octet_ns": parts[0].time_ns if parts else time_ns,
                "last_octet_ns": newest_ns,
                "retransmitted": False,
                "blocked_ms": max(0, waited) / 1e6,
            }
            if repeated:
                _note_retransmission(record, resent_in)
            self.recorder.touched.append((record, copy))
        # Acknowledged before it was complete here: the capture has its bytes out of order.
        known = end <= self.halves[direction].acked
        waiting = PendingMessage(start, end, time_ns, frame, record, repeated=repeated or known)
        if known:
            self._settle(messages, waiting, frame, time_ns)
        else:
            messages.waiting.append(waiting)
            if len(messages.waiting) > MAX_UNITS:
                self._settle_oldest(direction)
        return messages.count

    def next_message(self, direction: int, start: int, end: int, time_ns: int) -> bool:
        """Process a message inside one segment that was seen once; return False if it is not so."""
        half = self.halves[direction]
        arrivals = half.arrivals
        messages = self.messages[direction]
        if half.repeated or self.recorder is not None or not messages.count or not arrivals:
            return False
        newest = arrivals[-1]
        if start < newest.start or newest.end < end or newest.time_ns != time_ns:
            return False
        if end <= half.acked:
            return False
        if len(arrivals) > 1:
            del arrivals[:-1]
        messages.count += 1
        messages.end = end
        messages.waiting.append(
            PendingMessage(start, end, time_ns, newest.frame, None, repeated=False)
        )
        if len(messages.waiting) > MAX_UNITS:
            self._settle_oldest(direction)
        return True

    def _settle_oldest(self, direction: int) -> None:
        """Settle the message that has waited longest as unknown."""
        self.halves[direction].hit("MAX_UNITS")
        messages = self.messages[direction]
        self._settle_unacked(messages, messages.waiting.pop(0), seen=False)

    def _settle(
        self, messages: Messages, waiting: PendingMessage, frame: int, time_ns: int
    ) -> None:
        """Process the acknowledgement of a message's last byte: the peer's kernel has it."""
        messages.acked += 1
        ambiguous = waiting.repeated
        sample = time_ns - waiting.time_ns
        if ambiguous:
            messages.rtt.ambiguous += 1
        else:
            messages.rtt.add(max(0, sample))
        if messages.totals is not None:
            messages.totals.settled(waiting.time_ns, waiting.frame, time_ns, ambiguous=ambiguous)
        if waiting.record is not None:
            record_acked(waiting.record, frame, time_ns, ambiguous=ambiguous)
            messages.settled.append(waiting)
            if len(messages.settled) > MAX_SETTLED:
                del messages.settled[: MAX_SETTLED // 2]

    def _settle_unacked(self, messages: Messages, waiting: PendingMessage, *, seen: bool) -> None:
        if seen:
            messages.unacked += 1
        else:
            messages.unknown += 1
        if messages.totals is not None and seen:
            messages.totals.span(waiting.time_ns).unacked += 1
        if waiting.record is not None:
            record_dropped(waiting.record, "unacked" if seen else "unknown")

    # -- end ---------------------------------------------------------------------------------------

    def finish(self, end_ns: int, patience_ns: int) -> list[SpaceReport]:
        """Conclude the connection; return the reports of both spaces in both directions."""
        self._refusal()
        reports = []
        for direction, half in enumerate(self.halves):
            # Only the other direction shows how long acknowledgements got through.
            over = self.reset_by is not None
            until_ns = SETTLED_NS if over else self.halves[1 - direction].last_ns - patience_ns
            tcp = half.finish(end_ns, until_ns)
            messages = self.messages[direction]
            if not messages.gaps:
                tcp.extra["stream_sha256"] = messages.digest.hexdigest()
            tcp.extra["stream_octets"] = messages.octets
            tcp.extra["gap_octets"] = messages.gaps
            if half.segments:
                reports.append(tcp)
            if messages.count:
                reports.append(self._report(direction, until_ns))
        return reports

    def _refusal(self) -> None:
        if self.first_fin is None or self.established_ns is None:
            return
        direction, frame, time_ns = self.first_fin
        # Bytes that were not captured may have been a message.
        silent = not self.messages[1].octets and self.halves[1].acked <= 1
        # The server is asked by the client's acknowledgement, which has yet to reach it from here.
        path_ns = int((self.syn_to_synack_ms or 0.0) * 1e6)
        if direction == 1 and silent and time_ns - self.established_ns <= REFUSAL_NS + path_ns:
            self.findings.add(
                "refused-by-immediate-fin", frame, time_ns, 1,
                f"FIN {(time_ns - self.established_ns) / 1e6:.1f} ms after the handshake, no data",
                concluded_ns=time_ns,
            )  # fmt: skip

    def _report(self, direction: int, until_ns: int) -> SpaceReport:
        messages = self.messages[direction]
        for waiting in messages.waiting:
            self._settle_unacked(messages, waiting, seen=waiting.time_ns < until_ns)
        messages.waiting.clear()
        return SpaceReport(
            space=MESSAGES,
            direction=direction,
            units=messages.count,
            copies=messages.count,
            acked=messages.acked,
            unacked=messages.unacked,
            unknown=messages.unknown,
            first_seq=1,
            last_seq=messages.count,
            max_copies=1,
            rtt=messages.rtt.summary(),
            extra={
                "with_retransmitted_octets": messages.repeated,
                "blocked": messages.blocked,
                "max_blocked_ms": messages.blocked_ns / 1e6,
                "leftover_octets": max(0, messages.octets + messages.gaps - messages.end),
            },
        )
