"""Concludes a connection: timeouts, silent closes, last findings, and the report."""

from __future__ import annotations

from typing import Final

from netdissect.model.figures import tenths
from netdissect.model.packets import SIDES
from netdissect.model.policy import Exhausted
from netdissect.model.reports import (
    Ceilings,
    ConnectionReport,
    EndHint,
    RttSummary,
    SpaceReport,
    TimeoutVerdict,
)
from netdissect.model.units import Placement
from netdissect.track.ackstats import SETTLED_NS
from netdissect.track.attempts import MIN_MISSING
from netdissect.track.bounds import report_bounds
from netdissect.track.connection import Connection
from netdissect.track.context import Heard
from netdissect.track.lane import Lane, slowest_ms
from netdissect.track.silence import ANSWER_NS
from netdissect.track.space import Space
from netdissect.track.streamprobes import evidence
from netdissect.track.tcp import StreamHalf
from netdissect.track.timeouts import verdict

MIN_PATIENCE_NS: Final = 100_000_000
"""An acknowledgement may take at least this long, in ns, before its absence means anything."""
_SECOND: Final = 1_000_000_000
SILENCE_SHARE: Final = 0.5
"""A peer that is silent for this share of the idle timeout may be gone."""


def conclude(connection: Connection, end_ns: int) -> ConnectionReport:
    """Settle the connection, release it, and return its report; `end_ns` is the end of the
    capture.
    """
    report = _concluded(connection, end_ns)
    connection.release()
    return report


def conclude_placement(connection: Connection) -> Placement:
    """Release the connection after a first pass; return what the second pass needs."""
    connection.judge()
    if _detect_missed_frames(connection):
        connection.judge()
    stream = connection.stream
    if stream is not None:
        connection.vantage.update(*evidence(stream.halves))
    for lane in connection.lanes:
        for space in lane.space_list:
            # Only now are all copies known, and the second pass can judge each by their common
            # gaps.
            space.repeats.find_common_gaps()
    connection.release()
    findings = connection.findings
    return Placement(connection.vantage.near, findings.misses, findings.copy_gaps)


def _concluded(connection: Connection, end_ns: int) -> ConnectionReport:
    connection.judge()
    if _detect_missed_frames(connection):
        connection.judge()
    connection.finish_vantage()
    _note_request(connection, end_ns)
    patience = _patience_ns(connection)
    silent = connection.silence.end(end_ns)
    for lane in connection.lanes:
        heard_ns = _acks_seen_until(connection, lane.direction)
        dark = _dark(connection, 1 - lane.direction)
        # A sender that has left waits for no acknowledgement, whichever numbers are missing.
        if heard_ns != SETTLED_NS:
            dark += _gaps(connection, 1 - lane.direction)
        heard = Heard(heard_ns, patience, dark)
        for space in lane.space_list:
            space.end_all(heard)
    streamed = _stream(connection, end_ns, patience)
    silent_close = _silent_close(connection, end_ns)
    timeouts = _timeouts(connection, end_ns, silent_close)
    if silent_close is not None:
        connection.silence.retract(silent_close, 0)
    for found in timeouts:
        # Once a side has given up, its peer's silence is explained.
        if found.fired:
            connection.silence.retract(SIDES.index(found.side), found.last_heard_ns or 0)
    _silence_findings(connection, end_ns)
    state = _outcome(connection, timeouts, end_ns, silent=True in silent)
    _last_findings(connection, end_ns)
    return _report(connection, state, timeouts, streamed, connection.findings.limits())


_SHOWN: Final = frozenset({"handshake", "protocol"})
"""The values of `roles_from` that are no guess."""


def _detect_missed_frames(connection: Connection) -> bool:
    """Find out whether the capture misses frames; return whether the vantage must be judged again.

    It does if a side is active that it does not have, if numbers are missing next to their sender,
    or if bytes of a stream are acknowledged that it does not have. If both sides are near, the
    numbers may have been lost before the capture.
    """
    known = connection.findings.misses
    stream = connection.stream
    if stream is not None and any(map(_lacks_acknowledged, stream.halves)):
        connection.findings.misses = True
    for lane in connection.lanes:
        if _not_captured(connection, lane.direction) and (
            _was_active(connection, lane) or _speaks_to(connection, lane.direction)
        ):
            connection.findings.misses = True
    for space in _spaces(connection):
        beside = space.context.beside_sender
        if beside and not space.rule.copies_take_numbers and space.so_far().never_seen:
            connection.findings.misses = True
    return (connection.findings.misses and not known) or _count_earlier_losses(connection)


