"""The file, or the ring of files, that a live capture is written to."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from pathlib import Path

from netdissect.capture.linktypes import link_type_name
from netdissect.capture.live.limits import RingRule
from netdissect.capture.live.segments import segment
from netdissect.capture.writer import PcapngWriter, PcapWriter
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.packets import LINK_TYPE, Frame

_COMPRESSED = frozenset({".gz", ".zst", ".xz", ".bz2", ".lz4"})


class FileSink:
    """Writes frames as they arrive. However the process ends, the file has complete records only.

    A name that ends in `.pcap` selects the pcap format, any other name pcapng.
    """

    def __init__(
        self, target: str, *, interface: str, link_type: int | None, ring: RingRule | None = None
    ) -> None:
        """Create the first file.

        Args:
            target: path, or `-` for standard output.
            interface: name of the interface in the file.
            link_type: link type of the frames, if it is known before the first one.
            ring: when to start the next file.

        Raises:
            UsageError: the name has the suffix of a compressed file, or a ring on standard output.
            CaptureFileError: the file cannot be created.

        """
        self.target = Path(target)
        if self.target.suffix in _COMPRESSED:
            raise UsageError(f"-w writes no compressed file: {target}")
        if ring is not None and target == "-":
            raise UsageError("-b wants a file: standard output has no next one")
        self.is_stdout = target == "-"
        self.files_full = 0
        """Files of the ring that are finished."""
        self._ring = ring
        self._interface = interface
        self._link_type = link_type
        self._serial = 0
        self._names: deque[Path] = deque()
        if self.target.suffix == ".pcap" and not self.is_stdout:
            _try(self.target)  # now, because the file is created only with the first packet
        self._open()

    @property
    def goes_on(self) -> bool:
        """Return whether a file may still have to be created."""
        return self._writer is None or self._ring is not None

    @property
    def octets(self) -> int:
        """Return the size of the file being written."""
        return self._writer.octets if self._writer is not None else 0

    def write(self, batch: list[Frame]) -> None:
        """Write frames.

        Raises:
            OSError: they cannot be written; the file then ends with its last complete record.

        """
        ring, link = self._ring, batch[0][2]
        if ring is not None and ring.by_frame and self.octets >= (ring.octets or 0):
            self._next(batch[0][0])
        writer = self._writer
        whole = ring is None or ring.by_frame
        plain = whole and isinstance(writer, PcapngWriter) and link in self._numbers
        if plain and all(frame[2] == link for frame in batch):
            # A faster way with the same result, for nearly every capture.
            writer.write_all(batch, interface=self._numbers[link])  # type: ignore[union-attr]
        else:
            for frame in batch:
                if self._full(frame[1]):
                    self._next(frame[0])
                self._put(frame)
        if self._writer is not None:
            self._writer.flush()

    def close(self, time_ns: int | None, *, received: int, dropped: int | None) -> None:
        """Finish the file; a pcapng file gets the numbers of packets received and dropped.

        Raises:
            OSError: the end cannot be written.

        """
        if self._writer is None and self._link_type is not None:
            self._pcap(self._link_type)
        if self._writer is None:
            return
        try:
            if isinstance(self._writer, PcapngWriter) and self._numbers and dropped is not None:
                self._writer.write_statistics(time_ns or 0, received=received, dropped=dropped)
        finally:
            self._writer.close()

    def hand_over(self) -> None:
        """Leave the file to a copy of this process, before anything was written."""
        if self._writer is not None:
            self._writer.close()

    # -- one file ----------------------------------------------------------------------------------

    def _open(self, first: int = 1) -> None:
        """Create the next file, which begins with frame `first`. A pcap file names its link type
        first, so it may have to wait.
        """
        self._writer: PcapWriter | PcapngWriter | None = None
        self._numbers: dict[int, int] = {}
        self._packets = 0
        self._first_ns: int | None = None
        name = self._name(first)
        if self._ring is not None:
            self._names.append(name)
            self._forget()
        self._path = "-" if self.is_stdout else str(name)
        if self.target.suffix != ".pcap":
            self._writer = PcapngWriter(self._path)
            if self._link_type is not None:
                self._number(self._writer, self._link_type)
            self._writer.flush()

    def _put(self, frame: Frame) -> None:
        _, time_ns, link, data, wire = frame
        writer = self._writer
        if writer is None:
            writer = self._pcap(link & LINK_TYPE)
        if isinstance(writer, PcapngWriter):
            number = self._numbers.get(link)
            if number is None:
                number = self._number(writer, link)
            writer.write(time_ns, data, wire, interface=number)
        elif link & LINK_TYPE == self._link_type:
            writer.write(time_ns, data, wire)
        else:
            name = link_type_name(link & LINK_TYPE)
            raise OSError(0, f"a pcap file cannot hold {name} besides its own; write pcapng")
        self._packets += 1
        if self._first_ns is None:
            self._first_ns = time_ns

    def _pcap(self, link: int) -> PcapWriter:
        self._link_type = link
        writer = self._writer = PcapWriter(self._path, link)
        return writer

    def _number(self, writer: PcapngWriter, link: int) -> int:
        self._numbers[link] = writer.add_interface(link & LINK_TYPE, self._interface)
        return self._numbers[link]

    # -- ring --------------------------------------------------------------------------------------

    def _full(self, time_ns: int) -> bool:
        ring = self._ring
        if ring is None or self._writer is None or not self._packets:
            return False
        lasted_ns = 0 if self._first_ns is None else time_ns - self._first_ns
        return (
            (ring.octets is not None and self._writer.octets >= ring.octets)
            or (ring.packets is not None and self._packets >= ring.packets)
            or (ring.duration_ns is not None and lasted_ns >= ring.duration_ns)
        )

    def _next(self, first: int) -> None:
        if self._writer is not None:
            self._writer.close()
        self.files_full += 1
        self._open(first)

    def _name(self, first: int) -> Path:
        """Return the name of the next file. In a ring it has a serial number and the local time, as
        with dumpcap.
        """
        if self._ring is None:
            return self.target
        if self._ring.by_frame:
            return segment(self.target.parent, first)
        self._serial += 1
        place = f"{self._serial:05d}_{time.strftime('%Y%m%d%H%M%S')}"
        return self.target.with_stem(f"{self.target.stem}_{place}")

    def _forget(self) -> None:
        """Remove the oldest files beyond those to keep."""
        keep = self._ring.files if self._ring is not None else None
        while keep is not None and len(self._names) > keep:
            self._names.popleft().unlink(missing_ok=True)


def _try(path: Path) -> None:
    """Check that a file can be created at a path, without leaving one there."""
    try:
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            path.unlink()
        elif path.is_dir() or not os.access(path, os.W_OK):
            raise OSError(errno.EISDIR if path.is_dir() else errno.EACCES, "cannot be written")  # noqa: TRY301
    except OSError as error:
        raise CaptureFileError(f"{path}: {error.strerror or error}") from error
