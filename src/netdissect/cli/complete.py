"""Shell completion of files, interfaces, protocols, field names, and fields in a filter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, ShellComplete, add_completion_class


@add_completion_class
class _Bash(BashComplete):
    def source(self) -> str:
        """Return the script without click's version check, which runs `bash` from PATH."""
        return ShellComplete.source(self)


def _protocols() -> list[str]:
    from netdissect.lookup import protocol_names  # noqa: PLC0415

    return protocol_names()


def _fields() -> list[str]:
    from netdissect.filters import BUILTIN_FIELDS  # noqa: PLC0415
    from netdissect.lookup import field_table  # noqa: PLC0415

    own = [f"{protocol}.{name}" for protocol, names in field_table().items() for name in names]
    return [info.name for info in BUILTIN_FIELDS] + sorted(own)


if TYPE_CHECKING:
    _TextType = click.ParamType[Any]
else:  # generic since click 8.2 only
    _TextType = click.ParamType


class _Completed(_TextType):
    """Text that is completed from a list."""

    name = "text"

    def __init__(self, what: str) -> None:
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text unchanged; the name of a file is not empty."""
        if self.what == "file" and value == "":
            self.fail("the name of a file cannot be empty.", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the possible completions."""
        if self.what == "file":
            return offer_files(ctx, param, incomplete)
        if self.what in _NAMES:
            names = _NAMES[self.what]()
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        # Complete the last word of the filter only.
        match = re.search(r"[\w.]*\Z", incomplete)
        word = match[0] if match else ""
        before = incomplete[: len(incomplete) - len(word)]
        return [CompletionItem(before + name) for name in _fields() if name.startswith(word)]


def offer_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete file names."""
    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def _interfaces() -> list[str]:
    import socket  # noqa: PLC0415

    return [*(name for _, name in socket.if_nameindex()), "any"]


def _described() -> list[str]:
    from netdissect.export.schema import described_commands  # noqa: PLC0415

    return described_commands()


_NAMES: dict[str, Callable[[], list[str]]] = {
    "command": _described,
    "protocol": _protocols,
    "field": _fields,
    "interface": _interfaces,
}

PROTOCOL = _Completed("protocol")
FIELD = _Completed("field")
EXPRESSION = _Completed("expression")
FILE = _Completed("file")
INTERFACE = _Completed("interface")
JSON_COMMAND = _Completed("command")
