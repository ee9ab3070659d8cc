"""Teeworlds packets of every dialect: headers, chunks and connectionless packets.

`wire.teeworlds_forms` describes the headers of packets and chunks.
*Source:* docs/protocols/teeworlds.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, ClassVar

from scapy.fields import BitField, ByteField, ConditionalField
from scapy.packet import Raw

from netdissect.layers.base import Check, Gen, Layer, summary_list
from netdissect.layers.binding import by_bytes
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, Flag, Items
from netdissect.layers.teeworlds.controls import TwControlUnknown, control_layer
from netdissect.layers.teeworlds.fields import Octets
from netdissect.layers.teeworlds.messages import (
    TwMessage,
    TwNamed,
    TwOpaque,
    TwUnknown,
    connless_layer,
    message_layer,
)
from netdissect.layers.teeworlds.pairs import is_answer
from netdissect.wire import huffman
from netdissect.wire.teeworlds_forms import (
    CONNLESS_VERSION,
    D06,
    D065,
    D07,
    DDNET,
    FORMS,
    HEADER,
    MAGIC_OCTETS,
    NO_TOKEN,
    SPAN,
    TOKEN_OCTETS,
    Form,
)

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


# -- chunks ---------------------------------------------------------------------------------------


class _Chunk(Layer):
    """A chunk: a message with its size and, if it is vital, its sequence number."""

    is_item = True
    concludes_late = True
    form: ClassVar[Form]

    def __init__(
        self, *args: Any, sequence: int | None = None, size: int | None = None, **kwargs: Any
    ) -> None:
        """Make a chunk; `sequence` and `size` are spread over two fields each."""
        super().__init__(*args, **kwargs)
        if sequence is not None:
            self.sequence = sequence
        if size is not None:
            self.size = size

    @property
    def sequence(self) -> int:
        """Return the sequence number (10 bits), which is valid if `vital` is set."""
        high, low = self.sequence_high or 0, self.sequence_low or 0
        return int((high << self.form.size_bits + 2 | low) % SPAN)

    @sequence.setter
    def sequence(self, value: int) -> None:
        self.setfieldval("sequence_high", value >> self.form.size_bits + 2)
        self.setfieldval("sequence_low", value & 0xFF)

    @property
    def size(self) -> int:
        """Return the size of the body in bytes: as given, else as building fills it in."""
        if self.size_low is None:
            return len(bytes(self.body)) if self.body is not None else 0
        return int((self.size_high or 0) << self.form.size_bits | self.size_low)

    @size.setter
    def size(self, value: int) -> None:
        bits = self.form.size_bits
        self.setfieldval("size_high", value >> bits)
        self.setfieldval("size_low", value & ((1 << bits) - 1))

    def self_build(self) -> bytes:
        """Build the chunk, with the size filled in unless it was given."""
        if self.raw_packet_cache is None and self.fields.get("size_low") is None:
            filled = self.copy()
            filled.size = self.size
            return bytes(Layer.self_build(filled))
        return bytes(super().self_build())


def _choose06(_fields: Any, octets: bytes) -> type[Layer]:
    return message_layer(octets, "0.6")


def _choose07(_fields: Any, octets: bytes) -> type[Layer]:
    return message_layer(octets, "0.7")


def _fields(form: Form) -> list[Any]:
    """Return the fields of a chunk."""
    choose = _choose07 if form.family == "0.7" else _choose06
    return [
        Flag("resend", 0),
        Flag("vital", 0),
        BitField("size_high", None, 6),
        BitField("sequence_high", 0, 8 - form.size_bits),
        BitField("size_low", None, form.size_bits),
        ConditionalField(ByteField("sequence_low", 0), E("vital")),
        Embedded("body", choose, E(f"size_high << {form.size_bits} | size_low"), shown="fields",
                 start=TwUnknown),
    ]


def _gens(form: Form) -> tuple[Gen, ...]:
    number = E(f"sequence_high << {form.size_bits + 2} | sequence_low").rule
    return (
        Gen("size", E(f"size_high << {form.size_bits} | size_low")),
        Gen("sequence", lambda seen: number(seen) if seen["vital"] else None, keeps_none=True),
        Gen("kind", lambda fields: "sys" if fields["body"]["message_id"] & 1 else "game"),
        Gen("id", lambda fields: fields["body"]["message_id"] >> 1),
        Gen("message", _message_name),
        Gen("uuid", lambda fields: fields["body"].get("message_uuid")),
        Gen("trailing_hex", lambda fields: fields["body"].get("trailing")),
    )


def _message_name(fields: Mapping[str, Any]) -> str | None:
    """Return the name of the message in a body; None if it is unknown."""
    row = getattr(fields["body"].layer, "row", None)
    return None if row is None else str(row.name)


_PLAIN_BITS = Check(
    E("not vital and sequence_high"),
    "teeworlds-chunk-bits",
    "sequence_high",
    "sequence bits {sequence_high} without the vital flag",
)


class Tw06Chunk(_Chunk):
    """A chunk of the 0.6 family. Bits 7 and 6 of the sequence number are on the wire twice."""

    name = "Teeworlds 0.6 chunk"
    form = FORMS[D06]
    fields_desc = _fields(form)
    generated = _gens(form)
    checks = (
        _PLAIN_BITS,
        Check(
            E("vital and sequence_high & 3 != sequence_low >> 6"),
            "teeworlds-sequence-copies",
            "sequence_low",
            "{sequence_high:04b} against {sequence_low:08b}: receivers read {sequence}",
        ),
    )


class Tw07Chunk(_Chunk):
    """A chunk of 0.7."""

    name = "Teeworlds 0.7 chunk"
    form = FORMS[D07]
    fields_desc = _fields(form)
    generated = _gens(form)
    checks = (_PLAIN_BITS,)


class _Chunks(Layer):
    """The chunks of a packet."""

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`: the types of the messages."""
        bodies = [getattr(each, "body", None) for each in self.chunks]
        return summary_list(
            [each.mysummary() if isinstance(each, TwMessage) else "?" for each in bodies]
        )


