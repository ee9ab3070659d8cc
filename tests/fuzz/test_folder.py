from __future__ import annotations

import json
import os
import re
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from netdissect.fuzz import CONNECTED, Step, Target, load_failure, minimise_failure
from netdissect.fuzz import store as store_module
from netdissect.fuzz.folder import Folder
from netdissect.fuzz.minimise import Minimised, save_minimal
from netdissect.fuzz.monitors import ProcessMonitor, Verdict
from netdissect.fuzz.store import Sent, Store
from netdissect.model.errors import UsageError

STEP = Sent(0, 1, CONNECTED, Step(b"ab"), b"ab")
FACTS = {"kind": "exit", "protocol": "riptide", "dialect": "riptide-2.2", "target": "127.0.0.1:9"}


def failure(folder: Path, **facts: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "failure.json").write_text(json.dumps({**FACTS, **facts}))
    (folder / "steps.jsonl").write_text(json.dumps(STEP.to_json()) + "\n")
    return folder


@pytest.mark.parametrize("name", ["failure.json", "steps.jsonl"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_plain_files_are_read(name: str, kind: str, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / name).rename(tmp_path / "real")
    if kind == "link":
        (folder / name).symlink_to(tmp_path / "real")
    elif kind == "fifo":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    why = ": a symbolic link" if kind == "link" else " is not a regular file"
    with pytest.raises(UsageError, match=f"no failure folder: {name}{why}"):
        load_failure(folder)


@pytest.mark.parametrize("name", ["failure.json", "steps.jsonl"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    (failure(tmp_path / "failure") / name).unlink()
    with pytest.raises(UsageError, match=f"no failure folder: {name}: No such file"):
        load_failure(tmp_path / "failure")


@pytest.mark.parametrize("name", ["failure.json", "steps.jsonl"])
def test_what_is_nested_too_deeply_is_called_so(name: str, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / name).write_text('{"a":' * 100_000)
    with pytest.raises(UsageError, match=rf"is no failure folder: {name}.*: nested too deeply"):
        load_failure(folder)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    failure(tmp_path / "failure")
    (tmp_path / "link").symlink_to("failure")
    assert load_failure(tmp_path / "link").kind == "exit"


@pytest.mark.parametrize(
    ("limit", "size"), [("MAX_FACTS_OCTETS", 10), ("MAX_STEPS_OCTETS", 10), ("MAX_STEPS", 0)]
)
def test_sizes_are_bounded(
    limit: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, limit, size)
    with pytest.raises(UsageError, match="more than"):
        load_failure(failure(tmp_path / "failure"))


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_a_list_of_empty_steps_takes_no_memory_per_line(end: bytes, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / "steps.jsonl").write_bytes(end * (32_000_000 // len(end)))
    tracemalloc.start()
    with suppress(UsageError):
        load_failure(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * store_module.MAX_STEPS_OCTETS


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"octets": "00", "advance": 1' + "0" * 30 + "}",
        '{"octets": "00", "shift": {"ack": 1' + "0" * 5000 + "}}",
        '{"octets": "00", "session": []}',
        '{"octets": 7}',
    ],
)
def test_hostile_steps_are_an_error(line: str, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / "steps.jsonl").write_text(line)
    with pytest.raises(UsageError, match="no failure folder"):
        load_failure(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("failure.json", "[]", "failure.json: must be an object"),
        ("failure.json", "{}", "failure.json: 'kind' is missing"),
        ("failure.json", '{"kind": "exit", "protocol": []}', "failure.json: 'protocol' must be a text"),
        ("failure.json", '{"kind": "exit", "transport": 5}', "failure.json: 'transport' must be a text"),
        ("failure.json", "{", "failure.json: Expecting property name"),
        ("steps.jsonl", "\n[]", "steps.jsonl, line 2: must be an object"),
        ("steps.jsonl", "{}", "steps.jsonl, line 1: 'octets' is missing"),
        ("steps.jsonl", '{"octets": "zz"}', "steps.jsonl, line 1: 'octets' must be hexadecimal digits"),
        ("steps.jsonl", '{"octets": []}', "steps.jsonl, line 1: 'octets' must be hexadecimal digits"),
        ("steps.jsonl", '{"octets": "", "hold": 5}', "line 1: 'hold' must be a list"),
        ("steps.jsonl", '{"octets": "", "shift": [1]}', "line 1: 'shift' must be an object"),
        ("steps.jsonl", '{"octets": "", "shift": {"ack": "x"}}', "line 1: 'ack' must be a whole number"),
        ("steps.jsonl", '{"octets": "", "advance": true}', "line 1: 'advance' must be a whole number"),
        ("steps.jsonl", '{"octets": "", "case": null}', "line 1: 'case' must be a whole number"),
        ("steps.jsonl", '{"octets": "", "sent": {}}', "line 1: 'sent' must be hexadecimal digits"),
    ],
)
def test_what_has_another_shape_is_said_with_its_place(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    folder = failure(tmp_path / "failure")
    (folder / name).write_text(content)
    with pytest.raises(UsageError, match="is no failure folder: .*" + re.escape(said)):
        load_failure(folder)


def test_a_minimal_folder_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "minimal").symlink_to(outside)
    found = load_failure(folder)
    with pytest.raises(UsageError, match="cannot write"):
        save_minimal(found, Minimised((STEP,), 1, True), [b"ab"])
    assert list(outside.iterdir()) == []


def test_where_nothing_can_be_written_nothing_is_tried(tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / "minimal").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"cannot write .*minimal: Not a directory"):
        minimise_failure(load_failure(folder), Target("127.0.0.1", 9))


@pytest.mark.parametrize("name", ["failure.json", "steps.jsonl", "datagrams/0001.bin"])
def test_a_folder_in_place_of_a_file_is_seen_before_the_trials(name: str, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / "minimal" / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=rf"cannot write .*{name}: Is a directory"):
        minimise_failure(load_failure(folder), Target("127.0.0.1", 9))


def test_a_link_in_place_of_the_datagrams_is_seen_before_the_trials(tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    (folder / "minimal").mkdir()
    (folder / "minimal" / "datagrams").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"cannot write .*datagrams: Not a directory"):
        minimise_failure(load_failure(folder), Target("127.0.0.1", 9))


@pytest.mark.parametrize("name", ["failure.json", "steps.jsonl", "datagrams/0001.bin"])
def test_links_in_a_minimal_folder_are_replaced_not_followed(name: str, tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    hard = tmp_path / "hard"
    os.link(precious, hard)
    link = folder / "minimal" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    (link.parent / "log.txt").hardlink_to(hard)
    save_minimal(load_failure(folder), Minimised((STEP,), 1, True), [b"ab"])
    assert precious.read_text() == "precious"
    assert not link.is_symlink()
    assert load_failure(folder / "minimal").steps[0].octets == b"ab"


def test_steps_that_were_not_sent_once_more_stay_as_they_were_found(tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    save_minimal(load_failure(folder), Minimised((STEP, STEP), 1, True), [b"xy"])
    assert [each.octets for each in load_failure(folder / "minimal").steps] == [b"xy", b"ab"]


def test_datagrams_are_not_removed_through_a_link(tmp_path: Path) -> None:
    folder = failure(tmp_path / "failure")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0001.bin").write_text("precious")
    (folder / "minimal").mkdir()
    (folder / "minimal" / "datagrams").symlink_to(outside)
    with pytest.raises(UsageError, match="cannot write"):
        save_minimal(load_failure(folder), Minimised((STEP,), 1, True), [b"ab"])
    assert (outside / "0001.bin").read_text() == "precious"


@pytest.mark.parametrize("name", ["run.json", "report.json"])
def test_a_run_writes_through_no_link(name: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(precious)
    store = Store(run)
    store.write_run({})
    store.write_report({})
    store.close()
    assert precious.read_text() == "precious"


def test_nor_does_it_keep_failures_behind_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "failures").symlink_to(tmp_path)
    store = Store(run)
    with pytest.raises(OSError, match=r"directory|symbolic"):
        store.write_failure(
            Verdict("exit", ""), FACTS, [STEP],
            number=1, example=1, log=b"", traffic=[], target=Target("127.0.0.1", 9), transport="udp",
        )  # fmt: skip
    store.close()


def test_the_log_of_a_target_is_a_new_file(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "target.log").symlink_to(precious)
    with pytest.raises(UsageError, match="cannot create"):
        ProcessMonitor(["/bin/echo", "hello"], tmp_path / "target.log").start()
    assert precious.read_text() == "precious"


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    with Folder(tmp_path) as folder:
        with suppress(StopError), folder.writing("x") as file:
            file.write(b"half")
            raise StopError
        assert folder.names() == []
