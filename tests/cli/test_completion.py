from __future__ import annotations

import pytest
from click.testing import CliRunner

from netdissect.cli import cli
from netdissect.cli.complete import EXPRESSION, FIELD, PROTOCOL


def offered(words: str, position: int) -> list[str]:
    env = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
        "_NETDISSECT_COMPLETE": "bash_complete",
    }
    result = CliRunner().invoke(cli, [], prog_name="netdissect", env=env)
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("netdissect conn", 1, ["connections"]),
        ("netdissect decode rip", 2, ["riptide"]),
        ("netdissect fields teew", 2, ["teeworlds"]),
        ("netdissect read -Y frame.n", 3, ["frame.number"]),
        ("netdissect read -T csv -e msg.wire", 5, ["msg.wire_seq"]),
        ("netdissect read --messa", 2, ["--messages"]),
        ("netdissect read --disable-protocol kn", 3, ["knet"]),
        ("netdissect sniff -i l", 3, ["lo"]),
        ("netdissect sniff --backend tc", 3, ["tcpdump"]),
    ],
)
def test_words_are_completed(words: str, position: int, expected: list[str]) -> None:
    assert offered(words, position) == expected


@pytest.mark.parametrize(
    "words", ["connections ga", "read -r ga", "read --schema ga", "sniff -w ga"]
)
def test_where_a_file_is_wanted_the_shell_offers_its_own(words: str) -> None:
    env = {
        "COMP_WORDS": f"netdissect {words}",
        "COMP_CWORD": str(len(words.split())),
        "_NETDISSECT_COMPLETE": "bash_complete",
    }
    result = CliRunner().invoke(cli, [], prog_name="netdissect", env=env)
    assert result.stdout == "file,ga\n"


def test_the_last_word_of_a_filter_is_completed() -> None:
    items = EXPRESSION.shell_complete(None, None, "udp and (msg.res")  # type: ignore[arg-type]
    assert [item.value for item in items] == ["udp and (msg.resend", "udp and (msg.resend_of"]
    assert any(
        item.value.startswith("riptide.") for item in FIELD.shell_complete(None, None, "rip")
    )  # type: ignore[arg-type]
    assert "riptide" in [item.value for item in PROTOCOL.shell_complete(None, None, "")]  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="netdissect")
    assert result.exit_code == 0
    assert f"_NETDISSECT_COMPLETE={shell}_complete" in result.stdout


def test_an_unknown_shell_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["completion", "csh"]).exit_code == 2
