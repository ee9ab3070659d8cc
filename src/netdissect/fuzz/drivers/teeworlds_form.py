"""Where the live values of a Teeworlds packet lie: headers and chunk heads, patched in place.

Mutants are damaged: what the layers refuse to read must still get its token and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netdissect.wire import huffman
from netdissect.wire.teeworlds_forms import HEADER, SIZE_HIGH, TOKEN_OCTETS, VITAL, Form

_INFLATED_LIMIT = 4096


@dataclass(slots=True)
class Opened:
    """A packet taken apart: header and payload, decompressed where that works."""

    form: Form
    head: bytearray
    """Header, with its token where it has one."""
    payload: bytearray
    """What follows, decompressed."""
    packed: bool
    """True if the payload was compressed and could be read."""
    sealed: bool
    """True if it claims to be compressed and cannot be read: it stays as it is."""

    @classmethod
    def of(cls, data: bytes, form: Form) -> Opened | None:
        """Return the parts, None for what is shorter than a header."""
        size = form.head
        if len(data) >= size and data[0] & form.token_flag:
            size += TOKEN_OCTETS
        if len(data) < size:
            return None
        payload, packed, sealed = data[size:], False, False
        if data[0] & form.compressed and not data[0] & form.control and payload:
            try:
                payload, packed = huffman.decompress(payload, _INFLATED_LIMIT), True
            except huffman.HuffmanError:
                sealed = True
        return cls(form, bytearray(data[:size]), bytearray(payload), packed, sealed)

    @property
    def is_control(self) -> bool:
        """Return whether it holds a control message."""
        return bool(self.head[0] & self.form.control)

    @property
    def ack(self) -> int:
        """Return the acknowledged number."""
        return (self.head[0] & 3) << 8 | self.head[1]

    @ack.setter
    def ack(self, value: int) -> None:
        self.head[0] = self.head[0] & ~3 | value >> 8 & 3
        self.head[1] = value & 0xFF

    @property
    def token(self) -> bytes | None:
        """Return the token of the header or at the end, None without one."""
        at = self._token_place()
        return None if at is None else bytes(at[0][at[1] : at[1] + TOKEN_OCTETS])

    @token.setter
    def token(self, value: bytes) -> None:
        at = self._token_place()
        if at is not None:
            at[0][at[1] : at[1] + TOKEN_OCTETS] = value

    def drop_token(self) -> None:
        """Take an optional token out of the header: a server that gave none reads no packet with
        one.
        """
        if self.head[0] & self.form.token_flag:
            self.head[0] &= ~self.form.token_flag
            del self.head[self.form.head :]

    def _token_place(self) -> tuple[bytearray, int] | None:
        if self.form.head > HEADER or self.head[0] & self.form.token_flag:
            return self.head, HEADER
        if self.form.tail and not self.sealed and len(self.payload) >= TOKEN_OCTETS:
            return self.payload, len(self.payload) - TOKEN_OCTETS
        return None

    @property
    def is_whole(self) -> bool:
        """Return whether the chunks fill the payload exactly, as receivers want it."""
        at = count = 0
        for head in chunk_heads(self.payload, self.head[2], self.form):
            at, count = head.start + head.size, count + 1
        return count == self.head[2] and at + self.form.tail == len(self.payload)

    def octets(self) -> bytes:
        """Return the packet as bytes."""
        payload = huffman.compress(bytes(self.payload)) if self.packed else bytes(self.payload)
        return bytes(self.head) + payload


@dataclass(slots=True)
class ChunkHead:
    """The head of one chunk inside a payload."""

    payload: bytearray
    at: int
    form: Form

    @property
    def vital(self) -> bool:
        """Return whether the chunk is numbered."""
        return bool(self.payload[self.at] & VITAL)

    @property
    def size(self) -> int:
        """Return the bytes of the message that it announces."""
        return self.form.chunk_size(self.payload[self.at], self.payload[self.at + 1])

    @property
    def _mask(self) -> int:
        """Return the bits of the size in the second byte."""
        return (1 << self.form.size_bits) - 1

    @property
    def start(self) -> int:
        """Return where the message starts."""
        return self.at + (3 if self.vital else 2)

    @property
    def message(self) -> bytes:
        """Return the message."""
        return bytes(self.payload[self.start : self.start + self.size])

    @property
    def number(self) -> int:
        """Return the number of a vital chunk."""
        return (self.payload[self.at + 1] & ~self._mask) << 2 | self.payload[self.at + 2]

    @number.setter
    def number(self, value: int) -> None:
        size = self.payload[self.at + 1] & self._mask
        self.payload[self.at + 1] = size | value >> 2 & ~self._mask
        self.payload[self.at + 2] = value & 0xFF


def chunk_heads(payload: bytearray, count: int, form: Form) -> Iterator[ChunkHead]:
    """Yield the heads of up to `count` chunks; stop at the first that is not all there."""
    at = 0
    for _ in range(count):
        if at + 2 > len(payload):
            return
        head = ChunkHead(payload, at, form)
        if head.start > len(payload):
            return
        yield head
        at = head.start + head.size


def number_chunks(opened: Opened, next_number: Callable[[], int]) -> list[ChunkHead]:
    """Give every vital chunk of a packet its number; return their heads."""
    if opened.is_control or opened.sealed:
        return []
    heads = chunk_heads(opened.payload, opened.head[2], opened.form)
    vital = [head for head in heads if head.vital]
    for head in vital:
        head.number = next_number()
    return vital


def chunk_of(message: bytes, form: Form, number: int | None = None, flags: int = 0) -> bytes:
    """Return a chunk that holds a message; one with a number is vital."""
    size, bits = len(message), form.size_bits
    head = bytearray([flags | size >> bits & SIZE_HIGH, size & ((1 << bits) - 1), 0])
    if number is None:
        return bytes(head[:2]) + message
    head[0] |= VITAL
    ChunkHead(head, 0, form).number = number
    return bytes(head) + message
