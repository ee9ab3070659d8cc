"""Connections that are asked for by number: whether a capture has them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from netdissect.model.errors import UsageError

if TYPE_CHECKING:
    from netdissect.pipeline.reports import Reports

__all__ = ["exist", "missing"]


def missing(number: int, reports: Reports) -> UsageError:
    """Return what to say where a capture has no connection of a number, or a filter left none."""
    if reports.by_number(number) is not None:
        return UsageError(f"nothing of connection {number} matches the filter")
    known = reports.numbers()
    if not known:
        return UsageError(f"there is no connection {number}: the capture has none")
    there = f"are {min(known)} to {max(known)}" if len(known) > 1 else f"is only {max(known)}"
    return UsageError(f"there is no connection {number}; there {there}")


def exist(numbers: Collection[int], reports: Reports) -> None:
    """Refuse numbers of connections that a capture does not have."""
    known = set(reports.numbers()) if numbers else set()
    for number in numbers:
        if number not in known:
            raise missing(number, reports)
