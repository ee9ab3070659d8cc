"""Readers of single layers, compiled here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from netdissect.dissect import derive


def compile_reader(layer: type[Any], skip: Iterable[str] = ()) -> Callable[..., Any]:
    """Return the reader of one layer that passes fields over."""
    text = derive._module(layer.__name__, [(layer, skip)])
    scope: dict[str, Any] = {}
    exec(compile(text, f"<reader {layer.__name__}>", "exec"), scope)  # noqa: S102 - our own layers
    reader: Callable[..., Any] = scope[f"read_{layer.__name__}"]
    return reader
