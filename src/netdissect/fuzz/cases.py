"""What is sent: a case is a short list of steps, a step one message with room for live values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from netdissect.model.text import quoted

__all__ = ["CONNECTED", "LATE_SIGN", "Case", "Step", "object_of", "octets_of", "value_of"]

LATE_SIGN = "answer after more than"
"""How signs of time begin: they say as much of a busy machine as of a case."""
CONNECTED = "connected"
"""The state of a session whose handshake is complete; every driver has it."""


_KINDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
"""Kinds of values of JSON, and what they are called."""


def object_of(data: Any) -> dict[str, Any]:
    """Return a value of JSON that has to be an object. Raises ValueError on anything else."""
    if not isinstance(data, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - read from a file
    return data


def value_of(data: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a value of an object, which has to be of the kind of its default; a default that is
    a kind itself stands for a value that must be there.

    Raises:
        ValueError: it is of another kind.
        KeyError: it is missing.
    """
    if isinstance(default, type):
        value, kind = data[name], default
    else:
        value, kind = data.get(name, default), type(default)
    if type(value) is not kind:  # a truth value is no number
        raise ValueError(f"{quoted(name)} must be {_KINDS[kind]}")
    return value


def octets_of(data: Mapping[str, Any], name: str, default: Any) -> bytes:
    """Return the bytes of a value of an object; arguments and errors as of `value_of`."""
    try:
        return bytes.fromhex(value_of(data, name, default))
    except ValueError:
        raise ValueError(f"{quoted(name)} must be hexadecimal digits") from None


@dataclass(frozen=True, slots=True)
class Step:
    """One message to send. Its driver puts the session's live values in before it goes out.

    Live values are named by the driver (`sequence`, `ack`, `token`). A name in `hold` keeps what
    the bytes say; a name in `shift` gets the live value plus a number.
    """

    octets: bytes
    """The message as it was mutated."""
    type: str = "unknown"
    """Message type of the seed that it was made from."""
    hold: tuple[str, ...] = ()
    """Live values that must not be put in."""
    shift: tuple[tuple[str, int], ...] = ()
    """(live value, what to add to it)."""
    advance: int = 1
    """By how much the step moves the session's sequence number on; 0 for one that repeats or jumps.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain values."""
        return {
            "octets": self.octets.hex(),
            "type": self.type,
            "hold": list(self.hold),
            "shift": dict(self.shift),
            "advance": self.advance,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Return the step that `to_json` wrote. Raises ValueError or KeyError on anything else."""
        shift = value_of(data, "shift", {})
        return cls(
            octets_of(data, "octets", str),
            value_of(data, "type", "unknown"),
            tuple(str(name) for name in value_of(data, "hold", [])),
            tuple((name, value_of(shift, name, 0)) for name in shift),
            value_of(data, "advance", 1),
        )

    def with_octets(self, octets: bytes) -> Step:
        """Return the same step with other bytes."""
        return replace(self, octets=octets)


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: steps that are sent one after the other."""

    number: int
    """Ordinal from 0; with the run's seed it determines the case."""
    mutation: str
    """What was done to the seed, for people: `field:boundary sequence_id`; `none` for a control."""
    steps: tuple[Step, ...]
    """At least one."""
    stage: str = CONNECTED
    """State of the session in which it is sent."""
    parent: str = ""
    """The corpus entry that it was made from; empty where it was made from the seeds."""

    def key(self) -> bytes:
        """Return what no other case has that sends something else, or in another state."""
        digest = hashlib.blake2b(self.stage.encode(), digest_size=16)
        for step in self.steps:
            # Without bytes there is no place for a live value.
            hold = step.hold if step.octets else ()
            digest.update(repr((step.octets, hold, step.shift, step.advance)).encode())
        return digest.digest()

    @property
    def kind(self) -> str:
        """Return the kind of mutation, without what it was done to."""
        return self.mutation.partition(" ")[0].partition("+")[0].rstrip(",")

    @property
    def is_control(self) -> bool:
        """Return whether nothing was mutated: such cases measure what the target accepts."""
        return self.mutation == "none"
