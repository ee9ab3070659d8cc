"""What `decode --json` prints of a whole payload, back into bytes.

Values changed in between are built as they stand, lengths and sizes included; what the tree only
concludes is passed over.
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

__all__ = ["passed_over", "rebuild"]

_ZEROS = 64
"""Bytes that are no message of its own kind, such as an empty one or a first one."""


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
        raise UsageError(f"{protocol}: these fields are no payload: {reason(error)}") from error


def passed_over(before: Fields, wanted: Fields, now: Fields) -> list[str]:
    """Return the values that were changed to what they are not: what is only concluded.

    Args:
        before: the fields of a payload.
        wanted: the same with changes.
        now: the fields of the payload that was built of those.
    """
    was, built = dict(_leaves(before)), dict(_leaves(now))
    return [
        name
        for name, value in _leaves(wanted)
        if name in was and value != was[name] and built.get(name) == was[name]
    ]


def _leaves(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of all that holds no other values."""
    waiting: list[tuple[str, Any]] = [("", fields)]
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, (dict, list)):
            yield path[1:], value
            continue
        held = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [(f"{path}.{key}", item) for key, item in held]


def _start(choose: Any, protocol: str, fields: Fields) -> type[Layer]:
    """Return the usual layer of a payload where it has one of the fields, else one that has."""
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
