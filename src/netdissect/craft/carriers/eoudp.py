"""EOUDP: contents stand behind a header."""

from __future__ import annotations

from typing import Any

from netdissect.layers import eoudp as layers

__all__ = ["wrap"]


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
