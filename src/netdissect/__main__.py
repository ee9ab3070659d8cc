"""`python -m netdissect` is the `netdissect` command."""

import os
import sys

# Python looks for modules in the current folder first; the next import would run what lies there.
# This file imports nothing before that, not even `__future__`, that is not part of the interpreter.
if sys.path and sys.path[0] in {"", os.getcwd()}:  # noqa: PTH109 - pathlib lies outside of it
    del sys.path[0]

from netdissect.cli import main  # see above

if __name__ == "__main__":
    main()
