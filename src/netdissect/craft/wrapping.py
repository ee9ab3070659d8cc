"""Puts a message layer into the layers that carry it: a chunk and a packet, a frame.

A protocol without a carrier has messages that are datagrams themselves.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from netdissect.dissect.engine import Request, layer_module
from netdissect.protocols import registry

__all__ = ["carrier", "layers_of", "root", "wrap"]


@cache
def carrier(protocol: str) -> Any:
    """Return the module that knows what carries a protocol's messages, None without one."""
    name = registry.get(protocol).carrier
    return None if name is None else import_module(name)


def layers_of(protocol: str) -> Any:
    """Return the layer module of a protocol."""
    return layer_module(registry.get(protocol).layer_module or protocol)


def wrap(protocol: str, dialect: str, packet: Any, transport: str = "udp") -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    found = getattr(carrier(protocol), "wrap", None)
    return packet if found is None else found(dialect, transport, packet)


def root(protocol: str, octets: bytes, request: Request) -> Any:
    """Return the layer that reads and writes one message with its framing."""
    found = getattr(carrier(protocol), "root", None)
    if found is None:
        return layers_of(protocol).root(octets, request)
    return found(request.dialect, request.transport, octets)
