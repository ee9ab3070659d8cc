"""Display filters: Wireshark's grammar over our records, compiled once to closures. Knows records,
not protocols.
"""

from __future__ import annotations

from netdissect.filters.compiler import Filter, compile_column, compile_filter
from netdissect.filters.fields import BUILTIN_FIELDS, Names, Scope

__all__ = ["BUILTIN_FIELDS", "Filter", "Names", "Scope", "compile_column", "compile_filter"]
