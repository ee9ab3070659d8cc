from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from netdissect.layers import PROTOCOLS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "netdissect"

_ROW = re.compile(r"^\| `(\w+)(?:/|\.py)` \| .* \| ([\w, -]+) \|$", re.MULTILINE)
ROOMS: dict[str, set[str]] = {
    room: set(re.findall(r"\w+", imported))
    for room, imported in _ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
}
"""Room -> rooms that it imports, as the map says. Every room may import itself."""
UPWARD = {"layers/binding.py": {"dissect"}}
"""File -> rooms that it imports by name, late, against the map."""

FOREIGN: dict[str, set[str]] = {
    "scapy": {"layers", "dissect", "craft", "fuzz", "capture/live.py", "scapy_session"},
    "pyshark": {"capture/tshark.py"},
    "rich": {"render", "cli", "browse/app.py"},
    "textual": {"browse/app.py"},
    "click": {"cli"},
    "zstandard": {"capture"},
    "librt": {"model/native.py"},
    "distributed": {"survey"},
    "dask": {"survey"},
    "pyarrow": {"survey"},
    "fsspec": {"survey"},
    "duckdb": {"survey"},
}
"""Package from elsewhere -> where it may be imported."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all that a file of the source consists of."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[str]:
    """Yield every imported module, also those inside functions; relative ones count as faults."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_house_plan(path: Path) -> None:
    here = room(path)
    if here in ("__init__", "__main__"):
        return
    assert here in ROOMS or here == "_version", f"{here} is not on the map of ARCHITECTURE.md"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "netdissect":
            there = parts[1] if len(parts) > 1 else "_version"
            allowed = {here, "_version", *ROOMS.get(here, ())}
            assert there in allowed, f"{here} must not import {name}"
        elif parts[0] in FOREIGN:
            places = FOREIGN[parts[0]]
            place = str(path.relative_to(SOURCE))
            assert here in places or place in places, f"{place} must not import {parts[0]}"


def test_the_map_has_no_arrow_that_nobody_takes() -> None:
    taken: dict[str, set[str]] = {name: set() for name in ROOMS}
    for path in modules():
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "netdissect" and len(parts) > 1 and room(path) in taken:
                taken[room(path)].add(parts[1])
    unused = {name: ROOMS[name] - found for name, found in taken.items() if ROOMS[name] - found}
    assert not unused, f"ARCHITECTURE.md lets these import what they do not: {unused}"


def test_imports_by_name_follow_the_map() -> None:
    for path in modules():
        here, place = room(path), str(path.relative_to(SOURCE))
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                text = ast.unparse(node.args[0])
                for there in re.findall(r"netdissect\.(\w+)", text):
                    allowed = {here, *ROOMS.get(here, ()), *UPWARD.get(place, ())}
                    assert there in allowed, f"{place} must not import {text}"


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_files(path: Path, files: set[str]) -> set[str]:
    """Return the modules of the project that a file imports anywhere: at its top, late in a
    function, for type checking alone.
    """
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in files else str(node.module))
    return found & files - {dotted(path)}


