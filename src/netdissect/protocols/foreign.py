"""Guards the run against faults of a plug-in: a protocol of another distribution.

A call that raises, or does not return in time, disables the plug-in. Its flows are no longer read,
all other flows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netdissect.dissect.engine import Request, dissect
from netdissect.dissect.foreign import (
    LOAD_SECONDS,
    Overrun,
    attempt,
    disable,
    fault_of,
    faults,
)
from netdissect.model.annotations import shared_rows
from netdissect.model.claims import Claim, Hints, Sample
from netdissect.model.events import Ev, Event
from netdissect.model.policy import Policy
from netdissect.model.segments import StreamPiece
from netdissect.model.text import quoted
from netdissect.protocols.base import (
    Assembler,
    Fragment,
    Framed,
    Framer,
    Inspector,
    Protocol,
    Reading,
)

_FACTS = (
    "title", "dialects", "transports", "default_ports", "codes", "lives", "secrets", "layer_module",
    "drivers", "servers", "schema_formats", "field_aliases", "privacy", "wireshark",
)  # fmt: skip
_TRIALS = (b"", b"\0", b"\xff", bytes(40), b"\xff" * 40, bytes(range(256)))
"""Payloads that `trial` passes to a plug-in."""


class ForeignError(Exception):
    """A call of a plug-in failed."""


def admitted(name: str, load: Callable[[], Any]) -> Protocol | None:
    """Return the guarded protocol of an entry point; None where it is unusable and now disabled.

    Args:
        name: name of the entry point.
        load: imports it.

    """
    if name in faults:
        return None
    try:
        found = attempt(load, seconds=LOAD_SECONDS)
        return attempt(Foreign, getattr(found, "PROTOCOL", found), name)  # type: ignore[no-any-return]
    except (Exception, SystemExit, Overrun) as bug:  # noqa: BLE001 - whatever a plug-in raises
        disable(name, fault_of(bug))
        return None


def disown(protocol: Protocol, bug: Exception) -> None:
    """Disable a plug-in whose events the tracker cannot process; ignore other protocols."""
    if isinstance(protocol, Foreign) and not isinstance(bug, ForeignError):
        disable(protocol.name, f"its events cannot be tracked: {fault_of(bug)}")


def trial(protocol: Protocol) -> None:
    """Pass a few payloads to a plug-in, which is disabled if it fails; ignore other protocols."""
    if not isinstance(protocol, Foreign):
        return
    hints = Hints((protocol.dialects[0].name,) * 2)
    for transport in protocol.transports:
        request = Request(protocol.dialects[0].name, 0, transport)
        for octets in _TRIALS:
            protocol.recognise([(0, 0, octets)], transport, final=True)
            if protocol.name not in faults:
                try:
                    protocol.scan(octets, 0, hints)
                except ForeignError:
                    return
                dissect(protocol.name, octets, request, module=protocol.layer_module)


class Foreign(Protocol):
    """A plug-in behind a guard: once it has failed it is not called again."""

    def __init__(self, inner: Any, name: str) -> None:
        """Check the plug-in and copy its attributes.

        Args:
            inner: the plug-in's `PROTOCOL`.
            name: name of its entry point.

        Raises:
            TypeError: it is no protocol, or an incomplete one.

        """
        if not isinstance(inner, Protocol):
            raise TypeError(f"{type(inner).__name__} is no netdissect protocol")
        if inner.name != name:
            raise TypeError(f"it calls itself {quoted(inner.name)}")
        self._inner = inner
        self.name = name
        for fact in _FACTS:
            setattr(self, fact, getattr(inner, fact))
        if not self.dialects or not set(self.transports) <= {"udp", "tcp"}:
            raise TypeError("it has no dialect, or a transport that is neither udp nor tcp")
        self._policies = {row.name: inner.policy(row.name) for row in self.dialects}
        if not all(isinstance(policy, Policy) for policy in self._policies.values()):
            raise TypeError("its policy() returns no Policy")
        for policy in self._policies.values():
            for carrier in {rule.acked_with for rule in policy.spaces} - {None}:
                if carrier not in {rule.name for rule in policy.spaces}:
                    raise TypeError(f"`acked_with` names {quoted(carrier)}, which is no space")
        self._codes = {*shared_rows(), *(row.code for row in self.codes)}

    # -- calls whose failure the pipeline reports --------------------------------------------------

    def scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        """Return the events of a datagram; none once the plug-in has failed.

        Raises:
            ForeignError: this call failed.

        """
        return self._ask([], self._scan, payload, direction, hints)  # type: ignore[no-any-return]

    def _scan(self, payload: bytes, direction: int, hints: Hints) -> list[Event]:
        events: list[Event] = self._inner.scan(payload, direction, hints)
        for event in events:
            # A code without a row would fail far from here, without naming the plug-in.
            if event[0] == Ev.NOTE and event[1] not in self._codes:
                raise LookupError(f"scan notes {quoted(event[1])}, of which `codes` has no row")
        return events

    def _ask(self, fallback: Any, call: Any, *args: Any) -> Any:
        """Return what a call of the plug-in returns, or `fallback` once it is disabled.

        Raises:
            ForeignError: this call failed and disabled the plug-in.

        """
        if self.name in faults:
            return fallback
        try:
            return attempt(call, *args)
        except (Exception, Overrun) as bug:
            disable(self.name, fault_of(bug))
            raise ForeignError(
                f"{fault_of(bug)}; the plug-in is disabled, nothing more of it is read"
            ) from bug

    # -- calls that must not fail ------------------------------------------------------------------

    def _safely(self, fallback: Any, call: Any, *args: Any) -> Any:
        """Return what a call of the plug-in returns, or `fallback` where it fails."""
        try:
            return self._ask(fallback, call, *args)
        except ForeignError:
            return fallback

    def recognise(self, sample: Sequence[Sample], transport: str, *, final: bool) -> Claim | None:
        """Return the plug-in's claim on a flow; None where it is not in the plug-in's own name."""
        found = self._safely(None, lambda: self._inner.recognise(sample, transport, final=final))
        return found if isinstance(found, Claim) and found.protocol == self.name else None

    def policy(self, dialect: str) -> Policy:
        """Return the rules of a dialect."""
        return self._policies.get(dialect, self._policies[self.dialects[0].name])

    def initial_hints(self, claim: Claim) -> Hints:
        """Return the hints that a connection starts with."""
        found = self._safely(None, self._inner.initial_hints, claim)
        return found if isinstance(found, Hints) else super().initial_hints(claim)

    def informed(self, hints: Hints, reading: Reading) -> Hints:
        """Return the hints with what the user states."""
        found = self._safely(None, self._inner.informed, hints, reading)
        return found if isinstance(found, Hints) else hints

    def next_hints(self, hints: Hints) -> Hints:
        """Return the hints for the next connection on the same address pair."""
        found = self._safely(None, self._inner.next_hints, hints)
        return found if isinstance(found, Hints) else super().next_hints(hints)

    def fragment(self, payload: bytes, *, packet: bool) -> Fragment | None:
        """Return the values of bytes that are no packet."""
        found = self._safely(None, lambda: self._inner.fragment(payload, packet=packet))
        return found if isinstance(found, Fragment) else None

    def framer(self, dialect: str, direction: int) -> Framer | None:
        """Return a framer for one direction of a TCP stream."""
        inner = self._safely(None, self._inner.framer, dialect, direction)
        return None if inner is None else _Framer(self, inner)

    def assembler(self) -> Assembler | None:
        """Return a new assembler for one connection."""
        inner = self._safely(None, self._inner.assembler)
        return None if inner is None else _Assembler(self, inner)

    def inspector(self) -> Inspector | None:
        """Return a new inspector for one connection."""
        inner = self._safely(None, self._inner.inspector)
        return None if inner is None else _Inspector(self, inner)


class _Part:
    """An object that a plug-in made for one connection, behind the plug-in's guard."""

    def __init__(self, owner: Foreign, inner: Any) -> None:
        self._owner = owner
        self._inner = inner


