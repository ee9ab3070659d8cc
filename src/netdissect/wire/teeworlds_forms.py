"""The layout of Teeworlds' packets, one row a dialect: what the layers, the hot path and the fuzz
driver read headers and chunk heads by.

```
0.6      C R N c  - - A A   A A A A  A A A A   chunks    0.6.5 with T in bit `08`: 4 bytes token
0.7      - - N C  R c A A   A A A A  A A A A   chunks    4 bytes token (of the receiver)
chunk    R V size           sequence, size     sequence (where V is set)
```
C compressed, R asks for a resend (a chunk: is one), N connectionless, c control, A ack, V vital. A
compressed packet carries the Huffman code of what follows the header; in `ddnet-0.6` that includes
a token at its end. A sequence number has 10 bits: the third byte, and bits 7 and 6 of the second
above it. 0.6 has two more bits there, which repeat those below.
*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

D06: Final = "teeworlds-0.6"
D065: Final = "teeworlds-0.6.5"
DDNET: Final = "teeworlds-ddnet-0.6"
D07: Final = "teeworlds-0.7"
FAMILIES: Final = ("0.6", "0.7")
"""Numberings of messages."""

MAX_PACKET: Final = 1400
"""Bytes of a datagram at most."""
HEADER: Final = 3
"""Bytes of the header before its token."""
TOKEN_OCTETS: Final = 4
UUID_OCTETS: Final = 16
NO_TOKEN: Final = b"\xff\xff\xff\xff"
TOKEN_MAGIC: Final = b"TKEN"
PADDED_OCTETS: Final = 512
"""Body of requests that no short packet may cause a longer answer to."""
LEAST_PADDING: Final = 6
"""Bytes of it that no other message has at its end."""
CONNLESS_FLAG: Final = 0x20
"""Mask of N in byte 0."""
CONNLESS_HEAD: Final = {"0.6": 6, "0.7": 9}
"""Bytes before the message of a connectionless packet."""
MAGIC_OCTETS: Final = 8
"""Bytes that name a connectionless message."""
CONNLESS_VERSION: Final = 1
SPAN: Final = 1024
"""Modulus of acks and of the numbers of vital chunks."""
VITAL: Final = 0x40
RESEND: Final = 0x80
SIZE_HIGH: Final = 0x3F
"""Masks in the first byte of a chunk."""
KEEPALIVE, CONNECT, ACCEPTED, ACCEPT, CLOSE, TOKEN = range(6)
CONTROL_NAMES: Final = {
    "0.6": {0: "keepalive", 1: "connect", 2: "connect_accept", 3: "accept", 4: "close"},
    "0.7": {0: "keepalive", 1: "connect", 2: "accept", 4: "close", 5: "token"},
}
"""Control message ids by family. 0.6.5 does not use 3."""


class Form(NamedTuple):
    """The layout of one dialect."""

    dialect: str
    head: int
    """Bytes of the header, without a token that a flag announces."""
    tail: int
    """Bytes of a token at the end of the payload."""
    size_bits: int
    """Bits of a chunk's size in its second byte; the others are of its sequence number."""
    limit: int
    """Bytes after the header at most."""
    control: int
    """Masks in byte 0, 0 = no such flag."""
    compressed: int
    resend: int
    token_flag: int
    reserved: int
    family: str
    bits: str
    """Bits 7 to 2 of byte 0 by the letters above; `T` says that a token follows, `-` is 0."""

    def chunk_size(self, first: int, second: int) -> int:
        """Return the bytes of the message that the first two bytes of a chunk announce."""
        return (first & SIZE_HIGH) << self.size_bits | second & (1 << self.size_bits) - 1


def _form(dialect: str, bits: str, limit: int, *, head: int = HEADER, tail: int = 0) -> Form:
    family, size_bits = ("0.7", 6) if dialect == D07 else ("0.6", 4)

    def mask(letter: str) -> int:
        return sum(0x80 >> place for place, found in enumerate(bits) if found == letter)

    return Form(
        dialect, head, tail, size_bits, limit,
        mask("c"), mask("C"), mask("R"), mask("T"), mask("-"), family, bits,
    )  # fmt: skip


FORMS: Final = {
    form.dialect: form
    for form in (
        _form(D06, "CRNc--", 1394),
        _form(D065, "CRNcT-", 1390),
        _form(DDNET, "CRNc--", 1394, tail=TOKEN_OCTETS),
        _form(D07, "--NCRc", 1391, head=HEADER + TOKEN_OCTETS),
    )
}
DIALECTS: Final = tuple(FORMS)
"""Full names of the dialects."""


@lru_cache(maxsize=64)
def form_of(dialect: str) -> Form:
    """Return the form of a dialect, named with or without prefix; that of 0.7 for others."""
    return FORMS.get(f"teeworlds-{dialect.removeprefix('teeworlds-')}", FORMS[D07])


def is_bare_token(octets: bytes) -> bool:
    """Return whether what follows a DDNet close is its token alone: four bytes are, unless they
    are three letters and a NUL.
    """
    letters = octets[:-1]
    return len(octets) == TOKEN_OCTETS and (
        octets[-1] != 0 or not (letters.isascii() and letters.decode().isprintable())
    )


def padded(octets: bytes) -> bool:
    """Return whether bytes are padding, of which a short capture may have kept a part."""
    return len(octets) >= LEAST_PADDING and not any(octets)
