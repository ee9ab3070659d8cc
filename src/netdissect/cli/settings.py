"""Settings from files and the environment.

Precedence: option, environment, project file, user file, default. The user file is
`netdissect/config.toml` in the configuration folder (XDG_CONFIG_HOME, otherwise `~/.config`). The
project file is `netdissect.toml` in the working folder or the nearest folder above it. A project
may come from anywhere: its file is only used if no other user can have written it, and it can
neither lift a safety limit nor name a file outside its folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netdissect.model.diagnosis import Limits
from netdissect.model.errors import UsageError, did_you_mean, reason, unknown
from netdissect.model.files import parse_toml, read_text
from netdissect.model.keys import endpoint_text
from netdissect.model.text import quoted
from netdissect.system.accounts import as_caller, home_of_caller, is_private

PROJECT_NAME = "netdissect.toml"
_PREFIX = "NETDISSECT_"
_FINDINGS = "findings."
_KINDS = {
    "str": "a text", "int": "a number", "list": "a list of texts", "dict": "a table of texts",
}  # fmt: skip
_SGR = re.compile(r"[0-9]{1,3}(;[0-9]{1,3})*|")
_ENDPOINT = re.compile(r"(?:\[([^\]]*)\]|([^:]*)):([0-9]{1,9})")
MAX_FILE_OCTETS = 1024 * 1024
"""Maximum size of a settings file in bytes."""


@dataclass(frozen=True, slots=True)
class Key:
    """The description of one setting."""

    name: str
    """Dotted name in the files."""
    kind: type
    """`str`, `int`, `list` (of texts) or `dict` (text to text)."""
    option: str | None
    """Parameter name of the option whose default it sets; None if there is no option."""
    environment: str | None
    """Environment variable; list items are separated by commas."""
    default: Any
    """Value if nothing sets it."""
    meaning: str
    """One line for `netdissect config show`."""
    among: tuple[str, ...] = ()
    """Allowed texts; () = any."""
    most: int | None = None
    """Maximum of a safety limit against hostile captures, which a project file may only lower;
    None = not a safety limit."""
    largest: int | None = None
    """Maximum of any other number."""


KEYS: tuple[Key, ...] = (
    Key("output.color", str, "color", "NETDISSECT_COLOR", "auto", "auto, always or never",
        among=("auto", "always", "never")),
    Key("output.time", str, "times", "NETDISSECT_TIME", "r", "time format: r, d, a, u or e",
        among=("r", "d", "a", "u", "e")),
    Key("decode.ports", dict, "decode_as", "NETDISSECT_DECODE_AS", {},
        "port -> protocol or dialect"),
    Key("decode.dialects", list, "dialect", "NETDISSECT_DIALECTS", [],
        "dialects to use for their protocols"),
    Key("decode.disabled", list, "disable_protocol", "NETDISSECT_DISABLED", [],
        "protocols not to recognise"),
    Key("decode.schemas", list, "schema", "NETDISSECT_SCHEMAS", [],
        "schema files, relative to the file"),
    Key("decode.byte_order", str, "byte_order", "NETDISSECT_BYTE_ORDER", None,
        "little or big; default: detected",
        among=("little", "big")),
    Key("decode.inflate_limit", int, "inflate_limit", "NETDISSECT_INFLATE_LIMIT", 1 << 20,
        "maximum size of an inflated message, bytes", most=1 << 28),
    Key("decode.inflate_ratio", int, "inflate_ratio", "NETDISSECT_INFLATE_RATIO", 200,
        "maximum expansion of an inflated message", most=100_000),
    *(
        Key(f"{_FINDINGS}{name}", int, None, f"NETDISSECT_{name.upper()}",
            getattr(Limits(), name), meaning, largest=largest)
        for name, largest, meaning in (
            ("high_loss", 100, "report loss above this percentage"),
            ("burst_loss", 1024, "report this many missing numbers in a row"),
            ("high_resend", 100, "report retransmissions above this percentage"),
            ("rtt_spike", 600_000, "report round trips this far above the usual, ms"),
            ("jitter", 600_000, "report 5% of round trips this far above the median, ms"),
            ("slow_receiver", 600_000, "report windows closed this long in total, ms"),
            ("late_delivery", 600_000, "report units delivered this late, ms"),
            ("rate_limited", 3_600, "report this long at a rate limit, seconds"),
        )
    ),
    Key("endpoints", dict, None, None, {}, '"address:port" or address -> displayed name'),
    Key("colors", dict, None, None, {}, 'style name -> SGR parameters, such as error = "1;31"'),
)  # fmt: skip
"""Every setting."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force."""

    key: Key
    value: Any
    origin: str
    """`default`, `environment NAME`, or `user FILE` / `project FILE`."""


