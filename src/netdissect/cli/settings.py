"""Settings from files and the environment. Precedence: flag, environment, project file, user file,
default.

The user's file is `netdissect/config.toml` in the configuration folder (XDG_CONFIG_HOME, else
`~/.config`); the project's is `netdissect.toml` in the working folder or the nearest folder above
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdissect.model.errors import UsageError

__all__ = ["KEYS", "Key", "Setting", "default_map", "settings", "user_file"]

PROJECT_NAME = "netdissect.toml"
_KINDS = {
    "str": "a text", "int": "a number", "list": "a list of texts", "dict": "a table of texts",
}  # fmt: skip
_SGR = re.compile(r"\d{1,3}(;\d{1,3})*|")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting that exists."""

    name: str
    """Dotted name in the files."""
    kind: type
    """`str`, `int`, `list` (of texts) or `dict` (text to text)."""
    option: str | None
    """Option of the commands that it is the default of; None where no flag exists."""
    environment: str | None
    """Environment variable; lists are separated by commas."""
    default: Any
    """Value without any file."""
    meaning: str
    """One line."""


KEYS: tuple[Key, ...] = (
    Key("output.color", str, "color", "NETDISSECT_COLOR", "auto", "auto, always or never"),
    Key("output.time", str, "times", "NETDISSECT_TIME", "r", "style of times: r, d, a, u or e"),
    Key(
        "decode.ports", dict, "decode_as", "NETDISSECT_DECODE_AS", {}, "port -> protocol or dialect"
    ),
    Key(
        "decode.dialects",
        list,
        "dialect",
        "NETDISSECT_DIALECTS",
        [],
        "dialects to use for their protocols",
    ),
    Key(
        "decode.disabled",
        list,
        "disable_protocol",
        "NETDISSECT_DISABLED",
        [],
        "protocols not to look for",
    ),
    Key(
        "decode.schemas",
        list,
        "schema",
        "NETDISSECT_SCHEMAS",
        [],
        "schema files, relative to the file",
    ),
    Key(
        "decode.byte_order",
        str,
        "byte_order",
        "NETDISSECT_BYTE_ORDER",
        None,
        "little or big, where a format leaves it open; else found out",
    ),
    Key(
        "decode.inflate_limit",
        int,
        "inflate_limit",
        "NETDISSECT_INFLATE_LIMIT",
        1 << 20,
        "octets of one inflated message at most",
    ),
    Key(
        "decode.inflate_ratio",
        int,
        "inflate_ratio",
        "NETDISSECT_INFLATE_RATIO",
        200,
        "octets of one inflated message at most, as a multiple of its size",
    ),
    Key("endpoints", dict, None, None, {}, '"address:port" or address -> name to show'),
    Key("colors", dict, None, None, {}, 'style name -> SGR parameters, such as error = "1;31"'),
)
"""Every setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force."""

    key: Key
    value: Any
    origin: str
    """`default`, `environment NAME`, or `user FILE` / `project FILE`."""


def user_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the user's file is, whether or not it exists."""
    environ = os.environ if environ is None else environ
    folder = environ.get("XDG_CONFIG_HOME")
    base = Path(folder) if folder else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return base / "netdissect" / "config.toml"


def project_file() -> Path | None:
    """Return the nearest project file, from the working folder upwards."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    return next(
        (
            folder / PROJECT_NAME
            for folder in (here, *here.parents)
            if (folder / PROJECT_NAME).is_file()
        ),
        None,
    )


def settings(environ: Mapping[str, str] | None = None) -> list[Setting]:
    """Return every setting in force, in the order of KEYS.

    Raises:
        UsageError: a file is no TOML, or a key is unknown or of the wrong kind.

    """
    environ = os.environ if environ is None else environ
    layers: list[tuple[str, Path, dict[str, Any]]] = []
    for name, path in (("user", user_file(environ)), ("project", project_file())):
        if path is not None and path.is_file():
            layers.append((name, path, _read(path)))
    return [_in_force(key, layers, environ) for key in KEYS]


def _in_force(
    key: Key, layers: list[tuple[str, Path, dict[str, Any]]], environ: Mapping[str, str]
) -> Setting:
    text = environ.get(key.environment) if key.environment else None
    if text is not None:
        return Setting(key, _parsed(key, text), f"environment {key.environment}")
    setting = Setting(key, key.default, "default")
    for name, path, values in layers:
        if key.name not in values:
            continue
        value = values[key.name]
        if key.kind is dict and isinstance(setting.value, dict):
            value = {**setting.value, **value}
        if key.name == "decode.schemas":
            value = [str(path.parent / Path(item).expanduser()) for item in value]
        setting = Setting(key, value, f"{name} {path}")
    return setting


def _parsed(key: Key, text: str) -> Any:
    if key.kind is str:
        return text
    if key.kind is int:
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{key.environment} must be a number, not {text!r}") from None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if key.kind is list:
        return words
    return dict(word.split("=", 1) for word in words if "=" in word)


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - only where a file exists

    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    kinds = {key.name: key.kind for key in KEYS}
    found: dict[str, Any] = {}
    for section, values in tree.items():
        if section in kinds:
            found[section] = values
        elif isinstance(values, dict):
            found.update({f"{section}.{name}": value for name, value in values.items()})
        else:
            found[section] = values
    for name, value in found.items():
        if name not in kinds:
            raise UsageError(f"{path}: no setting is called {name}; known: {', '.join(kinds)}")
        _check(path, name, kinds[name], value)
    return found


def _check(path: Path, name: str, kind: type, value: Any) -> None:
    texts = (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if wrong or not all(isinstance(item, str) for item in texts):
        wanted = _KINDS[kind.__name__]
        raise UsageError(f"{path}: {name} must be {wanted}")
    if name == "colors" and isinstance(value, dict):
        for style, code in value.items():
            if not _SGR.fullmatch(code):
                raise UsageError(
                    f"{path}: colors.{style} is written as SGR parameters, such as 1;31"
                )


def in_force() -> dict[str, Any]:
    """Return the values of this run by key name."""
    return {setting.key.name: setting.value for setting in settings()}


def default_map() -> dict[str, Any]:
    """Return the defaults of the commands' options, in click's spelling."""
    values: dict[str, Any] = {}
    for setting in settings():
        if setting.key.option is None or setting.origin == "default":
            continue
        value = setting.value
        if setting.key.option == "decode_as":
            value = [
                f"{kind}.port=={port},{name}"
                for port, name in value.items()
                for kind in ("udp", "tcp")
            ]
        values[setting.key.option] = value
    return values
