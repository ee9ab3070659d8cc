"""What people read of a Teeworlds message, hostile text included."""

from __future__ import annotations

from typing import Any

import pytest

from agreement import mutations, payloads
from hostile import HOSTILE, is_safe
from netdissect.dissect.engine import Request, dissect
from netdissect.layers import teeworlds as layers
from netdissect.render.safe import safe
from netdissect.wire.teeworlds_forms import DIALECTS

PLAYER = [1, -20, 30, 1, 5, 1, 0, 3, 0, 0]


def line(dialect: str, body: Any, direction: int = 0) -> str:
    """Return the line of one message that is not vital."""
    if dialect == "0.7":
        packet = layers.Tw07(token=b"abcd") / layers.Tw07Chunks(
            chunks=[layers.Tw07Chunk(body=body)]
        )
    else:
        packet = layers.Tw06() / layers.Tw06Chunks(chunks=[layers.Tw06Chunk(body=body)])
    tree = dissect(
        "teeworlds", bytes(packet), Request(f"teeworlds-{dialect}", direction), strict=True
    )
    assert len(tree.messages) == 1
    return tree.summary


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("Tw07SysInput", {"ack_game_tick": 8, "intended_tick": 9, "input": PLAYER},
         "input tick 9, acks snapshot 8: right, jump, hook, fire 5, weapon 3, aims at -20,30"),
        ("Tw06SysInput", {"ack_game_tick": -1, "intended_tick": 9, "input": [0] * 10},
         "input tick 9, asks for a full snapshot: stands, aims at 0,0"),
        ("Tw06SysInput", {"ack_game_tick": 1, "intended_tick": 9, "input": [0] * 3},
         "sys.input ack_game_tick=1 intended_tick=9"),
        ("Tw07SysInputTiming", {"intended_tick": 9, "time_left": -6}, "input 9 came 6 ms late"),
        ("Tw07SysInputTiming", {"intended_tick": 9, "time_left": 0}, "input 9 had 0 ms left"),
        ("Tw07GameSvKillMsg", {"killer": 1, "victim": 2, "weapon": 3},
         "player 1 kills player 2 with the grenade"),
        ("Tw06GameSvKillMsg", {"killer": 2, "victim": 2, "weapon": -1},
         "player 2 dies by the world"),
        ("Tw06GameSvKillMsg", {"killer": -1, "victim": 2, "weapon": 9},
         "the server kills player 2 with weapon 9"),
        ("Tw07GameSvChat", {"mode": 3, "client_id": 1, "target_id": 2, "message": "psst"},
         "chat of player 1 to 2 alone: psst"),
        ("Tw07GameSvChat", {"mode": 1, "client_id": -1, "message": "hi"}, "chat of the server: hi"),
        ("Tw06GameSvChat", {"team": 1, "client_id": 3, "message": "go"},
         "chat of player 3 to the team: go"),
        ("Tw06GameClSay", {"team": 0, "message": "go"}, "says: go"),
        ("Tw07GameClSay", {"mode": 2, "target": -1, "message": "go"}, "says to the team: go"),
        ("Tw07GameClVote", {"vote": -1}, "votes no"),
        ("Tw06GameSvVoteSet", {"timeout": 25, "description": "a", "reason": "b"}, "vote: a (b), 25 s"),
        ("Tw06GameSvVoteSet", {"timeout": 0}, "no vote runs any more"),
        ("Tw07GameSvVoteOptionListAdd", {"descriptions": ["a", "b"]}, "2 vote options: a, b"),
        ("Tw06GameSvVoteOptionListAdd", {"num_options": 2, "description0": "a", "description1": "b"},
         "2 vote options: a, b"),
        ("Tw06SysMapData", {"last": 1, "chunk": 7, "data": b"abc"},
         "map data 7, 3 bytes, the last"),
        ("Tw07SysMapData", {"data": b"abc"}, "map data, 3 bytes"),
        ("Tw06SysRequestMapData", {"chunk": 7}, "asks for map data 7"),
        ("Tw06SysRconAuth", {"name_": "me", "password": "s3cret"},
         "rcon login as me, password ********"),
        ("Tw07SysRconCmd", {"command_": "status"}, "rcon command: status"),
        ("Tw06SysRconAuthStatus", {"authed": 0}, "rcon login ended"),
    ],
)  # fmt: skip
def test_lines(name: str, fields: dict[str, Any], text: str) -> None:
    assert line("0.7" if "07" in name else "0.6", getattr(layers, name)(**fields)) == text


def test_server_info() -> None:
    body = layers.Tw06ConnlessInfo(
        token=b"5", version="v", name_="best", map="dm1", gametype="DM", flags="0",
        num_players="1", max_players="8", num_clients="2", max_clients="16",
    )  # fmt: skip
    data = bytes(layers.Tw06Connless(body=body))
    tree = dissect("teeworlds", data, Request("teeworlds-0.6", 1), strict=True)
    assert tree.summary == "server best: map dm1, DM, 2 of 16 clients, 1 playing"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("6c697332" + "00" * 10 + "ffff7f000001206f" + "20010db8" + "00" * 11 + "01206f",
         "list of 2 servers: 127.0.0.1:8303, [2001:db8::1]:8303"),
        ("6c697332", "list of 0 servers: "),
        ("73697a320005", "5 servers"),
        ("6769653307", "asks for server info, token 7"),
        ("72657132", "asks for the list of servers"),
    ],
)  # fmt: skip
def test_master_servers(octets: str, text: str) -> None:
    data = b"\xff" * 10 + bytes.fromhex(octets)
    assert dissect("teeworlds", data, Request("teeworlds-0.6", 0), strict=True).summary == text


def test_a_close() -> None:
    for reason, text in (("bye", "closes: bye"), (None, "closes")):
        packet = layers.Tw06(control_flag=1) / layers.Tw06ControlClose(reason=reason)
        tree = dissect("teeworlds", bytes(packet), Request("teeworlds-0.6", 0), strict=True)
        assert tree.summary == text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_reaches_no_terminal(text: str) -> None:
    sent = text.encode("utf-8", "surrogatepass").replace(b"\0", b"")
    for body in (
        layers.Tw07GameClSay(mode=1, message=sent),
        layers.Tw07GameSvVoteSet(timeout=5, description=sent, reason=sent),
        layers.Tw07SysRconLine(line=sent),
        layers.Tw07GameSvMotd(message=sent),
        layers.Tw07GameSvClientInfo(name_=sent, clan=sent),
    ):
        if len(bytes(body)) < 1300:
            shown = safe(line("0.7", body))
            assert is_safe(shown)
            assert len(shown) < 4000


def test_damaged_messages_have_lines_too() -> None:
    for index, data in enumerate(mutations(payloads("teeworlds"), 1500, seed=5)):
        tree = dissect("teeworlds", data, Request(DIALECTS[index % 4], index // 4 % 2), strict=True)
        assert tree.summary
        assert all(message.summary for message in tree.messages)
