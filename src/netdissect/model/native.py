"""Arrays of machine integers and integer access to bytes, from mypyc's run-time library `librt`.
Compiled, each call takes a few instructions; interpreted, it is one call of a C function.

No other module imports `librt`, because its interface is not stable yet.

`@mypyc_attr(acyclic=True)` marks classes of which a connection has many instances, and whose
instances are never part of a reference cycle, or only of one that `__del__` of its owner breaks.
Compiled, the garbage collector ignores them, and each is 16 bytes smaller. They must not form
chains either: CPython 3.11 puts off freeing what is nested deeper than 50 levels by linking it in a
header that only objects of the garbage collector have, so that others would overwrite the memory
before them. `free_list_len=1` keeps the memory of one instance for the next one, of classes of
which each datagram or segment creates an instance and drops another.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    read_i64_le,
    write_i16_be,
    write_i32_be,
    write_i64_le,
)
from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

__all__ = [
    "ABSENT", "BytesWriter", "append", "i64", "mypyc_attr", "read_i16_be", "read_i32_be",
    "read_i64_be", "read_i64_le", "vec", "write_i16_be", "write_i32_be", "write_i64_le",
]  # fmt: skip

ABSENT: Final = -(1 << 61)
"""Marks a missing value in an array of machine integers; no time, number or size comes near it."""
