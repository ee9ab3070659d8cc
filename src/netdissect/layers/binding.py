"""Binds the layers to ports in Scapy: the `bind(port, dialect)` of every layer package calls this.

The class that is bound reads nothing itself. It hands the bytes to the layer of the given dialect
or, without one, to that of the dialect that fits the bytes best. Each datagram is judged alone, as
two peers at one port may use different dialects. If several dialects fit, the packet lists them in
`candidates`; `netdissect.scapy_session.NetdissectSession` decides by the connection instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from scapy.config import conf
from scapy.packet import bind_bottom_up, bind_top_down

from netdissect.layers.base import Chooser, Layer
from netdissect.model.packets import Direction
from netdissect.model.text import quoted

CLIENT_PORT = 49152
"""Source port of packets built without ports: the first ephemeral one. Scapy's own default, 53,
would have them dissected as DNS. *Source:* RFC 6335 section 6.
"""


@dataclass(frozen=True, slots=True)
class _Request:
    """The attributes of `dissect.engine.Request` that the `root` of a layer package uses."""

    dialect: str
    transport: str
    direction: int | None
    unframed: bool = False
    hints: Any = None


class StreamLayer(Layer):
    """A layer over TCP that Scapy's `TCPSession` can reassemble."""

    @classmethod
    def complete_length(cls, data: bytes) -> int:
        """Return the length of the complete messages at the start of `data`, in bytes."""
        return len(data)

    @classmethod
    def tcp_reassemble(cls, data: bytes, _metadata: Any, _session: Any) -> Any:
        """Return the complete messages as a packet, with surplus bytes as padding; None if none is.

        Source: scapy `sessions.TCPSession`.
        """
        size = cls.complete_length(bytes(data))
        if not size:
            return None
        packet = cls(bytes(data[:size]))
        rest = bytes(data[size:])
        return packet / conf.padding_layer(rest) if rest else packet


def find_dialects(
    protocol: str,
    data: bytes,
    dialects: Sequence[str] = (),
    transport: str = "udp",
    direction: int | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dialects that `data` may be in, and those of them that show another packet.

    The likeliest dialect is first. Without data, that is the default dialect.

    Args:
        protocol: name of the layer package.
        data: one datagram, or the start of a stream.
        dialects: candidates, the default first; () = all dialects of the protocol.
        transport: `udp` or `tcp`.
        direction: `Direction`, or None if unknown.
    """
    known = dialects or import_module(f"netdissect.layers.{protocol}").DIALECTS
    if not data or len(known) == 1:
        return (known[0],), ()
    # Imported late: `dissect` is above `layers`.
    choice = import_module("netdissect.dissect.choice")
    dialects, others = choice.choose(protocol, data, tuple(known), transport, direction)
    return tuple(dialects), others


def find_layer(
    protocol: str,
    data: bytes,
    dialects: Sequence[str] = (),
    transport: str = "udp",
    direction: int | None = None,
) -> type[Layer]:
    """Return the layer that reads `data` in its likeliest dialect; arguments as `find_dialects`."""
    module = import_module(f"netdissect.layers.{protocol}")
    known = tuple(dialects or module.DIALECTS)
    dialect = known[0]
    if data and len(known) > 1:
        choice = import_module("netdissect.dissect.choice")
        dialect = choice.likeliest(protocol, data, known, transport, direction)
    request = _Request(dialect, transport, direction)
    found: type[Layer] = getattr(module, "reader", module.root)(data, request)
    return found


def by_bytes(protocol: str) -> tuple[Any, Any]:
    """Return the methods `dispatch_hook` and `chooser` of the base class of all headers.

    Called with bytes, the class then returns a packet of the dialect that fits them best.
    """

    def dispatch_hook(_cls: Any, _pkt: bytes = b"", *_args: Any, **_kwargs: Any) -> type[Layer]:
        return find_layer(protocol, bytes(_pkt))

    def chooser(_cls: Any, _pkt: bytes = b"", *_args: Any, **_kwargs: Any) -> Chooser:
        return partial(find_dialects, protocol, bytes(_pkt))

    return classmethod(dispatch_hook), classmethod(chooser)


class PortReader(StreamLayer):
    """Dispatches the payloads of one port to the layer that reads them."""

    name = "netdissect"
    fields_desc: list[Any] = []
    protocol: ClassVar[str]
    transport: ClassVar[str]
    port: ClassVar[int]
    dialects: ClassVar[tuple[str, ...]]
    """The dialect that was given, or all among which the bytes decide."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_args: Any, **kwargs: Any) -> type[Layer]:
        """Return the layer that reads these bytes."""
        return cls if _pkt is None else find_layer(*cls._lookup(_pkt, **kwargs))

    @classmethod
    def chooser(cls, _pkt: bytes = b"", *_args: Any, **kwargs: Any) -> Chooser:
        """Return what finds the dialects that these bytes may be in."""
        return partial(find_dialects, *cls._lookup(_pkt, **kwargs))

    @classmethod
    def _lookup(cls, data: bytes, **kwargs: Any) -> tuple[Any, ...]:
        """Return the arguments of `find_dialects`."""
        port = getattr(kwargs.get("_underlayer"), "sport", None)
        # The bound port is the server's.
        direction = None if port is None else Direction(int(port == cls.port))
        return cls.protocol, bytes(data), cls.dialects, cls.transport, direction

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: Any, session: Any) -> Any:
        """Return what the layer of the likeliest dialect reassembles."""
        lookup = cls._lookup(data)
        layer: Any = find_layer(*lookup)
        reassemble = getattr(layer, "tcp_reassemble", None)
        packet = layer(bytes(data)) if reassemble is None else reassemble(data, metadata, session)
        if packet is not None:
            packet.choose = partial(find_dialects, *lookup)
        return packet


