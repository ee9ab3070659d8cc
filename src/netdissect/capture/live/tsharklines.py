"""Datagrams and segments as tshark dissects them, live or from a file: decrypted (TLS and DTLS),
without tunnels, and reassembled.

tshark prints columns, whose lines are read as they arrive: pyshark, which uses XML, manages a tenth
of the packets per second and yields them late. Every datagram becomes a frame with the innermost IP
packet, so that everything that tshark has unwrapped looks like plain traffic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from ipaddress import ip_address
from struct import pack

from netdissect.capture.linktypes import link_type_name
from netdissect.capture.live.choice import Verdict
from netdissect.capture.live.clearstreams import ClearStreams
from netdissect.capture.live.process import (
    DROPS,
    SETTLE_S,
    Child,
    ChildSource,
    capture_words,
    failure,
    message,
)
from netdissect.capture.live.source import Counts, LiveRequest
from netdissect.capture.source import READ_OCTETS
from netdissect.capture.tshark import ended_early, nanoseconds, opened
from netdissect.model.packets import Frame
from netdissect.model.reports import CaptureInfo
from netdissect.system.programs import find

_COLUMNS = (
    "frame.number", "frame.time_epoch", "frame.protocols", "ip.src", "ip.dst", "ipv6.src",
    "ipv6.dst", "udp.srcport", "udp.dstport", "udp.payload", "tcp.srcport", "tcp.dstport",
    "tcp.seq_raw", "tcp.ack_raw", "tcp.flags", "tcp.window_size_value", "tcp.options",
    "tcp.payload", "tls.record.version", "dtls.record.version", "data.data",
)  # fmt: skip
_STARTED = "Capture started"
_RAW = 101  # LINKTYPE_RAW: IP headers are rebuilt from the addresses that tshark prints
_UDP, _TCP = 17, 6
_MAX_LINE = 1 << 20
"""Longest line, bytes; a longer one cannot be a datagram."""


class TsharkSource(ChildSource):
    """The frames that tshark prints."""

    backend = "tshark"
    link_type: int | None = _RAW
    settle_s = SETTLE_S

    def __init__(self, backend: Verdict, interface: str | None, request: LiveRequest) -> None:
        """Start tshark and wait until it captures.

        Raises:
            AccessError: no right to capture, or no such interface.
            FilterError: tshark rejects the filter.
            CaptureFileError: the file cannot be opened.

        """
        self.live = interface is not None
        self.counts = Counts()
        self.fault: str | None = None
        self._backend, self._request = backend, request
        self._where = interface or request.file or ""
        self.info = CaptureInfo(self._where, "tshark", link_types=[link_type_name(_RAW)])
        self._streams = ClearStreams()
        self._taker = None
        words, account = _words(backend, interface, request), request.account
        if account is not None and self.live:
            # tshark must not dissect as root, but dumpcap has to capture as root.
            taker = Verdict("dumpcap", find("dumpcap"), True, "")
            self._taker = Child(capture_words(taker, str(interface), request), quiet_s=SETTLE_S)
            self._begin(self._taker, "\0", taker)
            words = _words(backend, None, request)
        with nullcontext() if self.live else opened(self._where) as file:
            self._child = Child(
                words, quiet_s=SETTLE_S, source=self._taker, file=file, account=account
            )
        if self.live and self._taker is None:
            self._begin(self._child, _STARTED, backend)

    def _begin(self, child: Child, mark: str, backend: Verdict) -> None:
        """Wait until a program captures."""
        if not child.started(mark):
            child.ended()
            said = child.said()
            child.close()
            raise failure(backend, self._where, self._request, said)

    def batches(self) -> Iterator[list[Frame]]:
        """Yield frames until tshark ends."""
        info = self.info
        for line in self._read_lines():
            frame = frame_of_line(line, self._streams)
            if frame is None:
                continue
            info.frames += 1
            info.octets += len(frame[3])
            info.first_time_ns = frame[1] if info.first_time_ns is None else info.first_time_ns
            info.last_time_ns = frame[1]
            self._child.input.caught_up(frame[1])
            yield [frame]
        self._conclude()

    def _conclude(self) -> None:
        """Set the counts, and `fault` or the damage of the file, when tshark has ended.

        Raises:
            NetdissectError: it never captured.

        """
        frames = self.info.frames
        stopped = self._child.wake.set
        status = self._child.ended()
        said = self._child.said()
        self.counts.unread = self._child.input.unread
        drops = DROPS["tshark"].findall(said)
        if self._taker is not None:
            drops = DROPS["dumpcap"].findall(self._taker.said())
        if self.live:
            self.counts.kernel = sum(map(int, drops))
        if not frames and not stopped and self.live:
            if self._taker is not None:
                self._taker.ended()
                said = self._taker.said() or said
            raise failure(self._backend, self._where, self._request, said)
        # tshark exits with 0 if its interface is gone. If it was ended while starting, it may have
        # rejected its arguments.
        refused = status and not frames and message(said, "tshark")
        if refused or ((status or self.live) and not stopped):
            what = message(said, "tshark") or "tshark has ended"
            where = f"capture on {self._where} ended" if self.live else self._where
            if not self.live and ended_early(said):
                self.info.damage = f"{where}: {what}"
            else:
                self.fault = f"{where}: {what}"

    def _read_lines(self) -> Iterator[bytes]:
        rest = b""
        while data := self._child.input.read(READ_OCTETS):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if len(rest) > _MAX_LINE:
                rest = b""


def _words(backend: Verdict, interface: str | None, request: LiveRequest) -> list[str]:
    words = [str(backend.path), "-l", "-n", "-T", "fields", "-E", "occurrence=a"]
    for column in _COLUMNS:
        words += ["-e", column]
    for preference in request.preferences:
        words += ["-o", _preference(preference)]
    if interface is None:
        return [*words, "-r", "-"]
    words += ["-i", interface, "-s", str(request.snap_octets)]
    words += [] if request.promiscuous else ["-p"]
    return [*words, "-f", request.capture_filter] if request.capture_filter else words


def _preference(text: str) -> str:
    """Return a preference with an absolute path, because tshark runs in another folder."""
    name, _, value = text.partition(":")
    here = value and os.path.exists(value)  # noqa: PTH110 - a text
    return f"{name}:{os.path.abspath(value)}" if here else text  # noqa: PTH100 - a text


def frame_of_line(line: bytes, streams: ClearStreams) -> Frame | None:
    """Return the frame that one line of tshark's columns describes; None if it is neither a
    datagram nor a segment, or if it is quoted in an ICMP error.

    Args:
        line: the columns, with every occurrence of a field.
        streams: the decrypted streams of earlier lines.

    """
    cells = line.decode("ascii", "replace").rstrip("\r").split("\t")
    if len(cells) != len(_COLUMNS):
        return None
    every = dict(zip(_COLUMNS, cells, strict=True))
    # The last occurrence is the innermost.
    row = {name: cell.rpartition(",")[2] for name, cell in every.items()}
    layers = row["frame.protocols"].split(":")
    if "icmp" in layers or "icmpv6" in layers:
        return None
    inner = next((name for name in reversed(layers) if name in {"ip", "ipv6"}), None)
    above = layers[len(layers) - layers[::-1].index(inner) :] if inner else []
    transport = next((name for name in above if name in {"udp", "tcp"}), None)
    try:
        source, target = row[f"{inner}.src"], row[f"{inner}.dst"]
        clear = _clear(every, above)
        if transport == "udp":
            body, number = _udp(row, clear), _UDP
        elif transport == "tcp":
            body, number = _tcp(row, (source, target), clear, streams), _TCP
        else:
            return None
        packet = _ip(source, target, number, body)
        number, time_ns = int(row["frame.number"]), nanoseconds(row["frame.time_epoch"])
        return number, time_ns, _RAW, packet, len(packet)
    except (KeyError, ValueError, OverflowError, ArithmeticError):
        return None


def _clear(every: dict[str, str], above: list[str]) -> bytes | None:
    """Return the bytes that tshark has decrypted; None without TLS or DTLS."""
    for name in ("tls", "dtls"):
        if name in above and every[f"{name}.record.version"]:
            told = "data" in above[above.index(name) :]
            return bytes.fromhex(every["data.data"].replace(",", "")) if told else b""
    return None


def _udp(row: dict[str, str], clear: bytes | None) -> bytes:
    payload = clear or bytes.fromhex(row["udp.payload"])
    ports = int(row["udp.srcport"]), int(row["udp.dstport"])
    return pack(">HHHH", *_words16(*ports, 8 + len(payload)), 0) + payload


def _tcp(
    row: dict[str, str], ends: tuple[str, str], clear: bytes | None, streams: ClearStreams
) -> bytes:
    options = bytes.fromhex(row["tcp.options"])
    options += bytes(-len(options) % 4)
    flags = int(row["tcp.flags"], 16) & 0xFF
    source, target = row["tcp.srcport"], row["tcp.dstport"]
    numbers = int(row["tcp.seq_raw"]) & 0xFFFFFFFF, int(row["tcp.ack_raw"] or 0) & 0xFFFFFFFF
    seq, ack, payload = streams.segment(
        (ends[0], source, ends[1], target), numbers, flags, bytes.fromhex(row["tcp.payload"]), clear
    )
    window, offset = int(row["tcp.window_size_value"]) & 0xFFFF, (20 + len(options)) // 4 << 4
    ports = _words16(int(source), int(target))
    head = pack(">HHIIBBHHH", *ports, seq, ack, offset, flags, window, 0, 0)
    return head + options + payload


def _ip(source: str, target: str, protocol: int, body: bytes) -> bytes:
    one, two = ip_address(source), ip_address(target)
    if one.version == 4:  # noqa: PLR2004 - IPv4
        (total,) = _words16(20 + len(body))
        head = pack(">BBHHHBBH", 0x45, 0, total, 0, 0, 64, protocol, 0)
    else:
        (total,) = _words16(len(body))
        head = pack(">IHBB", 6 << 28, total, protocol, 64)
    return head + one.packed + two.packed + body


def _words16(*values: int) -> tuple[int, ...]:
    """Return the values; ValueError if one does not fit into 16 bits."""
    if any(not 0 <= value <= 0xFFFF for value in values):  # noqa: PLR2004 - 16 bits
        raise ValueError("more than 16 bits")
    return values
