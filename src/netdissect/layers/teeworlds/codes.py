"""Teeworlds' rows of the catalogue that concern one datagram."""

from __future__ import annotations

from netdissect.model.annotations import CodeRow, Severity
from netdissect.wire.teeworlds_codes import ROWS

__all__ = ["CODES"]

CODES: tuple[CodeRow, ...] = tuple(
    CodeRow(code, Severity(severity), group, title, meaning)
    for code, severity, group, title, meaning in ROWS
)
