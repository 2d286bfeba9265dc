"""A seeded sample of mutants of every format: no bug, no hang, no message that does not help."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from mobileprep.cli.main import main
from mobileprep.core.files import sha256_bytes
from mobileprep.formats.protos import graph_pb2
from mobileprep.graph.files import write_graph
from mobileprep.graph.serde import graph_to_bytes
from tests.fuzz import batches, flatbuffer, seeds
from tests.fuzz.__main__ import import_formats
from tests.fuzz.batches import run_cases
from tests.fuzz.case import Case, formats, kept_case
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.judge import faults
from tests.fuzz.limits import Outcome, run_case
from tests.fuzz.runs import Finding, Progress, case_of, findings
from tests.fuzz.shrink import shrunk

SEED, CASES = 15, 25

if not sys.platform.startswith("linux"):
    pytest.skip("processes are limited as Linux does it", allow_module_level=True)
import_formats()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("name", sorted(formats))
def test_mutants_are_refused_in_words(name: str) -> None:
    assert findings(name, SEED, range(CASES)) == []


def test_a_case_is_the_same_each_time() -> None:
    assert case_of("graph", 1, 7) == case_of("graph", 1, 7)
    assert case_of("graph", 1, 7) != case_of("graph", 2, 7)


def test_a_case_that_is_kept_is_read_again(tmp_path) -> None:
    graph, digest = {"a/g.pb": b"\x00\xff"}, {"o.pb": "ab"}
    case = Case(("run", "--graph=a/g.pb"), graph, ("a/g.pb",), {"KEY": "1"}, digest)
    case.keep(tmp_path)
    assert kept_case(tmp_path) == case


def test_shrinking_leaves_what_the_fault_needs() -> None:
    case = Case((), {"f": b"a" * 100 + b"!" + b"b" * 50}, ("f",))
    assert shrunk(case, lambda tried: b"!" in tried.files["f"]).files == {"f": b"!"}


def test_cases_that_failed_are_kept_and_a_cause_is_told_in_each_run(tmp_path: Path) -> None:
    path = tmp_path / "graph-1.json"
    for done in (100, 200):
        progress, told = Progress(path), list[Finding]()
        assert progress.failed_numbers() == ([7, 9] if done == 200 else [])
        found = [Finding("graph", number, ("time: run",), "", "") for number in (7, 9)]
        progress.note(100, found if done == 100 else [], told.append)
        # What has failed stays noted until it was run again, if a run is cut off before.
        assert Progress(path).failed == {"time: run": [7, 9]}
        progress.note_again(found[1:], told.append)
        assert [finding.number for finding in told] == ([7] if done == 100 else [9])
        progress.note_again(found, told.append)
        assert Progress(path).done == done
    Progress(path).note_again([], told.append)
    assert Progress(path).failed == {}


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome(70, "Traceback\nKeyError: 'x'\n", 0, 0), "code 70"),
        (Outcome(-11, "", 0, 0), "code -11"),
        (Outcome(0, "", 0, 20, timed_out=True), "time"),
        (Outcome(0, "", 2 << 30, 0), "memory"),
        (Outcome(5, "", 0, 0), "no message"),
        (Outcome(5, "error: g.pb: is bad\n", 0, 0), "no mend"),
        (Outcome(5, "error: is bad\nhelp: mend\n", 0, 0), "no file"),
        (Outcome(5, "error: g.pb: \x1b[31m\nhelp: mend\n", 0, 0), "unprintable"),
        (Outcome(5, f"error: g.pb: {'n' * 90_000}\nhelp: x\n", 0, 0), "long message"),
        (Outcome(0, "a.py:3: RuntimeWarning: overflow\n", 0, 0), "warning"),
    ],
)
def test_what_counts_as_a_failure(outcome: Outcome, told: str) -> None:
    case = Case(("run", "--graph=g.pb"), {"g.pb": b""})
    assert [f.split(":")[0].startswith(told) for f in faults(case, outcome)] == [True]
    fine = Outcome(5, "error: g.pb: is bad\nhelp: mend it\n", 0, 0)
    assert faults(case, fine) == []


@pytest.mark.parametrize("verb", ["cache", "verify"])
def test_an_answer_is_looked_at_where_there_is_no_message(verb: str) -> None:
    case = Case((verb, "out"), {"out/m.pb": b""})
    told = {"": "no message", "out/m.pb: \x1b[31m": "unprintable answer", "out/m.pb: bad\n": ""}
    for printed, fault in told.items():
        found = faults(case, Outcome(4, "", 0, 0, printed=printed))
        assert [f.split(":")[0] for f in found] == ([fault] if fault else [])


def test_a_build_that_has_to_leave_files_may_neither_fail_nor_leave_others() -> None:
    case = Case(("build", "r.yaml"), {"r.yaml": b""}, expected={"out/m.pb": "ab"})
    failed = Outcome(4, "error: r.yaml: is bad\nhelp: mend it\n", 0, 0)
    other = Outcome(0, "", 0, 0, falsified=("out/m.pb",))
    for outcome, told in ((failed, "ended: build"), (other, "falsified: build .pb")):
        assert [f[: len(told)] for f in faults(case, outcome)] == [told]
    assert faults(case, Outcome(0, "", 0, 0)) == []


def test_what_a_command_leaves_is_compared() -> None:
    files = {"g.pb": graph_to_bytes(seeds.small_graph())}
    words = ("freeze", "--input_graph=g.pb", "--output_graph=o.pb", "--output_node_names=y")
    for digest, falsified in ((sha256_bytes(files["g.pb"]), ()), ("ab", ("o.pb",))):
        case = Case(words, files, expected={"o.pb": digest})
        assert [outcome.falsified for _, outcome in run_cases([case])] == [falsified]
        assert run_case(case).falsified == falsified


def test_a_file_may_be_named_within_an_argument() -> None:
    case = Case(("transform", "--in_graph=g.pb", "--transforms=a(log='run.log')"), {"g.pb": b""})
    for name, known in (("run.log", True), ("other.log", False)):
        told = Outcome(4, f"error: {name}: is bad\nhelp: mend it\n", 0, 0)
        assert (faults(case, told) == []) is known


def test_cases_of_one_fork_end_as_in_forks_of_their_own() -> None:
    cases = [case_of("graph", SEED, number) for number in range(12)]
    together = [(outcome.code, outcome.error) for _, outcome in run_cases(cases)]
    alone = [run_case(case) for case in cases]
    assert [code for code, _ in together] == [outcome.code for outcome in alone]


def test_a_case_that_ends_the_process_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case_of("graph", SEED, number) for number in range(4)]
    codes = [run_case(case).code for case in cases]

    def killed(case: Case, folder: Path) -> tuple[int, str, float, str, tuple[str, ...]]:
        if case == cases[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return served(case, folder)

    served = batches._served
    monkeypatch.setattr(batches, "_served", killed)
    assert [outcome.code for _, outcome in run_cases(cases)] == codes


def test_every_number_of_a_tflite_file_is_known(tmp_path: Path) -> None:
    graph, out = tmp_path / "g.pb", tmp_path / "m.tflite"
    write_graph(graph, seeds.small_graph())
    assert main(["tflite", f"--in_graph={graph}", f"--out_file={out}"]) == 0
    data = out.read_bytes()
    found = flatbuffer.places(data)
    kinds = {place.kind for place in found}
    assert kinds > {"offset", "length", "slot", "TensorType", "BuiltinOperator", "int", "uint"}
    assert max(place.at + place.width for place in found) <= len(data)
    changed = {flatbuffer.damaged(data, random.Random(n)) for n in range(50)}
    assert len(changed) > 45


def test_damage_changes_bytes_most_of_the_time() -> None:
    rng = random.Random(1)
    assert sum(damaged_bytes(b"valid bytes", rng) != b"valid bytes" for _ in range(100)) > 90


def test_shrinking_leaves_out_nodes_and_files_of_no_use() -> None:
    data = graph_to_bytes(seeds.small_graph())
    case = Case((), {"g.pb": data, "other": b"x"}, ("g.pb",))

    def has_mean(tried: Case) -> bool:
        with contextlib.suppress(DecodeError):
            nodes = graph_pb2.GraphDef.FromString(tried.files["g.pb"]).node
            return any(node.op == "Mean" for node in nodes)
        return False

    small = shrunk(case, has_mean)
    assert list(small.files) == ["g.pb"]
    assert len(small.files["g.pb"]) < 12
    assert has_mean(small)
