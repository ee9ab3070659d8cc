"""Makes the captures of ../../captures: the real library, through the relay, from a seed.

Run it with the folder to write to. Needs a C compiler and ENet's headers (Debian: libenet-dev).
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from relay import Impairment, Relay

LIBRARY = "ENet 1.3.17 (Debian libenet-dev), tests/tools/peer.c"
LOSSY = Impairment(loss=0.1, copies=0.05, swap=0.05, delay_ms=20, jitter_ms=4)
PLAY = " ".join(
    f"{at}:{what}" for at in range(300, 2700, 60) for what in ("r:1:40:0", "u:1:30:1", "q:1:20:2")
)
BULK = "300:r:2:6000:3 800:f:2:5000:1 1200:r:6:200:2 1500:u:4:100:0 1800:r:1:9000:0"
RUNS: dict[str, tuple[str, float, Impairment, tuple[str, ...]]] = {
    "clean": (f"{BULK} 2500:l:0:0:0", 3.2, Impairment(delay_ms=10), ()),
    "lossy": (f"{PLAY} 2900:d:0:0:0", 5.0, LOSSY, ()),
    "lossy_crc": (f"{PLAY} 2900:l:0:0:0", 5.0, LOSSY, ("crc",)),
    "compressed": (f"{BULK} 2500:l:0:0:0", 4.0, LOSSY, ("compress",)),
    "compressed_crc": (f"{BULK} 2500:n:0:0:0", 3.2, LOSSY, ("compress", "crc")),
    "blackout": (
        "300:r:3:50:0 1300:r:1:60:1", 12.0, Impairment(delay_ms=20, blackouts=((1.0, 99.0),)), (),
    ),
    "gap": (
        "300:r:3:50:0 1300:r:4:60:1 3000:r:2:50:0 5000:d:0:0:0", 6.0,
        Impairment(delay_ms=20, blackouts=((1.2, 2.4),)), (),
    ),
    "reconnect": (
        "300:r:3:50:0 900:x:0:0:0 1500:r:3:50:1 3500:l:0:0:0", 9.0, Impairment(delay_ms=20), (),
    ),
    "nobody": ("", 5.0, Impairment(blackouts=((0.0, 99.0),)), ()),
}  # fmt: skip
"""Name -> (script of the client, seconds, network, options of the library)."""


def make(folder: Path, name: str, program: Path, seed: int) -> None:
    """Make one capture of each side and its truth."""
    script, seconds, impairment, options = RUNS[name]
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    server = subprocess.Popen(
        [program, "server", str(port), str(seconds + 0.5), *options],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    server.stdout.readline()
    legs = {side: folder / f"{name}_{side}leg.pcap" for side in ("client", "server")}
    relay = Relay(("127.0.0.1", port), impairment, seed, legs["client"], legs["server"])
    client = subprocess.Popen(
        [program, "client", str(relay.port), script, str(seconds), *options],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    relay.run(lambda: server.poll() is not None and client.poll() is not None)
    counters = [json.loads(each.communicate()[0].splitlines()[-1]) for each in (client, server)]
    truth = {
        "what": f"client script: {script or 'connect only'}",
        "made_with": LIBRARY,
        "protocol": "enet",
        "dialect": "enet-1.3-crc" if "crc" in options else "enet-1.3",
        "impairment": {key: value for key, value in vars(impairment).items() if value},
        "seed": seed,
        "relay": {way: dict(counts) for way, counts in relay.log.items()},
        "client": counters[0],
        "server": counters[1],
    }
    (folder / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    """Build the program, and make all captures, or those named."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "peer"
        source = Path(__file__).with_name("peer.c")
        subprocess.run(["cc", "-O1", "-o", program, source, "-lenet"], check=True)
        for seed, name in enumerate(RUNS, start=1):
            if not sys.argv[2:] or name in sys.argv[2:]:
                make(folder, name, program, seed)


if __name__ == "__main__":
    main()
