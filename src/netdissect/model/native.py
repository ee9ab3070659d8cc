"""Words of bytes and rows of machine integers, from mypy's run-time library. Compiled, a call of
these is a few instructions; interpreted, it is one call of C.

It calls itself young, so this is the only module that names it.

`mypyc_attr(acyclic=True)` stands before classes of which each connection has many, and which refer
to nothing that could refer back: compiled, the search for cyclic garbage passes them over, and each
takes 16 bytes less.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, read_i64_le, write_i64_le
from librt.vecs import append, vec
from mypy_extensions import i64, mypyc_attr

__all__ = [
    "ABSENT", "BytesWriter", "append", "i64", "mypyc_attr", "read_i64_be", "read_i64_le", "vec",
    "write_i64_le",
]  # fmt: skip

ABSENT: Final = -(1 << 61)
"""In the place of a machine integer that is not there."""
