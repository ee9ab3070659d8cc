"""A base class for objects that hold a resource."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager that calls `close` at the end of its `with` block."""

    __slots__ = ()

    def close(self) -> None:
        """Release the resource."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> bool | None:
        self.close()
        return None
