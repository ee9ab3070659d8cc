"""Where the live values of a Teeworlds packet lie: headers and chunk heads, patched in place.

Mutants are damaged: what the layers refuse to read must still get its token and numbers. The places
are those of `netdissect.layers.teeworlds.packets`, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netdissect.wire import huffman

__all__ = ["FORMS", "SPAN", "ChunkHead", "Form", "Opened", "chunk_heads"]

SPAN = 1024
"""Modulus of the numbers of vital chunks."""
TOKEN_OCTETS = 4
_INFLATED_LIMIT = 4096
VITAL, RESEND = 0x40, 0x80


@dataclass(frozen=True, slots=True)
class Form:
    """The layout of one dialect."""

    head: int
    """Octets of the header without an optional token."""
    control: int
    """Masks in octet 0."""
    resend: int
    compressed: int
    connless: int
    family: str
    """`0.6` or `0.7`: layout of the chunk heads and numbers of the messages."""
    token_flag: int = 0
    """Mask that says that a token follows the header (0.6.5)."""
    token_at: int | None = None
    """Octet at which the header always has a token (0.7)."""
    token_last: bool = False
    """The payload ends with a token (DDNet)."""


FORMS: dict[str, Form] = {
    "teeworlds-0.6": Form(3, 0x10, 0x40, 0x80, 0x20, "0.6"),
    "teeworlds-0.6.5": Form(3, 0x10, 0x40, 0x80, 0x20, "0.6", token_flag=0x08),
    "teeworlds-ddnet-0.6": Form(3, 0x10, 0x40, 0x80, 0x20, "0.6", token_last=True),
    "teeworlds-0.7": Form(7, 0x04, 0x08, 0x10, 0x20, "0.7", token_at=3),
}
"""Dialect -> layout. Source: docs/protocols/teeworlds.md."""


@dataclass(slots=True)
class Opened:
    """A packet taken apart: header and payload, decompressed where that works."""

    form: Form
    head: bytearray
    """Header, with its token where it has one."""
    payload: bytearray
    """What follows, decompressed."""
    packed: bool
    """True where the payload was compressed and could be read."""
    sealed: bool
    """True where it claims to be compressed and cannot be read: it stays as it is."""

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
        if self.form.token_at is not None:
            return self.head, self.form.token_at
        if self.head[0] & self.form.token_flag:
            return self.head, self.form.head
        if self.form.token_last and not self.sealed and len(self.payload) >= TOKEN_OCTETS:
            return self.payload, len(self.payload) - TOKEN_OCTETS
        return None

    @property
    def is_whole(self) -> bool:
        """Return whether the chunks fill the payload exactly, as receivers want it."""
        at = count = 0
        for head in chunk_heads(self.payload, self.head[2], self.form.family):
            at, count = head.start + head.size, count + 1
        last = TOKEN_OCTETS if self.form.token_last else 0
        return count == self.head[2] and at + last == len(self.payload)

    def octets(self) -> bytes:
        """Return the packet as octets."""
        payload = huffman.compress(bytes(self.payload)) if self.packed else bytes(self.payload)
        return bytes(self.head) + payload


@dataclass(slots=True)
class ChunkHead:
    """The head of one chunk inside a payload."""

    payload: bytearray
    at: int
    family: str

    @property
    def vital(self) -> bool:
        """Return whether the chunk is numbered."""
        return bool(self.payload[self.at] & VITAL)

    @property
    def size(self) -> int:
        """Return the octets of the message that it announces."""
        high, low = self.payload[self.at] & 0x3F, self.payload[self.at + 1]
        return high << 4 | low & 0xF if self.family == "0.6" else high << 6 | low & 0x3F

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
        middle, low = self.payload[self.at + 1], self.payload[self.at + 2]
        if self.family == "0.6":
            return (middle & 0xF0) << 2 | low
        return (middle & 0xC0) << 2 | low

    @number.setter
    def number(self, value: int) -> None:
        keep, shift = (0x0F, 2) if self.family == "0.6" else (0x3F, 2)
        self.payload[self.at + 1] = self.payload[self.at + 1] & keep | value >> shift & (
            0xFF - keep
        )
        self.payload[self.at + 2] = value & 0xFF


def chunk_heads(payload: bytearray, count: int, family: str) -> Iterator[ChunkHead]:
    """Yield the heads of up to `count` chunks; stop at the first that is not all there."""
    at = 0
    for _ in range(count):
        if at + 2 > len(payload):
            return
        head = ChunkHead(payload, at, family)
        if head.start > len(payload):
            return
        yield head
        at = head.start + head.size


def number_chunks(opened: Opened, next_number: Callable[[], int]) -> list[ChunkHead]:
    """Give every vital chunk of a packet its number; return their heads."""
    if opened.is_control or opened.sealed:
        return []
    heads = chunk_heads(opened.payload, opened.head[2], opened.form.family)
    vital = [head for head in heads if head.vital]
    for head in vital:
        head.number = next_number()
    return vital
