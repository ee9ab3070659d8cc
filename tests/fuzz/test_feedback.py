from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from agreement import CAPTURES
from fuzzing import free_target, running
from netdissect.fuzz import fuzz_target
from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.corpus import MAX_ENTRY_OCTETS, Corpus
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.fuzz.feedback import Coverage, Feedback
from netdissect.fuzz.generator import Generator
from netdissect.fuzz.seeds import seeds_from_layers

STAGES = RiptideDriver.traits.stages


def a_case(number: int, octets: bytes = b"\1", mutation: str = "octets:flip") -> Case:
    return Case(number, mutation, (Step(octets),), CONNECTED)


def a_corpus(folder: Path) -> Corpus:
    return Corpus(folder, "riptide", "riptide-2.2", STAGES)


def test_what_is_new_is_kept_once_and_due_to_the_last_case_of_its_session(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    feedback = Feedback(corpus, None)
    feedback.sent(1, a_case(1))
    feedback.sent(2, a_case(2, b"\2"))
    feedback.notice(1, "Reject in connected")
    feedback.notice(2, "Reject in connected")
    feedback.sent(1, a_case(3, b"\3"))
    feedback.keep()
    (entry,) = corpus.entries
    assert (entry.steps[0].octets, entry.signs) == (b"\1", ("Reject in connected",))


def test_what_may_have_brought_something_together_is_kept_together(tmp_path: Path) -> None:
    """Where a target is too slow to wait for, a sign may be due to several cases."""
    corpus = a_corpus(tmp_path)
    feedback = Feedback(corpus, None)
    feedback.sent(1, a_case(1))
    for number in range(2, 7):
        mutation = "none" if number == 5 else "octets:flip"
        feedback.sent(1, a_case(number, bytes([number]), mutation), alone=False)
    feedback.notice(1, "Reject in connected")
    feedback.sent(1, a_case(7, b"\7"), alone=True)
    feedback.notice(1, "Welcome in connected")
    feedback.keep()
    together, alone = corpus.entries
    assert [step.octets for step in together.steps] == [b"\3", b"\4", b"\6"]
    assert [step.octets for step in alone.steps] == [b"\7"]


def test_neither_good_messages_nor_what_led_to_a_failure_are_kept(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    feedback = Feedback(corpus, None)
    feedback.sent(1, a_case(1, mutation="none"))
    feedback.notice(1, "Ack in connected")
    feedback.keep()
    feedback.sent(1, a_case(2))
    feedback.notice(1, "Disconnect in connected")
    feedback.drop()
    feedback.keep()
    assert corpus.entries == []


def test_a_corpus_is_shared_between_runs(tmp_path: Path) -> None:
    one, other = a_corpus(tmp_path), a_corpus(tmp_path)
    feedback = Feedback(other, None)
    one.add(a_case(7, b"\7\7"), ["Welcome in fresh"])
    feedback.refresh()
    assert [(each.stage, each.steps) for each in other.entries] == [
        (CONNECTED, (Step(b"\7\7"),)),
    ]  # fmt: skip
    feedback.sent(1, a_case(8, b"\x08"))
    feedback.notice(1, "Welcome in fresh")
    feedback.keep()
    assert len(other.entries) == 1


def test_foreign_files_in_a_corpus_are_passed_over(tmp_path: Path) -> None:
    a_corpus(tmp_path).add(a_case(1), ["x"])
    (good,) = tmp_path.glob("*.json")
    row = json.loads(good.read_text())
    (tmp_path / "a.json").write_text("[" * 100_000)
    (tmp_path / "b.json").write_text(json.dumps({**row, "dialect": "riptide-2.0"}))
    (tmp_path / "c.json").write_text(json.dumps({**row, "stage": "nowhere"}))
    (tmp_path / "d.json").write_text(json.dumps({**row, "steps": []}))
    (tmp_path / "e.json").write_bytes(bytes(MAX_ENTRY_OCTETS + 1))
    (tmp_path / "f.json").symlink_to(good)
    corpus = a_corpus(tmp_path)
    assert [each.name for each in corpus.entries] == [good.stem]
    assert corpus.left_out == 6


def test_a_mutant_of_the_corpus_is_a_function_of_number_and_corpus(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    corpus.add(a_case(1, b"\7\0\0\0abc"), ["x"])
    seeds = seeds_from_layers("riptide", "riptide-2.2").seeds
    made = [
        [Generator(seeds, RiptideDriver.traits, 3).offspring(n, corpus) for n in range(80)]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    some = [each for each in made[0] if each is not None]
    assert 20 < len(some) < 60
    assert all(each.parent == corpus.entries[0].name for each in some)
    assert len({each.key() for each in some}) > 15
    empty = a_corpus(tmp_path / "empty")
    assert Generator(seeds, RiptideDriver.traits, 3).offspring(1, empty) is None


def test_what_was_hard_to_come_by_gets_more_mutants_and_at_once(tmp_path: Path) -> None:
    corpus = a_corpus(tmp_path)
    for number in (10, 20, 4000):
        corpus.add(a_case(number, b"\7%d" % number), [f"sign {number}"])
    corpus.add(a_case(4001, b"\7late"), ["answer after more than 64 ms"])
    picked = [corpus.pick(Chance("energy", number)) for number in range(2600)]
    counts = Counter(each.case for each in picked if each is not None)
    assert 1200 < sum(counts.values()) < 1400
    assert counts[4000] > 800
    assert 64 <= counts[10] < 110
    assert 64 <= counts[4001] < 110
    # When all have had theirs, each is as likely as any other.
    later = Counter(
        each.case for number in range(900) if (each := corpus.pick(Chance("later", number)))
    )
    assert all(70 < later[number] < 160 for number in (10, 20, 4000, 4001))


def test_a_case_of_the_corpus_is_gone_on_from(tmp_path: Path) -> None:
    """What brought a target into a state is sent, and something else behind it."""
    corpus = a_corpus(tmp_path)
    seeds = seeds_from_layers("riptide", "riptide-2.2").seeds
    seed = next(each for each in seeds if each.type == "Reliable")
    corpus.add(Case(1, "octets:flip", (Step(seed.octets, seed.type),), CONNECTED), ["x"])
    cases = Generator(seeds, RiptideDriver.traits, 3)
    made = [each for n in range(400) if (each := cases.offspring(n, corpus)) is not None]
    names = {each.mutation.partition(" ")[0] for each in made}
    assert {"corpus:then", "corpus:again", "corpus:join"} <= names
    assert any(name.startswith("corpus:field:") for name in names)
    behind = [each for each in made if each.mutation.startswith("corpus:then")]
    assert all(len(each.steps) == 2 for each in behind)
    assert all(each.steps[0].octets == seed.octets for each in behind)
    assert len({each.steps[1].octets for each in behind}) > 10


def test_edges_count_once(tmp_path: Path) -> None:
    coverage = Coverage(tmp_path / "map")
    assert coverage.new_edges() == []
    with (tmp_path / "map").open("r+b") as file:
        file.seek(77)
        file.write(b"\1\0\1")
    assert coverage.new_edges() == [77, 79]
    assert coverage.new_edges() == []
    assert coverage.edges == 2
    coverage.close()


def test_lines_of_the_log_are_signs_without_their_numbers(tmp_path: Path) -> None:
    class Process:
        log = b""

        def printed(self, at: int, limit: int) -> bytes:
            return self.log[at : at + limit]

    process, corpus = Process(), a_corpus(tmp_path)
    feedback = Feedback(corpus, process)  # type: ignore[arg-type]
    process.log = b"listening on 7777\n"
    feedback.sent(1, a_case(1))
    process.log += b"client 5 sent nonsense\nclient 6 sent nons"
    feedback.sent(1, a_case(2, b"\2"))
    process.log += b"ense\n"
    feedback.sent(1, a_case(3, b"\3"))
    feedback.keep()
    assert [each.signs for each in corpus.entries] == [("log: client N sent nonsense",)]


def test_a_run_finds_answers_that_its_seeds_do_not_bring(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        report = fuzz_target("riptide", target, tmp_path / "run", cases=400, rate=0)
        again = fuzz_target("riptide", target, tmp_path / "b", cases=300, rate=0, feedback=False)
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    ]
    names = {path.stem for path in (tmp_path / "run" / "corpus").iterdir()}
    parents = {row["parent"] for row in rows if "parent" in row}
    assert report.kept == len(names) > 0
    assert parents
    assert parents <= names
    assert again.kept == 0
    assert not (tmp_path / "b" / "corpus").exists()


def test_a_target_that_counts_edges_is_heard(tmp_path: Path) -> None:
    """What interop/coverage.c does, done by a wrapper: one edge at the start."""
    target = free_target()
    script = tmp_path / "server.py"
    script.write_text(
        "import os, runpy, sys\n"
        "with open(os.environ['NETDISSECT_COVERAGE'], 'r+b') as map:\n"
        "    map.write(b'\\1')\n"
        "runpy.run_module('netdissect.fuzz.servers', run_name='__main__')\n"
    )
    command = f"exec:{sys.executable} {script} riptide --port {target.port}"
    report = fuzz_target(
        "riptide", target, tmp_path / "run", cases=40, rate=0, monitors=[command],
        captures=[CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"],
    )  # fmt: skip
    assert report.edges == 1


def test_an_entry_without_a_finite_number_is_left_out(tmp_path: Path) -> None:
    a_corpus(tmp_path).add(a_case(7), ["Welcome in fresh"])
    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace('"case": 7', '"case": Infinity'))
    found = a_corpus(tmp_path)
    assert (found.entries, found.left_out) == ([], 1)
