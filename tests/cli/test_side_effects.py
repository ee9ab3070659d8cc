from __future__ import annotations

import subprocess
import sys

import pytest

import console_docs

LOSSY = str(console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
_WATCHED = """
import sys
seen = []
def hook(event, args):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system")):
        seen.append((event, args))
sys.addaudithook(hook)
from netdissect.cli import cli
sys.argv = ["netdissect", *sys.argv[1:]]
try:
    cli.main(prog_name="netdissect")
finally:
    # What asks the machine for its own name looks up nothing and sends nothing.
    print(repr([item for item in seen if item[0] != "socket.gethostname"]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["read", LOSSY, "--json"], ["connections", LOSSY, "1"], ["timeline", LOSSY, "-c", "5"],
        ["stats", LOSSY], ["anomalies", LOSSY, "--content"], ["show", LOSSY, "5", "-x"],
        ["ladder", LOSSY, "1", "--to", "1s"], ["follow", LOSSY], ["info", LOSSY],
        ["diff", LOSSY, LOSSY], ["slice", LOSSY, "-w", "/dev/null"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_reading_opens_no_socket_and_starts_no_program(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
