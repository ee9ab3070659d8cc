"""Ports for Scapy: `bind(port, dialect=...)` of every layer module ends here.

Bound is a class that reads nothing itself: it hands the bytes to the layer of the dialect that was
named or, without one, of the dialect that the bytes are of. Nothing is kept from datagram to
datagram: two peers on one port may speak different dialects. Where one datagram does not tell, the
packet has `candidates`; `netdissect.scapy_session.NetdissectSession` knows the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from scapy.config import conf
from scapy.packet import bind_bottom_up, bind_top_down

from netdissect.layers.base import Layer
from netdissect.model.packets import Direction
from netdissect.model.text import quoted

__all__ = [
    "PortReader",
    "StreamLayer",
    "bind_port",
    "choice_of",
    "explorable",
    "is_reader",
    "layer_of",
]


CLIENT_PORT = 49152
"""Source port of packets built without ports: the first ephemeral one. Source: RFC 6335 section 6.
With Scapy's own default, 53, a reader would take them for DNS.
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the `root` of a layer module wants to know."""

    dialect: str
    transport: str
    direction: int | None
    unframed: bool = False
    hints: Any = None


class StreamLayer(Layer):
    """A layer over TCP that Scapy's `TCPSession` can put together."""

    @classmethod
    def whole(cls, data: bytes) -> int:
        """Return how many bytes at the start of a stream are whole messages; 0 = none yet."""
        return len(data)

    @classmethod
    def tcp_reassemble(cls, data: bytes, _metadata: Any, _session: Any) -> Any:
        """Return a packet once a whole message is there, what follows it as padding; else None.

        Source: scapy `sessions.TCPSession`.
        """
        size = cls.whole(bytes(data))
        if not size:
            return None
        packet = cls(bytes(data[:size]))
        rest = bytes(data[size:])
        return packet / conf.padding_layer(rest) if rest else packet


def choice_of(
    protocol: str,
    data: bytes,
    dialects: Sequence[str] = (),
    transport: str = "udp",
    direction: int | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (the dialects that bytes may be of, the likeliest first; those in which another packet
    would be shown), by default of all there are; without bytes the usual one.
    """
    known = dialects or import_module(f"netdissect.layers.{protocol}").DIALECTS
    if not data or len(known) == 1:
        return (known[0],), ()
    # Reading in every dialect is the business of a room above this one.
    choice = import_module("netdissect.dissect.choice")
    dialects, others = choice.choose(protocol, data, tuple(known), transport, direction)
    return tuple(dialects), others


def layer_of(
    protocol: str,
    data: bytes,
    dialects: Sequence[str] = (),
    transport: str = "udp",
    direction: int | None = None,
) -> type[Layer]:
    """Return the layer of the likeliest dialect of bytes."""
    module = import_module(f"netdissect.layers.{protocol}")
    dialect = choice_of(protocol, data, dialects, transport, direction)[0][0]
    asked = _Asked(dialect, transport, direction)
    found: type[Layer] = getattr(module, "reader", module.root)(data, asked)
    return found


class PortReader(StreamLayer):
    """Reads what comes from or goes to one port."""

    name = "netdissect"
    fields_desc: list[Any] = []
    protocol: ClassVar[str]
    transport: ClassVar[str]
    port: ClassVar[int]
    dialects: ClassVar[tuple[str, ...]]
    """The one that was named, or those among which the bytes decide."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: Any, **kwargs: Any) -> type[Layer]:
        """Return the layer of these bytes."""
        return cls if _pkt is None else layer_of(*cls._asked(_pkt, **kwargs))

    @classmethod
    def weighed(
        cls, _pkt: bytes = b"", *_args: Any, **kwargs: Any
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the dialects that these bytes may be of."""
        return choice_of(*cls._asked(_pkt, **kwargs))

    @classmethod
    def _asked(cls, data: bytes, **kwargs: Any) -> tuple[Any, ...]:
        port = getattr(kwargs.get("_underlayer"), "sport", None)
        # What comes from the port that was bound is from the server.
        direction = None if port is None else Direction(int(port == cls.port))
        return cls.protocol, bytes(data), cls.dialects, cls.transport, direction

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: Any, session: Any) -> Any:
        """Return what the layer of the dialect puts together."""
        asked = cls._asked(data)
        layer: Any = layer_of(*asked)
        reassemble = getattr(layer, "tcp_reassemble", None)
        packet = layer(bytes(data)) if reassemble is None else reassemble(data, metadata, session)
        if packet is not None:
            packet.weigh(*choice_of(*asked))
        return packet


def explorable(protocol: str, names: dict[str, Any], public: Sequence[str]) -> None:
    """List the public layers of a module where Scapy's `explore("<protocol>")` looks for them."""
    found = [names[each] for each in public]
    conf.layers.ldict[_contrib(protocol)] = [
        each for each in found if isinstance(each, type) and issubclass(each, Layer)
    ]


def _contrib(protocol: str) -> str:
    """Return the name under which Scapy lists the layers of a protocol."""
    return f"scapy.contrib.{protocol}"


def is_reader(layer: Any) -> bool:
    """Return whether Scapy's table names a port of ours here."""
    return isinstance(layer, type) and issubclass(layer, PortReader)


def bind_port(
    protocol: str,
    port: int,
    dialect: str | None,
    dialects: Sequence[str],
    transports: Sequence[str],
) -> None:
    """Let Scapy dissect what comes from and goes to a port; an earlier binding of ours ends.

    Args:
        protocol: name of the layer module.
        port: UDP or TCP port.
        dialect: dialect to read, with or without the protocol's prefix; None = by content.
        dialects: those that there are, the usual one first.
        transports: `udp`, `tcp`.

    Raises:
        ValueError: there is no such dialect.
    """
    from scapy.layers.inet import TCP, UDP  # noqa: PLC0415 - slow import, wanted only here

    wanted = tuple(dialects)
    if dialect is not None:
        wanted = tuple(
            each for each in dialects if dialect in (each, each.removeprefix(f"{protocol}-"))
        )[:1]
    if not wanted:
        raise ValueError(
            f"{protocol} has no dialect {quoted(dialect)}; known: {', '.join(dialects)}"
        )
    for transport in transports:
        carrier: Any = UDP if transport == "udp" else TCP
        carrier.payload_guess = [
            each
            for each in carrier.payload_guess
            if not (is_reader(each[1]) and each[1].port == port)
        ]
        row: dict[str, Any] = {
            "protocol": protocol,
            "transport": transport,
            "port": port,
            "dialects": wanted,
        }
        # Scapy asks for the hook of the class itself, not for an inherited one.
        row["dispatch_hook"] = PortReader.__dict__["dispatch_hook"]
        reader = type(f"{protocol.title()}{transport.title()}{port}", (PortReader,), row)
        for end in ("sport", "dport"):
            bind_bottom_up(carrier, reader, {end: port})
        for layer in conf.layers.ldict[_contrib(protocol)]:
            bind_top_down(carrier, layer, {"sport": CLIENT_PORT, "dport": port})
