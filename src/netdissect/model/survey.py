"""Results of a survey, as they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one source."""

    path: str
    """The source as named in the dataset, without credentials and query."""
    status: str
    """`done`, `cut-short`, `skipped` (already in the dataset), `failed`, or `replaced` (it was in
    the dataset, and is part of another one now).
    """
    capture: str | None = None
    """Key of its content; None if that could not be read."""
    octets: int = 0
    """Size of the source."""
    connections: int = 0
    error: str | None = None
    """The reason for a failure."""


@dataclass(frozen=True, slots=True)
class Section:
    """One small table about a dataset."""

    name: str
    """One word, for programs."""
    title: str
    columns: Sequence[str]
    """Names of the columns; their suffix is the unit: `_share`, `_ms`."""
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
