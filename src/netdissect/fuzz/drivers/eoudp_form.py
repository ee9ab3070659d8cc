"""Where the live values of an EOUDP datagram lie, and what is acknowledged, in every dialect.

Source: docs/protocols/eoudp.md; the places are those of `layers.eoudp.headers`.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from netdissect.layers.eoudp import EoudpComponentOf, EoudpComponentOf32, header_layer
from netdissect.protocols.eoudp.dialects import ROWS
from netdissect.wire.eoudp_names import DIALECTS, DOCUMENTS


class Form:
    """The layout of one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._row = ROWS[dialect]
        self.layer: Any = header_layer(dialect)
        places: dict[str, slice] = {}
        at = 0
        for field in self.layer.fields_desc:
            places[field.name] = slice(at, at + int(field.sz))
            at += int(field.sz)
        self.head = at
        """Bytes of the header."""
        self.id, self.size, self._time = places["id"], places["size"], places["timestamp"]
        flag = places.get("important")
        self.flag = None if flag is None else flag.start
        """Byte of the flag, None in dialects without one."""
        self._floats = ">d" if self._time.stop - self._time.start == 8 else ">f"  # noqa: PLR2004 - an f64
        self.span: int = 1 << 8 * (self.id.stop - self.id.start)
        """Modulus of the ids."""
        self.component: Any = EoudpComponentOf32 if "long32" in dialect else EoudpComponentOf

    @property
    def by_flag(self) -> bool:
        """Return whether whatever is flagged is acknowledged."""
        return self._row.flagged and self._row.acked is None

    def build(
        self, number: int, command: int, content: Any = None, *, flagged: bool = False
    ) -> bytes:
        """Return one message with the time of now."""
        extra = {} if self.flag is None else {"important": int(flagged)}
        head = self.layer(cmd=command, timestamp=self._now(), id=number % self.span, **extra)
        return bytes(head if content is None else head / content)

    def content(self, data: bytes) -> bytes | None:
        """Return what real receivers take for the content of a datagram; None if they refuse it.
        They ignore what follows a size of 0.
        """
        size = int.from_bytes(data[self.size], "big")
        if len(data) < self.head or size not in (0, len(data) - self.head):
            return None
        return data[self.head :] if size else b""

    def number(self, data: bytes) -> int:
        """Return the id of a whole datagram."""
        return int.from_bytes(data[self.id], "big")

    def put_number(self, data: bytearray, number: int) -> None:
        """Write the id."""
        data[self.id] = (number % self.span).to_bytes(self.id.stop - self.id.start, "big")

    def put_time(self, data: bytearray) -> None:
        """Write the time of now."""
        data[self._time] = struct.pack(self._floats, self._now())

    def is_acknowledged(self, data: bytes) -> bool:
        """Return whether a receiver acknowledges a whole datagram."""
        if self.flag is None:
            return data[0] in self._row.must
        return data[self.flag] == 1 and (self._row.acked is None or data[0] in self._row.acked)

    def _now(self) -> float:
        """Return seconds in the texts, milliseconds in programs."""
        return time.time() if self.dialect in DOCUMENTS else float(time.time_ns() // 1_000_000)


FORMS: dict[str, Form] = {dialect: Form(dialect) for dialect in DIALECTS}
"""Dialect -> layout."""
