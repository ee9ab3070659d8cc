from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.capture.live.sink import FileSink
from netdissect.model.errors import UsageError


@pytest.mark.parametrize("suffix", ["gz", "zst", "xz", "bz2", "lz4"])
def test_a_name_that_promises_compression_is_refused(suffix: str, tmp_path: Path) -> None:
    """Each of these is read, and none is written."""
    with pytest.raises(UsageError, match="writes no compressed file"):
        FileSink(str(tmp_path / f"a.pcapng.{suffix}"), interface="lo", link_type=1)
