"""Live capture without another program, through a ring buffer that the kernel fills (AF_PACKET,
TPACKET_V3). Linux only.

```
block:  version u32 | offset to private u32 | status u32 | packets u32 | offset to the first u32 ...
packet: offset to the next u32 | seconds u32 | nanoseconds u32 | captured u32 | wire u32 |
        status u32 | offset to the link header u16 | offset to the network header u16 |
        hash u32 | VLAN tag u32 | VLAN type u16 | ... | at 48: sockaddr_ll, packet type at its 10th
```
Source: Linux include/uapi/linux/if_packet.h (tpacket_hdr_v1, tpacket3_hdr, sockaddr_ll) and
Documentation/networking/packet_mmap.rst.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct, pack, unpack_from

from netdissect.capture.linktypes import link_type_name
from netdissect.capture.live.bpf import attach, compile_filter
from netdissect.capture.live.choice import Verdict, refusal
from netdissect.capture.live.interfaces import Interface
from netdissect.capture.live.source import Counts, LiveRequest, Wake
from netdissect.model.errors import AccessError
from netdissect.model.packets import NS_PER_S, Frame
from netdissect.model.reports import CaptureInfo

BLOCK_OCTETS = 1 << 18
"""Size of one block. The kernel delivers it when it is full or RETIRE_MS old."""
BLOCKS = 256
"""64 MiB in all: half a second at 100,000 full-size packets per second, or three seconds with the
packet sizes of games.
"""
FRAME_OCTETS = 1 << 11
"""A parameter that only enters the kernel's checks in TPACKET_V3, which packs packets densely."""
RETIRE_MS = 20
"""Age at which the kernel delivers a block that is not full."""

_ALL_PROTOCOLS = 3  # ETH_P_ALL. Source: Linux if_ether.h
_SOL_PACKET = 263  # Source of this and the next two: Linux socket.h, if_packet.h
_ADD_MEMBERSHIP, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 1, 5, 6, 10, 23
_TPACKET_V3 = 2
_PROMISCUOUS = 1
_PACKET_OUTGOING = 4  # sent by this host: on loopback a second copy of each packet
_STATUS_USER = 1  # TP_STATUS_USER: the kernel has delivered the block
_KERNEL_BLOCK = pack("I", 0)
_TAKE_NOTHING = pack("HBBI", 6, 0, 0, 0)
"""A filter that returns 0: BPF_RET | BPF_K. Source: as `bpf.compile_filter`."""
_VLAN_VALID, _VLAN_TYPE_VALID = 0x10, 0x40  # the kernel has removed a tag, which is put back here
_VLAN_ETHERTYPE = 0x8100  # of a tag without a type from the kernel: IEEE 802.1Q
_ADDRESSES_OCTETS = 12  # the tag follows both hardware addresses
_PACKET_TYPE_AT = 48 + 10  # tpacket3_hdr takes 48 bytes; sll_pkttype is behind ten of sockaddr_ll

_BLOCK = Struct("4xIIII")
"""Offset to private data, status, packets, offset to the first."""
_PACKET = Struct("IIIIIIHHIIH")
_LINKS = {1: 1, 772: 1, 65534: 101, 519: 101}
"""ARPHRD of an interface -> link type: Ethernet, loopback, none, raw IP. Source: libpcap
pcap-linux.c, map_arphrd_to_dlt.
"""


