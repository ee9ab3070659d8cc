"""Build hook: compiles the hot path if possible, and adds `top_level.txt` to the wheel.

The modules listed as `compiled` in `[tool.hatch.build.targets.wheel.hooks.custom]` are typed Python
that also runs interpreted. If there is a C compiler, mypyc compiles them into the wheel, for three
to six times the speed. Otherwise, if compiling fails, with `NETDISSECT_PURE=1` and in editable
installs, the wheel is plain Python.

    python hatch_build.py DIRECTORY     compile into DIRECTORY/package, to measure or to debug
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TOP_LEVEL = b"netdissect\n"
NEEDS = ["mypy>=2.4", "setuptools>=70"]
"""Build requirements, requested only if the package will be compiled."""
OPTIONS = {"unix": ("-Og", "-fno-plt", "-freorder-blocks-and-partition", "-fvisibility=hidden")}
"""Kind of compiler -> options for most modules. -Og compiles in half the time of -O1 and a third of
that of -O2.
"""
HOT_OPTIONS = {
    "unix": (
        "-O1", "-fno-plt", "-freorder-blocks-and-partition", "-fvisibility=hidden",
        "-fcaller-saves", "-fexpensive-optimizations", "-finline-small-functions", "-fipa-ra",
        "-foptimize-sibling-calls", "-fpartial-inlining", "-fpeephole2", "-freorder-blocks",
        "-fstrict-aliasing", "-fthread-jumps",
    )
}  # fmt: skip
"""Options for the modules listed as `hot`, in which most instructions are spent. With these passes
of -O2 the code executes as few instructions as with all of them, and compiles in three fifths of
the time.
"""
PRELUDE = """#include <CPy.h>
#ifdef __GNUC__
#define COLD __attribute__((cold))
COLD void CPy_AddTraceback(const char *, const char *, int, PyObject *);
COLD void CPy_TypeErrorTraceback(
    const char *, const char *, int, PyObject *, const char *, PyObject *);
COLD void CPy_TypeError(const char *, PyObject *);
COLD __attribute__((weak)) void CPyError_OutOfMemory(void);
COLD PyObject *PyErr_Occurred(void);
COLD void CPyTagged_IncRef(CPyTagged);
COLD void CPyTagged_DecRef(CPyTagged);
COLD CPyTagged CPyTagged_Add_(CPyTagged, CPyTagged);
COLD CPyTagged CPyTagged_Subtract_(CPyTagged, CPyTagged);
COLD bool CPyTagged_IsEq_(CPyTagged, CPyTagged);
COLD bool CPyTagged_IsLt_(CPyTagged, CPyTagged);
COLD static void CPy_DecRef(PyObject *);
#ifndef Py_REF_DEBUG
__attribute__((always_inline)) static inline void (Py_DECREF)(PyObject *);
#endif
#endif
#undef CPy_TRASHCAN_BEGIN
#define CPy_TRASHCAN_BEGIN(op, dealloc) \\
    Py_TRASHCAN_BEGIN(op, (PyType_IS_GC(Py_TYPE(op)) ? (destructor)(dealloc) : NULL))
