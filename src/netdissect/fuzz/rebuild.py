"""What `decode --json` prints of a whole payload, back into layers.

`decode` flattens what people read at one glance (a message's content beside its header) and names
some fields anew; here that is undone, one function a protocol. Values changed in between are
built as they stand, lengths and sizes included.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from scapy.fields import BitField
from scapy.packet import Packet, Raw

from netdissect.fuzz.fields import innermost
from netdissect.layers.base import Layer
from netdissect.layers.fields import Items, NulString
from netdissect.model.errors import UsageError
from netdissect.wire import huffman
from netdissect.wire.eoudp_names import DOCUMENTS
from netdissect.wire.varint import TEEWORLDS

__all__ = ["PROTOCOLS", "rebuild"]

_Fields = Mapping[str, Any]


def rebuild(protocol: str, dialect: str, transport: str, fields: _Fields) -> bytes:
    """Return the octets of a payload.

    Args:
        protocol: one of `PROTOCOLS`.
        dialect: full name of its dialect.
        transport: `udp` or `tcp`.
        fields: the object `fields`.

    Raises:
        UsageError: a value is missing or does not fit.
    """
    try:
        return PROTOCOLS[protocol](dialect, transport, fields)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error) as error:
        raise UsageError(f"{protocol}: these fields are no payload: {error!r}") from error


def _filled(
    layer: type[Layer], values: _Fields, taken: Callable[[Any, Any], Any] | None = None, **more: Any
) -> Any:
    """Return a packet of those values that are fields of the layer, under the names that the tree
    shows them by; `taken` (field, value) returns one as its field takes it.
    """
    packet = layer()
    for field in layer.fields_desc:
        value = values.get(getattr(field, "shown", field.name))
        if value is not None and field.name not in more:
            packet.fields[field.name] = (taken or _plain)(field, value)
    packet.fields.update(more)
    return packet


def _plain(outer: Any, value: Any) -> Any:
    """Return a value of JSON as its field takes it."""
    field = innermost(outer)
    if isinstance(value, list):
        kind = getattr(field, "item", None)
        return value if kind is None else [_filled(kind, each) for each in value]
    if isinstance(value, str) and isinstance(field.default, bytes):
        return value.encode("utf-8", "surrogateescape")
    return float(value) if isinstance(value, str) else value


# -- kNet ------------------------------------------------------------------------------------------


def _knet(dialect: str, transport: str, fields: _Fields) -> bytes:
    from netdissect.layers import knet as layers  # noqa: PLC0415 - only where it is asked for

    if transport == "tcp":
        stream, _ = layers.STREAMS[dialect]
        item = stream().get_field("messages").item
        messages = [_knet_message(item, each, layers) for each in fields.get("messages", ())]
        cut = fields.get("incomplete")
        rest = b"" if cut is None else bytes(_knet_message(item, cut, layers))
        return bytes(stream(messages=messages)) + rest
    if fields.get("kind") in ("connect", "empty"):
        return bytes.fromhex(fields.get("payload", ""))
    header = layers.datagram_layer(dialect)
    item = header().get_field("messages").item
    messages = [_knet_message(item, each, layers) for each in fields["messages"]]
    return bytes(_filled(header, fields, messages=messages))


def _knet_message(item: type[Layer], fields: _Fields, layers: Any) -> Packet:
    """Return a message of the fields that stand beside those of its content."""
    payload = bytes.fromhex(fields.get("payload", fields.get("content", "")))
    content: Any = layers.KnetFragmentData(data=payload)
    if "message_id" in fields:
        content = layers.KnetContent(message_id=fields["message_id"], data=payload)
    packet: Packet = _filled(item, fields, content=content)
    return packet


# -- EOUDP -----------------------------------------------------------------------------------------


def _eoudp(dialect: str, _transport: str, fields: _Fields) -> bytes:
    from netdissect.layers import eoudp as layers  # noqa: PLC0415

    header = layers.header_layer(dialect)
    values = {**fields, "cmd": fields["command"]}
    values["important"] = fields.get("important_raw", fields.get("important"))
    if isinstance(values.get("padding"), str):
        del values["padding"]
    packet = _filled(header, values)
    content = fields.get("content", {})
    if "raw_hex" in content:
        return bytes(packet) + bytes.fromhex(content["raw_hex"])
    layer = _eoudp_layer(header.dialect, fields, content, layers)
    return bytes(packet / _component(layer, content)) + _trailing(content)


def _trailing(content: _Fields) -> bytes:
    octets = content.get("trailing", "")
    return bytes.fromhex(octets) if isinstance(octets, str) else b""


def _eoudp_layer(dialect: str, fields: _Fields, content: _Fields, layers: Any) -> type[Layer]:
    """Return the layer whose fields the content has, in the stated byte order and string form."""
    name = fields.get("shown_as", fields["command_name"])
    size = int(fields.get("content_length", 0))
    order = ">" if fields.get("content_byte_order") == "big" else "<"
    form = fields.get("string_form")
    found = layers.content_layer(dialect, name, bytes(size), order).layer
    if form is not None and (dialect in DOCUMENTS or form != "no_nul"):
        sets = layers.DOCUMENT_LAYERS[order, form]
        kind = "components" if "component" in content else "strings"
        if kind == "components" and name == "DELETE_COMPONENT":
            kind = "deleted" if "data_hex" not in content else "deleted_data"
        found = getattr(sets, kind)
    return found  # type: ignore[no-any-return]


def _component(layer: type[Layer], content: _Fields) -> Any:
    """Return a content; the octets of components stand under `data_hex`, here and in `more`."""
    values = dict(content)
    more: dict[str, Any] = {}
    if "data_hex" in values:
        more["data"] = bytes.fromhex(values["data_hex"])
    if isinstance(values.get("more"), list):
        item = layer().get_field("more").item
        more["more"] = [_component(item, each) for each in values.pop("more")]
    values.pop("data", None)
    if "pressed_raw" in values:
        values["pressed"] = values["pressed_raw"]
    return _filled(layer, values, **more)


# -- Netplay ---------------------------------------------------------------------------------------


def _netplay(dialect: str, _transport: str, fields: _Fields) -> bytes:
    from netdissect.layers import netplay as layers  # noqa: PLC0415

    if dialect == "netplay-text":
        return b"".join(bytes(_filled(layers.NetplayText, each)) for each in fields["messages"])
    frames = [_frame(each, layers) for each in fields["messages"]]
    if dialect != "netplay-bin3":
        return b"".join(frames)
    made = [chunk for frame in frames for chunk in layers.chunks(frame)]
    told = fields.get("chunks", ())
    if len(told) == len(made):
        for chunk, values in zip(made, told, strict=True):
            chunk.chunk_header = values["chunk_header"]
    return b"".join(map(bytes, made))


def _frame(fields: _Fields, layers: Any) -> bytes:
    if "type" not in fields:
        octets = bytes.fromhex(fields.get("octets", ""))
        return bytes(_filled(layers.NetplayShortFrame, fields, octets=octets))
    body = bytes.fromhex(fields.get("payload_hex", ""))
    return bytes(_filled(layers.NetplayFrame, fields, body=body))


# -- Teeworlds -------------------------------------------------------------------------------------


def _teeworlds(dialect: str, _transport: str, fields: _Fields) -> bytes:
    from netdissect.layers import teeworlds as layers  # noqa: PLC0415
    from netdissect.layers.teeworlds.packets import PAYLOAD_LIMITS  # noqa: PLC0415

    header = layers.ROOTS[dialect]
    family = "0.7" if header is layers.Tw07 else "0.6"
    if "message_fields" in fields:
        carrier = layers.Tw07Connless if family == "0.7" else layers.Tw06Connless
        body = _connless(family, fields["message_fields"], layers)
        return bytes(_filled(carrier, fields, _unshown, body=body))
    packet = _filled(header, fields, _unshown)
    if fields.get("compressed_flag") and "compressed" in fields:
        code = bytes.fromhex(fields["compressed"])
        packet.packed = _packed(code, PAYLOAD_LIMITS[header.dialect])
        packet.explicit = 1  # or Scapy builds a copy, which does not know them
    return bytes(packet / _teeworlds_body(header.dialect, family, fields, layers))


def _packed(code: bytes, limit: int) -> tuple[bytes, bytes]:
    """Return what a code stands for, and the code: what is built otherwise is compressed anew.

    A code that cannot be opened stands for itself.
    """
    try:
        return huffman.decompress(code, limit), code
    except huffman.HuffmanError:
        return code, code


def _teeworlds_body(dialect: str, family: str, fields: _Fields, layers: Any) -> Packet:
    """Return what follows the header: chunks, a control message, or octets that did not open."""
    if "chunks" in fields:
        made = [_chunk(family, each, layers) for each in fields["chunks"]]
        layer = layers.body_layer(dialect, b"", control=False)
        chunks = _filled(layer, fields, _unshown, chunks=made)
        body: Packet = chunks / Raw(bytes.fromhex(fields.get("trailing", "")))
        return body
    number = fields.get("control_id")
    if number is None:
        return Raw(bytes.fromhex(fields.get("compressed", "")))
    return _filled(layers.CONTROLS[dialect].get(number, layers.TwControlUnknown), fields, _unshown)


def _connless(family: str, fields: _Fields, layers: Any) -> Packet:
    """Return a connectionless message; one without known magic octets is the octets of `data`."""
    magic = bytes.fromhex(fields.get("magic_octets", ""))
    layer = layers.CONNLESS[family].get(magic)
    if layer is None:
        return Raw(magic + bytes.fromhex(fields.get("data", "")))
    return _filled(layer, fields, _unshown)


def _chunk(family: str, fields: _Fields, layers: Any) -> Packet:
    """Return a chunk; one that the packet ends in has the octets of its message under `body`."""
    if "body" in fields:
        body: Packet = Raw(bytes.fromhex(fields["body"]))
    else:
        body = _chunk_message(family, fields.get("fields") or {}, layers)
    chunk = layers.Tw07Chunk if family == "0.7" else layers.Tw06Chunk
    return _filled(chunk, fields, _unshown, body=body)


def _chunk_message(family: str, fields: _Fields, layers: Any) -> Packet:
    """Return the message that its number, or its UUID, names."""
    number = fields.get("message_id")
    head = b"" if number is None else TEEWORLDS.write(number)
    uuid = bytes.fromhex(fields.get("message_uuid", ""))
    return _filled(layers.message_layer(head + uuid, family), fields, _unshown)


def _unshown(outer: Any, value: Any) -> Any:
    """Return a value of the tree as its field takes it.

    Raises:
        ValueError: it has more or fewer octets than the field, or more bits.
    """
    field = innermost(outer)
    if isinstance(field, Items):
        return [_filled(field.item, each, _unshown) for each in value]
    if isinstance(field, BitField) and not 0 <= value < 1 << field.size:
        raise ValueError(f"{field.name} = {value} has more than {field.size} bits")
    if isinstance(field.default, bytes) and not isinstance(field, NulString):
        octets = bytes.fromhex(value)
        # Fields of a fixed size would cut or fill what they are given.
        if field.fmt.endswith("s") and len(octets) != field.sz:
            raise ValueError(f"{field.name} has {field.sz} octets, not {len(octets)}")
        return octets
    return field.any2i(None, value)


PROTOCOLS: Mapping[str, Callable[[str, str, _Fields], bytes]] = {
    "eoudp": _eoudp,
    "knet": _knet,
    "netplay": _netplay,
    "teeworlds": _teeworlds,
}
"""Protocols whose payloads hold more than one layer at their root."""
