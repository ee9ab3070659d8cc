"""`python -m netdissect` is the `netdissect` command."""

from netdissect.cli import main

if __name__ == "__main__":
    main()
