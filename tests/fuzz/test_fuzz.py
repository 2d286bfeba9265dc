"""The fuzzer: its parts, and a seeded sample of damaged files of every format."""

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
from tests.fuzz.case import Case, formats, read_case
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.judge import problems
from tests.fuzz.limits import Outcome, run_case
from tests.fuzz.runs import Finding, Progress, case_of, findings
from tests.fuzz.shrink import shrunk

SEED, CASES = 15, 25

if not sys.platform.startswith("linux"):
    pytest.skip("process limits work on Linux only", allow_module_level=True)
import_formats()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("name", sorted(formats))
def test_damaged_files_are_handled(name: str) -> None:
    assert findings(name, SEED, range(CASES)) == []


def test_cases_are_reproducible() -> None:
    assert case_of("graph", 1, 7) == case_of("graph", 1, 7)
    assert case_of("graph", 1, 7) != case_of("graph", 2, 7)


def test_case_round_trip(tmp_path) -> None:
    graph, digest = {"a/g.pb": b"\x00\xff"}, {"o.pb": "ab"}
    case = Case(("run", "--graph=a/g.pb"), graph, ("a/g.pb",), {"KEY": "1"}, digest)
    case.save(tmp_path)
    assert read_case(tmp_path) == case


def test_shrinking_preserves_the_problem() -> None:
    case = Case((), {"f": b"a" * 100 + b"!" + b"b" * 50}, ("f",))
    assert shrunk(case, lambda tried: b"!" in tried.files["f"]).files == {"f": b"!"}


def test_failures_are_recorded_and_reported_once_per_run(tmp_path: Path) -> None:
    path = tmp_path / "graph-1.json"
    for done in (100, 200):
        progress, reported = Progress(path), list[Finding]()
        assert progress.failed_numbers() == ([7, 9] if done == 200 else [])
        findings = [Finding("graph", number, ("time: run",), "", "") for number in (7, 9)]
        progress.record(100, findings if done == 100 else [], reported.append)
        # Failures stay recorded until they run again.
        assert Progress(path).failed == {"time: run": [7, 9]}
        progress.record_rerun(findings[1:], reported.append)
        assert [finding.number for finding in reported] == ([7] if done == 100 else [9])
        progress.record_rerun(findings, reported.append)
        assert Progress(path).done == done
    Progress(path).record_rerun([], reported.append)
    assert Progress(path).failed == {}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome(70, "Traceback\nKeyError: 'x'\n", 0, 0), "code 70"),
        (Outcome(-11, "", 0, 0), "code -11"),
        (Outcome(0, "", 0, 20, timed_out=True), "time"),
        (Outcome(0, "", 2 << 30, 0), "memory"),
        (Outcome(5, "", 0, 0), "no message"),
        (Outcome(5, "error: g.pb: is bad\n", 0, 0), "no help"),
        (Outcome(5, "error: is bad\nhelp: fix\n", 0, 0), "no file"),
        (Outcome(5, "error: g.pb: \x1b[31m\nhelp: fix\n", 0, 0), "unprintable"),
        (Outcome(5, f"error: g.pb: {'n' * 90_000}\nhelp: x\n", 0, 0), "long message"),
        (Outcome(0, "a.py:3: RuntimeWarning: overflow\n", 0, 0), "warning"),
    ],
)
def test_problems_of_an_outcome(outcome: Outcome, expected: str) -> None:
    case = Case(("run", "--graph=g.pb"), {"g.pb": b""})
    assert [f.split(":")[0].startswith(expected) for f in problems(case, outcome)] == [True]
    fine = Outcome(5, "error: g.pb: is bad\nhelp: fix it\n", 0, 0)
    assert problems(case, fine) == []


@pytest.mark.parametrize("verb", ["cache", "verify"])
def test_standard_output_is_checked_without_a_message(verb: str) -> None:
    case = Case((verb, "out"), {"out/m.pb": b""})
    outputs = {"": "no message", "out/m.pb: \x1b[31m": "unprintable output", "out/m.pb: bad\n": ""}
    for printed, problem in outputs.items():
        results = problems(case, Outcome(4, "", 0, 0, printed=printed))
        assert [f.split(":")[0] for f in results] == ([problem] if problem else [])


def test_expected_files_must_be_written() -> None:
    case = Case(("build", "r.yaml"), {"r.yaml": b""}, expected={"out/m.pb": "ab"})
    failed = Outcome(4, "error: r.yaml: is bad\nhelp: fix it\n", 0, 0)
    other = Outcome(0, "", 0, 0, wrong_files=("out/m.pb",))
    for outcome, start in ((failed, "failed: build"), (other, "wrong files: build .pb")):
        assert [f[: len(start)] for f in problems(case, outcome)] == [start]
    assert problems(case, Outcome(0, "", 0, 0)) == []


def test_written_files_are_compared() -> None:
    files = {"g.pb": graph_to_bytes(seeds.small_graph())}
    arguments = ("freeze", "--input_graph=g.pb", "--output_graph=o.pb", "--output_node_names=y")
    for digest, wrong_files in ((sha256_bytes(files["g.pb"]), ()), ("ab", ("o.pb",))):
        case = Case(arguments, files, expected={"o.pb": digest})
        assert [outcome.wrong_files for _, outcome in run_cases([case])] == [wrong_files]
        assert run_case(case).wrong_files == wrong_files


def test_message_may_name_a_path_within_an_argument() -> None:
    case = Case(("transform", "--in_graph=g.pb", "--transforms=a(log='run.log')"), {"g.pb": b""})
    for name, is_path in (("run.log", True), ("other.log", False)):
        outcome = Outcome(4, f"error: {name}: is bad\nhelp: fix it\n", 0, 0)
        assert (problems(case, outcome) == []) is is_path


def test_sharing_a_fork_does_not_change_outcomes() -> None:
    cases = [case_of("graph", SEED, number) for number in range(12)]
    together = [(outcome.code, outcome.error) for _, outcome in run_cases(cases)]
    alone = [run_case(case) for case in cases]
    assert [code for code, _ in together] == [outcome.code for outcome in alone]


def test_killed_case_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case_of("graph", SEED, number) for number in range(4)]
    codes = [run_case(case).code for case in cases]

    def killed(case: Case, folder: Path) -> tuple[int, str, float, str, tuple[str, ...]]:
        if case == cases[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_one(case, folder)

    run_one = batches._run_one
    monkeypatch.setattr(batches, "_run_one", killed)
    assert [outcome.code for _, outcome in run_cases(cases)] == codes


def test_numbers_of_a_tflite_file_are_located(tmp_path: Path) -> None:
    graph, out = tmp_path / "g.pb", tmp_path / "m.tflite"
    write_graph(graph, seeds.small_graph())
    assert main(["tflite", f"--in_graph={graph}", f"--out_file={out}"]) == 0
    data = out.read_bytes()
    places = flatbuffer.places(data)
    kinds = {place.kind for place in places}
    assert kinds > {"offset", "length", "slot", "TensorType", "BuiltinOperator", "int", "uint"}
    assert max(place.at + place.width for place in places) <= len(data)
    changed = {flatbuffer.damaged(data, random.Random(n)) for n in range(50)}
    assert len(changed) > 45


def test_damage_usually_changes_bytes() -> None:
    rng = random.Random(1)
    assert sum(damaged_bytes(b"valid bytes", rng) != b"valid bytes" for _ in range(100)) > 90


def test_shrinking_removes_unneeded_nodes_and_files() -> None:
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
