"""One framed message of Netplay to its events. Layout comes from the derived readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from netdissect.dissect.readers.netplay import read_NetplayFrame, read_NetplayText
from netdissect.model.events import Ev, Event
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import (
    CHUNK_DATA,
    CHUNK_NAMES,
    COMPRESSED,
    ENCRYPTED,
    RECEIVE_BUFFER,
    RESERVED,
    SHORTEST,
    chunk_header,
    chunk_spans,
    unpack_body,
)
from netdissect.wire.netplay_text import is_class_line, judge
from netdissect.wire.strictjson import is_plain_object

__all__ = ["SCANNERS", "scan_chunks", "scan_frame", "scan_text"]

_MESSAGE: Final = int(Ev.MESSAGE)
_NOTE: Final = int(Ev.NOTE)
_HEADER: Final = 5
_LONGEST_NAME: Final = 4096
"""Characters of a class line that name a message type."""


@lru_cache(maxsize=65536)
def _name(number: int) -> str:
    return str(number)


def scan_frame(payload: bytes, bounds: Bounds) -> list[Event]:
    """Return the events of one frame of bin1 or bin2."""
    values = read_NetplayFrame(payload, 0, len(payload))
    if values is None:
        return _short(payload)
    length, options, kind, _ = values
    events: list[Event] = [(_MESSAGE, _name(kind))]
    if options:
        events += _options(options, payload[_HEADER:], bounds)
    if length + 2 > RECEIVE_BUFFER:
        text = f"{length + 2} octets, the receiver holds {RECEIVE_BUFFER}"
        events.append((_NOTE, "frame-above-receiver-buffer", text))
    return events


def _short(payload: bytes) -> list[Event]:
    """Return the events of a frame without a type, or of one that is not whole."""
    length = int.from_bytes(payload[:2], "big")
    if len(payload) > 1 and length < SHORTEST:
        return [(_MESSAGE, "?"), (_NOTE, "frame-length-below-3", f"length {length}")]
    text = f"{len(payload)} octets of a frame of {length + 2}"
    return [(_NOTE, "incomplete-frame-at-close", text)]


def _options(options: int, body: bytes, bounds: Bounds) -> list[Event]:
    notes: list[Event] = []
    if options & RESERVED:
        notes.append((_NOTE, "reserved-option-bits", f"options {options:#04x}"))
    if options & COMPRESSED:
        content = unpack_body(options, body, bounds)
        notes += ((_NOTE, code, text) for code, text in content.findings)
    if options & ENCRYPTED:
        notes.append((_NOTE, "encrypted-flag-set", "the application's own mark"))
    return notes


def scan_chunks(payload: bytes, bounds: Bounds) -> list[Event]:
    """Return the events of one message of bin3, with its chunk headers."""
    notes: list[Event] = []
    if len(payload) <= CHUNK_DATA + 1 and payload[:1] == b"\0":
        frame = payload[1:]
    else:
        parts = []
        for start, end, position, need in chunk_spans(payload):
            parts.append(payload[start + 1 : end])
            notes += _header(payload[start], position, need)
        frame = b"".join(parts)
    values = read_NetplayFrame(frame, 0, len(frame))
    if values is None:
        return _short(frame) + notes
    _, options, kind, _ = values
    events: list[Event] = [(_MESSAGE, _name(kind)), *notes]
    if options:
        events += _options(options, frame[_HEADER:], bounds)
    return events


def _header(head: int, position: int, need: int) -> list[Event]:
    if head not in CHUNK_NAMES:
        return [(_NOTE, "chunk-header-invalid", f"chunk header {head:#04x}")]
    if head != chunk_header(position, need):
        text = f"chunk header {head:#04x} at octet {position} of a frame of {need}"
        return [(_NOTE, "chunk-header-unexpected", text)]
    return []


@lru_cache(maxsize=1024)
def _plain_name(class_line: bytes) -> str | None:
    """Return a class line that has nothing odd about it; None for others."""
    if not class_line.isascii() or len(class_line) > _LONGEST_NAME:
        return None
    name = class_line.decode()
    return name if is_class_line(name) else None


def scan_text(payload: bytes, bounds: Bounds) -> list[Event]:
    """Return the events of one text message; nothing in it is compressed."""
    del bounds
    values = read_NetplayText(payload, 0, len(payload))
    if values is None:
        return [(_NOTE, "incomplete-message-at-close", f"{len(payload)} octets without an end")]
    name = _plain_name(values[0])
    if name is not None:
        body = values[1].decode("utf-8", "replace")
        if "\ufffd" not in body and is_plain_object(body):
            return [(_MESSAGE, name)]
    verdict = judge(values[0], values[1])
    events: list[Event] = [(_MESSAGE, verdict.class_name[:_LONGEST_NAME])]
    events += ((_NOTE, code, text) for code, text, _ in verdict.findings)
    return events


SCANNERS: Final[dict[str, Callable[[bytes, Bounds], list[Event]]]] = {
    "netplay-bin1": scan_frame,
    "netplay-bin2": scan_frame,
    "netplay-bin3": scan_chunks,
    "netplay-text": scan_text,
}
"""Dialect -> what scans its messages."""
