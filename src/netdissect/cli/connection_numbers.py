"""Checks that connections requested by number exist in a capture."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from netdissect.model.errors import UsageError

if TYPE_CHECKING:
    from netdissect.pipeline.reports import Reports


def no_such_connection(number: int, reports: Reports) -> UsageError:
    """Return the error for a number that a capture lacks, or of which a filter left nothing."""
    if reports.by_number(number) is not None:
        return UsageError(f"no datagram of connection {number} matches the filter")
    known = reports.numbers()
    if not known:
        return UsageError(f"there is no connection {number}: the capture has none")
    there = f"{min(known)} to {max(known)}" if len(known) > 1 else f"only {known[0]}"
    return UsageError(f"there is no connection {number}: the capture has {there}")


def check_connections(numbers: Collection[int], reports: Reports) -> None:
    """Raise UsageError for the first number that a capture does not have."""
    known = set(reports.numbers()) if numbers else set()
    for number in numbers:
        if number not in known:
            raise no_such_connection(number, reports)
