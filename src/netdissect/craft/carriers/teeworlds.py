"""Teeworlds: messages stand in chunks, these and control messages in packets."""

from __future__ import annotations

from typing import Any

from scapy.packet import Packet, Raw

from netdissect.craft.filling import Fields, filled, unshown
from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds import controls, messages
from netdissect.wire import huffman
from netdissect.wire.varint import TEEWORLDS

__all__ = ["rebuild", "wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    del transport
    header = layers.ROOTS[dialect]
    family = "0.7" if header is layers.Tw07 else "0.6"
    kind = type(packet)
    extra: dict[str, Any] = {"token_flag": 1} if header is layers.Tw065 else {}
    if kind in controls.CONTROLS[header.dialect].values():
        return header(control_flag=1, num_chunks=0, **extra) / packet
    if kind in messages.CONNLESS[family].values():
        return (layers.Tw07Connless if family == "0.7" else layers.Tw06Connless)(body=packet)
    if kind in (*messages.MESSAGES[family].values(), *messages.UUID_MESSAGES.values()):
        chunk = layers.Tw07Chunk if family == "0.7" else layers.Tw06Chunk
        chunks = {"0.7": layers.Tw07Chunks, "ddnet-0.6": layers.TwDdnetChunks}.get(
            header.dialect, layers.Tw06Chunks
        )
        return header(**extra) / chunks(chunks=[chunk(vital=1, sequence=1, body=packet)])
    return packet if kind in (header, layers.Tw06Connless, layers.Tw07Connless) else None


def rebuild(dialect: str, transport: str, fields: Fields) -> bytes:
    """Return the bytes of a payload that is shown as these fields."""
    del transport
    header = layers.ROOTS[dialect]
    family = "0.7" if header is layers.Tw07 else "0.6"
    if "message_fields" in fields:
        carrier = layers.Tw07Connless if family == "0.7" else layers.Tw06Connless
        body = _connless(family, fields["message_fields"])
        return bytes(filled(carrier, fields, unshown, body=body))
    packet = filled(header, fields, unshown)
    if fields.get("compressed_flag") and "compressed" in fields:
        code = bytes.fromhex(fields["compressed"])
        packet.packed = _packed(code, header.form.limit)
        packet.explicit = 1  # or Scapy builds a copy, which does not know them
    return bytes(packet / _body(header.dialect, family, fields))


def _packed(code: bytes, limit: int) -> tuple[bytes, bytes]:
    """Return what a code stands for, and the code: what is built otherwise is compressed anew.

    A code that cannot be opened stands for itself.
    """
    try:
        return huffman.decompress(code, limit), code
    except huffman.HuffmanError:
        return code, code


def _body(dialect: str, family: str, fields: Fields) -> Packet:
    """Return what follows the header: chunks, a control message, or bytes that did not open."""
    if "chunks" in fields:
        made = [_chunk(family, each) for each in fields["chunks"]]
        layer = layers.body_layer(dialect, b"", control=False)
        chunks = filled(layer, fields, unshown, chunks=made)
        body: Packet = chunks / Raw(bytes.fromhex(fields.get("trailing", "")))
        return body
    number = fields.get("control_id")
    if number is None:
        return Raw(bytes.fromhex(fields.get("compressed", "")))
    return filled(layers.CONTROLS[dialect].get(number, layers.TwControlUnknown), fields, unshown)


def _connless(family: str, fields: Fields) -> Packet:
    """Return a connectionless message; one without known magic bytes is the bytes of `data`."""
    magic = bytes.fromhex(fields.get("magic_octets", ""))
    layer = layers.CONNLESS[family].get(magic)
    if layer is None:
        return Raw(magic + bytes.fromhex(fields.get("data", "")))
    return filled(layer, fields, unshown)


def _chunk(family: str, fields: Fields) -> Packet:
    """Return a chunk; one that the packet ends in has the bytes of its message under `body`."""
    if "body" in fields:
        body: Packet = Raw(bytes.fromhex(fields["body"]))
    else:
        body = _chunk_message(family, fields.get("fields") or {})
    chunk = layers.Tw07Chunk if family == "0.7" else layers.Tw06Chunk
    return filled(chunk, fields, unshown, body=body)


def _chunk_message(family: str, fields: Fields) -> Packet:
    """Return the message that its number, or its UUID, names."""
    number = fields.get("message_id")
    head = b"" if number is None else TEEWORLDS.write(number)
    uuid = bytes.fromhex(fields.get("message_uuid", ""))
    return filled(layers.message_layer(head + uuid, family), fields, unshown)
