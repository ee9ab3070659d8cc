"""`scan` of Netplay: one framed message to its events. Layouts come from the derived readers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from netdissect.dissect.readers.netplay import (
    odd_NetplayChunk,
    odd_NetplayFrame,
    odd_NetplayShortFrame,
    read_NetplayFrame,
    read_NetplayText,
)
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.figures import digits
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import (
    CHUNK_DATA,
    COMPRESSED,
    HEADER,
    LENGTH_OCTETS,
    RECEIVE_BUFFER,
    chunk_spans,
    endless,
    incomplete,
    misplaced,
    oversize,
    unpack_body,
)
from netdissect.wire.netplay_text import is_class_line, judge
from netdissect.wire.strictjson import is_plain_object

_BOUNDS: Final = Bounds()
_LONGEST_NAME: Final = 4096
"""Characters of a class line that are kept as the type of a message."""


def scan_frame(payload: bytes, bounds: Bounds) -> list[Event]:
    """Return the events of one frame of bin1 or bin2."""
    events = _frame(payload, 0, bounds)
    if len(payload) > RECEIVE_BUFFER:
        _note(events, oversize(int.from_bytes(payload[:LENGTH_OCTETS], "big")))
    return events


def _frame(payload: bytes, start: int, bounds: Bounds) -> list[Event]:
    values = read_NetplayFrame(payload, start, len(payload))
    if values is None:
        return _short(payload[start:])
    events: list[Event] = [(Ev.MESSAGE, digits(values[2]))]
    if values[1]:
        odd_NetplayFrame(values, None, events)
        if values[1] & COMPRESSED:
            body = payload[start + HEADER :]
            _note(events, unpack_body(values[1], body, bounds).findings)
    return events


def _note(events: list[Event], findings: Sequence[tuple[str, str]]) -> None:
    """Add a NOTE for each (code, sentence)."""
    for code, text in findings:
        events.append((Ev.NOTE, code, text))


def _short(payload: bytes) -> list[Event]:
    """Return the events of a frame that is too short for a type, or incomplete."""
    size = len(payload)
    length = int.from_bytes(payload[:2], "big")
    whole = LENGTH_OCTETS + (length if size >= LENGTH_OCTETS else 0)
    if size < whole:
        return [(Ev.NOTE, *incomplete(whole - size))]
    events: list[Event] = [(Ev.MESSAGE, "?")]
    odd_NetplayShortFrame((length,), None, events)
    return events


def scan_chunks(payload: bytes, bounds: Bounds) -> list[Event]:
    """Return the events of one message of bin3, with its chunk headers."""
    size = len(payload)
    alone = size <= CHUNK_DATA + 1 and payload[:1] == b"\0"
    if alone and int.from_bytes(payload[1 : 1 + LENGTH_OCTETS], "big") == size - 1 - LENGTH_OCTETS:
        return _frame(payload, 1, bounds)
    parts: list[bytes] = []
    notes: list[Event] = []
    for start, end, position, need in chunk_spans(payload):
        parts.append(payload[start + 1 : end])
        odd_NetplayChunk((payload[start],), None, notes)
        _note(notes, misplaced(payload[start], position, need))
    events = _frame(b"".join(parts), 0, bounds)
    return events[:1] + notes + events[1:]


@lru_cache(maxsize=1024)
def _plain_name(class_line: bytes) -> str | None:
    """Return a class line without faults as text; None for any other."""
    if not class_line.isascii() or len(class_line) > _LONGEST_NAME:
        return None
    name = class_line.decode()
    return name if is_class_line(name) else None


def scan_text(payload: bytes) -> list[Event]:
    """Return the events of one text message."""
    values = read_NetplayText(payload, 0, len(payload))
    if values is None:
        first, feed, second = payload.partition(b"\n")
        end = endless("body", len(second)) if feed else endless("class_name", len(first))
        return [(Ev.NOTE, *end)]
    name = _plain_name(values[0])
    if name is not None:
        body = values[1].decode("utf-8", "replace")
        # The usual case, for which the full check of names and values is not needed.
        if "\ufffd" not in body and is_plain_object(body):
            return [(Ev.MESSAGE, name)]
    verdict = judge(values[0], values[1])
    events: list[Event] = [(Ev.MESSAGE, verdict.class_name[:_LONGEST_NAME])]
    events += ((Ev.NOTE, code, text) for code, text, _ in verdict.findings)
    return events


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one message."""
    dialect = hints.dialects[direction]
    if dialect == "netplay-text":
        return scan_text(payload)
    bounds: Bounds = hints.extra or _BOUNDS
    if dialect == "netplay-bin3":
        return scan_chunks(payload, bounds)
    return scan_frame(payload, bounds)
