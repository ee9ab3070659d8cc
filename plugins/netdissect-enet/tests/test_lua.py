"""ENet in Wireshark: `export lua` of a plug-in's layers reads what they read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from luafields import differences
from netdissect.cli import cli

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*.pcap"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lua") / "enet.lua"
    found = CliRunner().invoke(cli, ["export", "lua", "enet", "-o", str(path)])
    assert found.exit_code == 0, found.output
    return path


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_wireshark_reads_the_same(path: Path, script: Path) -> None:
    # The range coder is code; commands that are compressed stay the bytes of `packed`.
    assert differences(path, script, "enet", unpacks=False) == []
