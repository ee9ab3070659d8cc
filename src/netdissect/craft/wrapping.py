"""Puts a message layer into the layers that carry it: a chunk and a packet, a frame.

A protocol whose layer module has no `wrap` has messages that are datagrams themselves.
"""

from __future__ import annotations

from typing import Any

from netdissect.dissect.engine import Request, layer_module
from netdissect.protocols import registry

__all__ = ["layers_of", "root", "wrap"]


def layers_of(protocol: str) -> Any:
    """Return the layer module of a protocol."""
    return layer_module(registry.get(protocol).layer_module or protocol)


def wrap(protocol: str, dialect: str, packet: Any, transport: str = "udp") -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    found = getattr(layers_of(protocol), "wrap", None)
    return packet if found is None else found(packet, Request(dialect, None, transport))


def root(protocol: str, octets: bytes, request: Request) -> Any:
    """Return the layer that reads and writes one message with its framing."""
    layers = layers_of(protocol)
    return getattr(layers, "message_root", layers.root)(octets, request)