def _lacks_acknowledged(half: StreamHalf) -> bool:
    """Return whether the capture lacks bytes of a side that the other one has acknowledged. The
    byte after the newest may be a FIN.
    """
    beyond = half.base is not None and half.acked > half.highest + 1
    return beyond or any(low < half.acked for low, _ in half.holes)


def _count_earlier_losses(connection: Connection) -> bool:
    """Find out whether units of one side were lost before they reached the capture: their numbers
    are missing and unacknowledged, while others are acknowledged. Return whether there are any. If
    both sides have such units, they show no vantage: programs may lose some before sending.
    """
    if connection.findings.misses or False in connection.vantage.near:
        return False
    missing = [0, 0]
    lacks = [False, False]
    for space in _spaces(connection):
        way = space.direction
        missing[way] = max(missing[way], _lost_before(space))
        lacks[way] = lacks[way] or space.missing() > 0
    if False not in lacks:
        return False
    for lane in connection.lanes:
        if connection.vantage.near[lane.direction] is None:
            lane.missing = missing[lane.direction]
    return any(lane.missing for lane in connection.lanes)


def _lost_before(space: Space) -> int:
    """Return how many units of an acknowledged space are missing, several in a row counting as two:
    a network loses some here and there, and a sender's numbers may jump.
    """
    return min(space.missing(), 2 * space.numbers.missing.parts) if space.ack_stats.acked else 0


def _not_captured(connection: Connection, side: int) -> bool:
    """Return whether the capture has nothing that a side sent."""
    stream = connection.stream
    return not connection.lanes[side].datagrams and (
        stream is None or not stream.halves[side].last_ns
    )


def _speaks_to(connection: Connection, side: int) -> bool:
    """Return whether the other side, captured alone, sends what it only sends to an active peer. A
    server that sends only the beginning may be answering a broadcast to another address.
    """
    handshake = connection.machine.handshake
    if side:
        return handshake == "accepted"
    return connection.roles_from in _SHOWN and handshake != "unanswered"


def _was_active(connection: Connection, lane: Lane) -> bool:
    """Return whether a side was active although it was not captured: the other side acknowledges,
    answers, measures or counts what it sends.
    """
    stream = connection.stream
    other = connection.lanes[1 - lane.direction]
    return (
        any(space.acks.sender_present for space in lane.space_list)
        or any(track.sender_present for track in lane.probes.values())
        or any(track.declared.highest > 0 for track in other.probes.values())
        or connection.declared.received[other.direction] > 0
        or (stream is not None and stream.halves[lane.direction].sender_present)
    )


def snapshot(connection: Connection) -> ConnectionReport:
    """Return the current report of an open connection, with nothing settled."""
    return _report(connection, connection.machine.word, [], [], {})


def _report(
    connection: Connection,
    state: str,
    timeouts: list[TimeoutVerdict],
    streamed: list[SpaceReport],
    limits: dict[str, int],
) -> ConnectionReport:
    machine = connection.machine
    first, second = connection.lanes
    return ConnectionReport(
        connection=connection.number,
        protocol=connection.protocol,
        dialects=connection.hints.dialects,
        transport=connection.transport,
        client=connection.endpoints[0],
        server=connection.endpoints[1],
        roles_from=connection.roles_from,
        first_frame=connection.lifetime.first_frame,
        last_frame=connection.last_frame,
        first_time_ns=connection.lifetime.first_ns,
        last_time_ns=connection.last_ns,
        vantage=connection.vantage.word,
        vantage_basis=connection.vantage.basis,
        near=connection.vantage.near,
        handshake=_handshake(connection),
        reject_reason=machine.reject_reason,
        state=state,
        state_name=machine.state,
        close=machine.close,
        identity=connection.identity,
        datagrams=(first.datagrams, second.datagrams),
        octets=(first.octets, second.octets),
        messages=(_counts(first), _counts(second)),
        spaces=[
            *(space.report() for space in _spaces(connection) if space.numbers.seen), *streamed,
        ],
        probes=[
            track.report()
            for lane in connection.lanes
            for track in lane.probes.values()
            if track.sent
        ],
        timeouts=timeouts,
        counters=(first.counters, second.counters),
        anomalies=connection.findings.totals(),
        complete=_complete(connection),
        limits_hit=limits,
        explain=connection.explain,
        timings=(_timings(first), _timings(second)),
        clocks=(connection.declared.clocks[0].summary(), connection.declared.clocks[1].summary()),
        codes=connection.findings.repeats,
        quiet=connection.silence.spans,
        end_hint=_end_hint(connection),
        gone=connection.silence.gone(),
        ended_ns=_ended_ns(connection),
        ceilings=(_ceilings(first), _ceilings(second)),
        misses_frames=connection.findings.misses,
        copy_gaps=connection.findings.copy_gaps,
        malformed=connection.findings.newest_malformed,
    )


