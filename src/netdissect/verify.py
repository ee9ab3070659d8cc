"""Compares what netdissect and tshark read below the protocols."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from importlib import import_module

from netdissect.capture import open_capture
from netdissect.capture.tshark import protocol_facts, tshark_facts
from netdissect.flow import packets
from netdissect.model.facts import Difference, FrameFacts
from netdissect.model.packets import ACK, Packet, PacketKind, flow_endpoints
from netdissect.pipeline import Options, look_ahead
from netdissect.pipeline.iterate import iter_records
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol

_COMPARED = ("time_ns", "transport", "src", "dst", "length", "seq", "ack", "flags")


@dataclass(slots=True)
class Comparison:
    """The result of a comparison."""

    compared: int = 0
    """Number of datagrams and segments that both tools found."""
    facts: dict[str, int] = field(default_factory=dict)
    """Name of a fact -> how often it was equal."""
    differences: list[Difference] = field(default_factory=list)
    """All differences, in frame order."""


def our_facts(
    path: str, snapped: set[int] | None = None, least: int = 0
) -> Iterator[FrameFacts]:
    """Yield netdissect's facts about every complete UDP datagram and TCP segment.

    Frames cut by the snap length are skipped, and their numbers added to `snapped`. `least`: as for
    `compare`.
    """
    with open_capture(path) as reader:
        for packet in packets(reader):
            if packet[0] not in {PacketKind.UDP, PacketKind.TCP}:
                continue  # quoted in an ICMP error, or bytes without a packet
            if "snapped" not in packet[6]:
                yield _facts(packet)
            elif snapped is not None:
                snapped.add(packet[1])
        reader.must_reach(least)


def _facts(packet: Packet) -> FrameFacts:
    _, frame, time_ns, key, payload, segment, _ = packet
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


def compare(path: str, *, frames: Container[int] | None = None, least: int = 0) -> Comparison:
    """Return the comparison of a capture file.

    Args:
        path: the file.
        frames: frames to compare; None = all.
        least: number of frames that the file has, as an earlier reading found.

    Raises:
        CaptureFileError: the file is missing or not a capture.
        OSError: a fault ended a reading of it before `least`.
        UsageError: tshark is not installed.

    """
    result = Comparison()
    wanted = (lambda _: True) if frames is None else frames.__contains__
    theirs = {facts.frame: facts for facts in tshark_facts(path) if wanted(facts.frame)}
    snapped: set[int] = set()
    single: set[int] = set()
    for ours in our_facts(path, snapped, least):
        if ours.transport == "tcp" and ours.length == 1:
            single.add(ours.frame)
        if not wanted(ours.frame):
            continue
        other = theirs.pop(ours.frame, None)
        if other is None:
            result.differences.append(
                Difference(ours.frame, "frame", f"{ours.transport} {ours.src}", None)
            )
            continue
        result.compared += 1
        for name in _COMPARED:
            _compare_fact(result, ours, other, name)
    for other in (facts for frame, facts in theirs.items() if frame not in snapped):
        result.differences.append(
            Difference(other.frame, "frame", None, f"{other.transport} {other.src}")
        )
    for protocol in registry.protocols():
        if protocol.wireshark is not None:
            _compare_protocol(result, path, wanted, single, protocol, least)
    result.differences.sort(key=lambda difference: difference.frame)
    return result


def _compare_protocol(
    result: Comparison,
    path: str,
    wanted: Callable[[int], bool],
    single: set[int],
    protocol: Protocol,
    least: int,
) -> None:
    """Compare the fields of a protocol that Wireshark also dissects; known errors of Wireshark are
    named as such.
    """
    name = protocol.name
    comparer = import_module(str(protocol.wireshark)).Comparer(single)
    others = frozenset(registry.names()) - {name}
    options = look_ahead(path, Options(without=others))
    with open_capture(path) as reader:
        for record in iter_records(reader, options=options):
            if record.protocol == name and record.dissection is not None:
                comparer.take(record)
        reader.must_reach(least)
    theirs = protocol_facts(path, comparer.NAME, comparer.FIELDS, comparer.ports)
    for frame, values in theirs if comparer.ours else ():
        found = comparer.compared(frame, values)
        for fact, mine, other, known in found if wanted(frame) else ():
            if mine != other:
                difference = Difference(frame, f"{name}.{fact}", mine, other, known)
                result.differences.append(difference)
            elif mine:
                result.facts[f"{name}.{fact}"] = result.facts.get(f"{name}.{fact}", 0) + 1
    for frame, fact, mine, known in comparer.left():
        if wanted(frame):
            result.differences.append(Difference(frame, f"{name}.{fact}", mine, None, known))


def _compare_fact(result: Comparison, ours: FrameFacts, theirs: FrameFacts, name: str) -> None:
    mine, other = getattr(ours, name), getattr(theirs, name)
    if name == "ack" and not (ours.flags or 0) & ACK:
        return  # the number is meaningless without the flag
    if mine == other:
        if mine is not None:
            result.facts[name] = result.facts.get(name, 0) + 1
    else:
        result.differences.append(Difference(ours.frame, name, mine, other))
