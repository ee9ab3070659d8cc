"""A program that restores the terminal if the program that draws on it is killed.

It waits for one byte on standard input, which the drawing program sends when it ends properly. If
the input ends without that byte, it leaves the alternate screen and restores cursor and echo.
"""

from __future__ import annotations

import os
import termios
from contextlib import suppress

RESTORE = b"\x1b[?1049l\x1b[?25h\x1b[0m"
"""Leave the alternate screen, show the cursor, reset colours. Source: xterm control sequences."""


def main() -> None:
    """Wait until the parent ends."""
    if not os.read(0, 1):
        os.write(1, RESTORE)
        with suppress(termios.error):
            mode = termios.tcgetattr(1)
            mode[3] |= termios.ICANON | termios.ECHO
            termios.tcsetattr(1, termios.TCSADRAIN, mode)


if __name__ == "__main__":
    main()