def test_no_files_import_each_other() -> None:
    """Take away, again and again, what imports nothing that is left: a circle would remain."""
    paths = {dotted(path): path for path in modules()}
    left = {name: imported_files(path, set(paths)) for name, path in paths.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    circles = {name: sorted(needs & left.keys()) for name, needs in left.items()}
    assert not circles, f"import circles, and what depends on them: {circles}"


_STARTERS = {"subprocess", "webbrowser", "pty", "multiprocessing"}
_START_CALLS = {"system", "popen", "fork", "forkpty", "echo_via_pager", "edit", "launch"}
_STARTS = {
    "system/programs.py": "the one place",
    "system/keeper.py": "runs what that place gives it",
    "fuzz/monitors.py": "the target, by the user's own words",
    "pipeline/parallel.py": "copies of this process",
    "fuzz/workers.py": "copies of this process",
    "capture/live/recorder.py": "a copy of this process",
    "capture/live/process.py": "names of types and pipes",
    "render/dashboard.py": "names of types and pipes",
    "capture/tools.py": "names of errors",
    "survey/run.py": "ends what Dask starts",
}
"""Module -> why it may name what starts programs."""


def test_programs_are_started_in_one_place() -> None:
    for path in modules():
        place = str(path.relative_to(SOURCE))
        if place in _STARTS:
            continue
        assert not _STARTERS & {name.partition(".")[0] for name in imports(path)}, place
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                called = node.func.attr
                starts = called in _START_CALLS or called.startswith(("exec", "spawn", "posix_spawn"))
                assert not (owner in {"os", "click"} and starts), f"{place} calls {owner}.{called}"


def test_nobody_looks_for_programs_elsewhere() -> None:
    for path in modules():
        assert "shutil.which" not in path.read_text(), path


def test_the_package_itself_imports_no_room_at_run_time() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    names = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert set(names) <= {"__future__", "typing", "netdissect._version"}


def test_tests_mirror_the_source() -> None:
    """Every test file of a room stands where the room stands, and every room is tested."""
    rooms = {room(path) for path in modules() if path.parent != SOURCE}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    missing = {name for name in rooms if name not in tested}
    assert not missing, f"rooms without tests: {sorted(missing)}"
    foreign = tested - rooms - {"support", "vectors", "truth", "corpus", "__pycache__"}
    assert not foreign, f"folders of tests that mirror no room: {sorted(foreign)}"


OWN = re.compile("|".join(sorted(PROTOCOLS)), re.IGNORECASE)
"""What names one of our protocols."""
NAMES_SOME = {
    "protocols/registry.py": "the list of protocols",
    "wire/varint.py": "families of numbers are called by the protocol that they come from",
}
"""Files that belong to no protocol and yet name some, and why."""


def names_in_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every name and string of a module but its documentation."""
    told = {
        id(node.value)
        for node in nodes(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes(path):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.alias)):
            yield line, node.name
        elif isinstance(node, ast.ImportFrom):
            yield line, node.module or ""
        elif isinstance(node, ast.Constant) and id(node) not in told:
            yield line, str(node.value)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_shared_file_names_a_protocol(path: Path) -> None:
    """What is said of one protocol stands in a file or a folder that is called after it."""
    place = str(path.relative_to(SOURCE))
    if OWN.search(place) or place in NAMES_SOME:
        return
    found = [
        f"{place}:{line}: {text[:60]}"
        for line, text in names_in_code(path)
        if OWN.search(text)
    ]
    assert not found


_MACHINE = re.compile(
    r"(?<![\w.$~{}-])/(?:work|root|home/\w+|tmp|Users)/[\w.-]+|\.library\b|localhost:8000",
)
_TEXT = {".py", ".md", ".toml", ".json", ".txt", ".cfg", ".yml", ".yaml", ".sh", ".uts", ".svg", ""}


def test_finishers_add_to_the_tree_and_neither_rename_nor_remove() -> None:
    taking = {"remove", "clear", "pop"}
    for path in (SOURCE / "dissect" / "finishers").glob("*.py"):
        for node in nodes(path):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Attribute) and node.attr in taking:
                on = node.value
                assert not (isinstance(on, ast.Attribute) and on.attr == "children"), where
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else []
            for target in targets:
                assert not (isinstance(target, ast.Attribute) and target.attr == "name"), where
                on = target.value if isinstance(target, ast.Subscript) else None
                assert not (isinstance(on, ast.Attribute) and on.attr == "children"), where


def test_no_file_names_a_path_of_the_machine_it_was_made_on() -> None:
    folders = ["src", "tests", "docs", "bench", "captures", ".ci"]
    files = [
        path for name in folders if (ROOT / name).is_dir() for path in (ROOT / name).rglob("*")
    ]
    # In a linked worktree `.git` is a file that holds a path.
    files += [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for path in files:
        if (
            not path.is_file()
            or path.suffix not in _TEXT
            or "venv" in path.parts
            or path == Path(__file__)
        ):
            continue
        found = _MACHINE.search(path.read_text(errors="replace"))
        assert found is None, f"{path.relative_to(ROOT)} names {found and found[0]}"


def defined(path: Path) -> set[str]:
    """Return the names that a module itself defines at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found


def test_all_stands_only_where_somebody_reads_it() -> None:
    """In the modules of the reference, in those that re-export, and in those of a star import."""
    read = set(re.findall(r"^## ([\w.]+)$", (ROOT / "docs/python-reference.md").read_text(), re.MULTILINE))
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                read.add(str(node.module))
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
                assert dotted(path) in read or names - defined(path), f"{path}: nobody reads it"


MAX_LINES = 560
MAX_PARAMETERS = 10
"""Of a command; what belongs together is handed over as one value (`options.handed`)."""


def test_functions_and_files_stay_readable() -> None:
    """The style guide's limits, with room for a table that is one expression."""
    for path in modules():
        text = path.read_text()
        generated = "generated" in text[:200].lower()
        assert generated or text.count("\n") <= MAX_LINES, f"{path.relative_to(ROOT)} is too long"
        if generated:
            continue
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= 70, f"{path.relative_to(ROOT)}: {node.name} has {length} lines"


def test_commands_do_not_take_lists_of_options() -> None:
    for path in (SOURCE / "cli").glob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                taken = [*node.args.args, *node.args.kwonlyargs]
                assert len(taken) <= MAX_PARAMETERS, f"{path.name}: {node.name} takes {len(taken)}"
