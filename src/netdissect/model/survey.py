"""What a survey hands to those who print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Outcome", "Section"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one source."""

    path: str
    """The source as it is named in the dataset: no credentials, no query."""
    status: str
    """`done`, `cut-short`, `skipped` (in the dataset already), `failed`."""
    capture: str | None = None
    """The key of its content; None where that could not be read."""
    octets: int = 0
    """Size of the source."""
    connections: int = 0
    error: str | None = None
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class Section:
    """One answer about a dataset: a small table."""

    name: str
    """One word, for programs."""
    title: str
    columns: Sequence[str]
    """Names of the columns; the end says the unit: `_share`, `_ms`."""
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
