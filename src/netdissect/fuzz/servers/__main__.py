"""A minimal server on 127.0.0.1: `python -m netdissect.fuzz.servers PROTOCOL --port 7777`."""

from __future__ import annotations

import argparse
import os

from netdissect.fuzz.servers import make_server, open_listener, serve, served


def main() -> None:
    """Serve until interrupted, or until the process that started this one is gone."""
    parser = argparse.ArgumentParser(prog="netdissect.fuzz.servers", description=__doc__)
    parser.add_argument("protocol", choices=sorted(served()))
    parser.add_argument("--dialect")
    parser.add_argument("--transport", choices=["udp", "tcp"])
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--bug", action="append", default=[], help="plant a bug")
    options = parser.parse_args()
    bugs = frozenset(options.bug)
    server = make_server(options.protocol, options.dialect, bugs, options.transport)
    parent = os.getppid()
    with open_listener(server, options.port) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201
        try:
            serve(server, listener, stop=lambda: os.getppid() != parent)
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
