"""What a user says about bytes that nothing on the wire tells: byte order, bounds, dialects."""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.cli import cli

CAPTURES = console_docs.ROOT / "captures"
ACK = "013f39ae20000000000000000100000000000000080000000000000007"


def objects(*words: str, **extra: Any) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*words, "--json"], prog_name="netdissect", **extra)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def bomb(size: int) -> str:
    """Return a frame of bin1 whose body inflates to so many bytes."""
    body = zlib.compress(bytes(size), 9)
    return (struct.pack(">HBH", 3 + len(body), 1, 12) + body).hex()


def codes(tree: dict[str, Any]) -> list[str]:
    return [note["code"] for note in tree["annotations"]]


@pytest.mark.parametrize(("order", "number"), [(None, 7), ("big", 7), ("little", 7 << 56)])
def test_the_byte_order_of_a_text_may_be_said(order: str | None, number: int) -> None:
    words = [] if order is None else ["--byte-order", order]
    (tree,) = objects("decode", "eoudp", "--dialect", "rfc02", *words, ACK)
    assert tree["fields"]["content"]["acked_id"] == number


@pytest.mark.parametrize(("order", "acked"), [(None, 58), ("big", 58), ("little", 0)])
def test_the_byte_order_holds_for_a_capture(order: str | None, acked: int) -> None:
    path = str(CAPTURES / "eoudp" / "rfc02_be.pcap")
    words = [] if order is None else ["--byte-order", order]
    (report,) = objects("connections", path, *words)
    (server,) = [space for space in report["spaces"] if space["direction"] == "s2c"]
    assert server["acked"] == acked
    ids = [
        row["fields"]["content"]["acked_id"]
        for row in objects("read", path, *words, "-Y", 'msg.type == "ACK"')
    ]
    assert (min(ids) >= 1 << 48) == (order == "little")


def test_programs_leave_no_order_open() -> None:
    path = str(CAPTURES / "eoudp" / "late_clean.pcap")
    assert objects("read", path, "--byte-order", "big") == objects("read", path)


SIZE = 2_000_000
"""Bytes of a body of zeros; zlib makes less than a five-hundredth of it."""


@pytest.mark.parametrize(
    ("words", "inflated"),
    [
        ([], 200 * len(zlib.compress(bytes(SIZE), 9))),
        (["--inflate-limit", "1000"], 1000),
        (["--inflate-ratio", "2000"], 1 << 20),
        (["--inflate-ratio", "2000", "--inflate-limit", "1500000"], 1_500_000),
        (["--inflate-ratio", "2000", "--inflate-limit", "30000000"], SIZE),
    ],
)
def test_the_bounds_of_inflation_may_be_set(words: list[str], inflated: int) -> None:
    (tree,) = objects("decode", "netplay", "--dialect", "bin1", *words, bomb(SIZE))
    (message,) = tree["fields"]["messages"]
    assert message["inflated_len"] == inflated
    assert ("decompression-limit" in codes(tree)) is (inflated < SIZE)


def test_the_bounds_hold_for_a_capture() -> None:
    path = str(CAPTURES / "netplay" / "bin2_types_and_nulls.pcap")
    compressed = [
        row for row in objects("read", path) if row["fields"].get("compressed") and row["length"] > 5
    ]
    assert compressed
    for command in ("read", "anomalies"):
        rows = objects(command, path, "--inflate-limit", "3")
        notes = Counter(
            code
            for row in rows
            for code in ([row["code"]] if command == "anomalies" else codes(row))
        )
        assert notes["decompression-limit"] > 0
        usual = objects(command, path)
        assert all("decompression-limit" not in json.dumps(row) for row in usual)


@pytest.mark.parametrize("words", [["--inflate-limit", "0"], ["--byte-order", "middle"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    result = CliRunner().invoke(cli, ["decode", "netplay", *words, "00"], prog_name="netdissect")
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("protocol", "capture", "found", "wanted"),
    [
        ("eoudp", "rfc01_numbering", "rfc01", "rfc02"),
        ("eoudp", "late_long32_session", "exodia-late-long32", "exodia-late"),
        ("knet", "urho3d_scene_clean", "knet-urho3d", "knet-2.x"),
    ],
)
def test_a_dialect_that_is_named_stays(protocol: str, capture: str, found: str, wanted: str) -> None:
    path = str(CAPTURES / protocol / f"{capture}.pcap")
    (usual,) = objects("connections", path)
    assert usual["dialect"] == {"c2s": found, "s2c": found}
    port = usual["server"].rpartition(":")[2]
    for words in (["-d", f"udp.port=={port},{wanted}"], ["--dialect", wanted]):
        for report in objects("connections", path, *words):
            assert report["dialect"] == {"c2s": wanted, "s2c": wanted}


def test_settings_stand_for_the_options(tmp_path: Path) -> None:
    folder = tmp_path / "netdissect"
    folder.mkdir()
    (folder / "config.toml").write_text('[decode]\nbyte_order = "little"\ninflate_limit = 900\n')
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tree,) = objects("decode", "eoudp", "--dialect", "rfc02", ACK, env=env)
    assert tree["fields"]["content"]["acked_id"] == 7 << 56
    (tree,) = objects("decode", "netplay", "--dialect", "bin1", bomb(100_000), env=env)
    assert tree["fields"]["messages"][0]["inflated_len"] == 900
    env["NETDISSECT_INFLATE_LIMIT"] = "800"
    (tree,) = objects("decode", "netplay", "--dialect", "bin1", bomb(100_000), env=env)
    assert tree["fields"]["messages"][0]["inflated_len"] == 800
    env["NETDISSECT_INFLATE_LIMIT"] = "many"
    result = CliRunner().invoke(cli, ["decode", "netplay", "00"], env=env, prog_name="netdissect")
    assert result.exit_code == 2
    (folder / "config.toml").write_text("[decode]\ninflate_ratio = true\n")
    result = CliRunner().invoke(cli, ["decode", "netplay", "00"], env=env, prog_name="netdissect")
    assert result.exit_code == 2
    assert "must be a number" in result.stderr
