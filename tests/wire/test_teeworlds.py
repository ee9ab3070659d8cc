from __future__ import annotations

import hashlib
from uuid import UUID

from netdissect.wire.teeworlds import (
    connless_rows,
    message_rows,
    object_rows,
    table,
    type_names,
    uuid_rows,
)
from netdissect.wire.teeworlds_forms import FAMILIES

NAMESPACE = UUID("e05ddaaa-c4e6-4cfb-b642-5d48e80c0029").bytes


def named(name: str) -> bytes:
    """Return the UUID of a name: version 3 style, by the rule of the table."""
    digest = bytearray(hashlib.md5(NAMESPACE + name.encode()).digest())  # noqa: S324
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


def test_uuids_follow_their_rule() -> None:
    loaded = table()
    rows = [*loaded["system"], *loaded["game"], *loaded["snap_objects"]]
    checked = [row for row in rows if row.get("uuid")]
    assert len(checked) > 60
    for row in checked:
        assert UUID(row["uuid"]).bytes == named(row["uuid_name"])


def test_lookups() -> None:
    assert message_rows("0.6")[1 | 16 << 1].type == "sys.input"
    assert message_rows("0.7")[1 | 20 << 1].type == "sys.input"
    assert message_rows("0.7")[24 << 1].type == "game.cl_say"
    assert message_rows("0.6")[26 << 1].type == "game.cl_is_ddnet_legacy"
    assert uuid_rows()[named("ping@ddnet.tw")].type == "sys.ping_ex"
    assert connless_rows("0.6")[b"\xff\xff\xff\xffiext"].type == "connless.info_extended"
    assert object_rows("0.7")[10]["name"] == "character"
    assert object_rows("0.6")[named("character@netobj.ddnet.tw")]["name"] == "ddnet_character"


def test_type_names_are_unambiguous() -> None:
    for family in FAMILIES:
        names = type_names(family)
        assert len(names) == len(set(names))
        assert "sys.info" in names
        assert "connless.info" in names
        assert "control.close" in names
