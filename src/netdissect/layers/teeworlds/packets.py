"""Teeworlds packets: headers of every dialect, chunks, control and connectionless packets.

```
0.6      C R N c  p p A A   A A A A  A A A A   chunks    0.6.5 with bit `08`: 4 octets token
0.7      0 0 N C  R c A A   A A A A  A A A A   chunks    4 octets token (of the receiver)
```
C compressed, R asks for a resend, N connectionless, c control, A ack. A compressed packet carries
the Huffman code of what follows the header; in `ddnet-0.6` that includes a token at its end.
*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scapy.fields import BitField, ByteField, ConditionalField
from scapy.packet import Raw

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, Items
from netdissect.layers.teeworlds.controls import control_layer
from netdissect.layers.teeworlds.fields import Flag, Octets
from netdissect.layers.teeworlds.messages import (
    MAGIC_OCTETS,
    TwMessage,
    TwOpaque,
    connless_layer,
    message_layer,
)
from netdissect.layers.teeworlds.pairs import HASH, is_answer
from netdissect.model.annotations import Severity
from netdissect.wire import huffman
from netdissect.wire.teeworlds import payload_limit

__all__ = [
    "Tw06",
    "Tw06Chunk",
    "Tw06Chunks",
    "Tw06Connless",
    "Tw065",
    "Tw07",
    "Tw07Chunk",
    "Tw07Chunks",
    "Tw07Connless",
    "TwDdnet",
    "TwDdnetChunks",
    "TwPacket",
    "body_layer",
]

NO_TOKEN = b"\xff\xff\xff\xff"
CONNLESS_VERSION = 1
_MASK_10 = 0x3FF


# -- chunks ---------------------------------------------------------------------------------------


class _Chunk(Layer):
    """A chunk: a message with its size and, where it is vital, its sequence number."""

    is_item = True
    family: ClassVar[str]
    size_bits: ClassVar[int]
    """Bits of the size in the second octet."""
    sequence_bits: ClassVar[int]
    """Bits of the sequence number above those of the third octet that it does not repeat."""

    def __init__(
        self, *args: Any, sequence: int | None = None, size: int | None = None, **kwargs: Any
    ) -> None:
        """Make a chunk; `sequence` and `size` set the fields that they are spread over."""
        super().__init__(*args, **kwargs)
        if sequence is not None:
            self.sequence = sequence
        if size is not None:
            self.size = size

    @property
    def sequence(self) -> int:
        """Return the sequence number, 10 bits; it counts where `vital` is set."""
        high, low = self.sequence_high or 0, self.sequence_low or 0
        return int((high << self.sequence_bits | low) & _MASK_10)

    @sequence.setter
    def sequence(self, value: int) -> None:
        self.setfieldval("sequence_high", value >> self.sequence_bits)
        self.setfieldval("sequence_low", value & 0xFF)

    @property
    def size(self) -> int:
        """Return the size of the body: as it is given, else as it will be filled in."""
        if self.size_low is None:
            return len(bytes(self.body)) if self.body is not None else 0
        return int((self.size_high or 0) << self.size_bits | self.size_low)

    @size.setter
    def size(self, value: int) -> None:
        self.setfieldval("size_high", value >> self.size_bits)
        self.setfieldval("size_low", value & ((1 << self.size_bits) - 1))

    def self_build(self) -> bytes:
        """Fill in the size unless it was given."""
        if self.raw_packet_cache is None and self.fields.get("size_low") is None:
            size = len(bytes(self.body)) if self.body is not None else 0
            filled = self.copy()
            filled.setfieldval("size_high", size >> self.size_bits)
            filled.setfieldval("size_low", size & ((1 << self.size_bits) - 1))
            return bytes(Layer.self_build(filled))
        return bytes(super().self_build())


def _gens(size: str, sequence: str) -> tuple[Gen, ...]:
    number = E(sequence)
    return (
        Gen("size", E(size)),
        Gen("sequence", lambda seen: number(seen) if seen["vital"] else None, keeps_none=True),
        Gen("kind", lambda fields: _row(fields, "kind")),
        Gen("id", lambda fields: fields["body"]["message_id"] >> 1),
        Gen("message", lambda fields: _row(fields, "name")),
        Gen("uuid", lambda fields: fields["body"]["message_uuid"]),
        Gen("trailing_hex", lambda fields: fields["body"]["trailing"]),
    )


def _row(fields: Mapping[str, Any], what: str) -> str | None:
    """Return kind or name of the message in a chunk, None where it is not known."""
    body = fields["body"]
    head = body["message_id"]
    if what == "kind":
        return "sys" if head & 1 else "game"
    row = getattr(body.layer, "row", None)
    return None if row is None else str(row.name)


_PLAIN_BITS = Check(
    lambda fields: not fields["vital"] and fields["sequence_high"],
    "teeworlds-chunk-bits",
    "sequence_high",
    "sequence bits {sequence_high} without the vital flag",
)


def _choose06(_fields: Any, octets: bytes) -> type[Layer]:
    return message_layer(octets, "0.6")


def _choose07(_fields: Any, octets: bytes) -> type[Layer]:
    return message_layer(octets, "0.7")


class Tw06Chunk(_Chunk):
    """A chunk of the 0.6 family. Bits 7 and 6 of the sequence number are sent twice."""

    name = "Teeworlds 0.6 chunk"
    family = "0.6"
    size_bits = 4
    sequence_bits = 6
    fields_desc = [
        Flag("resend", 0),
        Flag("vital", 0),
        BitField("size_high", None, 6),
        BitField("sequence_high", 0, 4),
        BitField("size_low", None, 4),
        ConditionalField(ByteField("sequence_low", 0), E("vital")),
        Embedded("body", _choose06, E("size_high << 4 | size_low"), shown="fields"),
    ]
    generated = _gens("size_high << 4 | size_low", "sequence_high << 6 | sequence_low")
    checks = (
        _PLAIN_BITS,
        Check(
            lambda fields: (
                fields["vital"] and (fields["sequence_high"] & 3) != fields["sequence_low"] >> 6
            ),
            "teeworlds-sequence-copies",
            "sequence_low",
            "{sequence_high:04b} against {sequence_low:08b}: receivers read {sequence}",
        ),
    )


class Tw07Chunk(_Chunk):
    """A chunk of 0.7."""

    name = "Teeworlds 0.7 chunk"
    family = "0.7"
    size_bits = 6
    sequence_bits = 8
    fields_desc = [
        Flag("resend", 0),
        Flag("vital", 0),
        BitField("size_high", None, 6),
        BitField("sequence_high", 0, 2),
        BitField("size_low", None, 6),
        ConditionalField(ByteField("sequence_low", 0), E("vital")),
        Embedded("body", _choose07, E("size_high << 6 | size_low"), shown="fields"),
    ]
    generated = _gens("size_high << 6 | size_low", "sequence_high << 8 | sequence_low")
    checks = (_PLAIN_BITS,)


class _Chunks(Layer):
    """The chunks of a packet."""


class Tw06Chunks(_Chunks):
    """Chunks of 0.6 and 0.6.5."""

    name = "Teeworlds 0.6 chunks"
    fields_desc = [Items("chunks", Tw06Chunk, E("num_chunks"))]


class TwDdnetChunks(_Chunks):
    """Chunks of `ddnet-0.6`: the token follows them, inside what is compressed."""

    name = "Teeworlds DDNet chunks"
    fields_desc = [
        Items("chunks", Tw06Chunk, E("num_chunks"), reserve=4),
        Octets("token", bytes(4), 4),
    ]


class Tw07Chunks(_Chunks):
    """Chunks of 0.7."""

    name = "Teeworlds 0.7 chunks"
    fields_desc = [Items("chunks", Tw07Chunk, E("num_chunks"))]


# -- packets --------------------------------------------------------------------------------------


def _flags(fields: Mapping[str, Any]) -> dict[str, bool]:
    return {
        "control": bool(fields["control_flag"]),
        "resend_requested": bool(fields["resend_flag"]),
        "compressed": bool(fields["compressed_flag"]),
    }


_HEADER_CHECKS = (
    Check(
        lambda fields: fields["reserved"],
        "teeworlds-reserved-bits",
        "reserved",
        "reserved bits {reserved:#04b}",
    ),
    Check(
        lambda fields: fields["control_flag"] and fields["compressed_flag"],
        "teeworlds-control-compressed",
        "compressed_flag",
        "a control message with compression flag",
    ),
)


class TwPacket(Layer):
    """What packets of all dialects have in common: flags, ack, the number of chunks, a payload.

    Building fills in the number of chunks and compresses where that is shorter, as senders do, each
    unless it was given. A compressed packet is opened when it is dissected.
    """

    __slots__ = ["packed"]

    dialect: ClassVar[str]
    count_at: ClassVar[int] = 2
    """Octet of the number of chunks."""
    compressed_bit: ClassVar[int]
    """Mask in octet 0."""
    generated = (Gen("flags", _flags),)
    checks = _HEADER_CHECKS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.packed: tuple[bytes, bytes] | None = None
        super().__init__(*args, **kwargs)

    def hashret(self) -> bytes:
        """Return a constant: answers are told by their messages."""
        return HASH

    def answers(self, other: Any) -> bool:
        """Return whether this answers a message of `other`."""
        return isinstance(other, TwPacket) and is_answer(self, other)

    def copy(self) -> TwPacket:
        """Return a deep copy that still knows the octets on the wire."""
        clone: TwPacket = super().copy()
        clone.packed = self.packed
        return clone

    def do_dissect_payload(self, s: bytes) -> None:
        """Open a compressed payload; one that cannot be opened stays as it is."""
        if self.compressed_flag and self.fault is None:
            if not s:
                self.packed = (s, s)
                return
            try:
                opened = huffman.decompress(s, payload_limit(self.dialect))
            except huffman.HuffmanError:
                self.packed = (s, s)
                self.add_payload(Raw(s))
                return
            self.packed = (opened, s)
            s = opened
            if not s:
                return
        super().do_dissect_payload(s)

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return the layer of the chunks or of the control message."""
        if self.fault is not None:
            return Raw
        return body_layer(self.dialect, payload, control=bool(self.control_flag))

    def do_build(self) -> bytes:
        """Build; `post_build` also runs where Scapy has the header's octets in its cache."""
        packet = self if self.explicit else next(iter(self))
        return packet.post_build(packet.self_build(), packet.do_build_payload())

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the number of chunks, then compress."""
        if self.fault is not None:
            return pkt + pay
        head = bytearray(pkt)
        if self.fields.get("num_chunks") is None and self.raw_packet_cache is None:
            head[self.count_at] = len(getattr(self.payload, "chunks", ())) & 0xFF
        if self.packed is not None and pay == self.packed[0]:
            return bytes(head) + self.packed[1]
        wanted = self.compressed_flag
        if wanted is None and not self.control_flag and pay:
            code = huffman.compress(pay)
            if len(code) < len(pay):
                head[0] |= self.compressed_bit
                return bytes(head) + code
        elif wanted:
            return bytes(head) + huffman.compress(pay)
        return bytes(head) + pay


class Tw06(TwPacket):
    """A packet of 0.6.0 to 0.6.4."""

    name = "Teeworlds 0.6"
    dialect = "0.6"
    compressed_bit = 0x80
    fields_desc = [
        Flag("compressed_flag", None),
        Flag("resend_flag"),
        Flag("connless_flag"),
        Flag("control_flag"),
        BitField("reserved", 0, 2),
        BitField("ack", 0, 10),
        ByteField("num_chunks", None),
    ]


class Tw065(TwPacket):
    """A packet of 0.6.5: with the token flag a token follows the header."""

    name = "Teeworlds 0.6.5"
    dialect = "0.6.5"
    compressed_bit = 0x80
    fields_desc = [
        Flag("compressed_flag", None),
        Flag("resend_flag"),
        Flag("connless_flag"),
        Flag("control_flag"),
        Flag("token_flag"),
        BitField("reserved", 0, 1),
        BitField("ack", 0, 10),
        ByteField("num_chunks", None),
        ConditionalField(Octets("token", bytes(4), 4), E("token_flag")),
    ]


class TwDdnet(Tw06):
    """A packet of DDNet peers: the header of 0.6, and a token at the end of the payload."""

    name = "Teeworlds DDNet"
    dialect = "ddnet-0.6"
    fields_desc = list(Tw06.fields_desc)


class Tw07(TwPacket):
    """A packet of 0.7. Its token is the one that the receiver chose."""

    name = "Teeworlds 0.7"
    dialect = "0.7"
    compressed_bit = 0x10
    fields_desc = [
        BitField("reserved", 0, 2),
        Flag("connless_flag"),
        Flag("compressed_flag", None),
        Flag("resend_flag"),
        Flag("control_flag"),
        BitField("ack", 0, 10),
        ByteField("num_chunks", None),
        Octets("token", NO_TOKEN, 4),
    ]


def body_layer(dialect: str, payload: bytes, *, control: bool) -> type[Layer]:
    """Return the layer of what follows the header, after decompression."""
    if control:
        return control_layer(dialect, payload)
    if dialect == "0.7":
        return Tw07Chunks
    return TwDdnetChunks if dialect == "ddnet-0.6" else Tw06Chunks


# -- connectionless -------------------------------------------------------------------------------


def _magic(fields: Mapping[str, Any]) -> str | None:
    octets = fields["body"]["magic_octets"]
    return str(octets[4:MAGIC_OCTETS].decode("ascii", "backslashreplace"))


_CONNLESS_GENS = (
    Gen("message", lambda fields: _message_name(fields["body"].layer)),
    Gen("magic", _magic),
)


def _message_name(layer: type[TwMessage]) -> str | None:
    row = getattr(layer, "row", None)
    return None if row is None else str(row.name)


def _connless06(_fields: Any, octets: bytes) -> type[Layer]:
    return connless_layer(octets, "0.6")


def _connless07(fields: Any, octets: bytes) -> type[Layer]:
    version = fields["version"] if isinstance(fields, Mapping) else fields.version
    return connless_layer(octets, "0.7") if version == CONNLESS_VERSION else TwOpaque


class Tw06Connless(Layer):
    """A packet outside any connection: `ff ff ff ff ff ff`, or DDNet's "xe" and 4 more octets."""

    name = "Teeworlds 0.6 connless"
    fields_desc = [
        Octets("signature", b"\xff\xff", 2),
        Octets("extra", NO_TOKEN, 4),
        Embedded("body", _connless06, shown="message_fields"),
    ]
    generated = (Gen("extended", lambda fields: fields["signature"] == b"xe"), *_CONNLESS_GENS)

    def hashret(self) -> bytes:
        """Return a constant: answers are told by their messages."""
        return HASH

    def answers(self, other: Any) -> bool:
        """Return whether this answers a message of `other`."""
        return isinstance(other, Tw06Connless) and is_answer(self, other)


class Tw07Connless(Layer):
    """A packet outside any connection; the receiver checks the token that it gave out."""

    name = "Teeworlds 0.7 connless"
    fields_desc = [
        BitField("reserved", 0, 2),
        Flag("connless_flag", 1),
        BitField("other_flags", 0, 3),
        BitField("version", CONNLESS_VERSION, 2),
        Octets("token", NO_TOKEN, 4),
        Octets("response_token", NO_TOKEN, 4),
        Embedded("body", _connless07, shown="message_fields"),
    ]
    generated = _CONNLESS_GENS
    checks = (
        Check(
            lambda fields: fields["reserved"] or fields["other_flags"],
            "teeworlds-reserved-bits",
            "reserved",
            "flags beside the connectionless one",
        ),
        Check(
            lambda fields: fields["version"] != CONNLESS_VERSION,
            "teeworlds-connless-version",
            "version",
            "version {version}",
            Severity.ERROR,
        ),
    )

    def hashret(self) -> bytes:
        """Return a constant: answers are told by their messages."""
        return HASH

    def answers(self, other: Any) -> bool:
        """Return whether this answers a message of `other`."""
        return isinstance(other, Tw07Connless) and is_answer(self, other)
