"""A program that gives the terminal back where the one that drew on it was killed.

It waits for one byte on its standard input: whoever ends properly sends it. Where the input ends
without it, the screen behind comes back, the cursor shows again, and so does what is typed.
"""

from __future__ import annotations

import os
import termios
from contextlib import suppress

__all__ = ["RESTORE", "main"]

RESTORE = b"\x1b[?1049l\x1b[?25h\x1b[0m"
"""Leave the alternate screen, show the cursor, forget colours. Source: xterm control sequences."""


def main() -> None:
    """Wait for the end of the one who started this."""
    if not os.read(0, 1):
        os.write(1, RESTORE)
        with suppress(termios.error):
            mode = termios.tcgetattr(1)
            mode[3] |= termios.ICANON | termios.ECHO
            termios.tcsetattr(1, termios.TCSADRAIN, mode)


if __name__ == "__main__":
    main()
