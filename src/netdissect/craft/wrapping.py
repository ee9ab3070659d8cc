"""Puts a message into the layers that carry it, such as a chunk in a packet, or a frame.

If the layer module of a protocol has no `wrap`, its messages are datagrams themselves.
"""

from __future__ import annotations

from typing import Any

from netdissect.dissect.engine import Request, layer_module
from netdissect.protocols import registry


def layers_of(protocol: str) -> Any:
    """Return the layer module of a protocol."""
    return layer_module(registry.get(protocol).layer_module or protocol)


def wrap(protocol: str, dialect: str, packet: Any, transport: str = "udp") -> Any:
    """Return a message with what carries it; None if the dialect does not have the message."""
    found = getattr(layers_of(protocol), "wrap", None)
    return packet if found is None else found(packet, Request(dialect, None, transport))


def root(protocol: str, octets: bytes, request: Request) -> Any:
    """Return the layer of one message with its framing."""
    layers = layers_of(protocol)
    return getattr(layers, "message_root", layers.root)(octets, request)
