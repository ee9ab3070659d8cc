"""The message table of Teeworlds: ids, names, directions, fields.

The rows come from `data/teeworlds.messages.json`, the only place that describes the messages. A
*family* is a set of messages with one numbering: `0.6` (also for 0.6.5) and `0.7`. The rows of
DDNet extend both by UUIDs, and 0.6 by more ids. Source: docs/protocols/teeworlds.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from typing import Any

from netdissect.wire.teeworlds_forms import CONNLESS_HEAD, CONTROL_NAMES, MAGIC_OCTETS

CLIENT, SERVER = 0, 1


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of the table."""

    kind: str
    """`sys`, `game` or `connless`."""
    name: str
    """Name without the kind."""
    number: int
    """Message id; 0 for a message that a UUID identifies."""
    uuid: bytes
    """16 bytes, or none."""
    sender: int | None
    """0 client, 1 server, None: both, or nobody."""
    vital: bool | None
    """True: receivers require a vital chunk; None: not stated."""
    fields: tuple[dict[str, Any], ...]
    """Rows of the fields, as in the table."""
    dialect: str
    """Dialect of the row: `0.6`, `0.7` or `ddnet-0.6`."""

    @property
    def type(self) -> str:
        """Return the type of the message: `sys.input`."""
        return f"{self.kind}.{self.name}"

    @property
    def head(self) -> int:
        """Return the first integer of the message: id << 1 | system bit."""
        return self.number << 1 | (self.kind == "sys")


@cache
def table() -> dict[str, Any]:
    """Return the table as it is in the file."""
    # `importlib.resources` would import a dozen modules for this.
    text = get_data("netdissect", "data/teeworlds.messages.json") or b""
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _uuid(entry: dict[str, Any]) -> bytes:
    """Return the UUID of a message or object; no bytes if it has none."""
    return bytes.fromhex((entry.get("uuid") or "").replace("-", ""))


def _row(entry: dict[str, Any]) -> MessageRow:
    return MessageRow(
        entry["kind"],
        entry["name"],
        entry.get("id") or 0,
        _uuid(entry),
        {"client": CLIENT, "server": SERVER}.get(entry["from"] or ""),
        entry.get("vital"),
        tuple(entry["fields"]),
        entry["dialect"],
    )


@cache
def _rows() -> tuple[MessageRow, ...]:
    found = table()
    return tuple(_row(entry) for entry in (*found["system"], *found["game"]))


@cache
def message_rows(family: str) -> dict[int, MessageRow]:
    """Return first integer -> row of the messages of a family that have an id.

    Id 0 is left out, because a UUID follows it. The rows of DDNet with an id belong to 0.6.
    """
    wanted = ("0.6", "ddnet-0.6") if family == "0.6" else (family,)
    return {row.head: row for row in _rows() if row.dialect in wanted and row.number}


@cache
def uuid_rows() -> dict[bytes, MessageRow]:
    """Return UUID -> row of the messages with one; DDNet servers send them in every dialect."""
    return {row.uuid: row for row in _rows() if row.uuid}


@cache
def secrets() -> dict[str, tuple[str, ...]]:
    """Return message type -> its fields that hold passwords."""
    return {
        row.type: ("password",)
        for row in _rows()
        if any(field["name"] == "password" for field in row.fields)
    }


@cache
def connless_rows(family: str) -> dict[bytes, MessageRow]:
    """Return magic bytes -> row of the connless messages of a family; DDNet's belong to 0.6."""
    wanted = ("0.6", "ddnet-0.6") if family == "0.6" else (family,)
    return {
        bytes.fromhex(entry["magic"]): _row(entry)
        for entry in table()["connless"]
        if entry["dialect"] in wanted
    }


def connless_row(payload: bytes, family: str) -> MessageRow | None:
    """Return the row of a connectionless packet; None if it is unknown."""
    start = CONNLESS_HEAD[family]
    return connless_rows(family).get(payload[start : start + MAGIC_OCTETS])


@cache
def object_rows(family: str) -> dict[int | bytes, dict[str, Any]]:
    """Return type -> snapshot object of a family, and UUID -> object of DDNet."""
    found: dict[int | bytes, dict[str, Any]] = {}
    for entry in table()["snap_objects"]:
        if entry["dialect"] == family:
            found[entry["type_id"]] = entry
        elif entry.get("uuid"):
            found[_uuid(entry)] = entry
    return found


def object_named(name: str, family: str) -> dict[str, Any]:
    """Return the snapshot object of a family that has this name."""
    return next(row for row in object_rows(family).values() if row["name"] == name)


@cache
def uuid_names() -> dict[bytes, str]:
    """Return UUID -> name that it is derived from (`what-is@ddnet.tw`), of all known UUIDs."""
    loaded = table()
    rows = (*loaded["system"], *loaded["game"], *loaded["snap_objects"])
    return {_uuid(row): row["uuid_name"] for row in rows if row.get("uuid")}


@cache
def type_names(family: str) -> tuple[str, ...]:
    """Return all message types that dialects of a family can report, sorted."""
    tables = message_rows(family), uuid_rows(), connless_rows(family)
    names = {row.type for rows in tables for row in rows.values()}
    return tuple(sorted(names | {f"control.{name}" for name in CONTROL_NAMES[family].values()}))
