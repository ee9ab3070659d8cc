"""Nothing of a folder that somebody else has filled is run, whatever is done in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hostilefolder import HostileFolder
from netdissect.system.programs import find

ROOT = Path(__file__).resolve().parents[2]
KNET = ROOT / "captures" / "knet" / "udp_any_interface.pcapng"
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
COMMANDS = [
    ("read", str(LOSSY), "--json"),
    ("show", str(LOSSY), "3", "-x"),
    ("decode", "riptide", "02"),
    ("encode", "riptide", "Connect"),
    ("doctor",),
    ("completion", "bash"),
    ("sniff", "-r", str(LOSSY), "-c", "5"),
    ("sniff", "-i", "lo", "-f", "udp port 1", "-a", "duration:0.1"),
    ("sniff", "-i", "lo", "-f", "udp port 1", "-a", "duration:0.1", "--backend", "af_packet"),
    ("sniff", "-r", str(LOSSY), "-c", "5", "--backend", "tshark"),
    ("verify", str(KNET)),
    ("survey", str(KNET), "--out", "../dataset", "--workers", "1"),
]


@pytest.fixture
def folder(tmp_path: Path) -> HostileFolder:
    return HostileFolder(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: f"{words[0]}-{words[-1][-9:]}")
def test_a_command_runs_nothing_of_its_folder(
    words: tuple[str, ...], folder: HostileFolder
) -> None:
    if {"tshark", "verify"} & set(words) and find("tshark") is None:
        pytest.skip("takes tshark")
    run = subprocess.run(
        [sys.executable, "-m", "netdissect", *words],
        cwd=folder.path, env=folder.environ, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert folder.ran == []
    assert b"Traceback" not in run.stderr
    if words[0] != "sniff":  # capturing may be forbidden here
        assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_a_relative_home_is_not_read(name: str, folder: HostileFolder) -> None:
    """Scapy keeps pickled tables there."""
    environ = {key: text for key, text in folder.environ.items() if key != "XDG_CACHE_HOME"}
    cache = folder.path / ("scapy" if name == "XDG_CACHE_HOME" else ".cache/scapy")
    cache.mkdir(parents=True)
    (cache / "manufdb.pickle").write_text("forged")
    run = subprocess.run(
        [sys.executable, "-m", "netdissect", "decode", "riptide", "02"],
        cwd=folder.path, env={**environ, name: "."}, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert run.stdout
    assert (cache / "manufdb.pickle").read_text() == "forged"
    assert list(cache.iterdir()) == [cache / "manufdb.pickle"]


def test_a_shell_asks_for_completion_and_none_is_run(folder: HostileFolder) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "netdissect"], cwd=folder.path, capture_output=True, timeout=60,
        env={**folder.environ, "_PYTHON__M_NETDISSECT_COMPLETE": "bash_source",
             "_NETDISSECT_COMPLETE": "bash_source"}, check=False,
    )  # fmt: skip
    assert b"complete" in run.stdout
    assert folder.ran == []


def test_an_innocent_configuration_of_another_program_is_not_read(folder: HostileFolder) -> None:
    if find("tshark") is None:
        pytest.skip("takes tshark")
    (folder.path / "config.ini").write_text("[mail]\nname = x\n")
    run = subprocess.run(
        [sys.executable, "-m", "netdissect", "verify", str(LOSSY)],
        cwd=folder.path, env=folder.environ, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr.decode()
    assert folder.ran == []
