"""A Netplay client of any dialect: a TCP connection and whole frames. The protocol has no handshake
of its own, no acknowledgement and no answer to anything, so a session is alive while the server
keeps it open and, where the system tells, reads it. A server that sends messages of a type back to
whom they came from, as many that send on to all do, has accepted those that come back; and where
one came back first thing in a session, it is what a living server is asked.

Source: docs/protocols/netplay.md sections 1, 2, 5 and 7.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.fuzz.target import Link
from netdissect.wire.netplay import (
    COMPRESSED,
    DIALECTS,
    HEADER,
    LENGTH_OCTETS,
    SHORTEST,
    chunk_spans,
    frame_spans,
    split_frame,
)

_ZLIB_EMPTY = bytes.fromhex("789c030000000001")
BUFFER_LIMIT = 1 << 17  # twice what a frame can be
_CODE_ZERO, _CODE_258 = [0, 0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 0, 1]
_DISTANCE_1, _CODE_END = [0] * 5, [0] * 7
_UNRETURNED_LIMIT = 1024
"""Sent messages at most of which it is remembered that they may come back."""
_QUESTION, _SURE, _MISSED, _RETURNS, _FIRST = "question", "sure", "missed", "returns", "first"
"""What runs learn: a message that came back, empty once it is given up; the same once a session
that began with it got it back; a byte for each session that did not although others got something
back meanwhile; the number of messages that came back, modulo 256, as one byte; a byte for each
message that was waited for although nothing had come back yet."""
_QUESTION_LIMIT = 256  # bytes of what is asked with, at most: it is sent often
_QUESTION_SECONDS = 0.5  # after so long the session counts as one that got nothing back
_QUESTIONS = 3  # such sessions, after which the question is given up
_FIRST_SECONDS, _FIRST_TIMES = 1.0, 4
"""Time given to a server that has just started to send a message back, and how many messages get
it: else one of the next may end it before anything is known that it answers."""
_READ_PAUSE = 0.0002  # seconds until it is first asked again whether a server has read
_READ_SECONDS, _READ_TIMES = 0.02, 3.0
"""Minimum time given to a server of bin3 to read a message that it may not send back, and how many
times as long as for what it sends back."""
_SMOOTH = 0.2
_TYPE, _LEARNT_LIMIT = "returns type ", 64
"""What runs learn, too: this and the name of a type that came back, of at most so many."""
_REPEATS = (4, 260, 600)
"""Repeated runs of 258 bytes: about 1 KiB, 64 KiB and 150 KiB from little."""


def _stored(data: bytes) -> bytes:
    """Return a zlib stream of stored blocks: the one form that every zlib writes alike."""
    size = len(data) & 0xFFFF
    block = bytes([1]) + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little")
    return b"\x78\x01" + block + data[:size] + zlib.adler32(data[:size]).to_bytes(4, "big")


@cache
def _zeros(count: int) -> bytes:
    """Return a zlib stream of 1 + 258 * `count` zeros in 13 bits for every 258, written out so that
    every machine writes the same. Source: RFC 1951, fixed codes: literal 0, length 258, distance 1.
    """
    bits = [1, 1, 0, *_CODE_ZERO, *(_CODE_258 + _DISTANCE_1) * count, *_CODE_END]
    number = sum(bit << at for at, bit in enumerate(bits))
    size = 1 + 258 * count
    head, total = b"\x78\x01", zlib.adler32(bytes(size)).to_bytes(4, "big")
    return head + number.to_bytes(-(-len(bits) // 8), "little") + total


def _bad_zlib(data: bytes, chance: Chance) -> tuple[bytes, str] | None:
    """Return a message whose frame says that its body is compressed, and holds something else."""
    if next(iter(chunked(data)), None) == data:
        lied = _bad_frame(joined(data), chance)
        return None if lied is None else (b"".join(split_frame(lied[0])), lied[1])
    return _bad_frame(data, chance)


def _bad_frame(data: bytes, chance: Chance) -> tuple[bytes, str] | None:
    length = int.from_bytes(data[:LENGTH_OCTETS], "big")
    if len(data) < HEADER or length + LENGTH_OCTETS != len(data):
        return None
    body = data[HEADER:]
    stream = _stored(body)
    made = {
        "not compressed": body,
        "cut": stream[: max(1, len(stream) - chance.between(1, 4))],
        # A header with the FDICT bit, and the checksum of a dictionary that nobody has.
        "dictionary": bytes.fromhex("78bb00000001") + stream[2:],
        "wrong sum": stream[:-1] + bytes([stream[-1] ^ 1]),
        "bytes behind the end": stream + chance.octets(chance.between(1, 8)),
        "wrong block size": stream[:3] + b"\xff\xff\x00\x00" + stream[7:],
        "empty": _ZLIB_EMPTY,
        "too much": _zeros(chance.choice(_REPEATS)),
        "noise": b"\x78\xda" + chance.octets(chance.between(1, 64)),
    }
    note = chance.choice(list(made))
    size = len(made[note]) + HEADER - LENGTH_OCTETS
    head = (size & 0xFFFF).to_bytes(2, "big") + bytes([data[2] | COMPRESSED]) + data[3:HEADER]
    return head + made[note], note


def frames(stream: bytes) -> Iterable[bytes]:
    """Split whole binary frames off the start of a stream."""
    for start, end, length in frame_spans(stream):
        if length < SHORTEST or end > len(stream):
            return
        yield stream[start:end]


def chunked(stream: bytes) -> Iterable[bytes]:
    """Split whole frames of bin3, in their chunks, off the start of a stream."""
    first = 0
    for start, end, position, need in chunk_spans(stream):
        if need < LENGTH_OCTETS + SHORTEST or end > len(stream):
            return
        if not position:
            first = start
        if position + end - start - 1 == need:
            yield stream[first:end]


def joined(message: bytes) -> bytes:
    """Return the frame that the chunks of one message hold."""
    spans = chunk_spans(message)
    return b"".join(message[start + 1 : end] for start, end, _position, _need in spans)


def lines(stream: bytes) -> Iterable[bytes]:
    """Split whole text messages, two lines each, off the start of a stream."""
    rows = stream.split(b"\n")[:-1]
    for at in range(0, len(rows) - 1, 2):
        yield rows[at] + b"\n" + rows[at + 1] + b"\n"


class NetplayDriver(Driver):
    """One connection. Frames of the server are counted, and compared with what was sent."""

    protocol = "netplay"
    transport = "tcp"
    dialects = DIALECTS
    traits = Traits(controls=frozenset({"*"}), lies=(_bad_zlib,))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buffer = b""
        self._out_of_step = False
        self._unreturned: dict[Key, bytes] = {}
        self._serial = 0
        self._returned: set[str] = set()
        self._asked_under: set[Key] = set()
        self._echoes = 0
        self._echo_due = False
        self._took = 0.0
        self._began = 0.0
        self._returns_before = b""
        self._begins_asked = False
        self._unread_since: float | None = None

    def begin(self) -> None:
        """Ask what a living server sends back, where one of this run is known to; else all it has
        to do is to accept the connection.
        """
        self._began, self._returns_before = self.clock(), self._returns
        self._begins_asked = bool(self.learnt.get(_QUESTION))
        if self._begins_asked:
            self.probe(self._began)
        elif self._was_read():
            self.state = CONNECTED

    def ends(self, octets: bytes) -> bool:
        """Return whether the server would wait for bytes that do not come, or leave."""
        return sum(map(len, self.split(octets, self.dialect))) != len(octets)

    def handle(self, data: bytes, now: float) -> None:
        """Count the server's messages, and note those of ours that it has sent back."""
        self._buffer = (self._buffer + data)[-BUFFER_LIMIT:]
        whole = list(self.split(self._buffer, self.dialect))
        self._buffer = self._buffer[sum(map(len, whole)) :]
        for message in whole:
            name = self._name(message)
            sent = next((key for key, ours in self._unreturned.items() if ours == message), None)
            self.answered(name, ours=sent is not None)
            if sent is None:
                continue
            del self._unreturned[sent]
            self._returned.add(name)
            if len(self.learnt) < _LEARNT_LIMIT:
                self.learnt[_TYPE + name] = b""
            self._took += _SMOOTH * (now - self.sent_at - self._took)
            self.acknowledged(sent)
            self.learnt[_RETURNS] = bytes([(self._returns[0] + 1) % 256])
            if len(message) <= _QUESTION_LIMIT:
                self.learnt.setdefault(_QUESTION, message)
            if sent in self._asked_under:
                self._asked_under.remove(sent)
                self._echoes += 1
                if self.state != CONNECTED:
                    self.learnt[_SURE] = message
                    self.state = CONNECTED

    def _name(self, message: bytes) -> str:
        if self.dialect == "netplay-text":
            return message.partition(b"\n")[0].decode("utf-8", "replace")[:40]
        frame = joined(message) if self.dialect == "netplay-bin3" else message
        return str(int.from_bytes(frame[3:HEADER], "big"))

    def tick(self, now: float) -> None:
        """Leave a stream in which the server waits for bytes that will not come; give a question up
        that never came back first thing in a session.
        """
        if self._out_of_step:
            self.end("out of step")
        if not self._begins_asked:
            if self.state == "connecting" and self._was_read():
                self.state = CONNECTED
            return
        late = now >= self._began + _QUESTION_SECONDS
        # While nothing comes back at all, the server may hang.
        late = late and self._returns != self._returns_before
        if self.state != CONNECTED and self.is_open and late and not self._is_sure:
            self.state = CONNECTED
            self.learnt[_MISSED] = self.learnt.get(_MISSED, b"") + b"?"
            if len(self.learnt[_MISSED]) >= _QUESTIONS:
                self.learnt[_QUESTION] = b""

    @property
    def _returns(self) -> bytes:
        return self.learnt.get(_RETURNS, b"\0")

    @property
    def _is_sure(self) -> bool:
        return _SURE in self.learnt

    @property
    def _is_asked(self) -> bool:
        """Return whether the question is known to come back in this session."""
        question = self.learnt.get(_QUESTION)
        return self._is_sure or (question is not None and self._name(question) in self._returned)

    def probe(self, now: float) -> None:
        """Send what came back before; nothing where nothing did."""
        del now
        question = self.learnt.get(_QUESTION)
        if question and not self._out_of_step:
            if self.state == CONNECTED:
                self._wait_for_reader()
            self._asked_under.add(self._remember(question))
            for part in self._parts(question):
                self.link.send(part)

    def proofs(self) -> int:
        """Return how many questions came back."""
        return self._echoes

    def alive(self, timeout: float, *, certain: bool = False) -> bool:
        """Return whether the server sends a question back; where no such question is known, whether
        it keeps the connection open and reads it.

        Args:
            timeout: seconds in which it may still do so, at most the usual ones to close it.
            certain: wait for that, and for another connection to be accepted: a server that has
                read a message may hang in it. Else look once.
        """
        if self._is_asked:
            return super().alive(timeout, certain=certain)
        if not certain:
            self.pump()
            return self.is_open and not self.owed(self.clock()) > self.quick_seconds
        self.until(lambda: False, min(timeout, self.quick_seconds))
        return self.is_open and self._accepts(timeout)

    def _accepts(self, timeout: float) -> bool:
        """Return whether the server has read all of this session and accepts another connection."""
        try:
            other = Link(self.link.target, self.transport, self.link.journal)
        except OSError:
            return False
        links = (self.link, other)
        with other:
            return self.until(lambda: all(one.is_read() is not False for one in links), timeout)

    def ask(self, now: float, *, again: bool = False) -> None:
        """Ask what is known to come back; nothing where that is not sure."""
        if self._is_asked:
            super().ask(now, again=again)

    def owed(self, now: float) -> float:
        """Return the same as every driver; where no question is known, the same as `unread`."""
        return super().owed(now) if self._is_asked else self.unread(now)

    def unread(self, now: float) -> float:
        """Return for how many seconds the server has left unread what was sent."""
        if self._was_read():
            self._unread_since = None
            return 0.0
        if self._unread_since is None:
            self._unread_since = now
        return now - self._unread_since

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Return the bytes: the protocol has no live values. What is of a type that the server has
        sent back in this session is expected to come back.
        """
        octets = step.octets
        self._out_of_step |= self.ends(octets)
        whole = list(self.split(octets, self.dialect))
        if whole != [octets] or self._name(octets) not in self._returned:
            return octets, None
        self._serial += 1
        return octets, self._serial

    def _remember(self, message: bytes, serial: Key | None = None) -> Key:
        """Return the number under which a sent message waits to come back, by default a new one."""
        if serial is None:
            self._serial += 1
            serial = self._serial
        if len(self._unreturned) >= _UNRETURNED_LIMIT:
            oldest = next(iter(self._unreturned))
            del self._unreturned[oldest]
            self._asked_under.discard(oldest)
        self._unreturned[serial] = message
        return serial

    def leave(self) -> None:
        """Do nothing: closing the socket ends the session."""

    @classmethod
    def split(cls, stream: bytes, dialect: str) -> Iterable[bytes]:
        """Split the start of a stream into whole messages."""
        return _SPLITTERS.get(dialect, frames)(stream)

    def send(
        self, octets: bytes, key: Key | None = None, kind: str = "mutant", note: str = ""
    ) -> None:
        """Send a message; each chunk of bin3 by itself, and once what came before was read, because
        its receiver takes what one read returns for one chunk.
        """
        self._wait_for_first_answer()
        self._wait_for_reader()
        self._echo_due = _TYPE + self._name(octets) in self.learnt and not self.ends(octets)
        # Not before it is sent: servers also send on what another session sent, which may be equal.
        for message in self.split(octets, self.dialect):
            self._remember(message, key)
        *first, last = self._parts(octets)
        for part in first:
            super().send(part, None, kind, note)
            self._wait_for_reader()
        super().send(last, key, kind, note)

    def _wait_for_first_answer(self) -> None:
        """Give the first messages of a run the time to come back."""
        waited = self.learnt.get(_FIRST, b"")
        if self.unanswered and _RETURNS not in self.learnt and len(waited) < _FIRST_TIMES:
            self.learnt[_FIRST] = waited + b"?"
            self.until(lambda: not self.unanswered, _FIRST_SECONDS)

    def _wait_for_reader(self) -> None:
        """Give a server of bin3 the time to read what was sent; where the system does not tell when
        it has, to answer.
        """
        if self.dialect != "netplay-bin3":
            return
        if self.link.is_read() is not None:
            # Nothing arrives when it has, and a large message has dozens of chunks.
            self.until(self._was_read, self.quick_seconds, pause=_READ_PAUSE)
            return
        usual = max(_READ_SECONDS, _READ_TIMES * self._took)
        pause = self.quick_seconds if self._echo_due else min(usual, self.quick_seconds)
        self.until(lambda: not self.unanswered, pause)

    def _was_read(self) -> bool:
        return self.link.is_read() is not False

    def _parts(self, message: bytes) -> list[bytes]:
        if self.dialect != "netplay-bin3":
            return [message]
        spans = chunk_spans(message)
        return [message[start:end] for start, end, _position, _need in spans] or [message]


_SPLITTERS = {"netplay-text": lines, "netplay-bin3": chunked}
