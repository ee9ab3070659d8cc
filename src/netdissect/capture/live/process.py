"""Live capture through dumpcap or tcpdump, which have the rights; their output comes by a pipe."""

from __future__ import annotations

import fcntl
import os
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from netdissect.capture.live.choice import Verdict, refusal
from netdissect.capture.live.source import Counts, LiveRequest, PolledInput, Wake
from netdissect.capture.reader import open_capture
from netdissect.capture.source import CaptureError
from netdissect.model.errors import AccessError, FilterError, NetdissectError
from netdissect.model.packets import Frame
from netdissect.system import keeper
from netdissect.system.accounts import Account
from netdissect.system.programs import start_script

BUFFER_MIB = 64
"""Kernel buffer of the program: half a second at 100,000 full-size packets per second, or three
seconds with the packet sizes of games.
"""
SLOT_BUFFER_MIB = 128
"""The same for tcpdump in immediate mode, in which libpcap reserves a slot of the largest size for
every packet, on loopback twice 64 KiB. 20,000 packets per second fill the 1024 slots in 50 ms. If a
file is written, tcpdump therefore delivers full blocks instead, up to a second later.
"""
RECORDED_SETTLE_S = 1.2
"""Time without output after which a tcpdump that delivers blocks has nothing left. Source:
tcpdump.c, pcap_set_timeout(pc, 1000).
"""
SETTLE_S = 0.3
"""The same for dumpcap, to which the kernel delivers a packet after up to 0.25 s (Source: Wireshark
dumpcap.c, CAP_READ_TIMEOUT). Packets that it has not got when it ends are lost.
"""
_PIPE_OCTETS = (1 << 24, 1 << 20)
"""Sizes of the pipe to try: first one that only root may have. Source: /proc/sys/fs/pipe-max-size.
"""
_GRACE_S = 5.0
"""Time for a program to deliver what it has after it was told to stop."""
_LEAST_QUIET_S = 0.1
"""The time of `RECORDED_SETTLE_S` for tcpdump in immediate mode."""
_LOOK_S = 0.05
"""Interval at which the standard error of a program is checked."""
_FILTER_S = 1.0
"""Time between the first message of dumpcap or tshark and the moment when its filter is set."""
_MAX_SAID_OCTETS = 65_536
"""Bytes of standard error that are read: a program may repeat a message for ever."""

_DUMPCAP_DROPS = re.compile(r"received/dropped on interface .*: \d+/(\d+) \(pcap:")
_TCPDUMP_DROPS = re.compile(r"^(\d+) packets? dropped by (?:kernel|interface)$", re.MULTILINE)
_TSHARK_DROPS = re.compile(r"^(\d+) packets? dropped", re.MULTILINE)
DROPS = {"dumpcap": _DUMPCAP_DROPS, "tcpdump": _TCPDUMP_DROPS, "tshark": _TSHARK_DROPS}
"""Program -> its message about dropped packets."""
_TAKEN = {
    "dumpcap": re.compile(r"^Packets captured: (\d+)$", re.MULTILINE),
    "tcpdump": re.compile(r"^(\d+) packets? captured$", re.MULTILINE),
}
"""Program -> its message about the number of captured packets."""

_FORBIDDEN = ("permission", "not permitted")
_MISSING = ("no such device", "no device named", "disappeared", "not up", "no longer running",
            "network is down")  # fmt: skip


def capture_words(backend: Verdict, interface: str, request: LiveRequest) -> list[str]:
    """Return the command line of a program that captures to standard output."""
    snap = str(request.snap_octets)
    quiet = [] if request.promiscuous else ["-p"]
    if backend.name == "dumpcap":
        words = ["-q", "-n", "-i", interface, "-s", snap, "-B", str(BUFFER_MIB), "-w", "-"]
        chosen = ["-f", request.capture_filter] if request.capture_filter else []
    else:
        at_once = [] if request.recorded else ["--immediate-mode"]
        buffer = BUFFER_MIB if request.recorded else SLOT_BUFFER_MIB
        # -U writes each packet at once. The size of the buffer is in KiB.
        words = ["-n", "-U", *at_once, "--time-stamp-precision=nano", "-i", interface,
                 "-s", snap, "-B", str(buffer * 1024), "-w", "-"]  # fmt: skip
        chosen = ["--", request.capture_filter] if request.capture_filter else []
    return [str(backend.path), *words, *quiet, *chosen]