def _handshake(connection: Connection) -> str:
    """Return how the handshake went. A direction that was not captured may have answered, and so
    may a server after the capture.
    """
    word = connection.machine.handshake
    if word != "unanswered":
        return word
    missing = any(_not_captured(connection, way) for way in (0, 1))
    unheard = connection.findings.misses and missing
    sign = connection.end_hint
    return "not_seen" if unheard or (sign is not None and sign.kind == "asked") else word


def _note_request(connection: Connection, end_ns: int) -> None:
    """Note a request to begin that the server had no time to answer before the capture ended."""
    machine, silence = connection.machine, connection.silence
    if machine.handshake != "unanswered" or machine.over or silence.error:
        return
    (asked_ns, frame), heard_ns = silence.last(0), silence.last(1)[0]
    if end_ns - max(heard_ns, connection.lifetime.first_ns) < ANSWER_NS and heard_ns < asked_ns:
        connection.end_hint = connection.end_hint or EndHint("asked", 0, frame, asked_ns)


def _stream(connection: Connection, end_ns: int, patience_ns: int) -> list[SpaceReport]:
    """Conclude the TCP connection, whose acknowledgements also show the vantage."""
    stream = connection.stream
    if stream is None:
        return []
    connection.vantage.update(*evidence(stream.halves))
    closed = stream.closed()
    if closed and connection.machine.word != "timed_out":
        connection.machine.close = closed
    connection.identity |= stream.facts()
    return stream.finish(end_ns, patience_ns)


def _dark(connection: Connection, direction: int) -> list[tuple[int, int]]:
    """Return the (start, end) of the spans in which a direction was silent although it should have
    been heard. Whether it heard the questions that it was asked in that time, nobody can tell; but
    a peer that kept asking to begin had no answer.
    """
    silence, begun_ns = connection.silence, connection.lifetime.first_ns
    return [
        (span.from_ns, span.to_ns)
        for span in silence.spans
        if span.kind == "silence" and span.direction == direction and span.to_ns is not None
        if span.basis != "asked"
        or span.from_ns != begun_ns
        or 2 * silence.request_ns < begun_ns + span.to_ns
    ]


def _gaps(connection: Connection, direction: int) -> list[tuple[int, int]]:
    """Return the (start, end) of the spans in which numbers of a direction are missing, and with
    them perhaps acknowledgements. Next to the side that waits for these, they did not arrive.
    """
    near = connection.vantage.near
    if near[1 - direction] and not near[direction]:
        return []
    return [
        (burst.from_ns, burst.to_ns)
        for space in connection.lanes[direction].space_list
        if space.numbers.bursts and space.so_far().never_seen
        for burst in space.numbers.bursts
        if burst.count
    ]


def _acks_seen_until(connection: Connection, direction: int) -> int:
    """Return until when the capture would have shown an acknowledgement for a direction; 0 = never.

    Only the other direction of the same connection shows that acknowledgements get through. If
    many numbers of it are missing, any acknowledgement may be. A sender that has ended the
    connection waits for none, so that all its units are settled.
    """
    close = connection.machine.close
    if close is not None and close.get("by") == SIDES[direction]:
        return SETTLED_NS
    if len(_gaps(connection, 1 - direction)) >= MIN_MISSING:
        return 0
    return connection.lanes[1 - direction].last_ns


