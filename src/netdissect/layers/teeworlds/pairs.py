"""Which Teeworlds packet answers which, for the method `answers` that Scapy's `sr` uses.

*Source:* docs/protocols/teeworlds.md: handshakes, login and server browser.
"""

from __future__ import annotations

from typing import Any

from scapy.packet import NoPayload

_REQUESTS: dict[str, tuple[str, ...]] = {
    "control.token": ("control.token",),
    "control.accept": ("control.connect", "control.connect_accept"),
    "control.connect_accept": ("control.connect",),
    "control.close": ("control.connect",),
    "sys.map_change": ("sys.info",),
    "sys.map_data": ("sys.request_map_data",),
    "sys.con_ready": ("sys.ready",),
    "game.sv_ready_to_enter": ("game.cl_start_info",),
    "sys.ping_reply": ("sys.ping",),
    "sys.pong_ex": ("sys.ping_ex",),
    "sys.it_is": ("sys.what_is",),
    "sys.i_dont_know": ("sys.what_is",),
    "sys.rcon_auth_status": ("sys.rcon_auth",),
    "sys.rcon_auth_on": ("sys.rcon_auth",),
    "sys.checksum_response": ("sys.checksum_request",),
    "sys.checksum_error": ("sys.checksum_request",),
    "connless.info": ("connless.request_info",),
    "connless.info_extended": ("connless.request_info",),
    "connless.info_64": ("connless.request_info_64",),
    "connless.list": ("connless.request_list",),
    "connless.count": ("connless.request_count",),
}
"""Message -> messages that it answers."""


def is_answer(packet: Any, request: Any) -> bool:
    """Return whether one packet holds the answer to a message of another."""
    requests = set(_types(request))
    return any(not requests.isdisjoint(_REQUESTS.get(name, ())) for name in _types(packet))


def _types(packet: Any) -> list[str]:
    """Return the types of the messages in a packet."""
    body = packet.fields.get("body")
    if body is not None:
        return _named([body])
    control = getattr(packet.payload, "control_name", "")
    if control:
        return [f"control.{control}"]
    chunks = () if isinstance(packet.payload, NoPayload) else packet.payload.fields.get("chunks")
    return _named([chunk.fields.get("body") for chunk in chunks or ()])


def _named(bodies: list[Any]) -> list[str]:
    rows = [getattr(body, "row", None) for body in bodies]
    return [str(row.type) for row in rows if row is not None]
