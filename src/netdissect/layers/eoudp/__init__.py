# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = Exodia over UDP
# scapy.contrib.status = loads

"""Scapy layers of EOUDP (Exodia On UDP), as its documents specify it and as its programs speak it.

A datagram is a header and a content: `EoudpLate() / EoudpEvent(key=265, pressed=1)`. By default,
building takes the command and the size from the content.
"""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.layers.binding import bind_port, explorable
from netdissect.layers.eoudp import contents, headers
from netdissect.layers.eoudp.contents import *  # noqa: F403 - the public names are the package's
from netdissect.layers.eoudp.documents import DOCUMENT_LAYERS as DECODED_ONLY
from netdissect.layers.eoudp.headers import *  # noqa: F403
from netdissect.model.annotations import code_rows
from netdissect.wire.eoudp_names import PORTS

__all__ = [  # noqa: PLE0604 - the lists of the two modules are strings
    "bind_eoudp",
    *contents.__all__,
    *headers.__all__,
    *DECODED_ONLY,
]
globals().update(DECODED_ONLY)

CODES = code_rows("eoudp")


def root(_payload: bytes, request: Any) -> type[Layer]:
    """Return the header of the dialect. The finisher reads the content."""
    return headers.header_layer(request.dialect)


def wrap(packet: Any, request: Any) -> Any:
    """Return a datagram with this content; None if the dialect does not have such a content."""
    header = headers.header_layer(request.dialect)
    kind = type(packet)
    if kind is header:
        return packet
    if not getattr(kind, "commands", None):
        return None
    short = kind.__name__.endswith("32")
    if short != request.dialect.endswith("long32") and (
        short or hasattr(contents, f"{kind.__name__}32")
    ):
        return None
    made = header()
    if "important" in made.fieldtype:
        made.important = 1
    return made / packet


DIALECTS = (
    "exodia-late", "exodia-mid", "exodia-early", "rfc03", "rfc02", "rfc01", "exodia-30",
    "exodia-late-long32", "exodia-mid-long32", "exodia-early-long32",
)  # fmt: skip


def bind_eoudp(port: int = PORTS[0], dialect: str | None = None) -> None:
    """Let Scapy dissect UDP at `port` as EOUDP, in `dialect` or in that of each datagram."""
    bind_port("eoudp", port, dialect, DIALECTS, ("udp",))


bind = bind_eoudp


READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    *((layer, ("padding",)) for layer in headers.HEADERS.values()),
    (contents.EoudpAck, ()),
    (contents.EoudpConnectAccept, ()),
    (contents.EoudpConnectAcceptText, ()),
]
"""(layer, fields to skip) for the derived readers that `protocols/eoudp` calls."""
RULES: list[type[Layer]] = [contents.EoudpPair]
"""Layers of which `protocols/eoudp` needs the soft rules alone."""

explorable("eoudp", globals(), __all__)
