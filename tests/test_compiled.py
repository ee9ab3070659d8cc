"""The modules that the build compiles keep to what mypyc asks of them."""

import ast
import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import netdissect
from netdissect.lookup import hot_path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "netdissect"
PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
    "build"
]["targets"]["wheel"]["hooks"]["custom"]["compiled"]


def compiled_files() -> list[Path]:
    found = {path for pattern in PATTERNS for path in PACKAGE.glob(pattern)}
    return sorted(path for path in found if path.name != "__init__.py")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_names_a_module(pattern: str) -> None:
    assert list(PACKAGE.glob(pattern))


@pytest.mark.parametrize("path", compiled_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_classes_mean_the_same_when_compiled(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in [item for item in ast.walk(tree) if isinstance(item, ast.ClassDef)]:
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        assert "__len__" not in methods or "__bool__" in methods, node.name
        maker = methods.get("__init__")
        assert maker is None or maker.args.vararg is None, node.name
        tables = [item.value for item in node.body if isinstance(item, (ast.Assign, ast.AnnAssign))]
        names = {name.id for table in tables if table for name in ast.walk(table)
                 if isinstance(name, ast.Name)}  # fmt: skip
        assert not names & set(methods), node.name


INTERRUPTED = """
import ctypes, operator, signal
from functools import partial
from netdissect.join import clock

class Stop(BaseException):
    pass

def handler(*_):
    raise Stop

signal.signal(signal.SIGTERM, handler)
# As if the signal came now. No instruction of Python's runs before the first product, of a cross
# product of times in nanoseconds: CPython runs the handler within that.
interrupt = partial(ctypes.pythonapi.PyErr_SetInterruptEx, int(signal.SIGTERM))
points = [(number * 10**15, number % 2 * 10**15) for number in range(4)]
found = []
try:
    found.extend(map(operator.call, [interrupt, partial(clock._hull, points, lower=True)]))
except Stop:
    print("stopped")
"""


def test_a_signal_handler_may_raise_within_a_product() -> None:
    """mypyc's own code takes that for a lack of memory, and aborts."""
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"stopped\n", b"")


WITHOUT_MEMORY = """
import os
import _testcapi
from netdissect.join import clock

points = [(number * 10**15, number % 2 * 10**15) for number in range(4)]
for after in range(60):
    child = os.fork()
    if not child:
        _testcapi.set_nomemory(after, 0)
        try:
            clock._hull(points, lower=True)
        except MemoryError:
            os._exit(2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="takes fork")
def test_a_lack_of_memory_ends_the_process_without_an_abort() -> None:
    """Compiled arithmetic cannot raise; everything else raises MemoryError."""
    pytest.importorskip("_testcapi")
    words = [sys.executable, "-c", WITHOUT_MEMORY]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    statuses = list(map(int, run.stdout.split()))
    assert set(statuses) <= {0, 1, 2}
    assert run.stderr == "netdissect: out of memory\n" * statuses.count(1)
    assert 1 in statuses or hot_path() != "compiled"


def build_hook() -> Any:
    """Import `hatch_build.py`."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = hook
    spec.loader.exec_module(hook)
    return hook


def test_an_installed_package_is_compiled_where_it_can_be() -> None:
    """An editable install is not, nor one on a machine without a C compiler."""
    if Path(netdissect.__file__).is_relative_to(ROOT / "src"):
        pytest.skip("runs from the source")
    assert hot_path() == ("compiled" if build_hook()._wanted() else "interpreted")


def test_what_cannot_be_compiled_is_installed_as_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the compiler of Python fails before it has written anything."""
    hook = build_hook()
    monkeypatch.setattr(hook, "_wanted", lambda: True)
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    config = {"compiled": ["*.py"], "hot": []}
    data: dict[str, Any] = {"force_include": {}}
    unused: Any = None
    hook.BuildHook(str(tmp_path), config, unused, unused, str(tmp_path), "wheel").initialize(
        "standard", data
    )
    (reason,) = data["force_include"]
    assert "mypyc" in Path(reason).read_text("utf-8")
    assert data == {"force_include": {reason: hook.REASON}}
