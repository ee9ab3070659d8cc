"""The plan file of `fuzz`: options under their long names, and oracles, as TOML.

The user names it on the command line, so commands in it are trusted and run.
"""

from __future__ import annotations

from typing import Any

import click

from netdissect.model.errors import UsageError, reason, unknown
from netdissect.model.files import parse_toml, read_text

MAX_PLAN_OCTETS = 1 << 20
ORACLES = {
    "latency_ms": "latency:{}",
    "memory_mib": "memory:{}",
    "cpu_percent": "cpu:{}",
    "rules": "rules",
    "log": "log:{}",
}
"""Key of the table `oracles` -> the corresponding monitor."""
_PLURALS = {"monitors": "monitor", "types": "type", "mutators": "mutator"}
_OF_THE_COMMAND_LINE = frozenset(
    {"plan", "help", "debug", "i-own-this-host", "json", "color", "width", "quiet", "verbose"}
)


def read_plan(path: str, command: click.Command) -> dict[str, Any]:
    """Return the defaults for a command's parameters from a plan file.

    Raises:
        UsageError: the file is missing or not TOML, or a key or value is wrong.

    """
    from netdissect.fuzz.target import Target  # noqa: PLC0415
    from netdissect.lookup import known_protocols  # noqa: PLC0415 - imports scapy

    try:
        data = parse_toml(read_text(path, MAX_PLAN_OCTETS))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {reason(error)}") from error
    known = _keys(command)
    oracles = data.pop("oracles", {})
    values: dict[str, Any] = {}
    for key, value in data.items():
        param = known.get(_PLURALS.get(key, key).replace("_", "-"))
        if param is None:
            allowed = sorted([*known, "oracles"])
            raise UsageError(f"{path}: {unknown('key', key, allowed)}")
        where = f"{path}: {key}"
        values[str(param.name)] = found = _value(where, param, value)
        try:
            if key == "target":
                Target.parse(found, own_host=True)  # whether it is, the command line says
            elif key == "protocol":
                known_protocols([found])
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
    monitors = [*values.get("monitors", ()), *_monitors(path, oracles)]
    return {**values, "monitors": monitors} if monitors else values


def _keys(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters that a plan may set, by the long names of the options."""
    found: dict[str, click.Parameter] = {}
    for param in command.params:
        names = [name.lstrip("-") for name in (*param.opts, *param.secondary_opts)]
        long = names[0] if isinstance(param, click.Argument) else max(names, key=len)
        if long not in _OF_THE_COMMAND_LINE:
            # `--no-feedback` is `feedback = false` in a plan.
            found[long.removeprefix("no-")] = param
    return found


def _value(where: str, param: click.Parameter, value: Any) -> Any:
    """Return a value in the form that click takes from a command line."""
    if getattr(param, "is_flag", False):
        if not isinstance(value, bool):
            raise UsageError(f"{where} must be true or false")
        return value
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in texts):
        raise UsageError(f"{where} must be a text or a number, or a list of them")
    several = getattr(param, "multiple", False)
    if isinstance(value, list) and not several:
        raise UsageError(f"{where} takes one value")
    given = [str(each) for each in texts]
    try:
        for each in given:
            param.type.convert(each, param, None)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message}") from None
    return given if several else given[0]


def _monitors(path: str, oracles: Any) -> list[str]:
    if not isinstance(oracles, dict):
        raise UsageError(f"{path}: oracles must be a table: [oracles]")
    found = []
    for key, value in oracles.items():
        pattern = ORACLES.get(key)
        if pattern is None:
            raise UsageError(f"{path}: {unknown('oracle', key, ORACLES)}")
        if "{}" not in pattern:
            if not isinstance(value, bool):
                raise UsageError(f"{path}: oracles.{key} must be true or false")
            found += [pattern] if value else []
        elif isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"{path}: oracles.{key} must be a whole number, or a text for log")
        else:
            found.append(pattern.format(value))
    return found
