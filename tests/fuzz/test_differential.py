"""The differential fuzzer: its parts, known bugs of LiteRT, and a sample of random graphs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import Mode
from tests.fuzz.differential.check import Checker, Finding
from tests.fuzz.differential.engines import Answer, Worker
from tests.fuzz.differential.generate import Case, case_of
from tests.fuzz.differential.known import KNOWN_BUGS, KnownBug, known_bug
from tests.fuzz.differential.shrink import shrunk
from tests.fuzz.differential.text import shown
from tests.litert.graphs import const, expected, feed, op

SEED = 15
if not sys.platform.startswith("linux"):
    pytest.skip("the worker process forks", allow_module_level=True)


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    checker = Checker()
    yield checker
    checker.stop()


@pytest.mark.parametrize(("mode", "count"), [("float", 25), ("int8", 15), ("int16x8", 10)])
def test_litert_computes_random_graphs(checker: Checker, mode: Mode, count: int) -> None:
    for number in range(count):
        case = case_of(mode, SEED, number)
        findings = [f for f in checker.findings(case) if known_bug(case, f) is None]
        assert findings == [], f"{SEED}:{number}\n{shown(case)}"


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_known_bugs_still_exist(checker: Checker, bug: KnownBug) -> None:
    case = bug.proof()
    findings = checker.findings(case)
    assert any(bug.explains(case, f) for f in findings)
    assert [f.kind for f in findings if known_bug(case, f) is None] == []


def test_cases_are_reproducible() -> None:
    first, second = (shown(case_of("float", SEED, 7)) for _ in range(2))
    assert first == second != shown(case_of("float", SEED, 8))


def test_interpreter_runs_random_graphs() -> None:
    """The cases contain loops, branches, and functions of all kinds."""
    ops: set[str] = set()
    for number in range(60):
        case = case_of("float", SEED, number)
        values = expected(case.graph, case.feeds, case.outputs)
        assert len(values) == len(case.outputs)
        ops |= {node.op for node in case.graph}
    assert ops > {"While", "If", "Exit", "Merge", "SelectV2", "StridedSlice", "Conv2D"}


def test_shrunk_case_is_minimal(checker: Checker) -> None:
    nodes = [
        feed("x", (2, 3)),
        const("one", np.float32(1)),
        op("y", "Add", ["x", "one"], T=DType.FLOAT),
        op("z", "Exp", ["y"], T=DType.FLOAT),
    ]
    case = Case(Graph(nodes), {"x": np.ones((2, 3), np.float32)}, ("y", "z"))
    assert checker.findings(case) == []

    def fails(tried: Case) -> bool:
        return any(node.op == "Exp" for node in tried.graph)

    small = shrunk(case, fails)
    assert [node.op for node in small.graph] == ["Placeholder", "Exp"]
    assert small.outputs == ("z",)
    assert [v.shape for v in small.feeds.values()] == [(1,)]


def test_worker_reports_crashes() -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    worker = Worker("litert")
    try:
        assert worker.ask((b"no model", [], ["builtin"]))[0].error.startswith("ValueError")
        assert worker.ask(_Crash()) == [Answer(error="SIGABRT: no message")]
        assert worker.ask((b"no model", [], ["builtin"]))[0].error.startswith("ValueError")
        assert worker.crashes == 1
    finally:
        worker.stop()


class _Crash:
    """Aborts the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        import os

        return os.abort, ()


def test_known_bugs_match_only_their_findings() -> None:
    case = case_of("float", SEED, 0)
    assert known_bug(case, Finding("wrong: xnnpack,builtin", "")) is None
    assert known_bug(case, Finding("wrong: reference", "", ("SUM",))) is not None
