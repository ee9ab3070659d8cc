"""A line about each Teeworlds message. The text is not yet made safe for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

from netdissect.dissect.walker import node_fields
from netdissect.model.dissection import MASK, FieldNode, MessageView
from netdissect.wire.teeworlds import secrets

_MAX_VALUE = 60
"""Maximum number of characters of a value in a list of fields."""
_MAX_TEXT = 256
"""Maximum number of characters of a line with a text, which is enough for a chat message."""
_HIDDEN = frozenset(
    ("message_id", "message_uuid", "magic_octets", "control_id", "trailing", "input", "padding",
     "padding_a", "padding_b", "data", "player_input", "control", "body_len", "magic", "size")
)  # fmt: skip
"""Fields that a line leaves out."""

_WEAPONS = {-3: "by the game", -2: "by itself", -1: "by the world", 0: "with the hammer",
            1: "with the gun", 2: "with the shotgun", 3: "with the grenade", 4: "with the laser",
            5: "as a ninja"}  # fmt: skip
_TEAM_CHAT, _WHISPER = 2, 3
"""Modes of chat in 0.7. In 0.6, DDNet uses 2 and 3 for whispers sent and received."""


def _player(number: int) -> str:
    return f"player {number}" if number >= 0 else "the server"


def _input(fields: dict[str, Any]) -> str:
    """Return the player's input: direction, keys, number of shots (odd = pressed), aim."""
    keys = fields["player_input"]
    parts = [{-1: "left", 0: "stands", 1: "right"}.get(keys["direction"], str(keys["direction"]))]
    parts += [name for name in ("jump", "hook") if keys[name]]
    parts += [f"fire {keys['fire']}"] if keys["fire"] else []
    parts += [f"weapon {keys['wanted_weapon']}"] if keys["wanted_weapon"] else []
    ack = fields["ack_game_tick"]
    acks = "asks for a full snapshot" if ack < 0 else f"acks snapshot {ack}"
    aim = f"aims at {keys['target_x']},{keys['target_y']}"
    return f"input tick {fields['intended_tick']}, {acks}: {', '.join(parts)}, {aim}"


def _timing(fields: dict[str, Any]) -> str:
    left = fields["time_left"]
    how = f"had {left} ms left" if left >= 0 else f"came {-left} ms late"
    return f"input {fields['intended_tick']} {how}"


def _kill(fields: dict[str, Any]) -> str:
    killer, victim = fields["killer"], fields["victim"]
    how = _WEAPONS.get(fields["weapon"], f"with weapon {fields['weapon']}")
    if killer == victim:
        return f"player {victim} dies {how}"
    return f"{_player(killer)} kills player {victim} {how}"


def _chat(fields: dict[str, Any]) -> str:
    whom = _whom(fields, fields.get("target_id"))
    return f"chat of {_player(fields['client_id'])}{whom}: {fields['message']}"


def _say(fields: dict[str, Any]) -> str:
    return f"says{_whom(fields, fields.get('target'))}: {fields['message']}"


def _whom(fields: dict[str, Any], target: object) -> str:
    """Return to whom a line of chat is sent, "" for everybody."""
    # 0.7 has a mode, 0.6 only a flag for the team.
    mode = fields["mode"] if "mode" in fields else _TEAM_CHAT * (fields["team"] == 1)
    return {_TEAM_CHAT: " to the team", _WHISPER: f" to {target} alone"}.get(mode, "")


def _vote_set(fields: dict[str, Any]) -> str:
    if not fields["timeout"]:
        return "no vote runs any more"
    return f"vote: {fields['description']} ({fields['reason']}), {fields['timeout']} s"


def _vote(fields: dict[str, Any]) -> str:
    return {1: "votes yes", -1: "votes no"}.get(fields["vote"], f"votes {fields['vote']}")


def _vote_options(fields: dict[str, Any]) -> str:
    listed = fields.get("descriptions")
    if listed is None:
        listed = [text for name, text in fields.items() if name.startswith("description")]
    texts = [str(text) for text in listed[: max(0, fields["num_options"])]]
    return f"{len(texts)} vote options: {', '.join(texts)}"


def _map_data(fields: dict[str, Any]) -> str:
    chunk = f" {fields['chunk']}" if "chunk" in fields else ""
    last = ", the last" if fields.get("last") else ""
    return f"map data{chunk}, {len(fields['data'])} bytes{last}"


def _map_asked(fields: dict[str, Any]) -> str:
    return f"asks for map data {fields['chunk']}" if "chunk" in fields else "asks for map data"


def _rcon_login(fields: dict[str, Any]) -> str:
    name = f" as {fields['name']}" if fields.get("name") else ""
    return f"rcon login{name}, password {fields['password'] or 'empty'}"


def _rcon_status(fields: dict[str, Any]) -> str:
    return f"rcon login {'accepted' if fields['authed'] else 'ended'}"


def _info(fields: dict[str, Any]) -> str:
    kind = f", {fields['gametype']}" if fields.get("gametype") else ""
    most = f" of {fields['max_clients']}" if "max_clients" in fields else ""
    players = f", {fields['num_players']} playing" if "num_players" in fields else ""
    return (
        f"server {fields['name']}: map {fields['map']}{kind}, "
        f"{fields['num_clients']}{most} clients{players}"
    )


