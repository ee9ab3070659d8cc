"""The layout of Teeworlds' packets and chunk headers, one row per dialect.

The layers, the scanner and the fuzz driver all use it.

```
0.6      C R N c  - - A A   A A A A  A A A A   chunks    0.6.5 with T in bit `08`: 4 bytes token
0.7      - - N C  R c A A   A A A A  A A A A   chunks    4 bytes token (of the receiver)
chunk    R V size           sequence, size     sequence (where V is set)
```
C compressed, R asks for a resend (in a chunk: is one), N connectionless, c control, A ack, V vital.
In a compressed packet everything after the header is Huffman code; in `ddnet-0.6` that includes the
token at the end. A sequence number has 10 bits: below, the third byte; above, bits 7 and 6 of the
second. 0.6 has two more bits there, which repeat those below.
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

PORTS: Final = (8303, 8304, 8305, 8306, 8307, 8308, 8309, 8310, 8300, 8301, 8283, 8284)
"""Ports of game servers, of which the first is the default, and of master servers."""
MAX_PACKET: Final = 1400
"""Size of the largest datagram, bytes."""
HEADER: Final = 3
"""Size of the header without its token, bytes."""
TOKEN_OCTETS: Final = 4
UUID_OCTETS: Final = 16
NO_TOKEN: Final = b"\xff\xff\xff\xff"
"""Token that stands for none."""
TOKEN_MAGIC: Final = b"TKEN"
"""Marks the token in control packets of DDNet."""
PADDED_OCTETS: Final = 512
"""Size of the body of a request, bytes: padded, so that answers do not amplify it."""
LEAST_PADDING: Final = 6
"""Zero bytes with which no other message ends."""
CONNLESS_FLAG: Final = 0x20
"""Mask of N in byte 0."""
CONNLESS_HEAD: Final = {"0.6": 6, "0.7": 9}
"""Family -> size of the header of a connectionless packet, bytes."""
MAGIC_OCTETS: Final = 8
"""Size of the magic bytes that identify a connectionless message."""
CONNLESS_VERSION: Final = 1
"""Version in a connectionless packet of 0.7."""
SPAN: Final = 1024
"""Modulus of acks and of the sequence numbers of vital chunks."""
VITAL: Final = 0x40
RESEND: Final = 0x80
SIZE_HIGH: Final = 0x3F
"""Masks in the first byte of a chunk."""
KEEPALIVE, CONNECT, ACCEPTED, ACCEPT, CLOSE, TOKEN = range(6)
CONTROL_NAMES: Final = {
    "0.6": {0: "keepalive", 1: "connect", 2: "connect_accept", 3: "accept", 4: "close"},
    "0.7": {0: "keepalive", 1: "connect", 2: "accept", 4: "close", 5: "token"},
}
"""Family -> control id -> name. 0.6.5 does not use 3."""


class Form(NamedTuple):
    """The layout of one dialect."""

    dialect: str
    head: int
    """Size of the header, without a token that a flag announces, bytes."""
    tail: int
    """Size of the token at the end of the payload, bytes."""
    size_bits: int
    """Bits of a chunk's size in its second byte; the others belong to its sequence number."""
    limit: int
    """Largest number of bytes after the header."""
    control: int
    compressed: int
    resend: int
    token_flag: int
    reserved: int
    """Masks in byte 0; 0 for a flag that the dialect does not have."""
    family: str
    """Numbering of messages."""
    bits: str
    """Bits 7 to 2 of byte 0 by the letters above. `T`: a token follows; `-`: always 0."""

    def chunk_size(self, first: int, second: int) -> int:
        """Return the size of a message, bytes, from the first two bytes of its chunk."""
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
    """Return the form of a dialect, with or without its prefix; that of 0.7 for an unknown name."""
    return FORMS.get(f"teeworlds-{dialect.removeprefix('teeworlds-')}", FORMS[D07])


def is_bare_token(octets: bytes) -> bool:
    """Return whether the bytes after a DDNet close are only its token.

    Four bytes are, unless they are a reason of three letters and its NUL.
    """
    letters = octets[:-1]
    return len(octets) == TOKEN_OCTETS and (
        octets[-1] != 0 or not (letters.isascii() and letters.decode().isprintable())
    )


def padded(octets: bytes) -> bool:
    """Return whether bytes are padding, or the part of it that a short capture has kept."""
    return len(octets) >= LEAST_PADDING and not any(octets)
