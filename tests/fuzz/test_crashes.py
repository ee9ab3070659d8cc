"""Traces of real programs, told apart: the files under `traces/` are what small programs printed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from netdissect.fuzz.crashes import CrashReader

TRACES = Path(__file__).parent / "traces"
KINDS: dict[str, list[str]] = {
    "asan-1": ["AddressSanitizer: heap-buffer-overflow in game::read_name(game::Packet&) a.cpp:10"
               " < game::read_all(game::Packet&, int) a.cpp:11 < main a.cpp:17"],
    "asan-2": ["AddressSanitizer: stack-buffer-overflow in game::read_all(game::Packet&, int)"
               " a.cpp:11 < main a.cpp:17"],
    "asan-3": ["AddressSanitizer: attempting double-free in main a.cpp:18"],
    "asan-8": ["UBSan: load of null pointer of type 'int' in a.cpp:23:45",
               "AddressSanitizer: SEGV in main a.cpp:23"],
    "asan-9": ["AddressSanitizer: requested allocation size N in main a.cpp:24"],
    "lsan": ["LeakSanitizer: leak in main a.cpp:16"],
    "ubsan": ["UBSan: signed integer overflow: N * N cannot be represented in type 'int'"
              " in a.cpp:13:31",
              "UBSan: shift exponent N is too large for N-bit type 'int' in a.cpp:19:130"],
    "ubsan-stack": ["UBSan: signed integer overflow: N * N cannot be represented in type 'int'"
                    " in game::twice(int) a.cpp:13 < main a.cpp:19",
                    "UBSan: shift exponent N is too large for N-bit type 'int' in main a.cpp:19"],
    "tsan": ["ThreadSanitizer: data race in main a.cpp:20"],
    "glibc-3": ["glibc: free(): double free detected in tcache N"],
    "glibc-6": ["uncaught std::out_of_range: vector::_M_range_check: __n (which is N) >= "
                "this->size() (which is N)"],
    "glibc-7": ["glibc: Assertion `n > N' failed in a.cpp:22"],
    "go": ["panic: runtime error: index out of range [N] with length N in main.readName"
           " packet.go:12 < main.(*Server).handle server.go:40 < main.main main.go:9"],
    "go-segv": ["panic: runtime error: invalid memory address or nil pointer dereference"
                " in main.(*Session).ack session.go:31"],
    "rust": ["panic: index out of bounds: the len is N but the index is N in r.rs:1"],
    "rust-stack": ["panic: index out of bounds: the len is N but the index is N in"
                   " r::net::read r.rs:1 < r::net::all r.rs:1 < r::main r.rs:2"],
    "java-1": ["java.lang.ArrayIndexOutOfBoundsException in T.deep T.java:1 < T.main T.java:2"],
    "java-2": ["java.lang.ArrayIndexOutOfBoundsException in T.deep T.java:1"],
    "java-3": ["java.lang.ArrayIndexOutOfBoundsException in T.deep T.java:1"
               " < T.lambda$main$0 T.java:2"],
    "java-4": ["java.lang.NumberFormatException in T.main T.java:2"],
    "mono-1": ["System.IndexOutOfRangeException in M.Main 0x00012"],
    "mono-2": ["System.IndexOutOfRangeException in M.H 0x00000"],
    "mono-3": ["System.IndexOutOfRangeException in M.<Main>m__0 0x00000"],
    "dotnet": ["System.IndexOutOfRangeException in Game.Packet.Read Packet.cs:12"
               " < Game.Server.Handle Server.cs:30"],
    "python-1": ["Python: IndexError in deep p.py:2 < <module> p.py:8"],
    "python-2": ["Python: RuntimeError in handle p.py:7 < <module> p.py:9"],
    "python-3": ["Python: json.decoder.JSONDecodeError in <module> p.py:10"],
    "python-4": ["Python: IndexError in deep p.py:2"],
    "python-5": ["Python: Segmentation fault in <module> p.py:13"],
    "godot": ["Godot: signal N in Packet::read_name(Buffer&) packet.cpp:31"
              " < Server::poll() server.cpp:77"],
    "gdscript": ["Godot: Invalid get index 'name' (on base: 'Nil'). in _on_packet server.gd:41",
                 'Godot: Condition "p_size < N" is true. in put_packet packet_peer.cpp:120'],
}  # fmt: skip
"""File -> kinds. The frames are the target's own: none of a library's is among them."""
GOES_ON = {"java-1", "java-3", "lsan", "python-4", "tsan", "ubsan", "ubsan-stack"}
"""What counts as a failure although the process usually goes on."""
ROUTINE = {"java-4", "python-1", "python-2", "python-3"}
"""What a program prints of an exception that it may have caught."""


def kinds(octets: bytes) -> list[str]:
    return [crash.kind for crash in CrashReader().feed(octets, final=True)]


def test_there_is_an_expectation_for_every_trace() -> None:
    assert {path.stem for path in TRACES.glob("*.txt")} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_the_fault_and_the_frames_of_the_target(name: str) -> None:
    octets = (TRACES / f"{name}.txt").read_bytes()
    assert kinds(b"listening on 7777\n" + octets + b"bye\n") == KINDS[name]


@pytest.mark.parametrize("name", sorted(GOES_ON | ROUTINE))
def test_what_counts_while_the_process_goes_on(name: str) -> None:
    found = CrashReader().feed((TRACES / f"{name}.txt").read_bytes(), final=True)
    assert all(crash.counts == (name in GOES_ON) for crash in found)
    assert not any(crash.ends for crash in found)


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("name", KINDS)
def test_the_pieces_in_which_a_trace_arrives_change_nothing(name: str, size: int) -> None:
    octets = (TRACES / f"{name}.txt").read_bytes()
    reader = CrashReader()
    found = [
        crash.kind
        for at in range(0, len(octets), size)
        for crash in reader.feed(octets[at : at + size])
    ]
    assert found + [crash.kind for crash in reader.feed(b"", final=True)] == KINDS[name]


@pytest.mark.parametrize("name", ["asan-1", "asan-2", "asan-3", "asan-8", "ubsan-stack", "tsan", "glibc-6"])
def test_what_other_threads_print_in_between_changes_nothing(name: str) -> None:
    """The EOUDP engine writes to its log while its receiving thread prints a stack."""
    lines = (TRACES / f"{name}.txt").read_bytes().splitlines(keepends=True)
    for noise in (b"[03:56:26] Send packet id: 17\n", b"34\n" * 7):
        # An empty line ends a stack.
        apart = [line if not line.strip() else line + noise for line in lines]
        reader = CrashReader()
        found = [crash for piece in apart for crash in reader.feed(piece)]
        found += reader.feed(b"", final=True)
        assert [crash.kind for crash in found] == KINDS[name]


def test_many_reports_at_few_places_are_few_kinds() -> None:
    """Addresses, sizes and process ids differ from report to report; places do not."""
    report = (TRACES / "asan-1.txt").read_bytes()
    other = (TRACES / "asan-2.txt").read_bytes()
    chance = random.Random(1)
    seen = set()
    for _ in range(55):
        text = chance.choice((report, other))
        seen.update(kinds(text.replace(b"0x6060", b"0x%04x" % chance.getrandbits(16))))
    assert seen == {KINDS["asan-1"][0], KINDS["asan-2"][0]}


def test_no_output_raises() -> None:
    chance = random.Random(7)
    lines = b"".join(path.read_bytes() for path in sorted(TRACES.glob("*.txt"))).split(b"\n")
    for _ in range(300):
        mixed = [bytearray(chance.choice(lines)) for _ in range(chance.randrange(40))]
        for line in mixed:
            if line and chance.random() < 0.3:
                line[chance.randrange(len(line))] = chance.randrange(256)
        CrashReader().feed(b"\n".join(mixed), final=chance.random() < 0.5)
    CrashReader().feed(b"a" * 100_000 + b"\n" * 50_000)


def test_a_chain_of_tracebacks_may_be_of_any_length() -> None:
    one = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\n\n'
    link = "During handling of the above exception, another exception occurred:\n\n"
    text = (one + link) * 2000 + one.replace("ValueError", "KeyError")
    (found,) = CrashReader().feed(text.encode(), final=True)
    assert found.kind == "Python: KeyError in f a.py:1"
