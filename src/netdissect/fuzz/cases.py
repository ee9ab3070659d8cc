"""Test cases: a case is a short list of steps, a step one message with room for live values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from netdissect.model.text import quoted

LATE_SIGN = "answer after more than"
"""Prefix of signs about slow answers, which may be due to a busy machine."""
CONNECTED = "connected"
"""State of a session whose handshake is complete; every driver has it."""


_KINDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
"""JSON types and their names in messages."""


def object_of(data: Any) -> dict[str, Any]:
    """Return a JSON value that must be an object. Raises ValueError on anything else."""
    if not isinstance(data, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - read from a file
    return data


def value_of(data: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a member of a JSON object, which must have the type of `default`. If `default` is a
    type, the member is required.

    Raises:
        ValueError: the member has another type.
        KeyError: a required member is missing.
    """
    if isinstance(default, type):
        value, kind = data[name], default
    else:
        value, kind = data.get(name, default), type(default)
    if type(value) is not kind:  # not isinstance: a bool is no number here
        raise ValueError(f"{quoted(name)} must be {_KINDS[kind]}")
    return value


def octets_of(data: Mapping[str, Any], name: str, default: Any) -> bytes:
    """Return a member in hexadecimal digits as bytes; arguments and errors as in `value_of`."""
    try:
        return bytes.fromhex(value_of(data, name, default))
    except ValueError:
        raise ValueError(f"{quoted(name)} must be hexadecimal digits") from None


@dataclass(frozen=True, slots=True)
class Step:
    """One message to send. The driver inserts the session's live values before it is sent.

    The driver names its live values (`sequence`, `ack`, `token`). Those in `hold` keep the value in
    the bytes; those in `shift` get the live value plus a number.
    """

    octets: bytes
    """The mutated message."""
    type: str = "unknown"
    """Message type of the seed that it was made from."""
    hold: tuple[str, ...] = ()
    """Live values that must not be inserted."""
    shift: tuple[tuple[str, int], ...] = ()
    """(name of a live value, number to add to it)."""
    advance: int = 1
    """Increment of the session's sequence number by this step; 0 if it repeats or jumps."""

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return {
            "octets": self.octets.hex(),
            "type": self.type,
            "hold": list(self.hold),
            "shift": dict(self.shift),
            "advance": self.advance,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Return the step that `to_json` wrote. Raises ValueError or KeyError for other values."""
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
    """A test case: steps that are sent in order."""

    number: int
    """Number from 0; with the run's seed it determines the case."""
    mutation: str
    """Description of the mutation: `field:boundary sequence_id`; `none` for a control."""
    steps: tuple[Step, ...]
    """The steps, at least one."""
    stage: str = CONNECTED
    """State of the session in which it is sent."""
    parent: str = ""
    """Corpus entry from which it was made; empty if it was made from a seed."""

    def key(self) -> bytes:
        """Return a hash that is equal for cases that send the same in the same state."""
        digest = hashlib.blake2b(self.stage.encode(), digest_size=16)
        for step in self.steps:
            # An empty message has no room for live values.
            hold = step.hold if step.octets else ()
            digest.update(repr((step.octets, hold, step.shift, step.advance)).encode())
        return digest.digest()

    @property
    def kind(self) -> str:
        """Return the kind of mutation without its target."""
        return self.mutation.partition(" ")[0].partition("+")[0].rstrip(",")

    @property
    def is_control(self) -> bool:
        """Return whether nothing is mutated: controls measure what the target accepts."""
        return self.mutation == "none"
