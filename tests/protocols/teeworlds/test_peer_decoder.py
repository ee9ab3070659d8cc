"""Side by side with twnet_parser: for every datagram that both can read, the same messages and values."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest

from agreement import captures
from netdissect.dissect.engine import Request, dissect
from netdissect.flow import Decapsulator
from netdissect.pipeline import opened
from netdissect.pipeline.stages import Pipeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peer = pytest.importorskip("twnet_parser.packet")
    ParserError = pytest.importorskip("twnet_parser.error").ParserError

RENAMED = {
    "ack_snapshot": "ack_game_tick",
    "input_size": "size",
    "input_pred_tick": "intended_tick",
    "delta_tick": "delta",
    "data_size": "part_size",
    "cmd": "command",
    "game_type": "gametype",
    "num_response_chunks_per_request": "chunks_per_request",
    "auth_level": "authed",
}
"""Field of the peer -> the same field here."""
OF_MESSAGE = {("map_data", "data_size"): "chunk_size"}
"""The same where it depends on the message."""
NAMES = {"keep_alive": "keepalive", "ack_accept_connect": "accept"}
"""Message of the peer -> the same message here."""
INNER = frozenset(("clients", "input", "snapshot", "projectile", "header", "message_type", "message_name",
                   "system_message", "message_id"))  # fmt: skip
"""Attributes of the peer that are objects of its own, or facts about the message."""
UNREADABLE = {
    "ddnet_uuid is": "a message named by UUID gets neither name nor fields",
    "sv_client_info.": "its lists are one object: all messages of a packet show those of the last",
    "sv_vote_option_list_add.description": "one string where fifteen stand",
    "connect.response_token": "0.6.5: zeros or the token, by the length",
    "connect_accept.response_token": "takes the magic of DDNet (TKEN) for a token",
    "close.reason": "takes the token of a DDNet close for its reason",
    "unknown game message id=26": "raises: cl_is_ddnet_legacy",
    "unknown game message id=28": "raises: sv_record_legacy",
    "unknown game message id=-": "raises: an id that nobody defines (a damaged server)",
    "unknown connless message": "raises: request and answer of the 64 player list",
    "invalid literal for int": "raises: server info of 0.7 with players (takes a number for text)",
    "unexpected bytes at the end": "raises: close of DDNet without a reason, a zero in its token",
}
"""What the peer cannot read and we can; docs/protocols/teeworlds.md has the same table."""


class Seen:
    """Gathers (payload, dialect) -> direction of all claimed datagrams."""

    def __init__(self) -> None:
        self.items: dict[tuple[bytes, str], int] = {}

    def reads_events(self, protocol: Any) -> bool:
        return False

    def seen(self, item: Any) -> None:
        dialect = item.hints.dialects[item.direction]
        self.items.setdefault((item.payload, dialect), item.direction)

    def other(self, packet: Any) -> None:
        pass

    def finding(self, *args: Any) -> None:
        pass


def datagrams(path: Any) -> dict[tuple[bytes, str], int]:
    seen = Seen()
    pipeline = Pipeline(observer=seen)
    with opened(path) as reader:
        for packet in Decapsulator().packets(reader):
            pipeline.feed(packet)
    pipeline.finish()
    return seen.items


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, float):
        return ours == pytest.approx(100 * theirs)  # tuning parameters are sent times 100
    if isinstance(theirs, str):
        return str(ours).lstrip() == theirs.lstrip() or str(ours) == theirs
    return bool(ours == theirs)


@pytest.mark.parametrize("path", captures("teeworlds"), ids=lambda path: path.stem)
def test_the_same_messages_and_values(path: Any) -> None:
    differences: Counter[str] = Counter()
    compared = 0
    for (data, dialect), direction in datagrams(path).items():
        parse = peer.parse7 if dialect == "teeworlds-0.7" else peer.parse6
        try:
            theirs = parse(data).messages
        except (ValueError, IndexError, KeyError, ParserError) as fault:
            differences[f"raises {fault}"] += 1
            continue
        ours = dissect("teeworlds", data, Request(dialect, direction)).messages
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            name = one.type.partition(".")[2]
            peers = other.message_name.rpartition(".")[2]
            if NAMES.get(peers, peers) != name:
                differences[f"{other.message_name} is {name}"] += 1
                continue
            _compare(name, one.fields, vars(other), differences)
            compared += 1
    assert compared
    for difference in differences:
        assert any(word in difference for word in UNREADABLE), difference


def _compare(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], differences: Counter[str]
) -> None:
    for key, value in theirs.items():
        field = OF_MESSAGE.get((name, key)) or RENAMED.get(key, key)
        if key in INNER or key.startswith("_"):
            continue
        if field not in ours and not value:
            continue  # an optional field that is not there
        if field not in ours or not same(ours[field], value):
            differences[f"{name}.{key}"] += 1
