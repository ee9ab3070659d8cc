"""Run the fuzzer against a real program for a minute, and hold it to its promises.

python interop/try.py riptide -- mono server.exe {port}
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import socket
import sys
import tempfile
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


def main() -> int:
    """Run, print the account, return 1 where a promise is broken."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--seconds SECONDS] NAME [-- COMMAND ...]", description=__doc__
    )
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=60.0)
    # What follows `--` is the server's own, also where our options stand behind the name.
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, given = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    protocol, dialect, transport, capture, usual = PROGRAMS[options.name]
    command = shlex.join(given) if given else usual
    program = shlex.split(command)[0] if command else ""
    found = shutil.which(program, path="/usr/games:/usr/local/bin:/usr/bin") or program
    if not found:
        parser.error("give the command that starts the server")
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = command.replace("{port}", str(port)).replace(program, found, 1)
    with tempfile.TemporaryDirectory() as folder:
        report = fuzz_target(
            protocol, Target("127.0.0.1", port), Path(folder) / "run", dialect=dialect,
            transport=transport, rate=300, duration=options.seconds, monitors=[f"exec:{run}"],
            captures=[] if capture is None else [CAPTURES / protocol / f"{capture}.pcap"],
        )  # fmt: skip
    return show(report)


def show(report: FuzzReport) -> int:
    """Print the account; return 1 where a promise is broken."""
    share = report.share("control")
    print(f"{report.cases} cases in {report.seconds:.0f} s, {report.sessions} sessions")
    print("unchanged accepted:", "cannot be told" if share is None else f"{share:.1%}")
    print(f"longest session held: {report.held_seconds:.1f} s")
    for signature, finding in report.findings.items():
        print(f"{finding.count} times {finding.key} {signature}")
    kept = (share is None or share >= ACCEPTED) and report.held_seconds >= HELD_SECONDS
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
