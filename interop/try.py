"""Run the fuzzer against a real program for a minute, and hold it to its promises.

python interop/try.py riptide -- mono server.exe {port}
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path

from netdissect.fuzz import FuzzReport, Target, fuzz_target

CAPTURES = Path(__file__).parents[1] / "captures"
PROGRAMS: dict[str, tuple[str, str | None, str | None, str | None, str]] = {
    "teeworlds": ("teeworlds", "teeworlds-0.7", None, "tw07_clean",
                  'teeworlds-server "sv_port {port}" "sv_register 0"'),
    "ddnet": ("teeworlds", "teeworlds-ddnet-0.6", None, None,
              'DDNet-Server "sv_port {port}" "sv_register 0"'),
    "riptide": ("riptide", "riptide-2.2", "udp", "udp_2.2.1_clean", ""),
    "riptide-tcp": ("riptide", "riptide-2.2", "tcp", "tcp_2.2.1_clean", ""),
    "knet": ("knet", "knet-2.x", "udp", "udp_clean_session", ""),
    "eoudp": ("eoudp", "exodia-late", None, "late_clean", ""),
    "netplay": ("netplay", "netplay-text", None, "text_example_chat", ""),
    "netplay-bin1": ("netplay", "netplay-bin1", None, "bin1_example_chat", ""),
    "netplay-bin2": ("netplay", "netplay-bin2", None, "bin2_example_chat", ""),
    "netplay-bin3": ("netplay", "netplay-bin3", None, "bin3_example_chat", ""),
}  # fmt: skip
"""Name -> (protocol, dialect, transport, capture, command of a package)."""
ACCEPTED, HELD_SECONDS = 0.98, 30.0
RATE = 318
"""Messages a second: 300 are promised, also of runs whose first and last second count."""
PORTS = range(20_000, 32_768)
"""Ports from which to choose: the system takes those above for the clients of other programs."""
REPORT = re.compile(r"^(?:==\d+==ERROR: AddressSanitizer: (\S+)|(\S+:\d+):\d+: runtime error)")
"""The first line of what the sanitizers of gcc report."""
FRAME = re.compile(r"^ +#\d+ 0x[0-9a-f]+ .* (/\S+:\d+)$")
"""A line of a stack, in a file of the target's own: libraries have no full paths."""


def main() -> int:
    """Run, print the account, return 1 where a promise is broken."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--seconds SECONDS] [--seed N] [--out DIR] NAME [-- COMMAND ...]",
        description=__doc__,
    )
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="new folder that keeps the run")
    # What follows `--` is the server's own, also where our options stand behind the name.
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, given = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    protocol, dialect, transport, capture, usual = PROGRAMS[options.name]
    command = shlex.join(given) if given else usual
    program = shlex.split(command)[0] if command else ""
    found = shutil.which(program, path="/usr/games:/usr/local/bin:/usr/bin") or program
    if not found:
        parser.error("give the command that starts the server")
    port = free_port()
    run = command.replace("{port}", str(port)).replace(program, found, 1)
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "run"
        report = fuzz_target(
            protocol, Target("127.0.0.1", port), out, dialect=dialect, seed=options.seed,
            transport=transport, rate=RATE, duration=options.seconds, monitors=[f"exec:{run}"],
            failures=1000, examples=1,
            captures=[] if capture is None else [CAPTURES / protocol / f"{capture}.pcap"],
        )  # fmt: skip
        return show(report, out)


def free_port() -> int:
    """Return a port that is free for UDP and TCP, and that the system gives to no other program."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            try:
                udp.bind(("127.0.0.1", port))
                tcp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    sys.exit("no port is free")


def show(report: FuzzReport, out: Path) -> int:
    """Print the account; return 1 where a promise is broken."""
    share = report.share("control")
    print(f"{report.cases} cases, {report.datagrams} messages in {report.seconds:.0f} s "
          f"({report.datagrams / report.seconds:.0f}/s), {report.sessions} sessions")  # fmt: skip
    print("exact repeats:", repeats(out))
    print("unchanged accepted:", "cannot be told" if share is None else f"{share:.1%}")
    print(f"longest session held: {report.held_seconds:.1f} s ({report.held_rate():.0f}/s)")
    for signature, finding in report.findings.items():
        print(f"{finding.count} times {finding.key} {signature}")
    print(f"{len(report.findings)} kinds of failure; sanitizers report {places(out)} places")
    kept = (share is None or share >= ACCEPTED) and report.held_seconds >= HELD_SECONDS
    return 0 if kept else 1


def places(out: Path) -> int:
    """Return at how many places the sanitizers have found something, each fault for itself. What
    UBSan says of the access for which AddressSanitizer ends the process at once is not counted.
    """
    found: Counter[tuple[str, str]] = Counter()
    fault = latest = ""
    with (out / "target.log").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if report := REPORT.match(line):
                fault = report[1] or ""
                if report[2]:
                    latest = report[2]
                    found["", latest] += 1
            elif fault and (frame := FRAME.match(line)) and not frame[1].startswith("/usr/"):
                found[fault, frame[1]] += 1
                found["", latest] -= latest == frame[1]
                fault = latest = ""
    return sum(count > 0 for count in found.values())


def repeats(out: Path) -> int:
    """Return how many cases had been sent before, in the same state."""
    sent = Counter()
    with (out / "cases.jsonl").open(encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            steps = [{**step, "sent": "", "type": ""} for step in case["steps"]]
            sent[case["stage"], json.dumps(steps)] += 1
    return sent.total() - len(sent)


if __name__ == "__main__":
    sys.exit(main())