def _ended_ns(connection: Connection) -> int | None:
    """Return the time of the frame that shows the end of the connection."""
    close = connection.machine.close
    if close is None:
        return None
    stream = connection.stream
    if stream is not None and stream.first_fin is not None:
        return stream.first_fin[2]
    silent = close["frame"] == connection.last_frame
    return connection.lifetime.over_ns or (connection.last_ns if silent else None)


def _end_hint(connection: Connection) -> EndHint | None:
    """Return the best hint at how the connection ended if the wire does not state it."""
    signs = [space.renewed for space in _spaces(connection) if space.renewed is not None]
    machine = connection.machine
    if machine.answered and machine.close is not None and connection.lifetime.over_ns:
        side = 1 - SIDES.index(str(machine.close["by"]))
        signs.append(EndHint("answered", side, connection.last_frame, connection.lifetime.over_ns))
    over_tcp = None if connection.stream is None else connection.stream.sign()
    if over_tcp is not None:
        signs.append(over_tcp)
    if signs:
        return min(signs, key=lambda sign: sign.time_ns)
    sign = connection.end_hint
    if sign is None or sign.kind not in ("notice", "notices"):
        return sign
    if sign.frame < connection.last_frame:
        return None  # it was no goodbye: the connection went on
    return sign


def _spaces(connection: Connection) -> list[Space]:
    return [space for lane in connection.lanes for space in lane.space_list]


def _patience_ns(connection: Connection) -> int:
    """Return how long an acknowledgement may take: the longest usual round trip, in ns."""
    return int(max(slowest_ms(connection.lanes, MIN_PATIENCE_NS) * 1e6, MIN_PATIENCE_NS))


def _silent_close(connection: Connection, end_ns: int) -> int | None:
    """Return the side that closed the connection by a rule that sends nothing, or nothing but the
    end of the stream; None = neither.
    """
    cut = connection.lifetime.cut
    if connection.machine.over and cut is None:
        return None
    for lane in connection.lanes:
        for space in lane.space_list:
            moment, reason = _closing_rule(space)
            if moment is None:
                continue
            if cut is not None:
                # Its kernel still sends what was written before. When its timer was due is only an
                # estimate, but it was after the last copy.
                moment = min(moment, space.attempts.last_copy_ns or moment)
                if cut[0] != lane.direction or cut[1] < moment:
                    continue
            # A sender that goes on afterwards has not closed: its program does not obey the rule.
            elif lane.last_ns > moment or end_ns <= moment:
                continue
            # A closed sender no longer processes what arrives, so that its own counts have ended,
            # too.
            for other in lane.space_list:
                other.acks.revert_after_close()
            side = SIDES[lane.direction]
            close = connection.machine.close or {"frame": lane.last_frame}
            connection.machine.close = {"by": side, "reason": reason, "frame": close["frame"]}
            connection.findings.add(
                "silent-close", lane.last_frame, lane.last_ns, lane.direction,
                f"{side} closed without a word: {reason}", concluded_ns=moment,
            )  # fmt: skip
            return lane.direction
    return None


def _closing_rule(space: Space) -> tuple[int | None, str]:
    """Return (time, reason) at which the sender of a space closed by its own rules."""
    resend = space.rule.resend
    if resend is not None and resend.exhausted is Exhausted.CLOSE:
        # `spent_ns`: a sender may also miss the acknowledgements that the capture has.
        attempts = space.attempts
        moment = attempts.spent_ns if attempts.gave_up_ns is None else attempts.gave_up_ns
        if moment is not None:
            return moment, resend.exhausted_reason
    quality = space.ack_stats.quality
    if quality is not None and quality.broken_ns is not None and not space.context.findings.misses:
        return quality.broken_ns, quality.rule.reason
    return None, ""


def _timeouts(
    connection: Connection, end_ns: int, silent_close: int | None
) -> list[TimeoutVerdict]:
    verdicts = []
    machine = connection.machine
    for side, rule in enumerate(connection.timeout_rules()):
        unheard = silent_close == 1 - side  # its peer left without telling it
        if rule is None:
            continue
        found = connection.announced.get(side) or verdict(
            side,
            rule,
            heard=connection.lanes[1 - side],
            own=connection.lanes[side],
            end_ns=end_ns,
            near=connection.vantage.near[side],
            over=machine.over or (machine.close is not None and not unheard),
        )
        if found is not None:
            verdicts.append(found)
            _timeout_event(connection, found, side)
    return verdicts