class RingSource:
    """The frames of one interface, as the kernel sees them."""

    backend = "af_packet"
    live = True
    settle_s = 0.0

    def __init__(self, backend: Verdict, interface: Interface, request: LiveRequest) -> None:
        """Open the socket and begin to capture.

        Raises:
            AccessError: no right to capture, or an interface that this backend cannot read.
            FilterError: the filter is wrong, or cannot be compiled here.

        """
        link = _LINKS.get(interface.hardware)
        if link is None:
            raise AccessError(
                f"backend af_packet cannot read {interface.name}; use dumpcap or tcpdump"
            )
        self.link_type: int | None = link
        self._link = link
        self.info = CaptureInfo(interface.name, "live", interfaces=[interface.name])
        self.counts = Counts()
        self.fault: str | None = None
        self._interface = interface
        self._exact = True
        """Whether the kernel's packet count is that of the frames yielded."""
        self._wake = Wake()
        name = link_type_name(link)
        program = compile_filter(request.capture_filter, name, request.snap_octets)
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            self._wake.close()
            raise refusal(interface.name, backend, str(error.strerror)) from error
        try:
            self._memory = self._open(program, promiscuous=request.promiscuous)
        except OSError as error:
            self._socket.close()
            self._wake.close()
            raise AccessError(f"cannot capture on {interface.name}: {error.strerror}") from error

    def _open(self, program: bytes, *, promiscuous: bool) -> mmap.mmap:
        """Set up the socket. It is bound last, so that no packet bypasses the filter."""
        interface, packet = self._interface, self._socket
        packet.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        attach(packet, program)
        if interface.loopback:
            # The kernel delivers each packet of the loopback twice: when it is sent and received.
            try:
                packet.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
            except OSError as error:  # before Linux 4.20; `_packets` leaves them out too
                self._exact = False
                if error.errno not in {errno.ENOPROTOOPT, errno.EINVAL}:
                    raise
        frames = BLOCK_OCTETS // FRAME_OCTETS * BLOCKS
        ring = pack("IIIIIII", BLOCK_OCTETS, BLOCKS, FRAME_OCTETS, frames, RETIRE_MS, 0, 0)
        packet.setsockopt(_SOL_PACKET, _RX_RING, ring)
        memory = mmap.mmap(packet.fileno(), BLOCK_OCTETS * BLOCKS)
        packet.bind((interface.name, _ALL_PROTOCOLS))
        if promiscuous and not interface.loopback:
            # struct packet_mreq: interface, kind, length of the address, address.
            member = pack("iHH8s", interface.index, _PROMISCUOUS, 0, b"")
            packet.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, member)
        return memory

    def batches(self) -> Iterator[list[Frame]]:
        """Yield the frames of each block."""
        memory, number, block = self._memory, 0, 0
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLERR)
        poll.register(self._wake, select.POLLIN)
        self.info.link_types = [link_type_name(self._link)]
        closed = False
        while True:
            if self._wake.set and not closed:
                # From now on no packet enters the ring: it has only those captured before.
                attach(self._socket, _TAKE_NOTHING)
                closed = True
            base = block * BLOCK_OCTETS
            _, status, count, first = _BLOCK.unpack_from(memory, base)
            if status & _STATUS_USER:
                batch = self._packets(base + first, count, number)
                # Return the block to the kernel: the frames are copies.
                memory[base + 8 : base + 12] = _KERNEL_BLOCK
                block = (block + 1) % BLOCKS
                if batch:
                    number += len(batch)
                    self._account(batch)
                    yield batch
            elif self._lost():
                break
            elif not self._wake.set:
                self._wake.set = self._wake.fileno() in dict(poll.poll())
            elif not self._more():
                break
        self._count()

    def _packets(self, at: int, count: int, number: int) -> list[Frame]:
        """Return the packets of a block as frames; `number` is that of the previous frame."""
        memory, link, loopback = self._memory, self._link, self._interface.loopback
        batch: list[Frame] = []
        for _ in range(count):
            step, seconds, nano, captured, wire, status, mac, _, _, tag, kind = _PACKET.unpack_from(
                memory, at
            )
            if not (loopback and memory[at + _PACKET_TYPE_AT] == _PACKET_OUTGOING):
                data = memory[at + mac : at + mac + captured]
                if status & _VLAN_VALID:
                    data = _tagged(data, tag, kind if status & _VLAN_TYPE_VALID else 0)
                    # The kernel took the tag out of both lengths.
                    wire += 4
                number += 1
                batch.append((number, seconds * NS_PER_S + nano, link, data, wire))
            at += step
        return batch

    def _account(self, batch: list[Frame]) -> None:
        info = self.info
        info.frames += len(batch)
        info.octets += sum(frame[4] for frame in batch)
        if info.first_time_ns is None:
            info.first_time_ns = batch[0][1]
        info.last_time_ns = batch[-1][1]

    def _more(self) -> bool:
        """Wait for the last block; return whether there is one."""
        # The kernel delivers a block RETIRE_MS after its first packet.
        return bool(select.select([self._socket], [], [], 2 * RETIRE_MS / 1000)[0])

    def _lost(self) -> bool:
        """Return whether the interface is gone, and set `fault`."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            reason = os.strerror(error)
            self.fault = f"capture on {self._interface.name} ended: {reason}"
        return bool(error)

    def _count(self) -> None:
        """Get the numbers of packets that the kernel has seen, and of those that it has dropped."""
        with suppress(OSError):
            counts = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12)
            packets, dropped = unpack_from("II", counts)
            self.counts.kernel = dropped
            if self._exact:
                self.counts.taken = packets - dropped

    def stop(self) -> None:
        """End `batches` after the packets in the ring."""
        self._wake.call()

    def end(self) -> None:
        """End `batches` after the packets in the ring."""
        self._wake.set = True

    def hand_over(self) -> None:
        """Leave ring and socket to a forked copy of this process."""
        self._memory.close()
        self._socket.close()

    def take_over(self) -> None:
        """Take over in the forked copy."""
        self._wake.leave()

    def close(self) -> None:
        """Close the socket."""
        self.hand_over()
        self._wake.close()


def _tagged(data: bytes, tag: int, kind: int) -> bytes:
    """Return an Ethernet frame with the VLAN tag that the kernel has removed."""
    head, rest = data[:_ADDRESSES_OCTETS], data[_ADDRESSES_OCTETS:]
    return head + pack(">HH", kind or _VLAN_ETHERTYPE, tag & 0xFFFF) + rest