def _servers(fields: dict[str, Any]) -> str:
    servers = fields["servers"]
    shown = (f"{_address(server['ip'])}:{server['port']}" for server in servers)
    return f"list of {len(servers)} servers: {', '.join(shown)}"


def _address(octets: bytes) -> str:
    address = IPv6Address(octets)
    return f"[{address}]" if address.ipv4_mapped is None else str(address.ipv4_mapped)


def _close(fields: dict[str, Any]) -> str:
    return f"closes: {fields['reason']}" if fields.get("reason") else "closes"


_LINES: dict[str, str | Callable[[dict[str, Any]], str]] = {
    "sys.input": _input,
    "sys.input_timing": _timing,
    "sys.snap_empty": "snapshot %(tick)s = base %(base)s, nothing changed",
    "sys.snap_single": "snapshot %(tick)s (base %(base)s), %(part_size)s bytes",
    "sys.snap": "snapshot %(tick)s (base %(base)s), part %(part)s of %(num_parts)s,"
                " %(part_size)s bytes",
    "sys.map_change": "map %(name)s, %(size)s bytes",
    "sys.map_data": _map_data,
    "sys.request_map_data": _map_asked,
    "sys.rcon_auth": _rcon_login,
    "sys.rcon_auth_status": _rcon_status,
    "sys.rcon_auth_on": "rcon login accepted",
    "sys.rcon_auth_off": "rcon login ended",
    "sys.rcon_line": "rcon says: %(line)s",
    "sys.rcon_cmd": "rcon command: %(command)s",
    "sys.rcon_cmd_add": "rcon knows %(name)s %(params)s: %(help)s",
    "game.sv_motd": "message of the day: %(message)s",
    "game.sv_broadcast": "broadcast: %(message)s",
    "game.sv_chat": _chat,
    "game.cl_say": _say,
    "game.cl_kill": "kills itself",
    "game.sv_kill_msg": _kill,
    "game.sv_client_drop": "player %(client_id)s leaves: %(reason)s",
    "game.sv_vote_set": _vote_set,
    "game.sv_vote_status": "votes: %(yes)s yes, %(no)s no, %(pass)s pass of %(total)s",
    "game.sv_vote_option_add": "vote option: %(description)s",
    "game.sv_vote_option_list_add": _vote_options,
    "game.sv_vote_option_remove": "no vote option any more: %(description)s",
    "game.cl_call_vote": "calls a vote: %(type)s %(value)s (%(reason)s)",
    "game.cl_vote": _vote,
    "game.sv_client_info": "player %(client_id)s is %(name)s",
    "control.close": _close,
    "connless.request_info": "asks for server info, token %(token)s",
    "connless.request_info_64": "asks for server info with 64 players, token %(token)s",
    "connless.request_list": "asks for the list of servers",
    "connless.request_count": "asks for the number of servers",
    "connless.list": _servers,
    "connless.count": "%(count)s servers",
    "connless.heartbeat": "server at port %(alt_port)s is there",
    "connless.info_extended_more": "more players of a server, packet %(packet_no)s",
    "connless.info": _info,
    "connless.info_64": _info,
    "connless.info_extended": _info,
    "sys.server_info": _info,
}
"""Type -> format of the line, or function that returns it. For other types, fields are listed. The
formats are for `%`, which takes a quarter of the instructions of `format_map`.
"""


def message_line(message: MessageView, chunk: FieldNode | None) -> str:
    """Return the line about a message, with passwords masked; `chunk` is the node around it."""
    node = message.node
    message.fields = {} if node is None else node_fields(node)
    fields = dict(message.fields)
    for name in secrets().get(message.type, ()):
        if fields.get(name):
            fields[name] = MASK
    if "delta" in fields and "tick" in fields:
        fields["base"] = _base(fields["tick"], fields["delta"])
    line = _LINES.get(message.type)
    try:
        if line is None:
            text = _listed(message.type, fields)
        else:
            text = line % fields if isinstance(line, str) else line(fields)
            text = _cut(text, _MAX_TEXT)
    except (KeyError, TypeError, ValueError):  # a field that could not be read
        text = _listed(message.type, fields)
    return text + _marks(chunk)


def _base(tick: int, delta: int) -> str:
    # A snapshot without a base has a delta to tick -1.
    return "none" if delta == tick + 1 else str(tick - delta)


def _cut(value: Any, most: int = _MAX_VALUE) -> str:
    text = value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _listed(kind: str, fields: dict[str, Any]) -> str:
    shown = " ".join(
        f"{name}={_cut(value)}"
        for name, value in fields.items()
        if name not in _HIDDEN and not isinstance(value, (dict, list))
    )
    return f"{kind} {shown}".rstrip()


def _marks(chunk: FieldNode | None) -> str:
    """Return the sequence number of a vital chunk, and whether its sender marks it as resent."""
    if chunk is None:
        return ""
    vital, resend = chunk.field("vital"), chunk.field("resend")
    if vital is None or not vital.value:
        return ""
    again = ", resent" if resend is not None and resend.value else ""
    return f" [vital {chunk.value_of('sequence')}{again}]"
