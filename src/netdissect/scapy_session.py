"""Scapy packets that know their connection: `sniff(session=NetdissectSession)`.

Each packet is read in the dialect of its connection, and `packet.netdissect` says what the tracker
knows of it: connection, unit, what it is a copy of. A file is read twice by `rdpcap`, so that the
first packets of a connection know what only later ones tell; a session sees each packet once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scapy.config import conf
from scapy.layers.inet import TCP, UDP
from scapy.packet import Packet, Padding
from scapy.plist import PacketList
from scapy.sessions import DefaultSession
from scapy.utils import PcapReader

from netdissect.dissect.choice import reading_layer
from netdissect.flow import Decapsulator
from netdissect.layers.base import Knowledge, Layer
from netdissect.model.packets import NS_PER_S, Frame
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.options import Options
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline

__all__ = ["NetdissectSession", "rdpcap"]

_RAW_LINK = 101


def _frame(number: int, packet: Packet) -> Frame:
    """Return a sniffed packet as a frame of a capture."""
    # Of a file its time is a decimal number: a float has no room for all of its nanoseconds.
    octets = bytes(packet.original or bytes(packet))
    link = conf.l2types.layer2num.get(type(packet), _RAW_LINK)
    return number, round(packet.time * NS_PER_S), int(link), octets, len(octets)


def _knowledge(record: DatagramRecord) -> Knowledge:
    known = next((each.reliability for each in record.messages if each.reliability), None)
    copy = known is not None and known.kind in ("retransmission", "duplicate")
    return Knowledge(
        frame=record.frame,
        connection=record.connection,
        protocol=record.protocol,
        dialect=record.dialect,
        direction=record.direction,
        unit=None if known is None else (known.space, known.seq),
        resend_of=known.of_frame if known is not None and copy else None,
        acked_in=None if known is None else known.acked_in,
        record=record,
    )


def _read(record: DatagramRecord, octets: bytes) -> Packet | None:
    """Return a payload as a packet of the dialect of its connection; None where a piece of a stream
    does not begin with a message, or holds none that is whole.
    """
    if record.protocol is None or record.dialect is None:
        return None
    asked = record.protocol, octets, record.dialect, record.transport, record.direction
    layer = reading_layer(*asked)
    if record.transport == "udp":
        return layer(octets)
    return layer.tcp_reassemble(octets, {}, {}) if len(record.frames) == 1 else None


def _apply(packet: Packet, record: DatagramRecord) -> None:
    """Read the payload of a packet in the dialect of its connection, and attach what is known."""
    carrier: Any = packet.getlayer(UDP) or packet.getlayer(TCP)
    if carrier is None or record.protocol is None or record.dialect is None:
        return
    octets = bytes(carrier.payload.original or bytes(carrier.payload))
    if record.transport == "udp":
        octets = octets[: record.length]
    elif Padding in packet and not isinstance(carrier.payload, Layer):
        octets = bytes(carrier.payload.load)
    if (read := _read(record, octets)) is not None:
        carrier.remove_payload()
        carrier.add_payload(read)
    if isinstance(carrier.payload, Layer):
        carrier.payload.knowledge = _knowledge(record)


class NetdissectSession(DefaultSession):  # type: ignore[misc]
    """Tracks the connections of what is sniffed. For `sniff(session=...)`, also with `offline=`."""

    def __init__(self, *args: Any, options: Options | None = None, **kwargs: Any) -> None:
        """Begin without any connection; `options` holds decode-as rules and the like."""
        super().__init__(*args, **kwargs)
        self._records = Records(live=True)
        self.pipeline = Pipeline(options, recorder=self._records.recorder, observer=self._records)
        """The tracker, for those who want reports of the connections."""
        self._decapsulator = Decapsulator()
        self._frames = 0

    def process(self, pkt: Packet) -> Packet | None:
        """Return the packet, read in the dialect of its connection as far as that is known."""
        packet = super().process(pkt)
        if packet is None:
            return None
        self._frames += 1
        for each in self._decapsulator.take([_frame(self._frames, packet)]):
            self.pipeline.feed(each)
        ready = self._records.ready(self.pipeline.now_ns, self.pipeline.oldest_sampled)
        here = [record for record in ready if record.frame == self._frames]
        if here:
            # A segment holds several messages; it is read whole.
            _apply(packet, here[0])
        for _ in self._records.recorder.ready(self.pipeline.now_ns):
            # Nobody asks for the timeline: it must not grow.
            continue
        return packet


def rdpcap(path: str | os.PathLike[str], *, options: Options | None = None) -> PacketList:
    """Return the packets of a capture, each with what is known of it in the end.

    Args:
        path: a pcap or pcapng file that Scapy reads.
        options: decode-as rules and the like.

    Raises:
        CaptureError: the file is missing or no capture.
    """
    known: dict[int, DatagramRecord] = {}
    for record in iter_records(os.fspath(path), options=options):
        # A segment holds several messages; it is read whole.
        known.setdefault(record.frame, record)

    def packets() -> Iterator[Packet]:
        with PcapReader(os.fspath(path)) as reader:
            for number, packet in enumerate(reader, start=1):
                if number in known:
                    _apply(packet, known[number])
                yield packet

    return PacketList(list(packets()), Path(path).name)
