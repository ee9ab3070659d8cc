"""What words of the command line stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.survey.sources import held, sources_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.pcap", "a.pcapng.gz", "deep/c.pcap12", "notes.txt", ".hidden.pcap", "[x].pcap"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(name.encode())
    return tmp_path


def names(folder: Path, *words: str) -> list[str]:
    return [str(Path(each.path).relative_to(folder)) for each in sources_of(words)]


def test_a_folder_stands_for_its_captures(folder: Path) -> None:
    assert names(folder, str(folder)) == ["[x].pcap", "a.pcapng.gz", "b.pcap", "deep/c.pcap12"]


def test_a_pattern_and_a_file_name_the_same_once(folder: Path) -> None:
    words = (f"{folder}/*.pcap", f"{folder}/b.pcap", f"{folder}/notes.txt")
    assert names(folder, *words) == ["[x].pcap", "b.pcap", "notes.txt"]
    assert names(folder, f"{folder}/**/*.pcap*")[-1] == "deep/c.pcap12"


def test_a_file_with_the_name_of_a_pattern_is_that_file(folder: Path) -> None:
    assert names(folder, f"{folder}/[x].pcap") == ["[x].pcap"]


def test_a_url_is_fetched_and_has_the_key_of_its_content(folder: Path) -> None:
    (near,) = sources_of([f"{folder}/b.pcap"])
    (far,) = sources_of([f"file://{folder}/b.pcap"])
    assert far.url is not None
    assert far.octets == 6
    with held(near) as (_, key), held(far) as (path, same):
        assert key == same
        assert path != far.path
        assert Path(path).read_bytes() == b"b.pcap"
    assert not Path(path).exists()


def test_a_url_may_be_a_folder_or_a_pattern(folder: Path) -> None:
    assert names(folder, f"file://{folder}")[1:] == ["a.pcapng.gz", "b.pcap", "deep/c.pcap12"]
    assert names(folder, f"file://{folder}/b*") == ["b.pcap"]


def test_what_is_not_there_is_said_without_secrets(folder: Path) -> None:
    with pytest.raises(CaptureFileError, match="no captures"):
        sources_of([f"{folder}/*.nothing"])
    with pytest.raises(UsageError, match="nosuch://host") as error:
        sources_of(["nosuch://me:secret@host/x?token=secret"])
    assert "secret" not in str(error.value)
