"""EOUDP: contents stand behind a header."""

from __future__ import annotations

from typing import Any

from netdissect.craft.filling import Fields, filled
from netdissect.layers import eoudp as layers
from netdissect.layers.base import Layer
from netdissect.layers.eoudp import documents
from netdissect.wire.eoudp_names import DOCUMENTS

__all__ = ["rebuild", "wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    del transport
    header = layers.header_layer(dialect)
    kind = type(packet)
    if kind is header:
        return packet
    if not getattr(kind, "commands", None):
        return None
    short = kind.__name__.endswith("32")
    if short != dialect.endswith("long32") and (short or hasattr(layers, f"{kind.__name__}32")):
        return None
    flagged = any(field.name == "important" for field in header.fields_desc)
    return header(**({"important": 1} if flagged else {})) / packet


def rebuild(dialect: str, transport: str, fields: Fields) -> bytes:
    """Return the bytes of a payload that is shown as these fields."""
    del transport
    header = layers.header_layer(dialect)
    values = {**fields, "cmd": fields["command"]}
    values["important"] = fields.get("important_raw", fields.get("important"))
    if isinstance(values.get("padding"), str):
        del values["padding"]
    packet = filled(header, values)
    content = fields.get("content", {})
    if "raw_hex" in content:
        return bytes(packet) + bytes.fromhex(content["raw_hex"])
    layer = _layer(header.dialect, fields, content)
    return bytes(packet / _component(layer, content)) + _trailing(content)


def _trailing(content: Fields) -> bytes:
    octets = content.get("trailing", "")
    return bytes.fromhex(octets) if isinstance(octets, str) else b""


def _layer(dialect: str, fields: Fields, content: Fields) -> type[Layer]:
    """Return the layer whose fields the content has, in the stated byte order and string form."""
    name = fields.get("shown_as", fields["command_name"])
    size = int(fields.get("content_length", 0))
    order = ">" if fields.get("content_byte_order") == "big" else "<"
    form = fields.get("string_form")
    found = layers.content_layer(dialect, name, b"0" * size, order).layer
    if form is not None and (dialect in DOCUMENTS or form != "no_nul"):
        sets = documents.LAYERS[order, form]
        kind = "components" if "component" in content else "strings"
        if kind == "components" and name == "DELETE_COMPONENT":
            kind = "deleted" if "data_hex" not in content else "deleted_data"
        found = getattr(sets, kind)
    return found


def _component(layer: type[Layer], content: Fields) -> Any:
    """Return a content; the bytes of components stand under `data_hex`, here and in `more`."""
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
    return filled(layer, values, **more)