class Tw06Chunks(_Chunks):
    """Chunks of 0.6 and 0.6.5."""

    name = "Teeworlds 0.6 chunks"
    fields_desc = [Items("chunks", Tw06Chunk, E("num_chunks"))]


class TwDdnetChunks(_Chunks):
    """Chunks of `ddnet-0.6`. The token follows them, and is compressed with them."""

    name = "Teeworlds DDNet chunks"
    fields_desc = [
        Items("chunks", Tw06Chunk, E("num_chunks"), reserve=TOKEN_OCTETS),
        Octets("token", bytes(TOKEN_OCTETS), TOKEN_OCTETS),
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
        E("reserved"),
        "teeworlds-reserved-bits",
        "reserved",
        "reserved bits {reserved:#04b}",
    ),
    Check(
        E("control_flag and compressed_flag"),
        "teeworlds-control-compressed",
        "compressed_flag",
        "a control message with compression flag",
    ),
)


class TwPacket(Layer):
    """Base class of packets with a connection: flags, ack, number of chunks, and a payload.

    `TwPacket(data)` is of the class of the dialect that fits the bytes best, `TwPacket()` of 0.7.

    By default, building fills in the number of chunks, and compresses if that is shorter, as
    senders do. Dissecting decompresses.
    """

    __slots__ = ["packed"]

    name = "Teeworlds packet"
    pairing = b"teeworlds"
    form: ClassVar[Form]
    dialect: ClassVar[str]
    """Name of the dialect without prefix."""
    shows = ""
    generated = (Gen("flags", _flags),)
    checks = _HEADER_CHECKS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.packed: tuple[bytes, bytes] | None = None
        """(decompressed payload, its bytes on the wire) as long as the payload may be the same:
        another encoder may have compressed it, and a payload that does not open is its own.
        """
        super().__init__(*args, **kwargs)

    dispatch_hook, chooser = by_bytes("teeworlds")

    def answers(self, other: Any) -> bool:
        """Return whether this answers a message in `other`."""
        return isinstance(other, TwPacket) and is_answer(self, other)

    def copy(self) -> TwPacket:
        """Return a deep copy, with the compressed bytes."""
        clone: TwPacket = super().copy()
        clone.packed = self.packed
        return clone

    def do_dissect_payload(self, s: bytes) -> None:
        """Decompress and dissect the payload; one that does not decompress stays as it is."""
        if self.fields.get("compressed_flag") and self.fault is None:
            if not s:
                self.packed = (s, s)
                return
            try:
                opened = huffman.decompress(s, self.form.limit)
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
        layer = body_layer(self.dialect, payload, control=bool(self.getfieldval("control_flag")))
        if self.fault is not None or layer is TwControlUnknown:
            return self.bound_layer(payload, Raw if self.fault is not None else layer)
        return layer

    def payload_layer(self, shown: Mapping[str, Any], octets: bytes) -> type[Any]:
        """Return the layer of the chunks, of the control message, or of undecodable bytes."""
        if self.control_flag and not octets and "control_id" in shown:
            return TwControlUnknown
        opened = self.control_flag or "chunks" in shown
        return body_layer(self.dialect, octets, control=bool(self.control_flag)) if opened else Raw

    def load_shown(self, shown: Mapping[str, Any], build: Any) -> None:
        """Restore the compressed bytes, which building uses if they still match the payload."""
        del build
        if not self.compressed_flag or "compressed" not in shown:
            return
        code = bytes.fromhex(shown["compressed"])
        try:
            self.packed = (huffman.decompress(code, self.form.limit), code)
        except huffman.HuffmanError:
            self.packed = (code, code)
            self.remove_payload()
            self.add_payload(Raw(code))
        # Else Scapy builds from a copy without `packed`.
        self.explicit = 1  # type: ignore[misc]

    def do_build(self) -> bytes:
        """Build; unlike Scapy, call `post_build` even if the header's bytes are cached."""
        packet = self if self.explicit else next(iter(self))
        return packet.post_build(packet.self_build(), packet.do_build_payload())

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the number of chunks, then compress."""
        if self.fault is not None:
            return pkt + pay
        head = bytearray(pkt)
        if self.fields.get("num_chunks") is None and self.raw_packet_cache is None:
            head[HEADER - 1] = len(getattr(self.payload, "chunks", ())) & 0xFF
        if self.packed is not None and pay == self.packed[0]:
            return bytes(head) + self.packed[1]
        compressed = self.compressed_flag
        if compressed is None and not self.control_flag and pay:
            code = huffman.compress(pay)
            # As senders do; random or tiny payloads become longer.
            if len(code) < len(pay):
                head[0] |= self.form.compressed
                return bytes(head) + code
        elif compressed:
            return bytes(head) + huffman.compress(pay)
        return bytes(head) + pay


_FLAGS: dict[str, tuple[str, int | None]] = {
    "C": ("compressed_flag", None),
    "R": ("resend_flag", 0),
    "N": ("connless_flag", 0),
    "c": ("control_flag", 0),
    "T": ("token_flag", 0),
}


def _header(form: Form) -> list[Any]:
    """Return the fields of a header."""
    fields: list[Any] = []
    for letter, run in groupby(form.bits):
        reserved = BitField("reserved", 0, len(list(run)))
        fields.append(Flag(*_FLAGS[letter]) if letter in _FLAGS else reserved)
    fields += [BitField("ack", 0, 10), ByteField("num_chunks", None)]
    if form.token_flag:
        token = Octets("token", bytes(TOKEN_OCTETS), TOKEN_OCTETS)
        fields.append(ConditionalField(token, E("token_flag")))
    elif form.head > HEADER:
        fields.append(Octets("token", NO_TOKEN, TOKEN_OCTETS))
    return fields


class Tw06(TwPacket):
    """A packet of 0.6.0 to 0.6.4."""

    name = "Teeworlds 0.6"
    dialect = "0.6"
    form = FORMS[D06]
    fields_desc = _header(form)


class Tw065(TwPacket):
    """A packet of 0.6.5. If the token flag is set, a token follows the header."""

    name = "Teeworlds 0.6.5"
    dialect = "0.6.5"
    form = FORMS[D065]
    fields_desc = _header(form)


class TwDdnet(Tw06):
    """A packet between DDNet peers: the header of 0.6, and a token at the end of the payload."""

    name = "Teeworlds DDNet"
    dialect = "ddnet-0.6"
    form = FORMS[DDNET]
    fields_desc = _header(form)


class Tw07(TwPacket):
    """A packet of 0.7. The receiver has chosen the token."""

    name = "Teeworlds 0.7"
    dialect = "0.7"
    form = FORMS[D07]
    fields_desc = _header(form)


def body_layer(dialect: str, payload: bytes, *, control: bool) -> type[Layer]:
    """Return the layer of the decompressed payload."""
    if control:
        return control_layer(dialect, payload)
    if dialect == "0.7":
        return Tw07Chunks
    return TwDdnetChunks if dialect == "ddnet-0.6" else Tw06Chunks


# -- connectionless -------------------------------------------------------------------------------


def _magic(fields: Mapping[str, Any]) -> str | None:
    octets = fields["body"]["magic_octets"]
    return str(octets[4:MAGIC_OCTETS].decode("ascii", "backslashreplace"))


_CONNLESS_GENS = (Gen("message", _message_name), Gen("magic", _magic))


def _connless06(_fields: Any, octets: bytes) -> type[Layer]:
    return connless_layer(octets, "0.6")


def _connless07(fields: Any, octets: bytes) -> type[Layer]:
    version = fields["version"] if isinstance(fields, Mapping) else fields.version
    return connless_layer(octets, "0.7") if version == CONNLESS_VERSION else TwOpaque


class _Connless(Layer):
    """Base class of packets outside connections."""

    pairing = b"teeworlds"

    def answers(self, other: Any) -> bool:
        """Return whether this answers the message in `other`."""
        return type(other) is type(self) and is_answer(self, other)


class Tw06Connless(_Connless):
    """A packet outside connections: six times `ff`, or DDNet's "xe" and four more bytes."""

    name = "Teeworlds 0.6 connless"
    fields_desc = [
        Octets("signature", NO_TOKEN[:2], 2),
        Octets("extra", NO_TOKEN, TOKEN_OCTETS),
        Embedded("body", _connless06, shown="message_fields", start=TwNamed),
    ]
    generated = (Gen("extended", lambda fields: fields["signature"] == b"xe"), *_CONNLESS_GENS)


class Tw07Connless(_Connless):
    """A packet outside connections. The receiver checks `token`, which it has chosen."""

    name = "Teeworlds 0.7 connless"
    fields_desc = [
        BitField("reserved", 0, 2),
        Flag("connless_flag", 1),
        BitField("other_flags", 0, 3),
        BitField("version", CONNLESS_VERSION, 2),
        Octets("token", NO_TOKEN, TOKEN_OCTETS),
        Octets("response_token", NO_TOKEN, TOKEN_OCTETS),
        Embedded("body", _connless07, shown="message_fields", start=TwNamed),
    ]
    generated = _CONNLESS_GENS
    checks = (
        Check(
            # Not an `E`, so that `scan` does not note it.
            lambda fields: fields["reserved"] or fields["other_flags"],
            "teeworlds-reserved-bits",
            "reserved",
            "flags beside the connectionless one",
        ),
        Check(
            E(f"version != {CONNLESS_VERSION}"),
            "teeworlds-connless-version",
            "version",
            "version {version}",
        ),
    )