static int raise_kept(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}
static inline PyObject *whole_product(PyObject *left, PyObject *right)
{
    PyObject *type, *exception, *trace, *product = PyNumber_Multiply(left, right);
    while (!product && PyLong_CheckExact(left) && PyLong_CheckExact(right)
           && !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Fetch(&type, &exception, &trace);
        PyErr_NormalizeException(&type, &exception, &trace);
        if (trace)
            PyException_SetTraceback(exception, trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        if (Py_AddPendingCall(raise_kept, exception))
            Py_DECREF(exception);
        product = PyNumber_Multiply(left, right);
    }
    return product;
}
#define PyNumber_Multiply whole_product
"""
"""Precedes the modules. It declares that functions for exceptions, and for integers beyond a
machine word, are rarely called. The compiler then moves two fifths of the code apart from the rest,
where it takes up neither cache nor memory. It also inlines `Py_DECREF`, which -Og would call some
sixty times per datagram.

CPython runs signal handlers inside a product of large integers, and mypyc takes an exception raised
there for a lack of memory, and aborts. `whole_product` completes the product, and has Python raise
the exception before the next bytecode instruction instead.

CPython defers the deallocation of deeply nested objects by a list that is linked through their
headers for the garbage collector. Objects of acyclic classes have none, so that mypyc's macro would
overwrite what precedes them. They are deallocated at once instead.
"""
MEMORY = """#ifdef __GNUC__
#include <unistd.h>
void CPyError_OutOfMemory(void)
{
    static const char said[] = "netdissect: out of memory\\n";
    ssize_t written = write(2, said, sizeof said - 1);
    (void)written;
    _exit(1);
}
#else
typedef int unused;
#endif
"""
"""Replaces mypyc's function, which `PRELUDE` makes weak, for integers that there is no memory for.
Compiled arithmetic cannot raise, so the process ends here, as it would for any other MemoryError:
without a core dump, and with the status and the message of `cli/errors.py`.
"""
UNITS = 8
"""C files that the other modules are bundled into: each parses every header only once, and there
are enough of them to keep all cores busy.
"""
HOT_UNITS = 2
"""C files that the hot modules are bundled into."""
REASON = "netdissect/data/not-compiled.txt"
"""File in the wheel that says why it is plain Python; `netdissect doctor` shows it."""


class BuildHook(BuildHookInterface[Any]):
    """Compiles before the files are collected, and completes the finished wheel."""

    def dependencies(self) -> list[str]:
        """Return the build requirements."""
        return NEEDS if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the hot path into a wheel that is not editable."""
        if version == "editable" or not _wanted():
            return
        root, work = Path(self.root), Path(self.root) / "build" / "compiled"
        try:
            config = self.config
            built = compiled(root, work, config["compiled"], config["hot"], self.app.display_info)
        except (Exception, SystemExit) as fault:  # noqa: BLE001 - a compiler may fail in any way
            self.app.display_warning(f"not compiled, installing plain Python: {fault}")
            reason = work / "reason.txt"
            work.mkdir(parents=True, exist_ok=True)
            reason.write_text(f"{fault}\n", encoding="utf-8")
            build_data["force_include"][str(reason)] = REASON
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): name for name, path in built.items()})

    def finalize(self, _version: str, _data: dict[str, Any], artifact_path: str) -> None:
        """Add `top_level.txt` to the wheel (also an editable one), and a line to its RECORD.

        Scapy's extension loader reads this file, but hatchling does not write it. Source: scapy
        `scapy.config.ExtsManager.load`, `distribution.read_text("top_level.txt")`.
        """
        path = Path(artifact_path)
        with zipfile.ZipFile(path) as wheel:
            members = [(item, wheel.read(item)) for item in wheel.infolist()]
        record = next(item.filename for item, _ in members if item.filename.endswith("/RECORD"))
        name = f"{record.removesuffix('/RECORD')}/top_level.txt"
        digest = base64.urlsafe_b64encode(hashlib.sha256(TOP_LEVEL).digest()).rstrip(b"=").decode()
        line = f"{name},sha256={digest},{len(TOP_LEVEL)}\n".encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(name, TOP_LEVEL)
            for item, data in members:
                wheel.writestr(item, data + line if item.filename == record else data)


