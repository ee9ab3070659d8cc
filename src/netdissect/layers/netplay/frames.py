"""Binary Netplay: the frame of bin1 and bin2, and the chunks into which bin3 splits it.

    0               1               2               3               4               5
    +-------------------------------+---------------+-------------------------------+---
    |            length             |    options    |             type              | body ...
    +-------------------------------+---------------+-------------------------------+---

*Source:* docs/protocols/netplay.md sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scapy.fields import ByteEnumField, ShortField, XByteField
from scapy.packet import Packet

from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import SizedBytes, Tail
from netdissect.wire.netplay import (
    CHUNK_NAMES,
    COMPRESSED,
    ENCRYPTED,
    LENGTH_OCTETS,
    RESERVED,
    SHORTEST,
    split_frame,
)


class _WithLength(Layer):
    """Base class of frames. The length is modulo 65536, as in the library."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length unless it was given."""
        if self.fields.get("length") is None:
            size = len(pkt) - LENGTH_OCTETS + len(pay)
            pkt = (size & 0xFFFF).to_bytes(LENGTH_OCTETS, "big") + pkt[LENGTH_OCTETS:]
        return pkt + pay


class NetplayFrame(_WithLength):
    """A message. `length` does not count itself."""

    name = "Netplay frame"
    is_item = True
    fields_desc = [
        ShortField("length", None),
        XByteField("options", 0),
        ShortField("type", 0),
        SizedBytes("body", b"", E("length - 3"), shown="payload_hex"),
    ]
    generated = (
        Gen("compressed", lambda fields: bool(fields["options"] & COMPRESSED)),
        Gen("encrypted", lambda fields: bool(fields["options"] & ENCRYPTED)),
        Gen("reserved_bits", lambda fields: fields["options"] >> 2),
        Gen("payload_len", lambda fields: len(fields["body"])),
    )
    checks = (
        Check(
            E(f"options & {RESERVED}"),
            "reserved-option-bits",
            "options",
            "options {options:#04x}: bits 2 to 7 are reserved",
        ),
        Check(
            E(f"options & {ENCRYPTED}"),
            "encrypted-flag-set",
            "options",
            "no release encrypts: the application's own mark",
        ),
    )

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: Any, **_kwargs: Any) -> type[Packet]:
        """Return `NetplayShortFrame` if the length leaves no room for options and type."""
        if _pkt and len(_pkt) >= LENGTH_OCTETS and int.from_bytes(_pkt[:2], "big") < SHORTEST:
            return NetplayShortFrame
        return cls

    @property
    def _title(self) -> str:
        """Return the name with the type."""
        number = self.int_value("type")
        return f"{self.name} of {'no type' if number is None else f'type {number}'}"

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        return self._title

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return the number of the type: only a schema knows its name."""
        return str(fields["type"]) if "body" in fields else None


class NetplayShortFrame(_WithLength):
    """A frame with a length of 0, 1 or 2: no message. A server closes the connection."""

    name = "Netplay frame without type"
    is_item = True
    fields_desc = [ShortField("length", None), SizedBytes("octets", b"", E("length"))]
    generated = (
        Gen("frame_error", lambda fields: "length below 3" if "length" in fields else None),
        Gen("library_error", lambda fields: "java.io.EOFException" if "length" in fields else None),
    )
    checks = (
        Check(
            E(f"length < {SHORTEST}"),
            "frame-length-below-3",
            "length",
            "length {length}: options and type alone take 3 bytes",
        ),
    )

    @classmethod
    def message_type(cls, fields: Mapping[str, Any]) -> str | None:
        """Return `?`: there is no type."""
        return "?" if "length" in fields else None


class NetplayChunk(Layer):
    """A chunk of bin3: a header byte, and up to 1023 bytes of a frame."""

    name = "Netplay chunk"
    is_item = True
    fields_desc = [ByteEnumField("chunk_header", 0, CHUNK_NAMES), Tail("data", private="")]
    generated = (
        Gen("header", lambda fields: f"0x{fields['chunk_header']:02x}"),
        Gen("continuation", lambda fields: bool(fields["chunk_header"] & 0x80)),
        Gen("more", lambda fields: bool(fields["chunk_header"] & 0x40)),
        Gen("data_bytes", lambda fields: len(fields["data"])),
    )
    checks = (
        Check(
            E("chunk_header & 0x3f"),
            "chunk-header-invalid",
            "chunk_header",
            "chunk header {chunk_header:#04x}",
        ),
    )


def chunks(frame: Packet | bytes) -> list[NetplayChunk]:
    """Return the chunks in which bin3 sends a frame.

    A real receiver takes whatever one read returns as a chunk, so pause between sending them.
    """
    return [NetplayChunk(chunk) for chunk in split_frame(bytes(frame))]
