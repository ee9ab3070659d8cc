"""What words of the command line stand for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZipFile

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry as registry

from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.survey import sources
from netdissect.survey.sources import MAX_ROTATED, Source, join_rotated, local_copy, sources_of


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


def test_a_folder_that_cannot_be_listed_is_a_source_that_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert names(folder, str(folder))[-1] == "deep"


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
    with local_copy(near) as (_, key, *_), local_copy(far) as (path, same, *_):
        assert key == same
        assert path != far.path
        assert Path(path).read_bytes() == b"b.pcap"
    assert not Path(path).exists()


def test_a_url_may_be_a_folder_or_a_pattern(folder: Path) -> None:
    assert names(folder, f"file://{folder}")[1:] == ["a.pcapng.gz", "b.pcap", "deep/c.pcap12"]
    assert names(folder, f"file://{folder}/b*") == ["b.pcap"]


def test_files_of_one_name_in_two_archives_are_captures_of_their_own(folder: Path) -> None:
    for name in ("a.zip", "b.zip"):
        with ZipFile(folder / name, "w") as archive:
            archive.writestr("g.pcap", name)
    found = sources_of([f"zip://*.pcap::{folder}/a.zip", f"zip://g.pcap::file://{folder}/b.zip"])
    assert [each.name for each in found] == [
        f"zip://g.pcap::{folder}/a.zip", f"zip://g.pcap::file://{folder}/b.zip",
    ]  # fmt: skip
    for each, content in zip(found, (b"a.zip", b"b.zip"), strict=True):
        with local_copy(each) as copy:
            assert Path(copy.path).read_bytes() == content
    (cached,) = sources_of([f"simplecache::file://{folder}/b.pcap"])
    assert cached.name == f"file://{folder}/b.pcap"


def test_what_is_not_there_is_said_without_secrets(folder: Path) -> None:
    with pytest.raises(CaptureFileError, match="no captures"):
        sources_of([f"{folder}/*.nothing"])
    with pytest.raises(CaptureFileError, match=r"nothing\.pcap: No such file"):
        sources_of([f"{folder}/b.pcap", f"{folder}/nothing.pcap"])
    with pytest.raises(UsageError, match="nosuch://host") as error:
        sources_of(["nosuch://me:secret@host/x?token=secret"])
    assert "secret" not in str(error.value)
    with pytest.raises(CaptureFileError, match=r"memory://host/\*\.nothing: no captures") as none:
        sources_of(["memory://me:secret@host/*.nothing"])
    assert "secret" not in str(none.value)


class Hosted(MemoryFileSystem):
    """A file system whose paths do not state the host, such as SFTP."""

    protocol = "hosted"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("hosted://").partition("/")[2].rstrip("/")


def test_files_of_one_path_on_two_hosts_are_captures_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry, "hosted", Hosted)
    Hosted().pipe("/caps/g.pcap", b"")
    found = sources_of(["hosted://me:secret@b:22/caps/*.pcap", "hosted://a/caps/g.pcap"])
    assert [each.name for each in found] == ["hosted://a/caps/g.pcap", "hosted://b:22/caps/g.pcap"]


@pytest.fixture
def web(folder: Path) -> Iterator[str]:
    """A web server of the captures, on loopback."""
    pytest.importorskip("aiohttp", reason="pip install aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    made = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_capture_is_read_from_the_web(web: str) -> None:
    (far,) = sources_of([f"{web}/b.pcap"])
    assert (far.name, far.octets) == (f"{web}/b.pcap", 6)
    with local_copy(far) as (path, *_):
        assert Path(path).read_bytes() == b"b.pcap"


def test_a_page_of_the_web_stands_for_the_captures_that_it_links_to(web: str) -> None:
    assert [each.name for each in sources_of([f"{web}/deep/"])] == [f"{web}/deep/c.pcap12"]
    assert [each.name for each in sources_of([f"{web}/deep"])] == [f"{web}/deep/c.pcap12"]
    assert [each.name for each in sources_of([f"{web}/b*"])] == [f"{web}/b.pcap"]


def test_what_the_web_does_not_have_is_said(folder: Path, web: str) -> None:
    with pytest.raises(CaptureFileError, match=r"/no\.pcap: the server answers 404 File not found$"):
        sources_of([f"{web}/no.pcap?token=secret"])
    (folder / "empty").mkdir()
    with pytest.raises(CaptureFileError, match="/empty/: no captures there"):
        sources_of([f"{web}/empty/"])
    with pytest.raises(CaptureFileError, match=r"x\.pcap: Cannot connect to host 127\.0\.0\.1:9 "):
        sources_of(["http://127.0.0.1:9/x.pcap"])


def test_what_the_web_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.delitem(registry, "http", raising=False)
    with pytest.raises(UsageError, match=r"/x\.pcap: .*: pip install aiohttp$"):
        sources_of(["http://127.0.0.1:9/x.pcap"])


@pytest.mark.parametrize(
    ("scheme", "package"),
    [("s3", "s3fs"), ("gs", "gcsfs"), ("ssh", "paramiko"), ("sftp", "paramiko"), ("az", "adlfs")],
)
def test_what_other_servers_need_is_said(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    monkeypatch.delitem(registry, scheme, raising=False)
    with pytest.raises(UsageError, match=rf"^{scheme}://h/x\.pcap: .*[Ii]nstall.*") as error:
        sources_of([f"{scheme}://me:secret@h/x.pcap"])
    assert package in str(error.value)
    assert "secret" not in str(error.value)


def together(*names: str) -> list[int]:
    """Return how many files each capture consists of."""
    return [len(each.parts) or 1 for each in join_rotated(Source(name, name) for name in sorted(names))]


def test_the_files_of_a_rotated_capture_are_one() -> None:
    assert together("a/g_00001_20260131120000.pcapng", "a/g_00002_20260131130000.pcapng") == [2]
    assert together("a/g.pcap", "a/g.pcap1", "a/g.pcap2", "a/g.pcap10") == [4]
    assert together("g-2026-01-31_12-00.pcap.gz", "g-2026-01-31_13-00.pcap.gz") == [2]
    # Whoever compresses them has not come to the newest one yet.
    assert together("g.pcap", "g.pcap1.gz", "g.pcap2.xz", "g.pcap3.zst") == [4]
    assert together("s3://b/g-20260131T1200.pcap", "s3://b/g-20260131T1300.pcap") == [2]


def test_other_files_are_captures_of_their_own() -> None:
    assert together("s1.pcap", "s2.pcap", "g-1700000000.pcap", "g-1700000001.pcap") == [1] * 4
    assert together("a/g_00001_20260131120000.pcap", "b/g_00002_20260131130000.pcap") == [1, 1]
    assert together("eth0-20260131.pcap", "eth1-20260131.pcap") == [1, 1]
    assert together("a/2026-01-30/g.pcap", "a/2026-01-31/g.pcap") == [1, 1]
    # What lies beside the file that it was made of is not joined with it.
    assert together("g.pcap1", "g.pcap2", "g.pcap1.gz") == [2, 1]


def test_urls_that_differ_in_their_query_are_captures_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queries are not shown, as they may hold secrets; and yet they say which capture is meant."""

    def remote(word: str) -> Iterator[Source]:
        yield Source(sources._shown(word), word, word)

    monkeypatch.setattr(sources, "_remote", remote)
    words = [f"https://h/get?id={number}&key=secret" for number in (1, 2)]
    found = sources_of([*words, words[0]])
    assert sorted(source.path for source in found) == words
    assert len({source.name for source in found}) == 2
    assert not any("secret" in source.name for source in found)


def test_so_many_files_are_joined_and_no_more() -> None:
    names = [f"g.pcap{number}" for number in range(MAX_ROTATED + 3)]
    assert together(*names) == [MAX_ROTATED, 3]
    first, last = join_rotated(Source(name, name) for name in sorted(names))
    assert [part.name for part in (*first.parts, *last.parts)] == names
