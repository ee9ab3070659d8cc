from __future__ import annotations

from netdissect.wire.cursor import Cursor, Sink
from netdissect.wire.values import ValueRow


def test_a_row_reads_what_it_writes() -> None:
    row = ValueRow(lambda cursor, size: cursor.bits(size or 1), lambda s, v, n: s.bits(v, n or 1))
    sink = Sink()
    row.write(sink, 5, 3)
    assert row.read(Cursor(sink.getvalue()), 3) == 5
