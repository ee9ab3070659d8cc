from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "captures" / "make_index.py"


def load():
    spec = importlib.util.spec_from_file_location("make_index", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_of_the_captures_is_current(update_expected):
    module = load()
    text = module.index()
    if update_expected:
        module.INDEX.write_text(text, encoding="utf-8")
    assert module.INDEX.read_text(encoding="utf-8") == text


def test_every_capture_is_listed_once_with_its_truth():
    module = load()
    text = module.index()
    captures = sorted(SCRIPT.parent.glob("*/*.pcap*"))
    assert len(captures) >= 350
    for path in captures:
        assert text.count(f"]({path.parent.name}/{path.name})") == 1
        assert path.with_name(f"{path.stem}.truth.json").is_file()


def test_cells_hold_hostile_text():
    assert load().cell("a|b\nc\t d") == "a\\|b c d"
