"""The package stage."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from mobileprep.errors import AccuracyError, UnsupportedError
from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_to_bytes
from mobileprep.plan.stages import PackageStage
from mobileprep.recipe.settings import Budget
from mobileprep.stages.base import Job
from mobileprep.stages.package import compressed_size, run
from tests.stages.jobs import classifier, interface, job, left, op, slots


def package(folder: Path, graph: Graph | None = None, **changes: Any) -> Job[PackageStage]:
    parameters = {
        "file": "m.pb",
        "artifact": "frozen",
        "platform": "android",
        "abis": ("arm64-v8a",),
        "registration": (),
        "budget": Budget(),
        **changes,
    }
    inputs = {"graph": graph or classifier(), "interface": interface("y")}
    return job(folder, PackageStage(**parameters, **slots(*inputs)), **inputs)


def files(done: Job[PackageStage]) -> set[str]:
    root = done.folder / "files"
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def test_the_model_and_its_numbers_are_left(tmp_path: Path) -> None:
    done = package(tmp_path)
    run(done)
    data = (done.folder / "files/m.pb").read_bytes()
    assert data == graph_to_bytes(classifier())
    facts = left(done, "package.json")
    assert facts["ops"] == {"BiasAdd": 1, "Const": 2, "MatMul": 1, "Placeholder": 1}
    assert facts["model"] == {
        "file": "m.pb",
        "bytes": len(data),
        "compressed_bytes": len(zlib.compress(data, 9)),
        "nodes": 5,
        "parameters": 12,
        "constants": 2,
    }


def test_text_can_be_left_instead(tmp_path: Path) -> None:
    done = package(tmp_path, file="m.pbtxt", artifact="text")
    run(done)
    assert (done.folder / "files/m.pbtxt").read_text().startswith("node {")
    assert [n.name for n in read_graph(done.folder / "files/m.pbtxt")] == [
        n.name for n in classifier()
    ]


def test_without_registration_there_is_no_header(tmp_path: Path) -> None:
    done = package(tmp_path)
    run(done)
    assert files(done) == {"m.pb"}


def test_one_registration_lies_beside_the_model(tmp_path: Path) -> None:
    done = package(tmp_path, registration=("1.15",))
    run(done)
    assert {"m.pb", "ops_to_register.h"} <= files(done)
    assert not any("tensorflow" in name.split("/")[0] for name in files(done))
    assert "BiasOp<CPUDevice, float>" in (done.folder / "files/ops_to_register.h").read_text()


def test_several_registrations_have_a_folder_each(tmp_path: Path) -> None:
    done = package(tmp_path, registration=("1.15", "2.21"))
    run(done)
    names = files(done)
    for release in ("1.15", "2.21"):
        assert f"tensorflow-{release}/ops_to_register.h" in names
        fragments = {n for n in names if n.startswith(f"tensorflow-{release}/")}
        assert len(fragments) > 1
    assert "ops_to_register.h" not in names


def test_an_op_that_the_release_lacks_is_refused(tmp_path: Path) -> None:
    graph = classifier()
    strange = graph.with_nodes([*graph.nodes, op("z", "NoSuchOp", "y")])
    with pytest.raises(UnsupportedError, match="NoSuchOp"):
        run(package(tmp_path, strange, registration=("1.15",)))


@pytest.mark.parametrize("key", ["model_bytes", "compressed_bytes"])
def test_a_budget_is_met_to_the_byte(tmp_path: Path, key: str) -> None:
    data = graph_to_bytes(classifier())
    size = len(data) if key == "model_bytes" else len(zlib.compress(data, 9))
    run(package(tmp_path, budget=Budget(**{key: size})))
    with pytest.raises(AccuracyError, match=f"1 over the budget of {size - 1:,}") as caught:
        run(package(tmp_path, budget=Budget(**{key: size - 1})))
    assert caught.value.where == "recipe.yaml:10:1"
    assert ("compressed" in caught.value.message) == (key == "compressed_bytes")


def test_both_budgets_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(package(tmp_path, budget=Budget(0, 0)))
    assert caught.value.message.count("over the budget of 0") == 2


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_compressed_size_is_that_of_one_stream(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(i * i % 251 for i in range(1024)) * (size // 1024) + bytes(size % 1024))
    assert compressed_size(path) == len(zlib.compress(path.read_bytes(), 9))
