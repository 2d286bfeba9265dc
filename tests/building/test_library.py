"""Whether an app's library fits a device and a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.building.doctor import library_facts
from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run, run
from tests.formats.elf_files import elf_library

__all__ = ["run"]

pytest.importorskip("elftools")

OPS = b"\0BiasAdd\0Const\0MatMul\0Placeholder\0ConstantOp\0"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A library, and a graph."""
    library, graph = tmp_path / "lib.so", tmp_path / "m.pb"
    library.write_bytes(elf_library(OPS))
    write_graph(graph, classifier())
    return library, graph


def test_a_library_that_has_all_has_no_problems(files: tuple[Path, Path]) -> None:
    found = library_facts(*files)
    assert (found.abi, found.alignment) == ("arm64-v8a", 1 << 14)
    assert found.missing_ops == found.problems == ()


def test_op_missing_in_the_library_is_reported(files: tuple[Path, Path]) -> None:
    files[0].write_bytes(elf_library(OPS.replace(b"MatMul", b"Matmul")))
    found = library_facts(*files)
    assert found.missing_ops == ("MatMul",)
    assert "1 ops of the model are not registered: MatMul" in found.problems[0]
    assert library_facts(files[0]).problems == ()


def test_a_library_without_kernels_is_a_problem(files: tuple[Path, Path]) -> None:
    files[0].write_bytes(elf_library(OPS.replace(b"ConstantOp", b"Const")))
    for graph in (files[1], None):
        (problem,) = library_facts(files[0], graph).problems
        assert problem.startswith("it holds no kernels")
    files[0].write_bytes(elf_library(b"\0puts\0"))
    (problem,) = library_facts(files[0]).problems
    assert problem.startswith("it holds no ops of TensorFlow")


@pytest.mark.parametrize(("machine", "wide", "count"), [(183, True, 1), (40, False, 0)])
def test_small_pages_are_a_problem_of_64_bits(
    files: tuple[Path, Path], machine: int, wide: bool, count: int
) -> None:
    files[0].write_bytes(elf_library(OPS, machine=machine, wide=wide, alignment=4096))
    problems = library_facts(*files).problems
    assert len(problems) == count
    assert all("-Wl,-z,max-page-size=16384" in problem for problem in problems)


def test_verb_reports_missing_ops_by_its_exit_code(run: Run, files: tuple[Path, Path]) -> None:
    done = run("doctor", "--library", files[0], "--graph", files[1])
    assert (done.code, done.out.splitlines()[-1]) == (0, "no problems")
    files[0].write_bytes(elf_library(b"\0", alignment=4096))
    done = run("doctor", "--library", files[0], "--graph", files[1], "--json")
    assert done.code == 9
    # No ops at all, those of the model, and the alignment.
    assert len(json.loads(done.out)["problems"]) == 3


def test_a_graph_without_a_library_is_refused(run: Run) -> None:
    done = run("doctor", "--graph", "m.pb")
    assert done.code == 2
    assert "--graph needs --library" in done.err