def explorable(protocol: str, names: dict[str, Any], public: Sequence[str]) -> None:
    """Register the public layers of a package for Scapy's `explore("<protocol>")`.

    Args:
        protocol: name of the layer package.
        names: its `globals()`.
        public: its `__all__`.
    """
    found = [names[each] for each in public]
    conf.layers.ldict[_contrib(protocol)] = [
        each for each in found if isinstance(each, type) and issubclass(each, Layer)
    ]


def _contrib(protocol: str) -> str:
    """Return the key of a protocol in `conf.layers.ldict`, as of a module of Scapy's own."""
    return f"scapy.contrib.{protocol}"


def is_reader(layer: Any) -> bool:
    """Return whether an entry of Scapy's tables was made by `bind_port`."""
    return isinstance(layer, type) and issubclass(layer, PortReader)


def bind_port(
    protocol: str,
    port: int,
    dialect: str | None,
    dialects: Sequence[str],
    transports: Sequence[str],
) -> None:
    """Let Scapy dissect what a port sends and receives, and build packets to it by default.

    This replaces an earlier binding of the port by this function.

    Args:
        protocol: name of the layer package.
        port: UDP or TCP port of the server.
        dialect: dialect to read, with or without the protocol's prefix; None = by content.
        dialects: all dialects of the protocol, the default first.
        transports: `udp`, `tcp`.

    Raises:
        ValueError: there is no such port, or the protocol has no such dialect.
    """
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        raise ValueError(f"{quoted(port)} is no port: 1 to 65535 are")
    from scapy.layers.inet import TCP, UDP  # noqa: PLC0415 - slow import, needed only here

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
        # Scapy calls only a hook of the class itself, not an inherited one.
        row["dispatch_hook"] = PortReader.__dict__["dispatch_hook"]
        reader = type(f"{protocol.title()}{transport.title()}{port}", (PortReader,), row)
        for end in ("sport", "dport"):
            bind_bottom_up(carrier, reader, {end: port})
        for layer in conf.layers.ldict[_contrib(protocol)]:
            bind_top_down(carrier, layer, {"sport": CLIENT_PORT, "dport": port})
