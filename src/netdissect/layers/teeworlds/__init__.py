# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = Teeworlds 0.6, 0.7 and DDNet
# scapy.contrib.status = loads

"""Scapy layers of Teeworlds: packets, chunks and every message of 0.6, 0.6.5, DDNet and 0.7.

The message classes are made from a table and named after its rows: `Tw07SysInput`,
`Tw06GameSvChat`, `TwExSysCapabilities`. A chunk has a message in its field `body`.
"""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.binding import bind_port, explorable
from netdissect.layers.teeworlds import controls, messages, packets
from netdissect.layers.teeworlds.controls import *  # noqa: F403 - the public names are the package's
from netdissect.layers.teeworlds.messages import *  # noqa: F403
from netdissect.layers.teeworlds.packets import *  # noqa: F403
from netdissect.model.annotations import code_rows
from netdissect.wire.teeworlds_forms import CONNLESS_FLAG, FAMILIES, PORTS
from netdissect.wire.teeworlds_snapshots import object_fields

_GROUPS: tuple[dict[Any, Any], ...] = (
    *messages.MESSAGES.values(),
    *messages.CONNLESS.values(),
    messages.UUID_MESSAGES,
    *controls.CONTROLS.values(),
)
_MADE: dict[str, type[Layer]] = {
    made.__name__: made
    for group in _GROUPS
    for layer in group.values()
    for made in (layer, *messages.items_of(layer))
}
"""Classes made from tables, by name."""
globals().update(_MADE)
for _layer in _MADE.values():
    # Pickle looks a class up in its module.
    _layer.__module__ = __name__

__all__ = [  # noqa: PLE0604 - the lists of the modules are strings
    "ADDED_FIELDS",
    "bind_teeworlds",
    *controls.__all__,
    *messages.__all__,
    *packets.__all__,
    *sorted(_MADE),
]

CODES = code_rows("teeworlds")

ADDED_FIELDS: dict[str, str] = {
    **dict.fromkeys(("type", "decompressed_hex", "object", "state"), "str"),
    **dict.fromkeys(("length", "decompressed_length", "sequence_reference", "base"), "int"),
    **dict.fromkeys(("item_type", "item_id"), "int"),
    **dict.fromkeys(("items", "changes", "deleted", "ints"), "list"),
    **{name: "int" for family in FAMILIES for name in object_fields(family)},
}
"""Name -> kind of what is in a tree besides the fields of layers, mostly the items of snapshots."""

ROOTS: dict[str, type[packets.TwPacket]] = {
    layer.form.dialect: layer
    for layer in (packets.Tw06, packets.Tw065, packets.TwDdnet, packets.Tw07)
}
"""Dialect -> layer of its packets."""


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer that reads `payload`."""
    return packet_layer(payload, request.dialect)


def packet_layer(payload: bytes, dialect: str) -> type[Layer]:
    """Return the layer of a packet, connectionless if its bit is set."""
    header = ROOTS.get(dialect, packets.Tw07)
    if payload[:1] and payload[0] & CONNLESS_FLAG:
        return packets.Tw07Connless if header is packets.Tw07 else packets.Tw06Connless
    return header


def wrap(packet: Any, request: Any) -> Any:
    """Return a packet with a message; None if the dialect does not have the message."""
    header = ROOTS[request.dialect]
    family = header.form.family
    kind = type(packet)
    extra: dict[str, Any] = {"token_flag": 1} if header is packets.Tw065 else {}
    if kind in controls.CONTROLS[header.dialect].values():
        return header(control_flag=1, num_chunks=0, **extra) / packet
    connless = packets.Tw07Connless if family == "0.7" else packets.Tw06Connless
    if kind in messages.CONNLESS[family].values():
        return connless(body=packet)
    if kind in (*messages.MESSAGES[family].values(), *messages.UUID_MESSAGES.values()):
        chunks = packets.body_layer(header.dialect, b"", control=False)()
        chunks.chunks = [chunks.get_field("chunks").item(vital=1, sequence=1, body=packet)]
        return header(**extra) / chunks
    return packet if kind in (header, packets.Tw06Connless, packets.Tw07Connless) else None


DIALECTS = ("teeworlds-0.7", "teeworlds-ddnet-0.6", "teeworlds-0.6", "teeworlds-0.6.5")


def bind_teeworlds(port: int = PORTS[0], dialect: str | None = None) -> None:
    """Let Scapy dissect UDP at `port` as Teeworlds, in `dialect` or in that of each packet."""
    bind_port("teeworlds", port, dialect, DIALECTS, ("udp",))


bind = bind_teeworlds


READERS: list[tuple[type[Layer], tuple[str, ...]]] = []
RULES: list[type[Layer]] = [
    controls.TwControlEmpty, controls.TwControlUnknown, packets.Tw07Connless,
    messages.TwEmpty, messages.TwUnknown, messages.TwUnknownUuid,
]  # fmt: skip
"""Layers of which `protocols/teeworlds` needs the soft rules alone: it reads them by hand."""

explorable("teeworlds", globals(), __all__)
