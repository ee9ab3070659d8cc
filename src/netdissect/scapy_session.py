"""Scapy packets with the tracker's knowledge: `sniff(session=NetdissectSession)` and `rdpcap`.

Every packet is read in the dialect of its connection, and `packet.netdissect` holds its connection,
its unit, and the packet of which it is a copy. A session sees each packet once. `rdpcap` reads a
file twice, so that the first packets of a connection profit from what only later ones show.
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
from netdissect.protocols import registry

__all__ = ["NetdissectSession", "rdpcap"]

_RAW_LINK = 101
"""Link type of packets that begin with IP. *Source:* tcpdump.org/linktypes.html."""


def _frame(number: int, packet: Packet) -> Frame:
    """Return a sniffed packet as a frame of a capture."""
    # `packet.time` is an EDecimal, as a float cannot hold nanoseconds since 1970.
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
    """Return a payload as a packet in the dialect of its connection.

    None = the segment does not begin with a message, or holds no complete one.
    """
    if record.protocol is None or record.dialect is None:
        return None
    where = registry.get(record.protocol).layer_module or record.protocol
    layer = reading_layer(where, octets, record.dialect, record.transport, record.direction)
    if record.transport == "udp":
        return layer(octets)
    return layer.tcp_reassemble(octets, {}, {}) if len(record.frames) == 1 else None


def _apply(packet: Packet, record: DatagramRecord) -> None:
    """Dissect the payload of a packet in the dialect of its connection; attach the knowledge."""
    carrier: Any = packet.getlayer(UDP) or packet.getlayer(TCP)
    if carrier is None or record.protocol is None or record.dialect is None:
        return
    octets = bytes(carrier.payload.original or bytes(carrier.payload))
    if record.transport == "udp":
        octets = octets[: record.length]
    elif Padding in packet and not isinstance(carrier.payload, Layer):
        # That of a short Ethernet frame is not part of the segment.
        octets = bytes(carrier.payload.load)
    if (read := _read(record, octets)) is not None:
        carrier.remove_payload()
        carrier.add_payload(read)
    if isinstance(carrier.payload, Layer):
        carrier.payload.knowledge = _knowledge(record)


class NetdissectSession(DefaultSession):  # type: ignore[misc]
    """Tracks the connections in sniffed packets: `sniff(session=...)`, live or with `offline=`."""

    def __init__(self, *args: Any, options: Options | None = None, **kwargs: Any) -> None:
        """Begin without connections; `options` has decode-as rules and the like."""
        super().__init__(*args, **kwargs)
        self._records = Records(live=True)
        self.pipeline = Pipeline(options, recorder=self._records.recorder, observer=self._records)
        """The tracker, which has the reports of the connections."""
        self._decapsulator = Decapsulator()
        self._frames = 0

    def process(self, pkt: Packet) -> Packet | None:
        """Return the packet, dissected in the dialect of its connection if that is known."""
        packet = super().process(pkt)
        if packet is None:
            return None
        self._frames += 1
        for each in self._decapsulator.take([_frame(self._frames, packet)]):
            self.pipeline.feed(each)
        ready = self._records.ready(self.pipeline.now_ns, self.pipeline.oldest_sampled)
        here = [record for record in ready if record.frame == self._frames]
        if here:
            # A segment may have several records, one per message; it is dissected as a whole.
            _apply(packet, here[0])
        for _ in self._records.recorder.ready(self.pipeline.now_ns):
            # Discard the timeline, which nobody reads, so that it does not grow.
            continue
        return packet


def rdpcap(path: str | os.PathLike[str], *, options: Options | None = None) -> PacketList:
    """Return the packets of a capture, each with what is known of it at the end of the file.

    Args:
        path: a pcap or pcapng file that Scapy can read.
        options: decode-as rules and the like.

    Raises:
        CaptureError: the file is missing or no capture.
    """
    known: dict[int, DatagramRecord] = {}
    for record in iter_records(os.fspath(path), options=options):
        known.setdefault(record.frame, record)  # the first of a segment, as in `process`

    def packets() -> Iterator[Packet]:
        with PcapReader(os.fspath(path)) as reader:
            for number, packet in enumerate(reader, start=1):
                if number in known:
                    _apply(packet, known[number])
                yield packet

    return PacketList(list(packets()), Path(path).name)
