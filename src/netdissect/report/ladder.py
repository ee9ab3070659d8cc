"""The ladder around a unit, and the story of the unit in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netdissect.model.records import DatagramRecord
from netdissect.model.reports import Copy, UnitRecord
from netdissect.plot.history import took_ms
from netdissect.plot.ladder import picture
from netdissect.plot.markup import Html, join, tag
from netdissect.render.ladder import rows
from netdissect.render.units import COPIES, counted, duration, seconds

_OUTCOMES = {
    "acked": "acknowledged",
    "unacked": "never acknowledged",
    "given_up": "given up by its sender",
    "unknown": "without an acknowledgement in this capture, which cannot tell more",
}


def drawn(records: Sequence[DatagramRecord], first_ns: int, name: str, *, redact: bool) -> Html:
    """Return datagrams as a ladder.

    Args:
        records: what to draw, in order of time.
        first_ns: time zero.
        name: what it shows, for people who do not see it.
        redact: show the types of messages instead of their contents.

    """
    types = {record.frame: _types(record) for record in records}
    made = rows((record, record.messages) for record in records)
    if redact:
        made = [replace(row, label=types.get(row.frame or 0, "")) for row in made]
    return picture(made, name, lambda time_ns: seconds(time_ns - first_ns))


def _types(record: DatagramRecord) -> str:
    """Return the types of a datagram's messages, with the numbers of their units."""
    words = []
    for item in record.messages:
        facts = item.reliability
        words.append(f"{item.type} ({facts.space} {facts.seq})" if facts else item.type)
    return " | ".join(words)


def story(unit: UnitRecord, first_ns: int, *, near: bool) -> list[Html]:
    """Return what happened to a unit, one sentence per step.

    Args:
        unit: the unit.
        first_ns: time zero.
        near: whether the capture was taken next to its sender.

    """
    first, steps = unit.copies[0], []
    acked = unit.acked_time_ns
    shown = [copy for copy in unit.copies[1:] if acked is None or copy.time_ns <= acked]
    late = [copy for copy in unit.copies[1:] if acked is not None and copy.time_ns > acked]
    steps.append(_step(first, first_ns, "sent for the first time."))
    for before, copy in zip([first, *shown], shown[:_MAX_STEPS], strict=False):
        steps.append(_step(copy, first_ns, _copied(copy, before)))
    steps += _further(shown)
    if acked is not None and unit.acked_frame is not None:
        took = duration(took_ms(unit))
        moment = seconds(acked - first_ns)
        steps.append(
            join(
                tag("b", f"#{unit.acked_frame}"),
                f" {moment} s: acknowledged, {took} after the first copy.",
            )
        )
    else:
        steps.append(join(f"It was {_OUTCOMES.get(unit.outcome, unit.outcome)}."))
    for copy in late[:_MAX_STEPS]:
        after = duration((copy.time_ns - (acked or 0)) / 1e6)
        needless = ": needless" if near and copy.kind == "retransmission" else ""
        text = f"{COPIES[copy.kind][2]}, {after} after the acknowledgement{needless}."
        steps.append(_step(copy, first_ns, text))
    steps += _further(late)
    if unit.rtt_ambiguous and shown:
        steps.append(
            join("Which of the copies was acknowledged is unknown: the acknowledgement names "
                 "the number, not the copy.")
        )  # fmt: skip
    return steps


_MAX_STEPS = 8
"""Copies that have a sentence of their own."""


def _further(copies: Sequence[Copy]) -> list[Html]:
    """Return how many copies have no sentence of their own."""
    left = len(copies) - _MAX_STEPS
    what = "copy" if left == 1 else "copies"
    return [join(f"… and {left:,} further {what}.")] if left > 0 else []


def _step(copy: Copy, first_ns: int, text: str) -> Html:
    return join(tag("b", f"#{copy.frame}"), f" {seconds(copy.time_ns - first_ns)} s: {text}")


def _copied(copy: Copy, before: Copy) -> str:
    since = duration((copy.time_ns - before.time_ns) / 1e6)
    text = f"{COPIES[copy.kind][2]}, {since} after #{before.frame}"
    if copy.kind != "retransmission":
        return text + "."
    if copy.due_ns is not None:
        late = (copy.time_ns - copy.due_ns) / 1e6
        text += f"; its timer was due {duration(abs(late))} {'earlier' if late >= 0 else 'later'}"
    if copy.attempts_left is not None:
        text += f", {counted(copy.attempts_left, 'attempt')} left"
    return text + "."
