from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).with_name("tools")


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program on the real library; skip where it cannot be built."""
    compiler = shutil.which("cc")
    program = tmp_path_factory.mktemp("peer") / "peer"
    if compiler is None:
        pytest.skip("no C compiler")
    built = subprocess.run(
        [compiler, "-O1", "-o", program, TOOLS / "peer.c", "-lenet"], check=False, capture_output=True
    )
    if built.returncode:
        pytest.skip("ENet's headers are not installed (Debian: libenet-dev)")
    return program


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
