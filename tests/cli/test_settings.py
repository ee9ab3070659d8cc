from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.cli import cli
from netdissect.cli.settings import KEYS, load, user_file
from netdissect.model.errors import UsageError
from netdissect.system.accounts import account_named, caller
from netdissect.wire.inflate import Bounds

LOSSY = str(console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's file, in a configuration folder of the test; the working folder is elsewhere."""
    for key in KEYS:
        if key.environment:
            monkeypatch.delenv(key.environment, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "deep")
    path = tmp_path / "config" / "netdissect" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def in_force(name: str) -> tuple[object, str]:
    found = next(item for item in load().rows if item.key.name == name)
    return found.value, found.origin


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect")


def test_flag_beats_environment_beats_project_beats_user_beats_default(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_force("output.time") == ("r", "default")
    user.write_text('[output]\ntime = "e"\n')
    assert in_force("output.time") == ("e", f"user {user}")
    project = tmp_path / "project" / "netdissect.toml"
    project.write_text('[output]\ntime = "d"\n')
    assert in_force("output.time") == ("d", f"project {project}")
    first = invoke("read", LOSSY, "-c", "2").stdout
    assert "0.075393" in first
    monkeypatch.setenv("NETDISSECT_TIME", "e")
    assert in_force("output.time") == ("e", "environment NETDISSECT_TIME")
    assert "1795231808.2" in invoke("read", LOSSY, "-c", "1").stdout
    assert "0.000000" in invoke("read", LOSSY, "-c", "1", "-t", "r").stdout


def test_tables_of_both_files_are_merged(user: Path, tmp_path: Path) -> None:
    user.write_text('[decode.ports]\n1 = "riptide"\n2 = "riptide"\n')
    (tmp_path / "project" / "netdissect.toml").write_text('[decode.ports]\n2 = "riptide-2.0"\n')
    assert in_force("decode.ports")[0] == {"1": "riptide", "2": "riptide-2.0"}


def test_ports_of_a_file_are_decode_as_rules(user: Path) -> None:
    user.write_text('[decode.ports]\n21109 = "riptide-2.1"\n')
    report = json.loads(invoke("connections", LOSSY, "--json").stdout)
    assert report["dialect"]["c2s"] == "riptide-2.1"


def test_schemas_are_relative_to_their_file(user: Path) -> None:
    user.write_text('[decode]\nschemas = ["game.json"]\n')
    assert in_force("decode.schemas")[0] == [str(user.parent / "game.json")]


def test_names_of_endpoints_are_shown(user: Path) -> None:
    user.write_text('[endpoints]\n"127.0.0.1:21109" = "eu server"\n')
    assert "→ eu server" in invoke("read", LOSSY, "-c", "1").stdout


def test_colours_of_a_file_are_used(user: Path) -> None:
    user.write_text('[colors]\nframe = "1;95"\n')
    assert "\x1b[1;95m" in invoke("read", LOSSY, "-c", "1", "--color", "always").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "config.toml"),
        ("[output]\nnosuch = 1\n", "output.nosuch"),
        ("[output]\ntime = 1\n", "must be a text"),
        ("[decode]\nschemas = 'x'\n", "must be a list"),
        ("[decode]\nports = { '1' = 2 }\n", "must be a table of texts"),
        ("nosuch = 1\n", "nosuch"),
        ('[colors]\nfarme = "1"\n', "no style is called 'farme'; did you mean 'frame'"),
        ('[endpoints]\n"eu server" = "x"\n', "'eu server' is neither an address nor address:port"),
        ('[endpoints]\n"1.2.3.4:99999" = "x"\n', "ports are 0 to 65535"),
        ('[endpoints]\n"::0001" = "x"\n', "write '::0001' as '::1'"),
        ('[endpoints]\n"1.2.3.4:080" = "x"\n', "as '1.2.3.4:80'"),
        ('[colors]\nframe = "evil\\u001b[2J"\n', "colors.frame"),
    ],
)
def test_faults_of_a_file_are_usage_errors(user: Path, text: str, said: str) -> None:
    user.write_text(text)
    with pytest.raises(UsageError, match=said):
        load()
    result = invoke("read", LOSSY)
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def test_origin_is_shown(user: Path) -> None:
    user.write_text('[output]\ncolor = "never"\n')
    shown = invoke("config", "show", "--origin").stdout
    assert f"user {user}" in shown
    rows = [json.loads(line) for line in invoke("config", "show", "--json").stdout.splitlines()]
    assert [row["setting"] for row in rows] == [key.name for key in KEYS]
    assert invoke("config", "path").stdout.strip() == str(user)