@dataclass(slots=True)
class Settings:
    """The settings in force, and notes on values that were ignored."""

    rows: list[Setting] = field(default_factory=list)
    """Every setting, in the order of KEYS."""
    ignored: list[str] = field(default_factory=list)
    """A sentence for each file, value or variable that was not used."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """The values of one file."""

    name: str
    """`user` or `project`."""
    path: Path
    values: dict[str, Any]


def user_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user file, whether or not it exists."""
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("XDG_CONFIG_HOME") or "")
    if not folder.is_absolute():  # a relative one may have been filled by somebody else
        try:
            home = Path(home_of_caller() or environ.get("HOME") or Path.home())
        except RuntimeError:  # no home folder is known
            home = Path()
        folder = Path("/") / (home if home.is_absolute() else "") / ".config"
    return folder / "netdissect" / "config.toml"


@as_caller()
def _project_file() -> Path | None:
    """Return the nearest project file, from the working folder upwards."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    for folder in (here, *here.parents):
        path = folder / PROJECT_NAME
        try:
            if not stat.S_ISDIR(path.stat().st_mode):
                return path
        except OSError:
            continue
    return None


@as_caller()
def _distrust(path: Path) -> str | None:
    """Return why a project file is not read; None if it is a file that only this user can have
    written.
    """
    # Write permission on the folder suffices to replace the file.
    user = os.geteuid()
    for place, name in ((path, "it"), (path.parent, "its folder")):
        try:
            facts = place.stat()
        except OSError as error:
            return f"{name} cannot be examined ({error.strerror})"
        if place == path and not stat.S_ISREG(facts.st_mode):
            return "it is not a regular file"
        # Root is trusted: it could change this program as well.
        if facts.st_uid not in {user, 0}:
            return f"{name} belongs to another user"
        shared = facts.st_mode & stat.S_IWGRP and not is_private(facts.st_gid)
        if shared or facts.st_mode & stat.S_IWOTH:
            return f"{name} is writable by other users"
    return None


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return every setting in force, in the order of KEYS, and what was ignored.

    Raises:
        UsageError: a file is not TOML, or a key or variable is unknown or has a wrong value.

    """
    environ = os.environ if environ is None else environ
    found = Settings()
    layers: list[_Layer] = []
    for name, path in (("user", user_file(environ)), ("project", _project_file())):
        if path is None:
            continue
        distrust = _distrust(path) if name == "project" else None
        if distrust is not None:
            found.ignored.append(f"{path} is ignored: {distrust}")
            continue
        try:
            layers.append(_Layer(name, path, _read(path)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.ignored.append(f"{path} is ignored: {error.strerror}")
    for key in KEYS:
        found.rows.append(_in_force(key, layers, environ, found.ignored))
    found.ignored += _misspelt(environ)
    return found


def _misspelt(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable whose name resembles that of a setting."""
    known = {key.environment.removeprefix(_PREFIX) for key in KEYS if key.environment}
    for name in sorted(environ):
        word = name.removeprefix(_PREFIX)
        if word != name and word not in known and (near := did_you_mean(word, known)):
            yield f"{name} is ignored: no setting has that name{near}"


def _in_force(
    key: Key, layers: list[_Layer], environ: Mapping[str, str], ignored: list[str]
) -> Setting:
    text = environ.get(key.environment) if key.environment else None
    if text is not None:
        value = _parsed(key, text)
        _check(str(key.environment), key, value)
        return Setting(key, value, f"environment {key.environment}")
    setting = Setting(key, key.default, "default")
    for layer in layers:
        if key.name not in layer.values:
            continue
        value = layer.values[key.name]
        if key.name == "decode.schemas":
            value = list(_schemas(layer, value, ignored))
        # `setting` is what is in force so far: the default, or the value of the user file.
        if layer.name == "project" and key.most is not None and value > setting.value:
            ignored.append(
                f"{layer.path}: {key.name} = {value} is ignored: a project file cannot raise this"
                f" limit above {setting.value}"
            )
            continue
        if key.kind is dict and isinstance(setting.value, dict):
            # Tables are merged; everything else is replaced.
            value = {**setting.value, **value}
        setting = replace(setting, value=value, origin=f"{layer.name} {layer.path}")
    return setting


def _schemas(layer: _Layer, names: list[str], ignored: list[str]) -> Iterator[str]:
    """Yield the paths of schema files; their names are relative to the settings file."""
    folder = layer.path.parent
    for name in names:
        try:
            path = folder / Path(name).expanduser()
        except RuntimeError:
            raise UsageError(f"{layer.path}: decode.schemas: {name}: no such user") from None
        try:
            inside = path.resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):
            raise UsageError(f"{layer.path}: decode.schemas: {name}: no such file") from None
        if layer.name == "project" and not inside:
            ignored.append(
                f"{layer.path}: schema {name} is ignored: it is outside the project's folder"
            )
            continue
        yield str(path)


def _parsed(key: Key, text: str) -> Any:
    """Return the value of an environment variable, converted to the setting's kind."""
    if key.kind is str:
        return text
    if key.kind is int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
            raise UsageError(f"{key.environment} must be a number, not {quoted(text)}")
        return int(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if key.kind is list:
        return words
    if bad := [word for word in words if "=" not in word]:
        raise UsageError(f"{key.environment}: {quoted(bad[0])} is not KEY=VALUE")
    return dict(word.split("=", 1) for word in words)


def _read(path: Path) -> dict[str, Any]:
    """Return the values of a file by dotted name, checked against KEYS."""
    try:
        with as_caller():  # with the rights of the user who called sudo
            text = read_text(path, MAX_FILE_OCTETS)
        tree = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: {reason(error)}") from error
    keys = {key.name: key for key in KEYS}
    found: dict[str, Any] = {}
    for section, values in tree.items():
        if section in keys or not isinstance(values, dict):
            found[section] = values
        else:
            found.update({f"{section}.{name}": value for name, value in values.items()})
    for name, value in found.items():
        if name not in keys:
            raise UsageError(f"{path}: {unknown('setting', name, keys)}")
        _check(f"{path}: {name}", keys[name], value)
    return found


def _check(where: str, key: Key, value: Any) -> None:
    """Raise UsageError for an invalid value; `where` names the file or variable."""
    texts = list(value.values()) if isinstance(value, dict) else value
    texts = texts if isinstance(texts, list) else []
    # In Python, bool is a subclass of int.
    wrong = not isinstance(value, key.kind) or isinstance(value, bool)
    if wrong or not all(isinstance(item, str) for item in texts):
        raise UsageError(f"{where} must be {_KINDS[key.kind.__name__]}")
    if key.among and value not in key.among:
        allowed = ", ".join(key.among)
        raise UsageError(f"{where} must be one of {allowed}, not {quoted(value)}")
    largest = key.largest if key.most is None else key.most
    if largest is not None and not 1 <= value <= largest:
        raise UsageError(f"{where} must be 1 to {largest}, not {value}")
    if key.name == "colors":
        _check_colors(where, value)
    elif key.name == "endpoints":
        _check_endpoints(where, value)


def _check_colors(where: str, codes: dict[str, str]) -> None:
    from netdissect.render.console import STYLES  # noqa: PLC0415 - only where a setting names one

    for style, code in codes.items():
        if style not in STYLES:
            raise UsageError(f"{where}: {unknown('style', style, STYLES)}")
        if not _SGR.fullmatch(code):
            raise UsageError(f"{where}.{style} must be SGR parameters, such as 1;31")


def _check_endpoints(where: str, names: dict[str, str]) -> None:
    """Raise UsageError for a key that no displayed endpoint equals: it would never be used."""
    from ipaddress import ip_address  # noqa: PLC0415 - only where a setting names one

    for end in names:
        match = _ENDPOINT.fullmatch(end)
        try:
            address = str(ip_address(end if match is None else match[1] or match[2]))
        except ValueError:
            raise UsageError(
                f"{where}: {quoted(end)} is neither an address nor address:port"
            ) from None
        if match is None:
            meant = address
        elif int(match[3]) > 0xFFFF:  # noqa: PLR2004
            raise UsageError(f"{where}: {quoted(end)}: ports are 0 to 65535")
        else:
            meant = endpoint_text(address, int(match[3]))
        if end != meant:
            raise UsageError(f"{where}: write {quoted(end)} as {quoted(meant)}")


def in_force() -> dict[str, Any]:
    """Return the settings of this run: dotted name -> value."""
    return {setting.key.name: setting.value for setting in load().rows}


def limits() -> Limits:
    """Return the thresholds of findings in this run."""
    values = {name.removeprefix(_FINDINGS): value for name, value in in_force().items()
              if name.startswith(_FINDINGS)}  # fmt: skip
    return Limits(**values)


def default_map(found: Settings) -> dict[str, Any]:
    """Return the defaults of options by parameter name, in the form that click expects.

    Raises:
        UsageError: a setting names a protocol or dialect that does not exist.

    """
    values: dict[str, Any] = {}
    for setting in found.rows:
        option = setting.key.option
        if option is None or setting.origin == "default":
            continue
        value = setting.value
        if option == "decode_as":
            ports = [(kind, port) for port in value for kind in ("udp", "tcp")]
            value = [f"{kind}.port=={port},{value[port]}" for kind, port in ports]
        _check_names(setting, option, value)
        values[option] = value
    return values


def blamed(found: Settings, error: UsageError) -> UsageError:
    """Return an error about a schema with the setting that names the file, if one does."""
    row = next(row for row in found.rows if row.key.name == "decode.schemas")
    places = tuple(f"{path}: " for path in row.value)
    if row.origin == "default" or not str(error).startswith(places):
        return error
    return UsageError(f"{row.key.name} ({row.origin}): {error}")


def _check_names(setting: Setting, option: str, value: Any) -> None:
    """Raise UsageError for unknown protocols and dialects, naming the setting and its origin."""
    if option not in {"decode_as", "dialect", "disable_protocol"} or not value:
        return
    from netdissect import lookup  # noqa: PLC0415 - only where a setting names something
    from netdissect.pipeline import decode_as  # noqa: PLC0415

    try:
        if option == "decode_as":
            for rule in value:
                decode_as(rule)
        elif option == "dialect":
            lookup.chosen_dialects(value)
        else:
            lookup.known_protocols(value)
    except UsageError as error:
        raise UsageError(f"{setting.key.name} ({setting.origin}): {error}") from None
