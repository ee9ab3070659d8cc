"""What is derived from a plug-in's layers is kept, and never taken from a file of somebody else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from netdissect.dissect import cache, engine

LAYERS = """
from scapy.fields import ShortField, ByteField
from netdissect.layers.base import Layer
from netdissect.layers.fields import Items, Varint
from netdissect.wire.varint import VarintCodec

class Two(Layer):
    fields_desc = [ShortField("first", 1), ByteField("second", 2)]

def read_own(data, position, end):
    if position >= end:
        raise ValueError
    return data[position] * 2, position + 1

OWN = VarintCodec("own", read_own, lambda value: bytes([value // 2]), 0, 510)

class Own(Layer):
    fields_desc = [Varint("number", 0, OWN)]

class Pairs(Layer):
    fields_desc = [Items("pairs", Two)]

CODES = ()
READERS = [(Own, ()), (Pairs, ())]
"""


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a layer module that nobody has seen before."""
    name = f"kept_layers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(LAYERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache.readers.cache_clear()
    return name


def test_the_items_of_a_list_are_read_without_a_row_of_their_own(layers: str) -> None:
    assert cache.readers(layers).read_Pairs(b"\0\1\2\0\3\4", 0, 6) == ([(1, 2, 3), (3, 4, 6)], 6)


def test_what_stands_beside_the_layers_is_derived_anew_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size that the layers take from another file of their package stayed as it was."""
    package = tmp_path / f"beside_{tmp_path.name.replace('-', '_')}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("FIRST = 2")
    (package / "layers.py").write_text(
        "from scapy.fields import StrFixedLenField\n"
        "from netdissect.layers.base import Layer\n"
        f"from {package.name}.sizes import FIRST\n"
        "class One(Layer):\n"
        "    fields_desc = [StrFixedLenField('first', b'', FIRST)]\n"
        "CODES = ()\nREADERS = [(One, ())]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    layers = f"{package.name}.layers"
    assert cache.readers(layers).read_One(b"abcd", 0, 4) == (b"ab", 2)
    (package / "sizes.py").write_text("FIRST = 3 ")
    cache.readers.cache_clear()
    engine.layer_module.cache_clear()
    for module in (f"{package.name}.sizes", layers):
        sys.modules.pop(module)
    assert cache.readers(layers).read_One(b"abcd", 0, 4) == (b"abc", 3)


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "netdissect").iterdir())


def test_readers_are_derived_once(layers: str, tmp_path: Path) -> None:
    read: Any = cache.readers(layers)
    assert read.read_Two(b"\1\2\3\4", 0, 4) == (0x102, 3, 3)
    assert read.read_Two(b"\1\2", 0, 2) is None
    assert read.read_Own(b"\5", 0, 1) == (10, 1)
    assert read.read_Own(b"", 0, 0) is None
    (file,) = files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.write_text("def read_Two(buf, off, end): return 'kept'")
    cache.readers.cache_clear()
    assert cache.readers(layers).read_Two(b"", 0, 0) == "kept"


def test_new_sources_are_derived_anew(layers: str, tmp_path: Path) -> None:
    cache.readers(layers)
    (before,) = files(tmp_path)
    source = tmp_path / f"{layers}.py"
    source.write_text(source.read_text().replace("ByteField(", "ShortField("))
    del sys.modules[layers]
    engine.layer_module.cache_clear()
    cache.readers.cache_clear()
    assert cache.readers(layers).read_Two(b"\1\2\3\4", 0, 4) == (0x102, 0x304, 4)
    (after,) = files(tmp_path)
    assert after != before


@pytest.mark.parametrize("who", ["writable", "link", "folder", "owner"])
def test_what_others_may_have_written_is_not_run(
    who: str, layers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.readers(layers)
    (file,) = files(tmp_path)
    file.write_text("def read_Two(buf, off, end): return 'foreign'")
    if who == "writable":
        file.chmod(0o620)
    elif who == "link":
        real = tmp_path / "elsewhere.py"
        file.rename(real)
        file.symlink_to(real)
    elif who == "folder":
        file.parent.chmod(0o770)
    else:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    cache.readers.cache_clear()
    assert cache.readers(layers).read_Two(b"\1\2\3\4", 0, 4) == (0x102, 3, 3)


def test_nowhere_to_keep_them_is_no_fault(
    layers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.folder() is None
    assert cache.readers(layers).read_Two(b"\1\2\3\4", 0, 4) == (0x102, 3, 3)


def test_field_names_are_kept(layers: str, tmp_path: Path) -> None:
    wanted = {
        "first": "int 0 65535", "second": "int 0 255", "number": "int 0 510", "pairs": "list",
    }  # fmt: skip
    assert cache.field_kinds(layers) == wanted
    assert [file.name.rpartition("-")[2] for file in files(tmp_path)] == ["fields.json"]
    assert cache.field_kinds(layers) == wanted
