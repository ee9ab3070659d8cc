"""The layers of a protocol by name: to build messages from fields, and to make seeds without a
capture.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from scapy.packet import NoPayload, Packet

from netdissect.craft.wrapping import layers_of, root, wrap
from netdissect.dissect.engine import Request, dissect
from netdissect.layers.base import Layer
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted
from netdissect.protocols import registry

__all__ = ["build", "exported_layers", "message_layer", "message_types", "read_types"]


@cache
def exported_layers(protocol: str) -> dict[str, type[Layer]]:
    """Return the layer classes that a protocol's module exports, by class name.

    Those in its table `DECODED_ONLY` are left out: further forms of messages that it exports.
    """
    module = layers_of(protocol)
    left_out = getattr(module, "DECODED_ONLY", {})
    found = {name: getattr(module, name) for name in module.__all__ if name not in left_out}
    return {
        name: layer
        for name, layer in sorted(found.items())
        if inspect.isclass(layer) and issubclass(layer, Layer)
    }


def build(packet: Any) -> bytes | None:
    """Return the bytes of a packet, None where its values cannot be written."""
    try:
        return bytes(packet)
    except Exception:  # noqa: BLE001 - Scapy fields raise whatever struct, int or str raise
        return None


def read_types(protocol: str, octets: bytes, request: Request) -> tuple[str, ...]:
    """Return the types of the messages in a payload, in wire order."""
    module = registry.get(protocol).layer_module
    tree = dissect(protocol, octets, request, module=module)
    return tuple(message.type for message in tree.messages)


@cache
def message_types(protocol: str, dialect: str, transport: str) -> dict[str, type[Layer]]:
    """Return the layer of each message type that a dialect has, by type name.

    A layer belongs to a dialect when its default packet, in what carries it, is read back.
    """
    request = Request(dialect, None, transport)
    types: dict[str, type[Layer]] = {}
    for layer in exported_layers(protocol).values():
        packet = layer()
        if type(packet) is not layer:
            # What dialects have in common stands for the usual one.
            continue
        carrier = wrap(protocol, dialect, packet, transport)
        octets = None if carrier is None else build(carrier)
        if not octets or not _reads_back(carrier, packet, root(protocol, octets, request), octets):
            continue
        for name in read_types(protocol, octets, request)[:1]:
            types.setdefault(name, layer)
    return types


def _reads_back(carrier: Any, packet: Any, layer: Any, octets: bytes) -> bool:
    """Return whether a dialect reads what carries a message as the layers that it was made of."""
    if layer is not type(carrier):
        return False
    if carrier is packet or getattr(packet, "commands", None):
        # Documents have layers of their own for the commands that this one is for.
        return True
    return any(type(each) is type(packet) for each in _inside(layer(octets)))


def _inside(packet: Any) -> Iterator[Any]:
    """Yield a packet, its payloads, and the packets in their fields."""
    while not isinstance(packet, NoPayload):
        yield packet
        for value in packet.fields.values():
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, Packet):
                    yield from _inside(item)
        packet = packet.payload


def message_layer(protocol: str, dialect: str, transport: str, name: str) -> type[Layer]:
    """Return the layer named by its class (`RiptideConnect`) or by its message type (`Connect`).

    Raises:
        UsageError: there is none; the text lists those there are.
    """
    exported = exported_layers(protocol)
    by_type = message_types(protocol, dialect, transport)
    wanted = name.lower()
    for table in (by_type, exported):
        for known, layer in table.items():
            if known.lower() == wanted:
                return layer
    raise UsageError(
        f"{protocol} has no message {quoted(name)}. Types of {dialect}: {_names(by_type)}. "
        f"Classes: {_names(exported)}."
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
