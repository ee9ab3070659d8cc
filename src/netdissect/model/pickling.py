"""How compiled dataclasses are pickled and copied."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any


def pickle_by_fields(classes: Iterable[type[Any]]) -> None:
    """Make pickle and copy rebuild these dataclasses by calling them with their field values.

    A compiled class cannot be created empty and filled afterwards, which is pickle's own way. The
    result is also half as long, because the field names are not written out for each value.
    """
    for cls in classes:
        copyreg.pickle(cls, _reducer(cls))


def field_values(cls: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the field values of a dataclass in their order."""
    return attrgetter(*(field.name for field in fields(cls)))


def _reducer(cls: type[Any]) -> Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]:
    values = field_values(cls)
    return lambda item: (cls, values(item))
