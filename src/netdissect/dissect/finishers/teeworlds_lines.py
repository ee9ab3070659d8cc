"""One line per Teeworlds message, for people. The text is not yet made safe for a terminal."""

from __future__ import annotations

from typing import Any

from netdissect.dissect.walker import node_fields
from netdissect.model.dissection import MASK, Dissection, FieldNode, MessageView
from netdissect.wire.teeworlds import secrets

__all__ = ["message_line"]

_MAX_VALUE = 60
"""Characters shown of one value."""
_HIDDEN = frozenset(
    ("message_id", "message_uuid", "magic_octets", "control_id", "trailing", "input", "padding",
     "padding_a", "padding_b", "data", "player_input", "control", "body_len", "magic", "size")
)  # fmt: skip
"""Fields that say nothing to people in a line."""

_LINES: dict[str, str] = {
    "sys.input": "input tick {intended_tick}, acks snapshot {ack_game_tick}",
    "sys.input_timing": "input {intended_tick} had {time_left} ms left",
    "sys.snap_empty": "snapshot {tick} = base {base}, nothing changed",
    "sys.snap_single": "snapshot {tick} (base {base}), {part_size} octets",
    "sys.snap": "snapshot {tick} (base {base}), part {part} of {num_parts}, {part_size} octets",
    "sys.map_change": "map {name}, {size} octets",
    "sys.rcon_line": "rcon says: {line}",
    "sys.rcon_cmd": "rcon command: {command}",
    "game.sv_motd": "message of the day: {message}",
    "game.sv_broadcast": "broadcast: {message}",
    "game.sv_chat": "chat of {client_id}: {message}",
    "game.cl_say": "says: {message}",
    "game.sv_kill_msg": "{killer} kills {victim} with weapon {weapon}",
    "game.sv_client_drop": "player {client_id} leaves: {reason}",
    "game.sv_vote_set": "vote: {description} ({reason}), {timeout} s",
    "game.sv_vote_status": "votes: {yes} yes, {no} no, {pass} pass of {total}",
    "game.cl_call_vote": "calls a vote: {type} {value} ({reason})",
    "game.sv_client_info": "player {client_id} is {name}",
    "connless.info": "server {name}: map {map}, {gametype}, {num_clients} clients",
    "connless.info_64": "server {name}: map {map}, {num_clients} of {max_clients} clients",
    "connless.info_extended": "server {name}: map {map}, {num_clients} of {max_clients} clients",
    "sys.server_info": "server {name}: map {map}, {gametype}, {num_clients} clients",
}
"""Type -> line; every other type lists its fields."""


def message_line(message: MessageView, dissection: Dissection) -> str:
    """Return the line of one message, passwords masked."""
    node = message.node
    fields = {} if node is None else node_fields(node)
    for name in secrets().get(message.type, ()):
        if fields.get(name):
            fields[name] = MASK
    if "delta" in fields and "tick" in fields:
        fields["base"] = _base(fields["tick"], fields["delta"])
    line = _LINES.get(message.type)
    try:
        text = _listed(message.type, fields) if line is None else line.format_map(_Short(fields))
    except KeyError:
        text = _listed(message.type, fields)
    return text + _marks(message, dissection)


def _base(tick: int, delta: int) -> str:
    return "none" if delta == tick + 1 else str(tick - delta)


class _Short(dict[str, Any]):
    """Values cut to a length that leaves room for others."""

    def __getitem__(self, name: str) -> Any:
        return _cut(super().__getitem__(name))


def _cut(value: Any) -> str:
    text = value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def _listed(kind: str, fields: dict[str, Any]) -> str:
    shown = " ".join(
        f"{name}={_cut(value)}"
        for name, value in fields.items()
        if name not in _HIDDEN and not isinstance(value, (dict, list))
    )
    return f"{kind} {shown}".rstrip()


def _marks(message: MessageView, dissection: Dissection) -> str:
    """Return the sequence number of a vital chunk, and that it was sent again."""
    chunk = _chunk_of(message.node, dissection.root)
    if chunk is None:
        return ""
    facts = {child.name: child.value for child in chunk.children}
    if not facts.get("vital"):
        return ""
    return f" [vital {facts.get('sequence')}{', resent' if facts.get('resend') else ''}]"


def _chunk_of(node: FieldNode | None, root: FieldNode) -> FieldNode | None:
    chunks = next((child for child in root.children if child.name == "chunks"), None)
    if chunks is None or node is None:
        return None
    return next(
        (chunk for chunk in chunks.children if any(child is node for child in chunk.children)), None
    )
