"""Compares what netdissect reads below the protocols with what tshark reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from netdissect.capture import open_capture
from netdissect.capture.tshark import tshark_facts
from netdissect.flow import packets
from netdissect.model.facts import Difference, FrameFacts
from netdissect.model.packets import Packet, PacketKind, flow_endpoints

__all__ = ["Comparison", "compare", "our_facts"]

_COMPARED = ("time_ns", "transport", "src", "dst", "length", "seq", "ack", "flags")
_ACK = 0x10


@dataclass(slots=True)
class Comparison:
    """What came out."""

    compared: int = 0
    """Datagrams and segments that both have."""
    facts: dict[str, int] = field(default_factory=dict)
    """Fact -> how often it was equal."""
    differences: list[Difference] = field(default_factory=list)
    """What was not, in order of frames."""


def our_facts(path: str) -> Iterator[FrameFacts]:
    """Yield our facts of every whole UDP datagram and TCP segment."""
    with open_capture(path) as reader:
        for packet in packets(reader):
            facts = _facts(packet)
            if facts is not None:
                yield facts


def _facts(packet: Packet) -> FrameFacts | None:
    kind, frame, time_ns, key, payload, segment, faults = packet
    if kind == PacketKind.ICMP_UNREACHABLE or "snapped" in faults:
        return None
    src, dst = (str(end) for end in flow_endpoints(key))
    if segment is None:
        return FrameFacts(frame, time_ns, "udp", src, dst, len(payload))
    return FrameFacts(
        frame,
        time_ns,
        "tcp",
        src,
        dst,
        segment.payload_length,
        segment.seq,
        segment.ack,
        segment.flags,
    )


def compare(path: str) -> Comparison:
    """Return the comparison of a capture file.

    Raises:
        CaptureFileError: the file is missing or no capture.
        UsageError: tshark is not installed.

    """
    result = Comparison()
    theirs = {facts.frame: facts for facts in tshark_facts(path)}
    for ours in our_facts(path):
        other = theirs.pop(ours.frame, None)
        if other is None:
            result.differences.append(
                Difference(ours.frame, "frame", f"{ours.transport} {ours.src}", None)
            )
            continue
        result.compared += 1
        for name in _COMPARED:
            _compare_fact(result, ours, other, name)
    for other in theirs.values():
        result.differences.append(
            Difference(other.frame, "frame", None, f"{other.transport} {other.src}")
        )
    result.differences.sort(key=lambda difference: difference.frame)
    return result


def _compare_fact(result: Comparison, ours: FrameFacts, theirs: FrameFacts, name: str) -> None:
    mine, other = getattr(ours, name), getattr(theirs, name)
    if name == "ack" and not (ours.flags or 0) & _ACK:
        return  # the field means nothing without the flag
    if mine == other:
        if mine is not None:
            result.facts[name] = result.facts.get(name, 0) + 1
    else:
        result.differences.append(Difference(ours.frame, name, mine, other))
