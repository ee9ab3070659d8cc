from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from netdissect.system import keeper, programs


def make(folder: Path, name: str = "tool", text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("entry", [".", "", "./", "bin", "../downloads"])
def test_relative_entries_of_the_path_count_for_nothing(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "downloads"
    make(here)
    make(here / "bin")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", entry)
    assert programs.find("tool") is None


def test_the_current_folder_counts_for_nothing_by_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "downloads"
    make(here)
    (tmp_path / "link").symlink_to(here)
    monkeypatch.setenv("PATH", f"{here}:{tmp_path / 'link'}")
    assert programs.find("tool") == str(here / "tool")
    monkeypatch.chdir(here)
    assert programs.find("tool") is None


def test_nor_do_folders_and_programs_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert programs.find("tool") == str(path)
    path.chmod(0o757)
    assert programs.find("tool") is None
    path.chmod(0o755)
    (tmp_path / "bin").chmod(0o1777)
    assert programs.find("tool") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_nor_does_what_belongs_to_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    os.chown(path, 65534, 65534)
    assert programs.find("tool") is None


def test_what_may_not_be_run_is_found_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "bin")
    path.chmod(0o600)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert programs.find("tool") is None
    assert programs.find("tool", runnable=False) == str(path)


def test_a_program_runs_elsewhere_with_an_environment_of_its_own_and_no_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("PYTHONPATH", ".")
    read, write = os.pipe()
    os.set_inheritable(read, True)
    script = make(tmp_path / "bin", text="#!/bin/sh\npwd; env; ls /proc/self/fd\n")
    try:
        said = programs.answer([str(script)], 10).stdout.decode().split("\n")
    finally:
        os.close(read)
        os.close(write)
    assert said[0] == "/"
    names = {line.partition("=")[0] for line in said if "=" in line}
    assert names - {"PWD", "SHLVL", "OLDPWD", "_"} <= {
        "HOME", "LOGNAME", "USER", "TMPDIR", "PATH", "LC_ALL",
    }  # fmt: skip
    assert {line for line in said if line.isdigit()} <= {"0", "1", "2", "3"}, "3 is that of ls"


@pytest.mark.parametrize("readable", [True, False])
def test_a_home_that_cannot_be_read_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, readable: bool
) -> None:
    row = pwd.getpwuid(os.getuid())
    home = str(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((*row[:5], home, row[6])))
    monkeypatch.setattr(os, "access", lambda *_: readable)
    monkeypatch.setattr(os, "environ", {"HOME": "/root", "PATH": "/bin", "LANG": "xx"})
    keeper._live_as(os.getuid())
    told = os.environ["HOME"]
    assert os.environ == {"HOME": told, "LOGNAME": row[0], "USER": row[0], "PATH": "/bin"}
    assert (told == home) is readable
    assert readable or not Path(told).exists()


def test_only_absolute_paths_are_started() -> None:
    with pytest.raises(ValueError, match="absolute"):
        programs.answer(["sh", "-c", "exit"], 1)


def test_our_own_files_run_with_this_python_and_no_foreign_modules(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.flags.isolated, sys.flags.no_site, sys.argv[1:])")
    process = programs.start_script(str(script), ["a"], stdout=-1)
    said, _ = process.communicate()
    assert said == b"1 1 ['a']\n"


def test_output_ends_when_the_program_has_said_everything(tmp_path: Path) -> None:
    """dumpcap closes its output before it says what was dropped."""
    tool = make(tmp_path / "bin", text="#!/bin/sh\necho early\nexec >&-\nsleep 0.3\necho late >&2\n")
    said = (tmp_path / "said").open("w+b")
    process = programs.start_script(
        keeper.__file__, [str(tool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
    )
    assert process.stdout is not None
    assert process.stdout.read() == b"early\n"
    said.seek(0)
    assert said.read() == b"late\n"
    process.communicate()
    said.close()


def test_what_libraries_start_takes_nothing_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("print('taken')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{tmp_path}:/usr/bin")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with programs.nothing_of_the_folder():
        words = [sys.executable, "-c", "import os, pickle; print(os.environ['PATH'])"]
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert found == "/usr/bin\n"
    assert os.environ["PATH"] == f".:{tmp_path}:/usr/bin"
    assert "PYTHONSAFEPATH" not in os.environ
