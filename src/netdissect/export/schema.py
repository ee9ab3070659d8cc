"""The JSON Schema of what `--json` prints; it is shipped as `data/output.schema.json`."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted

_PREFIX = "#/$defs/"


@cache
def _shipped() -> dict[str, Any]:
    text = resources.files("netdissect.data").joinpath("output.schema.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def described_commands() -> list[str]:
    """Return the names of the commands that have `--json`, sorted."""
    return sorted(each["$ref"].removeprefix(_PREFIX) for each in _shipped()["anyOf"])


def output_schema(command: str | None = None) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a line that a command, or any command, prints.

    Raises:
        UsageError: no such command has `--json`.

    """
    whole = _shipped()
    if command is None:
        return whole
    known = described_commands()
    if command not in known:
        meant = did_you_mean(command, known) or f". With --json there are: {', '.join(known)}"
        raise UsageError(f"no command {quoted(command)} has --json{meant}")
    return {
        "$schema": whole["$schema"],
        "title": f"what netdissect {command} prints with --json, an object a line",
        "$ref": _PREFIX + command,
        "$defs": _needed(command, whole["$defs"]),
    }


def _needed(name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return a definition and all definitions that it refers to."""
    found = {name: known[name]}
    waiting: list[Any] = [known[name]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            inner = str(item.get("$ref", "")).removeprefix(_PREFIX)
            if inner in known and inner not in found:
                found[inner] = known[inner]
                waiting.append(known[inner])
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found