def _wanted() -> bool:
    """Return whether the hot path should be compiled, and can be."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    pure = os.environ.get("NETDISSECT_PURE", "0") != "0"
    return not pure and shutil.which(compiler) is not None and headers.is_file()


def compiled(
    root: Path, into: Path, patterns: list[str], hot: list[str], tell: Callable[[str], None]
) -> dict[str, Path]:
    """Compile modules; return {path in the wheel: compiled file}.

    Args:
        root: the checkout.
        into: directory for all files that are written.
        patterns: glob patterns below `src/netdissect`; `__init__.py` files are left out.
        hot: those of them that are compiled with `HOT_OPTIONS`.
        tell: called with a message before each step.

    """
    from mypyc.build import mypycify  # noqa: PLC0415 - absent where nothing is compiled

    began = monotonic()
    into = into.resolve()
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with _in_directory(root / "src"):
        package = Path("netdissect")
        files = sorted({path for pattern in patterns for path in package.glob(pattern)})
        often = {_source(path) for pattern in hot for path in package.glob(pattern)}
        files = [path for path in files if path.name != "__init__.py"]
        tell(f"translating {len(files)} modules to C")
        library, *shims = mypycify(
            [
                "--config-file=", "--ignore-missing-imports", "--follow-imports=silent",
                # Packages that happen to be installed, and would be checked as well: 18 s, not 11.
                "--no-site-packages",
                "--cache-dir", os.devnull, *map(str, files),
            ],
            opt_level="1", debug_level="0", multi_file=True, target_dir=str(into / "c"),
        )  # fmt: skip
    tell(f"compiling {UNITS + HOT_UNITS} C files, {monotonic() - began:.0f} s")
    sources = [Path(source) for source in library.sources]
    # mypyc's run-time library, which all compiled code calls, is hot too.
    hottest = [one for one in sources if one.name in often or not one.name.startswith("__native")]
    units = [
        *_bundles(hottest, into, "hot", HOT_UNITS),
        *_bundles([one for one in sources if one not in hottest], into, "unit", UNITS),
        memory := into / "memory.c",
    ]
    memory.write_text(MEMORY, encoding="utf-8")
    bundles = [([library], units)]
    for number, bundle in enumerate(_rounds(shims)):
        sources = [Path(shim.sources[0]) for shim in bundle]
        source = _bundle(sources, into / f"shims{number}.c", "PyInit___init__")
        bundles.append((bundle, [source]))
    outputs = {}
    shared = _linked(library, [sources for _, sources in bundles], into)
    for (bundle, _), path in zip(bundles, shared, strict=True):
        for extension in bundle:
            name = extension.name.replace(".", "/") + sysconfig.get_config_var("EXT_SUFFIX")
            outputs[name] = into / "package" / name
            outputs[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, outputs[name])
    tell(f"compiled, {monotonic() - began:.0f} s")
    return outputs


def _source(path: Path) -> str:
    """Return the name of the C file that mypyc creates for a module."""
    return f"__native_{'___'.join(path.with_suffix('').parts)}.c"


def _bundles(sources: Sequence[Path], into: Path, name: str, count: int) -> list[Path]:
    """Return `count` C files that include all sources, of about the same size."""
    bundles: list[list[Path]] = [[] for _ in range(count)]
    sizes = [0] * count
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        least = sizes.index(min(sizes))
        bundles[least].append(source)
        sizes[least] += source.stat().st_size
    return [_bundle(bundle, into / f"{name}{n}.c") for n, bundle in enumerate(bundles)]


def _bundle(sources: Sequence[Path], into: Path, unused: str = "") -> Path:
    """Write a C file that includes others.

    Args:
        sources: the files to include.
        into: path of the new file.
        unused: name of a function that each of them defines, and that is renamed; "" without one.

    """
    lines = [] if unused else [PRELUDE]
    for number, source in enumerate(sources):
        if unused:
            lines.append(f"#undef {unused}\n#define {unused} {unused}{number}\n")
        lines.append(f'#include "{source.resolve()}"\n')
    into.write_text("".join(lines), encoding="utf-8")
    return into


def _rounds(shims: Sequence[Any]) -> list[list[Any]]:
    """Distribute the shims to lists in which no two modules have the same last name, so that one
    shared object can have the `PyInit_` functions of all of them. It is then copied for each.
    """
    rounds: list[dict[str, Any]] = []
    for shim in shims:
        name = shim.name.rpartition(".")[2]
        free = next((known for known in rounds if name not in known), None)
        if free is None:
            rounds.append(free := {})
        free[name] = shim
    return [list(known.values()) for known in rounds]


def _linked(extension: Any, bundles: Sequence[Sequence[Path]], into: Path) -> list[Path]:
    """Compile C files, one per processor at a time, and link those of each bundle."""
    from setuptools._distutils.ccompiler import new_compiler  # noqa: PLC0415
    from setuptools._distutils.sysconfig import customize_compiler  # noqa: PLC0415

    def compile_one(source: Path) -> list[str]:
        compiler = new_compiler()
        customize_compiler(compiler)
        include = [*extension.include_dirs, sysconfig.get_path("include"), str(into / "c")]
        chosen = HOT_OPTIONS if source.name.startswith("hot") else OPTIONS
        options = [*extension.extra_compile_args, *chosen.get(compiler.compiler_type, ())]
        objects: list[str] = compiler.compile(
            [source.name], str(into / "temp"), include_dirs=include, extra_postargs=options
        )
        return objects

    def link_one(sources: Sequence[Path]) -> Path:
        objects = [name for source in sources for name in made[source].result()]
        linker = new_compiler()
        customize_compiler(linker)
        shared = into / "lib" / f"{sources[0].stem}.so"
        linker.link_shared_object(objects, str(shared), target_lang="c")
        return shared

    with _in_directory(into), ThreadPoolExecutor(os.cpu_count()) as pool:
        # All compilations are submitted before the first link waits for one.
        made = {
            source: pool.submit(compile_one, source) for sources in bundles for source in sources
        }
        return list(pool.map(link_one, bundles))


@contextmanager
def _in_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    import tomllib

    project = Path(__file__).resolve().parent
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    compiled(project, Path(sys.argv[1]), hook["compiled"], hook["hot"], print)
