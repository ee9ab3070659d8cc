"""A capture as tshark dissects it, as packets of pyshark. The only module that imports pyshark, and
only on demand.

tshark is started here and not by pyshark, which would run the program that a `config.ini` in the
current folder names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from typing import Any

from netdissect.capture.live.process import Child, message
from netdissect.capture.source import READ_OCTETS
from netdissect.model.errors import CaptureFileError, NetdissectError, UsageError
from netdissect.model.facts import FrameFacts
from netdissect.model.files import open_pinned
from netdissect.model.packets import endpoint_text
from netdissect.system.programs import find

_FLAG_BITS = 0xFF  # tshark shows twelve bits of TCP flags: reserved ones and NS as well
_UDP_HEADER = 8
MAX_PACKET_OCTETS = 1 << 28
"""Largest XML of one packet, bytes: a thousand times the largest frame."""
_BEGIN, _END = b"<packet>", b"</packet>"


def tshark_packets(path: str, decode_as: dict[str, str] | None = None) -> Iterator[Any]:
    """Yield pyshark's packets of a capture file.

    Args:
        path: the file.
        decode_as: tshark's `-d` rules, such as `{"udp.port==2345": "rtp"}`.

    If the file is cut short or damaged, the packets before that place are yielded.

    Raises:
        UsageError: tshark is not installed.
        CaptureFileError: the file is missing, not the same as before (`pinned_files`), or tshark
            cannot read it.

    """
    program = find("tshark")
    if program is None:
        raise UsageError("tshark is not installed; `netdissect doctor` says how to get it")
    from pyshark.tshark.output_parser.tshark_xml import (  # noqa: PLC0415 - slow, only wanted here
        packet_from_xml_packet,
    )

    rules = [word for rule, to in (decode_as or {}).items() for word in ("-d", f"{rule},{to}")]
    with opened(path) as file:
        child = Child([program, "-l", "-n", "-T", "pdml", *rules, "-r", "-"], file=file)
    try:
        yield from map(packet_from_xml_packet, _packets(child))
        status = child.ended()
        said = child.said()
        if status and not ended_early(said):
            why = message(said, "tshark") or f"it ended with status {status}"
            raise CaptureFileError(f"{path}: tshark failed: {why}")
    finally:
        child.close()


def opened(path: str) -> FileIO:
    """Open a file that tshark is to read, which may run as a user who cannot.

    Raises:
        CaptureFileError: it cannot be opened, or is not the same as before (`pinned_files`).

    """
    try:
        return open_pinned(path)
    except OSError as error:
        raise CaptureFileError(f"{path}: {error.strerror}") from error


def ended_early(said: str) -> bool:
    """Return whether tshark says that it has read a file up to where it is cut short or damaged."""
    return "cut short" in said or "damaged or corrupt" in said


def _packets(child: Child) -> Iterator[bytes]:
    """Yield the XML of each packet."""
    held, looked = b"", 0
    while data := child.input.read(READ_OCTETS):
        held += data
        while (end := held.find(_END, looked)) >= 0:
            end += len(_END)
            yield held[held.find(_BEGIN) : end]
            held, looked = held[end:], 0
        # The mark may be split between two reads.
        looked = max(0, len(held) - len(_END))
        if len(held) > MAX_PACKET_OCTETS:
            raise NetdissectError(
                f"tshark prints more than {MAX_PACKET_OCTETS} bytes of one packet"
            )


def tshark_facts(path: str) -> Iterator[FrameFacts]:
    """Yield tshark's facts about every UDP datagram and TCP segment by their innermost headers, in
    file order.
    """
    for packet in tshark_packets(path):
        facts = _facts(packet)
        if facts is not None:
            yield facts


def _facts(packet: Any) -> FrameFacts | None:
    network = transport = None
    for layer in packet.layers:
        if layer.layer_name in {"icmp", "icmpv6"}:
            return None  # the following headers are quoted in the error
        if layer.layer_name in {"ip", "ipv6"}:
            network, transport = layer, None
        elif layer.layer_name in {"udp", "tcp"} and network is not None:
            transport = layer
    if network is None or transport is None:
        return None
    # pyshark takes the second layer for that of the frame, but comments come before it.
    (info,) = (each for each in (packet.frame_info, *packet.layers) if each.layer_name == "frame")
    frame, time_ns = int(packet.number), nanoseconds(str(info.time_epoch))
    src, dst = (
        endpoint_text(str(getattr(network, side)), int(getattr(transport, f"{side}port")))
        for side in ("src", "dst")
    )
    if transport.layer_name == "udp":
        return FrameFacts(frame, time_ns, "udp", src, dst, int(transport.length) - _UDP_HEADER)
    seq, ack = int(transport.seq_raw), int(transport.ack_raw)
    flags = int(str(transport.flags), 16) & _FLAG_BITS
    return FrameFacts(frame, time_ns, "tcp", src, dst, int(transport.len), seq, ack, flags)


def nanoseconds(text: str) -> int:
    """Return tshark's seconds since the Unix epoch as nanoseconds.

    Raises:
        ValueError: the text is not a number.

    """
    whole, _, rest = text.partition(".")
    return int(whole) * 1_000_000_000 + int(rest.ljust(9, "0")[:9] or 0)


def protocol_facts(
    path: str, name: str, fields: Mapping[str, str], ports: Mapping[str, Iterable[int]]
) -> Iterator[tuple[int, dict[str, list[int]]]]:
    """Yield (frame, our field name -> values) according to one of Wireshark's dissectors. A frame
    of a TCP stream has the values of every message that ends in it.

    Args:
        path: the file.
        name: Wireshark's name of the protocol.
        fields: our name of a field -> attribute of pyshark's layer.
        ports: transport -> ports of servers.

    """
    rules = {
        f"{transport}.port=={port}": name
        for transport, numbers in ports.items()
        for port in sorted(set(numbers))
    }
    for packet in tshark_packets(path, rules) if rules else ():
        layers = [layer for layer in packet.layers if layer.layer_name == name]
        if layers:
            found = {
                ours: [value for layer in layers for value in _values(layer, theirs)]
                for ours, theirs in fields.items()
            }
            yield int(packet.number), found


def _values(layer: Any, field: str) -> list[int]:
    """Return all occurrences of a field that are numbers."""
    found = getattr(layer, field, None)
    texts = [str(item.show) for item in getattr(found, "all_fields", ())]
    return [
        int(text, 0) for text in texts if text.removeprefix("0x").isalnum() and text[0].isdigit()
    ]
