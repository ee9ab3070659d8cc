"""Runs `sniff` on the loopback and sends it traffic, for the tests of live capture."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from netdissect.capture import open_capture
from netdissect.capture.live.choice import survey
from netdissect.flow import Decapsulator

__all__ = ["BACKENDS", "LIMIT_SECONDS", "Pair", "Sniff", "needs_capture", "payloads"]

LIMIT_SECONDS = 30
"""A test that waits longer has failed."""


def _can(name: str) -> bool:
    if not any(found.name == name and found.usable for found in survey()):
        return False
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return name != "af_packet" and os.geteuid() != 0
    return True


BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(not _can(name), reason=f"{name} cannot capture"))
    for name in ("dumpcap", "tcpdump", "af_packet", "tshark")
]
needs_capture = pytest.mark.skipif(
    not (_can("dumpcap") or _can("tcpdump") or _can("af_packet")), reason="no right to capture"
)


def payloads(path: Path) -> list[tuple[int, bytes]]:
    """Return (0 from the side that speaks first, else 1; payload) of a capture's datagrams."""
    found: list[tuple[int, bytes]] = []
    first = None
    with open_capture(path) as reader:
        for packet in Decapsulator().packets(reader):
            first = packet[3] if first is None else first
            found.append((int(packet[3] != first), packet[4]))
    return found


class Pair:
    """Two sockets on the loopback that talk to each other."""

    def __init__(self) -> None:
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one in self.sockets:
            one.bind(("127.0.0.1", 0))
        for one, other in (self.sockets, self.sockets[::-1]):
            one.connect(other.getsockname())
        self.filter = f"udp port {self.sockets[1].getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets:
            one.close()

    def send(self, datagrams: list[tuple[int, bytes]]) -> None:
        for side, octets in datagrams:
            self.sockets[side].send(octets)


class Sniff:
    """A running `netdissect sniff -i lo`; ended at the latest when the context is left."""

    def __init__(
        self, *words: str, before: tuple[str, ...] = (), interface: str = "lo", **extra: object
    ) -> None:
        command = [*before, sys.executable, "-m", "netdissect", "sniff", "-i", interface, *words]
        environ = {**os.environ, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(Path(__file__).parent)}
        environ.update(extra.pop("env", {}))
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, **extra
        )
        self.said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()

    def until(self, mark: bytes) -> None:
        """Wait until it has said something on standard error."""
        while mark not in self.said:
            ready, _, _ = select.select([self.process.stderr], [], [], LIMIT_SECONDS)
            piece = os.read(self.process.stderr.fileno(), 4096) if ready else b""
            assert piece, f"waits for {mark!r}, heard {self.said!r}"
            self.said += piece

    def line(self) -> bytes:
        """Return the next line of standard output."""
        found = b""
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_SECONDS)
            assert ready, "nothing printed"
            piece = os.read(self.process.stdout.fileno(), 1)
            if not piece:
                return found
            found += piece
        return found

    def ended(self, number: signal.Signals | None = None) -> tuple[int, bytes, str]:
        """Return (status, standard output, standard error) after its end, asked for or not."""
        if number is not None:
            self.process.send_signal(number)
        out, said = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, out, (self.said + said).decode()
