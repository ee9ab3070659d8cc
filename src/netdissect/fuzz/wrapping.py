"""Puts a message layer into the layers that carry it: a chunk and a packet, a frame.

A protocol without a row here has messages that are datagrams themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netdissect.dissect.engine import Request, layer_module

__all__ = ["root", "wrap"]


def wrap(protocol: str, dialect: str, packet: Any, transport: str = "udp") -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    carrier = _CARRIERS.get((protocol, transport))
    return packet if carrier is None else carrier(dialect, packet)


def _teeworlds(dialect: str, packet: Any) -> Any:
    from netdissect.layers import teeworlds as layers  # noqa: PLC0415 - only where it is asked for
    from netdissect.layers.teeworlds import controls, messages  # noqa: PLC0415

    header = layers.ROOTS[dialect]
    family = "0.7" if header is layers.Tw07 else "0.6"
    kind = type(packet)
    extra: dict[str, Any] = {"token_flag": 1} if header is layers.Tw065 else {}
    if kind in controls.CONTROLS[header.dialect].values():
        return header(control_flag=1, num_chunks=0, **extra) / packet
    if kind in messages.CONNLESS[family].values():
        return (layers.Tw07Connless if family == "0.7" else layers.Tw06Connless)(body=packet)
    if kind in (*messages.MESSAGES[family].values(), *messages.UUID_MESSAGES.values()):
        chunk = layers.Tw07Chunk if family == "0.7" else layers.Tw06Chunk
        chunks = {"0.7": layers.Tw07Chunks, "ddnet-0.6": layers.TwDdnetChunks}.get(
            header.dialect, layers.Tw06Chunks
        )
        return header(**extra) / chunks(chunks=[chunk(vital=1, sequence=1, body=packet)])
    return packet if kind in (header, layers.Tw06Connless, layers.Tw07Connless) else None


def _eoudp(dialect: str, packet: Any) -> Any:
    from netdissect.layers import eoudp as layers  # noqa: PLC0415

    header = layers.header_layer(dialect)
    kind = type(packet)
    if kind is header:
        return packet
    if not getattr(kind, "commands", None):
        return None
    short = kind.__name__.endswith("32")
    if short != dialect.endswith("long32") and (short or hasattr(layers, f"{kind.__name__}32")):
        return None
    flagged = any(field.name == "important" for field in header.fields_desc)
    return header(**({"important": 1} if flagged else {})) / packet


def _knet(dialect: str, packet: Any) -> Any:
    from netdissect.layers import knet as layers  # noqa: PLC0415

    header = layers.datagram_layer(dialect)
    message = header().get_field("messages").item
    document = header is layers.KnetSpecDatagram
    if isinstance(packet, layers.KnetContent) and document:
        carrier = header(packet_id=1, messages=[message(content=packet)])
        (again,) = header(bytes(carrier)).messages
        return carrier if type(again.content) is type(packet) else None
    if type(packet) is layers.KnetSpecPacketAck:
        return None
    if isinstance(packet, layers.KnetContent):
        carried = message(reliable=1, in_order=1, content=packet)
        return header(reliable=1, in_order=1, packet_id=1, messages=[carried])
    return packet if type(packet) in (header, layers.KnetConnect) else None


def _knet_stream(dialect: str, packet: Any) -> Any:
    from netdissect.layers import knet as layers  # noqa: PLC0415

    stream = layers.STREAMS[dialect][0]
    message = stream().get_field("messages").item
    if isinstance(packet, layers.KnetContent):
        return stream(messages=[message(content=packet)])
    return stream(messages=[packet]) if type(packet) is message else None


def _riptide_stream(dialect: str, packet: Any) -> Any:
    from netdissect.fuzz.framed import FRAMED_RIPTIDE  # noqa: PLC0415
    from netdissect.layers.riptide.common import RiptideMessage  # noqa: PLC0415

    return FRAMED_RIPTIDE[dialect]() / packet if isinstance(packet, RiptideMessage) else None


def _netplay(dialect: str, packet: Any) -> Any:
    from netdissect.fuzz.framed import NetplayOnlyChunk  # noqa: PLC0415
    from netdissect.layers import netplay  # noqa: PLC0415

    if dialect == "netplay-bin3" and isinstance(packet, netplay.NetplayFrame):
        return NetplayOnlyChunk() / packet
    return packet


_CARRIERS: dict[tuple[str, str], Callable[[str, Any], Any]] = {
    ("teeworlds", "udp"): _teeworlds,
    ("eoudp", "udp"): _eoudp,
    ("knet", "udp"): _knet,
    ("knet", "tcp"): _knet_stream,
    ("riptide", "tcp"): _riptide_stream,
    ("netplay", "tcp"): _netplay,
}


def root(protocol: str, octets: bytes, request: Request) -> Any:
    """Return the layer that reads and writes one message with its framing."""
    if protocol == "netplay":
        return _netplay_root(octets, request.dialect)
    if protocol == "riptide" and request.transport == "tcp":
        from netdissect.fuzz.framed import FRAMED_RIPTIDE  # noqa: PLC0415

        return FRAMED_RIPTIDE[request.dialect]
    return layer_module(protocol).root(octets, request)


def _netplay_root(octets: bytes, dialect: str) -> Any:
    from netdissect.fuzz.framed import NetplayOnlyChunk  # noqa: PLC0415
    from netdissect.layers import netplay  # noqa: PLC0415

    if dialect == "netplay-text":
        return netplay.NetplayText
    if dialect == "netplay-bin3":
        return NetplayOnlyChunk if octets[:1] == b"\0" else netplay.NetplayChunk
    return netplay.NetplayFrame
