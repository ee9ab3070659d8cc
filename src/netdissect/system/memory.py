"""How a lack of memory shows, also where too little is left to load the program."""

from __future__ import annotations

import errno

TOO_LITTLE = "out of memory; if a limit is set (ulimit -v), 200 MB do for most captures"


def lacks_memory(error: BaseException) -> bool:
    """Return whether an exception means that there is too little memory.

    The loader of libraries says so only in words. Source: glibc, elf/dl-load.c and dl-reloc.c.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, ImportError)
        and ("cannot allocate memory" in words or "failed to map segment" in words)
    )
