"""Builds payloads from the output of `decode --json`.

Values that were changed in between are built as they are, even wrong lengths. Derived values are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from netdissect.craft.filling import REFUSED, Fields, chosen, shown_names
from netdissect.craft.layers import build, exported_layers, message_types
from netdissect.craft.wrapping import layers_of, root
from netdissect.dissect.engine import Request
from netdissect.layers.base import Layer
from netdissect.model.errors import UsageError, reason

_ZEROS = 64
"""Size of the sample whose layer is the usual one: neither an empty nor a first datagram."""


def rebuild(protocol: str, dialect: str, transport: str, fields: Fields) -> bytes:
    """Return the bytes of a payload.

    Args:
        protocol: name of the protocol.
        dialect: full name of its dialect.
        transport: `udp` or `tcp`.
        fields: the object `fields`.

    Raises:
        UsageError: a value is missing or does not fit.
    """
    request = Request(dialect, None, transport)
    reader = getattr(layers_of(protocol), "reader", None)
    choose = partial(root, protocol, request=request)
    if reader is not None:
        choose = partial(reader, request=request)
    try:
        start = _start(choose, protocol, fields)
        payload = bytes(chosen(choose, fields, start))
        more = [] if "more" in shown_names(start) else fields.get("more", ())
        return payload + b"".join(bytes(chosen(choose, each, start)) for each in more)
    except REFUSED as error:
        raise UsageError(f"{protocol}: these fields are not a payload: {reason(error)}") from error


def ignored_changes(before: Fields, changed: Fields, after: Fields) -> list[str]:
    """Return the names of values whose change had no effect, as they are derived from others.

    Args:
        before: fields of a payload.
        changed: the same fields, some with other values.
        after: fields of the payload that was built from `changed`.
    """
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [
        name
        for name, value in _leaves(changed)
        if name in old and value != old[name] and new.get(name) == old[name]
    ]


def _leaves(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every scalar value."""
    waiting: list[tuple[str, Any]] = [("", fields)]
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, (dict, list)):
            yield path[1:], value
            continue
        held = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [(f"{path}.{key}", item) for key, item in held]


def _start(choose: Any, protocol: str, fields: Fields) -> type[Layer]:
    """Return the layer to build first: the usual one, or one that has some of the fields."""
    usual: type[Layer] = choose(bytes(_ZEROS))
    if {*shown_names(usual)[:1]} & fields.keys():
        return usual
    request = choose.keywords["request"]
    types = message_types(protocol, request.dialect, request.transport)
    named: type[Layer] | None = types.get(fields.get("type", ""))
    if named is not None:
        return named
    if fields.keys() & shown_names(usual):
        return usual
    for layer in exported_layers(protocol).values():
        if fields.keys() & shown_names(layer):
            found: type[Layer] = choose(build(layer()) or b"")
            if found is layer:
                return found
    if fields and usual.load_shown is not Layer.load_shown:
        return usual
    raise ValueError(f"none of them is a field such as {', '.join(shown_names(usual))}")