class _Framer(_Part):
    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        return self._owner._safely([], self._inner.feed, piece)  # type: ignore[no-any-return]  # noqa: SLF001

    def finish(self) -> list[Framed]:
        """Return the incomplete message at the end of the stream."""
        return self._owner._safely([], self._inner.finish)  # type: ignore[no-any-return]  # noqa: SLF001


class _Assembler(_Part):
    def feed(
        self, direction: int, frame: int, time_ns: int, events: Sequence[Event]
    ) -> list[Event]:
        """Return further events of a datagram."""
        return self._owner._ask([], self._inner.feed, direction, frame, time_ns, events)  # type: ignore[no-any-return]  # noqa: SLF001

    def finish(self) -> tuple[list[Event], list[Event]]:
        """Return the events for what stays incomplete."""
        return self._owner._safely(([], []), self._inner.finish)  # type: ignore[no-any-return]  # noqa: SLF001


class _Inspector(_Part):
    asks_scanner = False

    def wants(self, events: list[Event]) -> bool:
        """Return whether a datagram may matter; True for a plug-in without this method."""
        wants = getattr(self._inner, "wants", None)
        return wants is None or bool(self._owner._safely(True, wants, events))  # noqa: SLF001

    def follow(
        self, payload: bytes, dialect: str, direction: int, events: list[Event]
    ) -> bool:
        """Process a datagram without its tree; return False where it must be decoded."""
        follow = getattr(self._inner, "follow", None)
        return follow is not None and bool(
            self._owner._safely(False, follow, payload, dialect, direction, events)  # noqa: SLF001
        )

    def inspect(self, dissection: Any) -> None:
        """Add to the tree of the next datagram."""
        self._owner._safely(None, self._inner.inspect, dissection)  # noqa: SLF001
