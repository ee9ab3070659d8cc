import os
import time
from pathlib import Path

import pytest

from netdissect.model.files import open_pinned, parse_toml, pinned_files

LONG = ".".join("a" * 66)


@pytest.mark.parametrize(
    "text",
    [
        f"x = [{', '.join(f'{n / 10}' for n in range(100))}]",
        f"x = [{', '.join(repr(f'b.{n}') for n in range(100))}]",
        f"x = '{LONG}'",
        f'x = "it\\"s {LONG}"',
        f'x = """\n"quoted" {LONG}\n"""',
        f"x = '''\nit's {LONG}'''",
        f"x = 1 # it's {LONG}",
        ".".join("a" * 64) + " = 1",
    ],
)
def test_many_dots_are_no_long_key(text):
    assert parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"x = {{ {LONG} = 1 }}",
        f"x = 'it' # \"\ny = \"'\"\n{LONG} = '#'",
        " . ".join(["'a.b'", '"c#\\"d"'] * 33) + " = 1",
    ],
)
def test_long_keys_are_refused(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(text)


@pytest.mark.parametrize("part", ['"', '"""\\', "'''", "'", "a.", "a .", '""."".', "#'", '\\"'])
def test_the_look_for_long_keys_takes_linear_time(part):
    def seconds(count):
        text = "x = \0" + part * count
        began = time.process_time()
        with pytest.raises(ValueError, match=r"."):
            parse_toml(text)
        return time.process_time() - began

    assert seconds(400_000 // len(part)) < 20 * max(seconds(40_000 // len(part)), 0.005)


@pytest.mark.parametrize("kind", ["fifo", "other", "shorter", "gone"])
def test_a_file_that_is_opened_twice_is_the_same(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / "x", tmp_path / "other"
    path.write_bytes(b"12345")
    with pinned_files():
        open_pinned(path).close()
        if kind == "fifo":
            os.mkfifo(other)
            other.replace(path)
        elif kind == "other":
            other.write_bytes(b"12345")
            other.replace(path)
        elif kind == "shorter":
            path.write_bytes(b"1234")
        else:
            path.unlink()
        with pytest.raises(OSError, match=r"twice|No such file") as fault:
            open_pinned(str(path))
    assert fault.value.filename == str(path)
    if kind in {"other", "shorter"}:
        open_pinned(path).close()  # outside, a path may mean one file after another


def test_a_file_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    with pinned_files():
        open_pinned(path).close()
        path.write_bytes(b"123456")
        with open_pinned(path) as file:
            assert file.read() == b"123456"


def test_a_pipe_is_not_waited_for_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    os.mkfifo(path)
    holder = os.open(path, os.O_RDWR)
    with pinned_files():
        open_pinned(path).close()
        os.close(holder)
        with pytest.raises(OSError, match="is not a regular file, and has to be read twice"):
            open_pinned(path)


def test_where_no_pipe_is_wanted_none_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file"):
        open_pinned(tmp_path / "x", regular=True)
