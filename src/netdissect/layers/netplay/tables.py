"""Tables with which the Lua dissector chooses layers; see `dissect/lua.py`."""

from __future__ import annotations

from typing import Any

__all__ = ["TABLES"]

TABLES: dict[str, Any] = {}
