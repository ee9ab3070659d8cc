"""The `netdissect` command, and `python -m netdissect`."""

import os
import sys

# Python looks for modules in the current folder first; the next imports would run what lies there.
# Nothing is imported before that, not even `__future__`, but what the interpreter has already.
try:
    _HERE = os.getcwd()  # noqa: PTH109 - pathlib is no such module
except FileNotFoundError:  # a folder that was deleted
    _HERE = ""
if sys.path and sys.path[0] in {"", _HERE}:
    del sys.path[0]

import signal


def run() -> None:
    """Run the command; until it looks for signals itself, one ends it without a word."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, _: os._exit(128 + number))
    from netdissect.system.memory import TOO_LITTLE, lacks_memory  # noqa: PLC0415 - see above

    try:
        from netdissect.cli import main  # noqa: PLC0415 - takes a tenth of a second
        from netdissect.system.sandbox import permit  # noqa: PLC0415
    except (ImportError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        sys.exit(f"netdissect: {TOO_LITTLE}")
    permit()
    main()


if __name__ == "__main__":
    run()
