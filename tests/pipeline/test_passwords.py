"""Passwords leave no trace in what is shown, and only they go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli
from netdissect.model.dissection import MASK, Buffer, Dissection, FieldNode
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.passwords import _blank, mask_passwords

CAPTURES = Path(__file__).resolve().parents[2] / "captures/teeworlds"
RCON = CAPTURES / "tw07_rcon.pcap"
AUTH = 'msg.type == "sys.rcon_auth"'


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_form_of_a_password_is_masked() -> None:
    hit = 0
    for record in iter_records(RCON):
        tree = record.dissection
        found = {m.fields["password"] for m in tree.messages if m.fields.get("password")}
        before, fields = [buffer.data for buffer in tree.buffers], tree.fields
        mask_passwords(record)
        after = [buffer.data for buffer in tree.buffers]
        assert [len(data) for data in after] == [len(data) for data in before]
        if not found:
            assert (after, tree.fields) == (before, fields)
            continue
        hit += 1
        assert record.payload == after[0] != before[0]
        assert record.payload[:7] == before[0][:7]
        for word in found:
            for text in (word, word.encode().hex()):
                assert text in str(fields)
                assert text not in str(tree.fields) + str([m.fields for m in record.messages])
            assert not any(word.encode() in data for data in after)
    assert hit == 2


@pytest.mark.parametrize("name", ["tw065_client_to_064", "ddnet_rate_limited"])
def test_what_is_no_secret_stays(name: str) -> None:
    (path,) = CAPTURES.glob(f"{name}.pcap*")
    plain, hidden = list(iter_records(path)), map(mask_passwords, iter_records(path))
    for one, other in zip(plain, hidden, strict=True):
        assert one.payload == other.payload
        assert one.dissection.fields == other.dissection.fields


def test_people_see_a_mask_and_programs_the_password() -> None:
    words = ("read", RCON, "-Y", AUTH)
    assert "nope" not in run(*words, "-V", "-x")
    assert "nope" in run(*words, "-V", "-x", "--show-secrets")
    rows = [json.loads(line) for line in run(*words, "--json").splitlines()]
    assert [row["fields"]["password"] for row in rows][:1] == ["nope"]
    rows = [json.loads(line) for line in run(*words, "--json", "--mask-secrets").splitlines()]
    assert {row["fields"]["password"] for row in rows} == {MASK}
    columns = ("-T", "csv", "-e", "teeworlds.password")
    assert "nope" in run(*words, *columns)
    assert "nope" not in run(*words, *columns, "--mask-secrets")


def test_lines_that_no_finisher_writes_are_masked_everywhere(monkeypatch) -> None:
    """As those of a plug-in: the walker writes them from the fields."""
    from netdissect.protocols.riptide import PROTOCOL

    path = CAPTURES.parent / "riptide" / "udp_2.2.1_clean.pcap"
    words = "-Y", "riptide.ping_id == 1", "-c", "1"
    assert "ping_id=1" in run("read", path, *words)
    monkeypatch.setattr(type(PROTOCOL), "secrets", {"Heartbeat": ("ping_id",)})
    for command in ("read", "ladder"):
        text = run(command, path, *words)
        assert f'ping_id="{MASK}"' in text
        assert "ping_id=1" not in text
    assert json.loads(run("read", path, *words, "--json"))["fields"]["ping_id"] == 1


def test_show_and_follow_mask_too() -> None:
    frame = json.loads(run("read", RCON, "-Y", AUTH, "--json", "-c", "1"))["frame"]
    for words, text in ((("show", RCON, frame), "-x"), (("follow", RCON, "1"), "--as=hex")):
        assert "nope" not in run(*words, text)
        assert "nope" in run(*words, text, "--show-secrets")
        assert "nope" in run(*words, "--json")
        assert "nope" not in run(*words, "--json", "--mask-secrets")


def test_a_password_two_buffers_deep_leaves_none_of_them() -> None:
    """What was unpacked of what was unpacked: the bytes in between spell it as well."""
    buffers = [
        Buffer("payload", b"headPACKED"),
        Buffer("decompressed", b"xx(nope)yy", (32, 48)),
        Buffer("reassembled", b"nope", (16, 48), 1),
    ]
    tree = Dissection("", "", None, "udp", buffers, FieldNode("", None, 0, 80))
    word = FieldNode("password", "nope", 0, 32, buffer=2)
    _blank(tree, word)
    assert [buffer.data for buffer in tree.buffers] == [b"head******", b"xx******yy", b"****"]
    assert [buffer.of for buffer in tree.buffers] == [0, 0, 1]
    assert word.value == MASK
