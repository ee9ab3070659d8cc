"""The layers of a protocol by name, for building messages and for seeds without a capture."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from scapy.packet import NoPayload, Packet

from netdissect.craft.wrapping import layers_of, root, wrap
from netdissect.dissect.engine import Request, dissect
from netdissect.layers.base import Layer
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted
from netdissect.protocols import registry


@cache
def exported_layers(protocol: str) -> dict[str, type[Layer]]:
    """Return the layer classes that a protocol's module exports, by class name.

    Layers in its table `DECODED_ONLY` are left out: they are other forms of messages that it has.
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
    """Return the bytes of a packet; None if a value cannot be built."""
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
    """Return message type -> layer for a dialect.

    A layer belongs to the dialect if its default packet, with what carries it, is read as itself.
    """
    request = Request(dialect, None, transport)
    types: dict[str, type[Layer]] = {}
    for layer in exported_layers(protocol).values():
        packet = layer()
        if type(packet) is not layer:
            # A base class: calling it gives a packet of the default dialect.
            continue
        carrier = wrap(protocol, dialect, packet, transport)
        octets = None if carrier is None else build(carrier)
        if not octets or not _reads_back(carrier, packet, root(protocol, octets, request), octets):
            continue
        for name in read_types(protocol, octets, request)[:1]:
            types.setdefault(name, layer)
    return types


def _reads_back(carrier: Any, packet: Any, layer: Any, octets: bytes) -> bool:
    """Return whether the bytes of a message in its carrier are read as these layers."""
    if layer is not type(carrier):
        return False
    if carrier is packet or getattr(packet, "commands", None):
        # The documents of EOUDP read the same command with another layer.
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
    """Return a layer by message type (`Connect`) or by class name (`RiptideConnect`).

    Raises:
        UsageError: there is no such layer; the text suggests one, or lists all.
    """
    exported = exported_layers(protocol)
    by_type = message_types(protocol, dialect, transport)
    wanted = name.lower()
    for table in (by_type, exported):
        for known, layer in table.items():
            if known.lower() == wanted:
                return layer
    near = did_you_mean(name, [*by_type, *exported])
    if near:
        raise UsageError(f"{protocol} has no message {quoted(name)}{near}")
    raise UsageError(
        f"{protocol} has no message {quoted(name)}. Types of {dialect}: {_names(by_type)}. "
        f"Classes: {_names(exported)}."
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
