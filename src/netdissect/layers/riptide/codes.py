"""Riptide's rows of the catalogue. Their text stands in `netdissect.wire.riptide_findings`."""

from __future__ import annotations

from netdissect.model.annotations import CodeRow, code_rows
from netdissect.wire.riptide_findings import FINDINGS

__all__ = ["CODES"]

CODES: tuple[CodeRow, ...] = code_rows(FINDINGS)