def test_what_is_shown_is_a_file_of_settings(monkeypatch, tmp_path) -> None:
    """Pasted into a file, it gives the same settings again."""
    import tomllib

    monkeypatch.chdir(tmp_path)
    (tmp_path / "netdissect.toml").write_text(
        'endpoints = { "127.0.0.1" = "a \\"b\\" c\\\\d" }\n[decode]\nports = { "7777" = "riptide-2.1" }\n'
    )
    first = CliRunner().invoke(cli, ["config", "show", "--origin"])
    assert first.exit_code == 0, first.output
    assert tomllib.loads(first.stdout)["endpoints"] == {"127.0.0.1": 'a "b" c\\d'}
    assert f"# project {tmp_path}/netdissect.toml" in first.stdout
    assert first.stdout.count("# default") > 5
    (tmp_path / "netdissect.toml").write_text(first.stdout)
    again = CliRunner().invoke(cli, ["config", "show"])
    values = [line.partition("  #")[0].rstrip() for line in first.stdout.splitlines()]
    assert [line.partition("  #")[0].rstrip() for line in again.stdout.splitlines()] == values


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("NETDISSECT_TIME", "zz"), ("NETDISSECT_COLOR", "blue"), ("NETDISSECT_BYTE_ORDER", "middle"),
        ("NETDISSECT_INFLATE_LIMIT", "abc"), ("NETDISSECT_INFLATE_LIMIT", "-5"),
        ("NETDISSECT_INFLATE_LIMIT", "9" * 5000), ("NETDISSECT_INFLATE_RATIO", "0"),
        ("NETDISSECT_INFLATE_RATIO", str(1 << 40)), ("NETDISSECT_DECODE_AS", "7777"),
        ("NETDISSECT_DECODE_AS", "7777=riptid"), ("NETDISSECT_DECODE_AS", "99999=riptide"),
        ("NETDISSECT_DIALECTS", "riptide-9"), ("NETDISSECT_DISABLED", "riptid"),
        ("NETDISSECT_SCHEMAS", "nosuch.json"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_named(
    user: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    result = invoke("read", LOSSY, "-c", "1")
    assert result.exit_code == 2
    assert variable in result.stderr


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:21109", "::1", "[::1]:80"])
def test_an_endpoint_is_an_address_with_or_without_a_port(user: Path, name: str) -> None:
    user.write_text(f'[endpoints]\n"{name}" = "x"\n')
    assert in_force("endpoints")[0] == {name: "x"}


@pytest.mark.skipif(os.getuid() != 0, reason="takes root")
@pytest.mark.parametrize("number", ["4294967295", "9" * 14, "9" * 5000, "-1", "٣", "x", ""])
def test_who_cannot_have_called_sudo_did_not(
    monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    for user, group in ((number, "0"), ("1000", number)):
        monkeypatch.setenv("SUDO_UID", user)
        monkeypatch.setenv("SUDO_GID", group)
        assert caller() is None
        assert invoke("read", LOSSY, "-c", "1").exit_code == 0
    assert account_named(number) is None


def test_a_misspelt_variable_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLOUR", "PURE", "UNCONFINED"):
        monkeypatch.setenv(f"NETDISSECT_{name}", "1")
    said = [line for line in load().ignored if "NETDISSECT_" in line]
    assert said == ["NETDISSECT_COLOUR is ignored: no setting has that name; did you mean 'COLOR'?"]


@pytest.mark.parametrize(
    "text",
    [
        '[output]\ntime = "zz"\n', '[output]\ncolor = "blue"\n', "[decode]\ninflate_limit = 0\n",
        f"[decode]\ninflate_limit = {1 << 40}\n", '[decode]\ndialects = ["riptide-9"]\n',
        '[decode]\nschemas = ["~nosuchuser/x.json"]\n', '[decode]\nschemas = ["nosuch.json"]\n', "x = " + "[" * 3000 + "]" * 3000,
        '[decode.ports]\n"x" = "riptide"\n', '[otput]\ntime = "r"\n',
    ],
)  # fmt: skip
def test_a_bad_value_names_its_file(user: Path, text: str) -> None:
    user.write_text(text)
    result = invoke("read", LOSSY, "-c", "1")
    assert result.exit_code == 2
    assert str(user) in result.stderr
    assert "unexpected" not in result.stderr


def test_a_file_that_may_not_be_read_is_a_note(user: Path) -> None:
    user.mkdir()
    result = invoke("read", LOSSY, "-c", "1")
    assert result.exit_code == 0
    assert f"note: {user} is ignored: Is a directory" in result.stderr
    assert "note" not in invoke("read", LOSSY, "-c", "1", "-q").stderr


def test_a_home_that_nobody_knows_is_no_fault(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "~nosuchuser")
    assert invoke("read", LOSSY, "-c", "1").exit_code == 0


@pytest.mark.parametrize("environ", [{"XDG_CONFIG_HOME": "."}, {"HOME": "."}, {"HOME": "a/../"}])
def test_a_folder_of_settings_is_never_relative(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be in the current folder, which somebody else may have filled."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "netdissect", tmp_path / ".config" / "netdissect"):
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text("x = ")
    result = invoke("read", LOSSY, "-c", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert user_file().is_absolute()


@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_project_file_that_others_can_write_is_ignored(
    user: Path, tmp_path: Path, which: str
) -> None:
    project = tmp_path / "project" / "netdissect.toml"
    project.write_text('[output]\ntime = "e"\n')
    (project if which == "file" else project.parent).chmod(0o777)
    result = invoke("read", LOSSY, "-c", "1")
    assert result.exit_code == 0
    assert f"note: {project} is ignored: it" in result.stderr
    assert "writable by other users" in result.stderr
    assert "0.000000" in result.stdout
    assert str(project) in invoke("config", "show", "--origin").stdout
    rows = [json.loads(line) for line in invoke("config", "show", "--json").stdout.splitlines()]
    assert any(str(project) in row.get("ignored", "") for row in rows)


def test_a_project_file_that_is_none_is_named(user: Path, tmp_path: Path) -> None:
    project = tmp_path / "project" / "netdissect.toml"
    os.mkfifo(project)
    result = invoke("read", LOSSY, "-c", "1")
    assert result.exit_code == 0
    assert f"note: {project} is ignored: it is not a regular file" in result.stderr
    assert "not a regular file" in invoke("config", "show", "--origin").stdout


@pytest.mark.parametrize(
    ("name", "members", "taken"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "you"], False), ("users", [], False)],
)
def test_a_group_that_others_are_in_is_others(
    user: Path, tmp_path: Path, monkeypatch, name: str, members: list[str], taken: bool
) -> None:
    project = tmp_path / "project" / "netdissect.toml"
    project.write_text('[output]\ntime = "e"\n')
    project.chmod(0o664)
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_name="me"))
    row = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr("grp.getgrgid", lambda _: row)
    assert ("writable by other users" in invoke("read", LOSSY, "-c", "1").stderr) is not taken


def test_a_project_lowers_bounds_and_lifts_none(user: Path, tmp_path: Path) -> None:
    project = tmp_path / "project" / "netdissect.toml"
    project.write_text("[decode]\ninflate_limit = 2000000\ninflate_ratio = 10\n")
    found = load()
    values = {row.key.name: row.value for row in found.rows}
    assert (values["decode.inflate_limit"], values["decode.inflate_ratio"]) == (1 << 20, 10)
    assert "cannot raise this limit above 1048576" in found.ignored[0]


def test_a_project_names_no_file_outside_of_its_folder(user: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (tmp_path / "project" / "link.json").symlink_to(outside)
    (tmp_path / "project" / "netdissect.toml").write_text(
        f'[decode]\nschemas = ["../outside.json", "link.json", "{outside}", "own.json"]\n'
    )
    found = load()
    values = {row.key.name: row.value for row in found.rows}
    assert values["decode.schemas"] == [str(tmp_path / "project" / "own.json")]
    assert len(found.ignored) == 3


def test_the_bounds_of_the_settings_are_those_of_the_decoder() -> None:
    defaults = {key.name: key.default for key in KEYS}
    usual = Bounds()
    assert defaults["decode.inflate_limit"] == usual.octets
    assert defaults["decode.inflate_ratio"] == usual.ratio
