"""What a worker does not need does not take its memory."""

from __future__ import annotations

import subprocess
import sys
import weakref

from netdissect.survey.slim import free_memory

CODE = """
import sys
from netdissect.survey.slim import do_without_pandas
do_without_pandas()
import pyarrow as pa
table = pa.Table.from_pylist([{"a": 1}, {"a": None}])
assert table.num_rows == 2
assert "pandas" not in sys.modules
import pandas
do_without_pandas()
assert sys.modules["pandas"] is pandas
"""


def test_pyarrow_does_without_pandas() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_cycles_are_freed() -> None:
    class Thing:
        pass

    thing, ended = Thing(), []
    thing.own = thing
    weakref.finalize(thing, ended.append, 1)
    del thing
    free_memory()
    assert ended == [1]
