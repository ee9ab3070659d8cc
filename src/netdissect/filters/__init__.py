"""Display filters: Wireshark's grammar over our records, compiled once to closures. Knows records, not protocols."""

from __future__ import annotations

from netdissect.filters.compiler import Filter, compile_column, compile_filter
from netdissect.filters.fields import BUILTIN_FIELDS, FieldInfo, Names

__all__ = ["BUILTIN_FIELDS", "FieldInfo", "Filter", "Names", "compile_column", "compile_filter"]
