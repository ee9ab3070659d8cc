"""`netdissect diagnose` and what `connections` shows of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.cli import cli
from netdissect.cli.diagnose import limit_of
from netdissect.model.errors import UsageError

CAPTURES = console_docs.ROOT / "captures"
LOSSY = str(CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
DARK = str(CAPTURES / "riptide" / "udp_2.2.1_blackout_timeout_clientleg.pcap")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect")


def objects(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


def test_a_question_and_its_answer_are_told_in_two_lines() -> None:
    asked = str(CAPTURES / "teeworlds" / "ddnet_clean.pcap")
    (found,) = objects("diagnose", asked, "2")
    assert found["ended"]["how"] == "info-only"
    title, verdict = run("diagnose", asked, "2").stdout.splitlines()
    assert title.startswith("c2  teeworlds-0.6")
    assert verdict.strip() == found["verdict"]


@pytest.mark.parametrize(
    "name",
    ["netplay/bin1_malformed", "knet/udp_malformed_to_client.client", "teeworlds/tw07_lan_browse"],
)
def test_of_several_those_without_a_problem_take_one_line(name: str) -> None:
    """A server's capture filled pages with connections of which there is nothing to say."""
    path = str(CAPTURES / f"{name}.pcap")
    found = objects("diagnose", path)
    head, *lines = run("diagnose", path, "--width", "1000").stdout.splitlines()
    calm = {each["connection"] for each in found if each["cause"]["calm"]}
    assert head.startswith(f"{len(found)} connections, worst first: ")
    which = "" if len(calm) == len(found) else f" in {len(calm)}"
    assert head.endswith(f"; no problem was seen{which}")
    ends = head.partition(": ")[2].partition(";")[0]
    assert sum(map(int, re.findall(r"(\d+) ", ends))) == len(found)
    assert ends in run("report", path, "-o", "-").stdout
    blocks = [block.split("\n") for block in "\n".join(lines).strip().split("\n\n")]
    brief = [line for block in blocks for line in block if len(block) == 1 or block[1][0] == "c"]
    assert {int(line[1 : line.index(" ")]) for line in brief} == calm
    verdicts = {each["connection"]: each["verdict"] for each in found}
    assert all(line.endswith(verdicts[int(line[1 : line.index(" ")])]) for line in brief)
    number = min(calm)
    assert len(run("diagnose", path, str(number)).stdout.splitlines()) > 1


def test_what_is_called_calm_says_so() -> None:
    for name in ("netplay/bin1_malformed", "eoudp/late_two_clients_one_killed"):
        for each in objects("diagnose", str(CAPTURES / f"{name}.pcap")):
            cause = each["cause"]
            assert cause["calm"] == ("no problem was seen" in cause["text"].lower())


def test_malformed_data_are_what_to_look_at() -> None:
    """Not the FIN that came of them."""
    capture = str(CAPTURES / "netplay" / "bin1_malformed.pcap")
    shown = run("diagnose", capture, "1").stdout
    assert "malformed data (likely): The client sent #6" in shown
    assert shown.rstrip().endswith("bin1_malformed.pcap 6")


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["loss>5%"], 7),
        (["loss>50%"], 0),
        (["loss.s2c>=5%"], 7),
        (["lag.p95>200ms"], 0),
        (["lag.p95>0.1s"], 7),
        (["loss>50%", "lag.max>1ms"], 7),
    ],
)
def test_limits_decide_the_status(limits: list[str], status: int) -> None:
    words = [word for limit in limits for word in ("--fail-on", limit)]
    assert run("diagnose", LOSSY, *words).exit_code == status


@pytest.mark.parametrize("text", ["loss", "loss>5ms", "lag.p95>5%", "speed>3", "loss>>5%"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        limit_of(text)
    assert run("diagnose", LOSSY, "--fail-on", text).exit_code == 2


@pytest.mark.parametrize("name", ["eoudp/mid_clean", "riptide/udp_2.0.0_noserver"])
def test_nobody_is_not_named_as_the_one_who_ended_it(name: str) -> None:
    """Such connections were "open by nobody"."""
    path = str(CAPTURES / f"{name}.pcap")
    (found, *_) = objects("diagnose", path)
    assert found["ended"]["by"] == "nobody"
    text = run("diagnose", path).stdout
    (ended,) = [line for line in text.splitlines() if line.startswith("   ended ")]
    assert " by " not in ended
    assert "nobody" not in text


def test_what_cannot_be_told_is_beyond_no_limit() -> None:
    (found,) = objects("diagnose", DARK)
    assert found["loss"]["c2s"]["basis"] == "unknown"
    assert run("diagnose", DARK, "--fail-on", "loss.c2s>0%").exit_code == 0


def test_text_and_json_say_the_same() -> None:
    (found,) = objects("diagnose", LOSSY)
    text = run("diagnose", LOSSY, "--width", "400").stdout
    assert found["verdict"] in text
    assert found["cause"]["text"] in text
    for way in ("c2s", "s2c"):
        for each in found["lag"]["added"][way]["worst"]:
            assert f"#{each['frame']}: " in text


def test_connections_begin_with_the_answer() -> None:
    (found,) = objects("diagnose", DARK)
    lines = run("connections", DARK, "1", "--width", "300").stdout.splitlines()
    assert any(found["verdict"] in line for line in lines[:4])
    (full,) = objects("connections", DARK)
    assert full["diagnosis"]["verdict"] == found["verdict"]


def test_the_worst_stands_first() -> None:
    path = str(CAPTURES / "eoudp" / "late_two_clients_one_killed.pcap")
    found = objects("diagnose", path)
    assert [item["badness"] for item in found] == sorted(
        (item["badness"] for item in found), reverse=True
    )
    ordered = objects("connections", path, "--sort", "worst")
    assert [item["connection"] for item in ordered] == [item["connection"] for item in found]


def test_another_connection_than_there_is() -> None:
    assert run("diagnose", LOSSY, "9").exit_code == 2
