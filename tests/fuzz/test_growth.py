"""Twice as much of what strangers write costs twice as much, for all that is read."""

from __future__ import annotations

import gc
import json
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import guided
from netdissect.fuzz import CONNECTED, Step, load_failure
from netdissect.fuzz.store import Sent

FACTS = {"kind": "exit", "protocol": "riptide", "dialect": "riptide-2.2", "target": "127.0.0.1:9"}
ROOM = 2.2
"""Four times as much may cost so many times four times the time: caches and tables grow in steps.
What is quadratic costs four times as much as that.
"""


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def _option(number: int, value: bytes) -> bytes:
    return struct.pack("<HH", number, len(value)) + value + bytes(-len(value) % 4)


SECTION = _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
INTERFACE = _block(1, struct.pack("<HHI", 101, 0, 65535))


def _frame(interface: int = 0, options: bytes = b"") -> bytes:
    head = struct.pack("<IIIII", interface, 1, 1, 20, 20)
    return _block(6, head + b"E" + bytes(19) + options)


def frames(count: int) -> bytes:
    return SECTION + INTERFACE + _frame() * count


def comments(count: int) -> bytes:
    return SECTION + INTERFACE + _frame(options=_option(1, b"word") * count + bytes(4))


def section_options(count: int) -> bytes:
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(0x0A0D0D0A, head + _option(4, b"us") * count + bytes(4)) + INTERFACE + _frame()


def unknown_blocks(count: int) -> bytes:
    return SECTION + INTERFACE + _block(0x0BAD, b"xx") * count + _frame()


def interfaces(count: int) -> bytes:
    return SECTION + INTERFACE * count + _frame(count - 1)


def sections(count: int) -> bytes:
    return (SECTION + INTERFACE + _frame()) * count


def names(count: int) -> bytes:
    rows = b"".join(
        _option(1, bytes([10, 0, index >> 8 & 255, index & 255]) + b"host%d\0" % index)
        for index in range(count)
    )
    return SECTION + _block(4, rows + bytes(4)) + INTERFACE + _frame()


def damage(count: int) -> bytes:
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + bytes([0xFF]) * 16 * count


def conversation(count: int) -> bytes:
    chance = random.Random(1)
    return b"\x80" + b"".join(bytes([40]) + chance.randbytes(40) for _ in range(count))


def stream(count: int) -> bytes:
    return b"\xc4" + b"".join(bytes([1 | 128 * (index % 2)]) + b"{" for index in range(count))


def fields(count: int) -> bytes:
    rows = [[f"f{index}", "int"] for index in range(count)]
    return _schema({"1": {"name": "m", "fields": rows}})


def messages(count: int) -> bytes:
    return _schema({str(index): {"name": f"m{index}", "fields": []} for index in range(count)})


def _schema(found: object) -> bytes:
    told = {"format": "netdissect-schema/1", "protocol": "riptide", "messages": found}
    return b"j" + json.dumps(told).encode()


def tables(count: int) -> bytes:
    return b"t" + b"".join(b"[a%d]\nx = %d\n" % (index, index) for index in range(count))


def settings(count: int) -> bytes:
    return b"".join(b"[columns.x%d]\na = %d\n" % (index, index) for index in range(count))


def terms(count: int) -> bytes:
    return b" || ".join(b"frame.number == %d" % index for index in range(count))


def members(count: int) -> bytes:
    return b"frame.number in {" + b",".join(b"%d" % index for index in range(count)) + b"}"


def alternatives(count: int) -> bytes:
    return b'msg.type matches "' + b"|".join(b"a%d" % index for index in range(count)) + b'"'


def digits(count: int) -> bytes:
    return b"frame.number > " + b"9" * count


def words(count: int) -> bytes:
    return b"\0Reliable\n" + b"\n".join(b"field%d=%d" % (index, index) for index in range(count))


def line(count: int) -> bytes:
    listed = [{"name": f"f{index}", "value": index} for index in range(count)]
    return b"\0" + json.dumps({"protocol": "riptide", "fields": listed}).encode()


def steps(count: int) -> bytes:
    step = Sent(0, 1, CONNECTED, Step(b"ab"), b"ab")
    return (json.dumps(step.to_json()) + "\n").encode() * count


def failures(octets: bytes) -> int:
    """The steps of a failure folder, which somebody else has written."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "failure.json").write_text(json.dumps(FACTS))
        (Path(folder) / "steps.jsonl").write_bytes(octets)
        return len(load_failure(Path(folder)).steps)


TARGETS = {**guided.TARGETS, "failures": failures}
GROWING: dict[Callable[[int], bytes], tuple[str, int]] = {
    frames: ("readers", 4000), comments: ("readers", 2000), section_options: ("readers", 4000),
    unknown_blocks: ("readers", 4000), interfaces: ("readers", 1000), sections: ("readers", 500),
    names: ("readers", 2000), damage: ("readers", 4000), conversation: ("scan", 1000),
    stream: ("scan", 500), fields: ("schemas", 500), messages: ("schemas", 500),
    tables: ("schemas", 500), settings: ("configuration", 500), terms: ("filters", 100),
    members: ("filters", 500), alternatives: ("filters", 100), digits: ("filters", 1000),
    words: ("encode", 200), line: ("encode", 200), steps: ("failures", 500),
}  # fmt: skip


def cost(target: Callable[[bytes], object], octets: bytes) -> float:
    """Return the processor time of the best of three, seconds."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        target(octets)
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("make", GROWING, ids=lambda make: make.__name__)
def test_cost_grows_as_the_input(make: Callable[[int], bytes]) -> None:
    name, count = GROWING[make]
    target = TARGETS[name]
    target(make(2))  # imports what it needs
    gc.collect()
    told = []
    for _ in range(4):  # a machine that does something else meanwhile is measured once more
        once, twice, four = (cost(target, make(count * factor)) for factor in (1, 2, 4))
        told.append((once, twice, four))
        if four < 4 * ROOM * once + 0.02 and twice < 2 * ROOM * once + 0.02:
            return
    pytest.fail(f"{count}, twice and four times as many cost {told}")