class Child:
    """A capture program that was started through `system/keeper.py`, and its output."""

    def __init__(
        self,
        words: list[str],
        *,
        quiet_s: float = 0.0,
        source: Child | None = None,
        file: IO[bytes] | None = None,
        account: Account | None = None,
    ) -> None:
        """Start a program.

        Args:
            words: its absolute path and arguments.
            quiet_s: after a request to stop, the program is ended when it has had no output for
                this time, seconds.
            source: another program whose output it reads; the two end together.
            file: an open file that it reads instead.
            account: the account under which it runs; None = that of this process.

        """
        reads = [] if source is None else [source.detach()]
        if file is not None:
            reads = [file.fileno()]
        more = [word for fd in reads for word in ("--input", str(fd))]
        if account is not None:
            rights = ",".join(map(str, (account.group, *account.groups)))
            more += ["--as", f"{account.user}:{rights}"]
        self._owner = os.getpid()
        self.wake = Wake()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._keeper = start_script(
            keeper.__file__,
            [*more, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            pass_fds=reads,
        )
        self._source = source
        # If it stayed open here too, the pipe would not break when its reader ends.
        if source is not None:
            source.let_go()
        if self._keeper.stdout is None:
            raise NetdissectError(f"{words[0]} has no output")
        self._output = self._keeper.stdout
        _enlarge(self._output.fileno())
        self.input = PolledInput(
            self._output.fileno(), self.wake, quiet_s=quiet_s, grace_s=_GRACE_S,
            end=self.tell if source is None else source.tell,
        )  # fmt: skip

    def detach(self) -> int:
        """Return the descriptor of its output, for another program to read."""
        return self._output.fileno()

    def let_go(self) -> None:
        """Close the output in this process, because another program reads it."""
        self._output.close()

    def started(self, mark: str) -> bool:
        """Wait until the program has printed `mark` on standard error or produced output; return
        False if it ended before.
        """
        for _ in range(int(_GRACE_S / _LOOK_S)):
            ready, _, _ = select.select([self._output], [], [], _LOOK_S)
            if mark in self.said():
                # dumpcap prints it before it sets the filter, which discards earlier packets.
                select.select([self._output], [], [], _FILTER_S)
                return self._keeper.poll() is None
            if ready:
                return self._keeper.poll() is None
        return True

    def stop(self) -> None:
        """Request the end: the reader of `input` reads what is there and then ends the program."""
        self.wake.call()

    def tell(self) -> None:
        """Make the keeper end the program."""
        stdin = self._keeper.stdin
        if stdin is not None and not stdin.closed:
            stdin.close()

    def hand_over(self) -> None:
        """Leave input and keeper to a forked copy of this process."""
        if self._source is not None:
            self._source.hand_over()
        self.tell()
        self._output.close()

    def ended(self) -> int:
        """Wait for the program and return its exit status; 0 in a forked copy of the process that
        started it, where the status is unknown.
        """
        if self._source is not None:
            self._source.ended()
        self.tell()
        if os.getpid() != self._owner:
            return 0
        try:
            return self._keeper.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            return self._keeper.wait()

    def said(self) -> str:
        """Return the standard error output of the program."""
        # Not `seek`: the program writes at the file position that this descriptor shares with it.
        return os.pread(self._said.fileno(), _MAX_SAID_OCTETS, 0).decode("utf-8", "replace")

    def close(self) -> None:
        """End the program and release all resources."""
        self.wake.call()
        self._output.close()
        self.ended()
        self._said.close()
        self.wake.close()
        if self._source is not None:
            self._source.close()


class ChildSource:
    """Base of the sources that read the output of a program."""

    _child: Child

    def stop(self) -> None:
        """Make the program deliver what it has and end."""
        self._child.stop()

    def end(self) -> None:
        """End the program."""
        self._child.wake.set = True
        self._child.input.finish()

    def hand_over(self) -> None:
        """Leave the program to a forked copy of this process."""
        self._child.hand_over()

    def take_over(self) -> None:
        """Take over the program in the forked copy."""
        self._child.wake.leave()

    def close(self) -> None:
        """End the program and release it."""
        self._child.close()


class ProcessSource(ChildSource):
    """The frames that dumpcap or tcpdump captures."""

    live = True

    def __init__(self, backend: Verdict, interface: str, request: LiveRequest) -> None:
        """Start the program and wait until it captures.

        Raises:
            AccessError: no right to capture, or no such interface.
            FilterError: the program rejects the filter.

        """
        self.backend = backend.name
        self.counts = Counts()
        self.fault: str | None = None
        self.link_type: int | None = None
        self._interface = interface
        self.settle_s = SETTLE_S
        if backend.name == "tcpdump":
            self.settle_s = RECORDED_SETTLE_S if request.recorded else 0.0
        words = capture_words(backend, interface, request)
        self._child = Child(words, quiet_s=self.settle_s or _LEAST_QUIET_S)
        try:
            self._reader = open_capture(self._child.input)  # type: ignore[arg-type]
        except CaptureError:
            self._child.ended()
            said = self._child.said()
            self._child.close()
            raise failure(backend, interface, request, said) from None
        self.info = self._reader.info
        self.info.path = interface

    def batches(self) -> Iterator[list[Frame]]:
        """Yield frames until the program ends."""
        come = self._child.input
        for batch in self._reader.batches():
            come.caught_up(batch[-1][1])
            yield batch
        stopped = self._child.wake.set
        self._child.ended()
        said = self._child.said()
        drops, taken = DROPS[self.backend].findall(said), _TAKEN[self.backend].findall(said)
        self.counts.kernel = sum(map(int, drops)) if drops else None
        self.counts.taken = int(taken[-1]) if taken else None
        self.counts.unread = come.unread
        if not stopped:
            what = message(said, self.backend) or f"{self.backend} has ended"
            self.fault = f"capture on {self._interface} ended: {what}"


def failure(backend: Verdict, interface: str, request: LiveRequest, said: str) -> NetdissectError:
    """Return the error for what a program printed on standard error instead of capturing."""
    reason = message(said, backend.name) or f"{backend.name} ended without a word"
    lower = said.lower()
    if any(word in lower for word in _FORBIDDEN):
        return refusal(interface, backend, f"{backend.name} says: {reason}")
    if any(word in lower for word in _MISSING):
        return AccessError(f"cannot capture on {interface}: {reason}")
    text = request.capture_filter
    if text:
        return FilterError(f"bad capture filter: {reason}", text=text, start=0, end=len(text))
    return AccessError(f"cannot capture on {interface}: {reason}")


def message(said: str, backend: str) -> str:
    """Return the sentence of a program's standard error that says what went wrong, or ""."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    mine = [line.partition(": ")[2] for line in lines if line.startswith(f"{backend}: ")]
    told = [line for line in mine if not line.startswith(("listening on", "verbose output"))]
    # libpcap's own reason is in parentheses on a line of its own.
    reasons = [line for line in lines if line.startswith("(")]
    return " ".join([*told[:1], *reasons[:1]])


def _enlarge(fd: int) -> None:
    """Make a pipe larger, so that no packets are lost while its reader pauses."""
    for octets in _PIPE_OCTETS:
        with suppress(OSError, AttributeError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, octets)
            return
