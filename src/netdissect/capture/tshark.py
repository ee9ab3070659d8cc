"""tshark's view of a capture, through pyshark. The only module that imports pyshark, and only when
asked for.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from netdissect.model.errors import NetdissectError, UsageError
from netdissect.model.facts import FrameFacts
from netdissect.model.packets import endpoint_text

__all__ = ["knet_facts", "nanoseconds", "tshark_available", "tshark_facts"]

_FLAG_BITS = 0xFF
_UDP_HEADER = 8


def tshark_available() -> bool:
    """Return whether tshark is installed."""
    return shutil.which("tshark") is not None


def tshark_packets(path: str, decode_as: dict[str, str] | None = None) -> Iterator[Any]:
    """Yield pyshark's packets of a capture file.

    Args:
        path: the file.
        decode_as: tshark's `-d` rules, such as `{"udp.port==2345": "knet"}`.

    Of a file that is cut short, those before the cut.

    Raises:
        UsageError: tshark is not installed.
        NetdissectError: tshark failed.

    """
    if not tshark_available():
        raise UsageError("tshark is not installed; `netdissect doctor` says how to get it")
    import pyshark  # noqa: PLC0415 - slow, and only wanted here
    from pyshark.capture.capture import TSharkCrashException  # noqa: PLC0415

    capture = pyshark.FileCapture(path, keep_packets=False, decode_as=decode_as)
    try:
        yield from capture
    except TSharkCrashException as error:
        if "cut short" not in str(error):
            raise NetdissectError(" ".join(str(error).split())) from error
    finally:
        # pyshark says again, here and when it is collected, how its process ended.
        with suppress(TSharkCrashException):
            capture.close()
        capture._running_processes.clear()  # noqa: SLF001
        _put_back(capture.eventloop)


def _put_back(loop: asyncio.AbstractEventLoop) -> None:
    """Undo what pyshark sets up for the whole process: its event loop and the child watcher.

    The watcher handles SIGCHLD through a wakeup descriptor; left in place it is written to for
    every child process of anybody, and nobody reads it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if sys.version_info < (3, 14):
            asyncio.get_child_watcher().close()
        # A fresh policy, so that the next capture (or the caller) gets a fresh loop.
        asyncio.set_event_loop_policy(None)
    if not loop.is_running():
        loop.close()


def tshark_facts(path: str) -> Iterator[FrameFacts]:
    """Yield tshark's facts of every UDP datagram and TCP segment, innermost headers, in file
    order.
    """
    for packet in tshark_packets(path):
        facts = _facts(packet)
        if facts is not None:
            yield facts


def _facts(packet: Any) -> FrameFacts | None:
    network = transport = None
    for layer in packet.layers:
        if layer.layer_name in {"icmp", "icmpv6"}:
            return None  # what follows is a quotation
        if layer.layer_name in {"ip", "ipv6"}:
            network, transport = layer, None
        elif layer.layer_name in {"udp", "tcp"} and network is not None:
            transport = layer
    if network is None or transport is None:
        return None
    frame, time_ns = int(packet.frame_info.number), nanoseconds(str(packet.frame_info.time_epoch))
    src, dst = (
        endpoint_text(str(getattr(network, side)), int(getattr(transport, f"{side}port")))
        for side in ("src", "dst")
    )
    if transport.layer_name == "udp":
        return FrameFacts(frame, time_ns, "udp", src, dst, int(transport.length) - _UDP_HEADER)
    return FrameFacts(
        frame,
        time_ns,
        "tcp",
        src,
        dst,
        int(transport.len),
        int(transport.seq_raw),
        int(transport.ack_raw),
        int(str(transport.flags), 16) & _FLAG_BITS,
    )


def nanoseconds(text: str) -> int:
    """Return tshark's seconds since the Unix epoch as nanoseconds; ValueError for no number."""
    whole, _, rest = text.partition(".")
    return int(whole) * 1_000_000_000 + int(rest.ljust(9, "0")[:9] or 0)


_KNET_FIELDS = {
    "content_length": "length",
    "packet_id": "datagram_packetid",
    "in_order": "datagram_inorder",
    "reliable": "datagram_reliable",
    "reliable_base": "datagram_rmib",
    "reliable_delta": "msg_reliable_number",
    "message_id": "payload_messageid",
    "ping_id": "payload_pingid",
}
"""Our name -> the attribute of pyshark's kNet layer."""


def knet_facts(
    path: str, ports: Mapping[str, Iterable[int]]
) -> Iterator[tuple[int, dict[str, list[int]]]]:
    """Yield (frame, our field name -> values) as Wireshark's kNet dissector reads a capture. A
    frame of a stream holds every message that ends in it.

    Args:
        path: the file.
        ports: transport -> ports of kNet servers.

    """
    rules = {
        f"{transport}.port=={port}": "knet"
        for transport, numbers in ports.items()
        for port in sorted(set(numbers))
    }
    for packet in tshark_packets(path, rules) if rules else ():
        layers = [layer for layer in packet.layers if layer.layer_name == "knet"]
        if layers:
            yield (
                int(packet.frame_info.number),
                {
                    name: [value for layer in layers for value in _values(layer, field)]
                    for name, field in _KNET_FIELDS.items()
                },
            )


def _values(layer: Any, field: str) -> list[int]:
    """Return all occurrences of a field as numbers; those that are none are left out."""
    found = getattr(layer, field, None)
    texts = [str(item.show) for item in getattr(found, "all_fields", ())]
    return [
        int(text, 0) for text in texts if text.removeprefix("0x").isalnum() and text[0].isdigit()
    ]
