"""Compares what netdissect reads below the protocols with what tshark reads."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from netdissect.capture import open_capture
from netdissect.capture.tshark import knet_facts, tshark_facts
from netdissect.flow import packets
from netdissect.model.annotations import Severity
from netdissect.model.facts import Difference, FrameFacts
from netdissect.model.packets import Packet, PacketKind, flow_endpoints
from netdissect.pipeline import Options
from netdissect.pipeline.records import iter_records

__all__ = ["Comparison", "compare", "our_facts"]

_OTHERS = frozenset({"riptide", "teeworlds", "eoudp", "netplay"})
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


def our_facts(path: str, snapped: set[int] | None = None) -> Iterator[FrameFacts]:
    """Yield our facts of every whole UDP datagram and TCP segment.

    Frames that the capture has cut are left out and added to `snapped`.
    """
    with open_capture(path) as reader:
        for packet in packets(reader):
            if packet[0] not in {PacketKind.UDP, PacketKind.TCP}:
                continue  # a quotation, or octets that no packet brought
            if "snapped" not in packet[6]:
                yield _facts(packet)
            elif snapped is not None:
                snapped.add(packet[1])


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


def compare(path: str, *, frames: Container[int] | None = None) -> Comparison:
    """Return the comparison of a capture file.

    Args:
        path: the file.
        frames: frames to compare; None = all.

    Raises:
        CaptureFileError: the file is missing or no capture.
        UsageError: tshark is not installed.

    """
    result = Comparison()
    wanted = (lambda _: True) if frames is None else frames.__contains__
    theirs = {facts.frame: facts for facts in tshark_facts(path) if wanted(facts.frame)}
    snapped: set[int] = set()
    single: set[int] = set()
    for ours in our_facts(path, snapped):
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
    _compare_knet(result, path, frames, single)
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


# -- kNet: the one protocol of ours that Wireshark dissects too ----------------------------------

_HEADER = ("packet_id", "in_order", "reliable", "reliable_base")
_PER_MESSAGE = ("reliable_delta", "message_id", "ping_id")
_IN_STREAM = ("content_length", "message_id", "ping_id")
_CONNECT = "Wireshark takes the connect datagram for one with messages"
_ASTRAY = "Wireshark has lost its place in the stream"
_OLD = "Wireshark does not read the pings of 2010"
_BASE = "Wireshark misreads numbers from 32768 on"
_DELTA = "Wireshark misreads numbers from 128 on"
_FRAGMENT = "Wireshark misreads fragments, counts as message ids"
_FIRST_LONG_BASE, _FIRST_LONG_DELTA = 0x8000, 0x80


def _compare_knet(
    result: Comparison, path: str, frames: Container[int] | None, single: set[int]
) -> None:
    """Compare the fields of kNet datagrams, and of the messages of its streams; what Wireshark is
    known to misread is named. `single` are the segments of one octet.
    """
    ours: dict[int, dict[str, Any]] = {}
    ports: dict[str, set[int]] = {"udp": set(), "tcp": set()}
    astray: set[tuple[int | None, int | None]] = set()
    for record in iter_records(path, options=Options(without=_OTHERS)):
        tree = record.dissection
        if record.protocol != "knet" or tree is None:
            continue
        server = record.dst if record.direction == 0 else record.src
        ports[record.transport].add(int(server.rpartition(":")[2]))
        side = record.connection, record.direction
        if record.transport == "tcp" and (
            _misleads(tree.fields) or not single.isdisjoint(record.frames)
        ):
            astray.add(side)
        if any(note.severity >= Severity.WARN for note in tree.annotations):
            continue  # both stop somewhere in a malformed datagram, each in its own place
        if record.transport == "udp":
            ours[record.frame] = {**tree.fields, "dialect": record.dialect}
        else:
            held = ours.setdefault(record.frame, {"kind": "stream", "messages": []})
            held["messages"].append(tree.fields)
            held["astray"] = side in astray
    for frame, theirs in knet_facts(path, ports) if ours else ():
        mine = ours.pop(frame, None)
        if mine is not None and (frames is None or frame in frames):
            _compare_fields(result, frame, mine, theirs)
    for frame, mine in ours.items():
        if mine.get("kind") == "stream" and (frames is None or frame in frames):
            known = _known_fault("messages", [], mine)
            count = len(mine["messages"])
            result.differences.append(Difference(frame, "knet.messages", count, None, known))


def _misleads(fields: Mapping[str, Any]) -> bool:
    """Return whether Wireshark takes a message of a stream for longer or shorter than it is: it
    counts the octets of the message id where it should count those of the length. Source:
    Wireshark epan/dissectors/packet-knet.c, get_knet_pdu_len.
    """
    length, message = fields.get("content_length"), fields.get("message_id")
    return length is not None and message is not None and _octets(length) != _octets(message)


def _octets(value: int) -> int:
    """Return how many octets kNet's variable-length form of a number has."""
    return 1 if value < 1 << 7 else 2 if value < 1 << 14 else 4


def _compare_fields(
    result: Comparison, frame: int, fields: Mapping[str, Any], theirs: Mapping[str, list[int]]
) -> None:
    messages = fields.get("messages") or []
    stream = fields.get("kind") == "stream"
    for name in _IN_STREAM if stream else (*_HEADER, *_PER_MESSAGE):
        sources = [fields] if name in _HEADER else messages
        mine = [int(value[name]) for value in sources if value.get(name) is not None]
        if mine == theirs[name]:
            if mine:
                result.facts[f"knet.{name}"] = result.facts.get(f"knet.{name}", 0) + 1
            continue
        known = _known_fault(name, mine, fields)
        result.differences.append(Difference(frame, f"knet.{name}", mine, theirs[name], known))


def _known_fault(name: str, mine: list[int], fields: Mapping[str, Any]) -> str:
    """Return which of Wireshark's known faults explains a difference; "" for none.

    Source: docs/protocols/knet.md, the section on Wireshark's dissector.
    """
    kind = fields.get("kind")
    if kind in {"stream", "connect"}:
        return _CONNECT if kind == "connect" else _ASTRAY if fields["astray"] else ""
    if name == "ping_id" and fields.get("dialect") == "knet-2010":
        return _OLD
    if name == "reliable_base" and mine and mine[0] >= _FIRST_LONG_BASE:
        return _BASE
    messages = fields.get("messages") or []
    if any(message.get("fragment") or message.get("fragment_start") for message in messages):
        return _FRAGMENT
    if name != "reliable_base" and any(value >= _FIRST_LONG_DELTA for value in mine):
        return _DELTA
    return ""
