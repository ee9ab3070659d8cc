"""Plug-ins that do not load, raise, or never return: named, disabled, listed; the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agreement import CAPTURES
from plugin import install

CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"

GOOD = """
from netdissect.model.claims import Claim
from netdissect.model.policy import Policy
from netdissect.protocols.base import DialectRow, Protocol

class Mine(Protocol):
    name = "NAME"
    title = "A protocol of a test"
    dialects = (DialectRow("NAME-1", "the only one", ("all",)),)
    transports = ("udp",)
    layer_module = "NAME_layers"

    def recognise(self, sample, transport, *, final):
        if final:
            return Claim("NAME", 61, ("NAME-1", "NAME-1"), 0, "protocol", ("a test",))

    def policy(self, dialect):
        return Policy("NAME-1", ())

    def scan(self, payload, direction, hints):
        return [(0, "all")]

PROTOCOL = Mine()
"""
LAYERS = """
from scapy.fields import StrField
from netdissect.layers.base import Layer

CODES = ()
__all__ = ["CODES", "All", "root"]

class All(Layer):
    fields_desc = [StrField("data", b"")]

    @classmethod
    def message_type(cls, fields):
        return "all"

def root(payload, request):
    return All
"""
LOOP = "for _ in iter(int, 1): pass"
BROKEN = {
    "import": ("raise RuntimeError('no luck')\n" + GOOD, LAYERS, "RuntimeError: no luck"),
    "exit": ("raise SystemExit(3)\n" + GOOD, LAYERS, "SystemExit: 3"),
    "name": (GOOD.replace('name = "NAME"', 'name = "other"'), LAYERS, "TypeError: it calls itself"),
    "policy": (GOOD.replace('Policy("NAME-1", ())', "None"), LAYERS, "policy() returns no Policy"),
    "carrier": (
        GOOD.replace('"NAME-1", ()', '"NAME-1", (SpaceRule("a", 8, AckRule.NONE, acked_with="b"),)').replace(
            "import Policy", "import AckRule, Policy, SpaceRule"
        ),
        LAYERS, "`acked_with` names 'b', which is no space",
    ),
    "recognise": (GOOD.replace("if final", "if 1 / 0"), LAYERS, "ZeroDivisionError"),
    "scan": (GOOD.replace('return [(0, "all")]', "payload[99999]"), LAYERS, "IndexError"),
    "events": (
        GOOD.replace('(0, "all")', '(1, "all", "odd", 1, None, None)'), LAYERS,
        "its events cannot be tracked: KeyError: 'odd'",
    ),
    "code": (GOOD.replace('(0, "all")', '(12, "odd", None)'), LAYERS, "scan notes 'odd', of which"),
    "recognise-loop": (GOOD.replace("if final", f"{LOOP}\n        if final"), LAYERS, "Overrun"),
    "layers": (GOOD, "raise KeyError('layers')", "KeyError: 'layers'"),
}  # fmt: skip


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip


def netdissect(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "netdissect", *words)


def plant(folder: Path, name: str, kind: str) -> Path:
    module, layers, _ = BROKEN.get(kind, (GOOD, LAYERS, ""))
    files = {f"{name}_plugin.py": module, f"{name}_layers.py": layers}
    return install(folder, name, {path: text.replace("NAME", name) for path, text in files.items()})


def test_a_good_plug_in_takes_what_it_claims(tmp_path: Path) -> None:
    plant(tmp_path, "mine", "good")
    ran = netdissect(tmp_path, "connections", str(CLEAN), "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {json.loads(line)["protocol"] for line in ran.stdout.splitlines()} == {"riptide"}
    left = ("--disable-protocol", "riptide")
    ran = netdissect(tmp_path, "connections", str(CLEAN), "--json", *left)
    assert {json.loads(line)["protocol"] for line in ran.stdout.splitlines()} == {"mine"}
    ran = netdissect(tmp_path, "doctor")
    assert "protocol mine" in ran.stdout
    assert "plug-in, works" in ran.stdout


def test_scapy_reads_its_packets_too(tmp_path: Path) -> None:
    plant(tmp_path, "mine", "good")
    ran = python(
        tmp_path, "-c",
        "from netdissect.pipeline import Options\n"
        "from netdissect.scapy_session import rdpcap\n"
        f"first = rdpcap({str(CLEAN)!r}, options=Options(without=frozenset({{'riptide'}})))[0]\n"
        "print(first.netdissect.protocol, first.lastlayer().name)",
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("mine All\n", "")


@pytest.mark.parametrize("kind", ["import", "scan", "events", "recognise-loop"])
def test_the_run_goes_on_without_a_broken_plug_in(kind: str, tmp_path: Path) -> None:
    why = BROKEN[kind][2]
    plant(tmp_path, "mine", kind)
    left = ("--disable-protocol", "riptide")
    if kind == "import":
        left = ("-d", "udp.port==9,0.7")  # a dialect alone: all protocols are asked whose it is
    ran = netdissect(tmp_path, "connections", str(CLEAN), "--json", *left)
    assert ran.returncode == 0
    assert ran.stderr.count("netdissect: protocol mine is disabled: ") == 1
    assert why in ran.stderr
    reports = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [report["codes"].get("dissector-bug") for report in reports] == (
        {"import": [None, None], "scan": [1, None], "events": [1, None]}.get(kind, [])
    )


def test_broken_plug_ins_are_listed(tmp_path: Path) -> None:
    # Only what follows from events shows that they are wrong.
    names = {kind.replace("-", ""): kind for kind in BROKEN if kind != "events"}
    for name, kind in names.items():
        plant(tmp_path, name, kind)
    plant(tmp_path, "mine", "good")
    ran = netdissect(tmp_path, "protocols", "--json")
    rows = {row["protocol"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert rows["riptide"]["disabled"] is None
    assert rows["mine"]["dialects"][0]["dialect"] == "mine-1"
    for name, kind in names.items():
        assert BROKEN[kind][2] in rows[name]["disabled"]
        assert f"netdissect: protocol {name} is disabled: {rows[name]['disabled']}" in ran.stderr
    said = netdissect(tmp_path, "doctor").stdout
    assert all(f"protocol {name} " in said for name in names)
    assert said.count("disabled: ") == len(names)


def test_what_needs_all_layers_does_without_broken_ones(tmp_path: Path) -> None:
    plant(tmp_path, "mine", "layers")
    for words in (("explain", "truncated"), ("fields", "riptide")):
        ran = netdissect(tmp_path, *words)
        assert ran.returncode == 0
        assert "netdissect: protocol mine is disabled: KeyError: 'layers' (mine_layers.py:1)" in ran.stderr


@pytest.mark.parametrize(
    ("instead", "why"),
    [(LOOP, "Overrun: does not end"), ("raise ValueError('odd')", "ValueError: odd")],
)
def test_layers_that_fail_are_left_out(instead: str, why: str, tmp_path: Path) -> None:
    files = {"mine_plugin.py": GOOD, "mine_layers.py": LAYERS.replace("return All", instead)}
    install(tmp_path, "mine", {name: text.replace("NAME", "mine") for name, text in files.items()})
    ran = netdissect(tmp_path, "decode", "mine", "00", "--json")
    assert f"protocol mine is disabled: {why}" in ran.stderr
    assert [note["code"] for note in json.loads(ran.stdout)["annotations"]] == ["dissector-bug"]
    ran = netdissect(tmp_path, "read", str(CLEAN), "--json", "--disable-protocol", "riptide")
    assert ran.returncode == 0
    assert ran.stderr.count(f"protocol mine is disabled: {why}") == 1
    assert f"protocol mine   disabled: {why}" in netdissect(tmp_path, "doctor").stdout
