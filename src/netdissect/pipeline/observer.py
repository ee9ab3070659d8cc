"""Who wants to see every datagram, and what is found on it: records for `read` and its kin."""

from __future__ import annotations

from typing import Protocol

from netdissect.model.annotations import Severity
from netdissect.model.claims import Hints
from netdissect.model.events import Event
from netdissect.model.packets import Packet
from netdissect.pipeline.ports import Flow
from netdissect.track.connection import Connection

__all__ = ["Observer"]


class Observer(Protocol):
    """Somebody who wants to see every datagram of a known protocol (`read`)."""

    def seen(
        self,
        flow: Flow,
        connection: Connection,
        direction: int,
        packet: tuple[int, int, bytes, tuple[int, ...]],
        events: list[Event],
        hints: Hints,
    ) -> None:
        """Take (frame, time_ns, payload, frames) after the tracker has; hints as before it."""

    def other(self, packet: Packet) -> None:
        """Take a packet of no known protocol."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take a finding of the tracker, repeats included, before the datagram that it is on."""
