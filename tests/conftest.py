from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long a value takes to make or a case to run says how busy the machine is, not what is wrong.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# 15,000 tests are a heap that is walked again and again; there is nothing to find in it.
gc.set_threshold(100_000, 20, 50)


TESTS = Path(__file__).parent
OUTSIDE = {"browse", "capture", "cli", "export", "fuzz", "report", "survey", "system"}
"""Folders of tests that use what is there once: interfaces, servers, browsers, other programs."""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Have `-n auto` mean one process more than there are processors: tests that wait for other
    programs leave theirs idle.
    """
    return (yield) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each file of these folders run in one process where there are several."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        folders = item.path.relative_to(TESTS).parts[:-1] if item.path.is_relative_to(TESTS) else ()
        if folders and folders[0] in OUTSIDE:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries report what is never freed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-expected",
        action="store_true",
        help="rewrite generated files (tables, documents, pictures) instead of comparing with them",
    )


@pytest.fixture
def update_expected(request: pytest.FixtureRequest) -> bool:
    """Return True where generated files are to be rewritten and then reviewed as a diff."""
    return bool(request.config.getoption("--update-expected"))