def _timeout_event(connection: Connection, found: TimeoutVerdict, side: int) -> None:
    if not found.fired:
        return
    connection.findings.add(
        "timeout", found.last_heard_frame, found.last_heard_ns, side,
        f"{found.side} heard nothing any more and gave its peer up",
        {"last_heard_ns": found.last_heard_ns, "due_ns": found.due_ns},
        concluded_ns=found.due_ns,
    )  # fmt: skip
    recorder = connection.recorder
    if recorder is not None and found.due_ns is not None:
        recorder.event(
            "timeout", found.due_ns, None, side, f"{found.side} gives its peer up",
            {"last_heard_ns": found.last_heard_ns, "latest_ns": found.latest_ns},
        )  # fmt: skip


def _outcome(
    connection: Connection, timeouts: list[TimeoutVerdict], end_ns: int, *, silent: bool
) -> str:
    """Return the final state, as in `ConnectionReport.state`."""
    machine = connection.machine
    if machine.close is not None and not machine.over:
        return "closed"
    if machine.word != "open":
        return machine.word
    if any(found.fired for found in timeouts):
        return "timed_out"
    if silent:
        return "silent"
    near = connection.vantage.near
    for found in timeouts:
        side = SIDES.index(found.side)
        if near[side] is False or None in (found.due_ns, found.last_heard_ns):
            continue
        idle_ns = (found.due_ns or 0) - (found.last_heard_ns or 0)
        if end_ns - (found.last_heard_ns or 0) > SILENCE_SHARE * idle_ns:
            return "unknown"
    closing = (
        moment is not None and lane.last_ns <= moment
        for lane in connection.lanes
        for moment, _ in map(_closing_rule, lane.space_list)
    )
    return "unknown" if any(closing) else "open"


def _silence_findings(connection: Connection, end_ns: int) -> None:
    # After the close, the rest of the capture says nothing about the connection.
    over_ns = end_ns if connection.machine.close is None else connection.last_ns
    connection.silence.drop_brief(over_ns)
    for span in connection.silence.spans:
        until_ns = span.to_ns or over_ns
        side = SIDES[span.direction]
        lasted = f"{tenths(until_ns - span.from_ns, _SECOND)} s"
        lasted += "" if span.to_ns else ", to the end"
        if span.kind == "one-way":
            text = f"what the {side} sent was not answered for {lasted}"
        else:
            text = f"nothing from the {side} for {lasted}"
        if span.unanswered:
            text += f"; {span.unanswered} questions without an answer"
        connection.findings.add(
            span.kind, span.from_frame, span.from_ns, span.direction, text,
            {"from_ns": span.from_ns, "to_ns": span.to_ns, "basis": span.basis,
             "frames": [span.from_frame, span.to_frame], "asked": span.unanswered},
            concluded_ns=until_ns,
        )  # fmt: skip


def _last_findings(connection: Connection, end_ns: int) -> None:
    for lane in connection.lanes:
        for space in lane.space_list:
            first = space.rule.first_seq
            if first is None or not connection.started or connection.findings.misses:
                continue
            if space.numbers.skipped_start(first):
                word = "seen" if space.context.sender_near is False else "sent"
                connection.findings.add(
                    "first-number-skipped", None, None, lane.direction,
                    f"{space.rule.name} starts at {space.numbers.first}; {first} was never {word}",
                )  # fmt: skip
    report_bounds(connection.findings, end_ns)


def _complete(connection: Connection) -> bool:
    both = all(lane.datagrams for lane in connection.lanes) or connection.silence.error is not None
    return connection.started and both and not connection.evicted and not connection.mid_stream


def _timings(lane: Lane) -> dict[str, RttSummary]:
    return {name: kept.summary() for name, kept in lane.timings.items()}


def _ceilings(lane: Lane) -> Ceilings:
    lane.load.judge()
    return lane.load.found[0], lane.load.found[1]


def _counts(lane: Lane) -> dict[str, int]:
    return {name: lane.messages[name].count for name in sorted(lane.messages)}
