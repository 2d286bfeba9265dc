"""Public functions that match command-line verbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mobileprep
from mobileprep import Graph, UsageError
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import built, built_once, digits, run  # noqa: F401 - fixtures


@pytest.fixture
def graph() -> Graph:
    """A classifier with the input ``x`` and the output ``y``."""
    return classifier()


def test_graph_and_its_file_convert_to_the_same_tflite_file(graph: Graph, tmp_path: Path) -> None:
    mobileprep.save_graph(graph, tmp_path / "model.pb")
    (name,) = [n.name for n in graph if n.op == "Placeholder"]
    first = mobileprep.to_tflite(graph, tmp_path / "a.tflite", inputs=name, shapes={name: (1, 3)})
    second = mobileprep.to_tflite(
        str(tmp_path / "model.pb"), tmp_path / "b.tflite", inputs=[name], shapes={name: (1, 3)}
    )
    assert first.file.read_bytes() == second.file.read_bytes()
    assert (first.size, first.inputs, first.flex) == (second.size, (name,), ())


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "dynamic"},
        {"mode": "int8", "input_type": "float32"},
        {"mode": "int8", "output_type": "bool"},
        {"detection_postprocess": "yes"},
    ],
)
def test_invalid_conversion_options_are_refused(
    options: dict[str, str], graph: Graph, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"^invalid ") as caught:
        mobileprep.to_tflite(graph, tmp_path / "a.tflite", **options)  # type: ignore[arg-type]
    assert "expected one of" in caught.value.hint
    assert not (tmp_path / "a.tflite").exists()


def test_memmap_warns_about_overwritten_constants(tmp_path: Path) -> None:
    weights = constant("w", Tensor.of(np.arange(40, dtype=np.float32)))
    graph = Graph([weights, op("twice", "Add", "w", "w")])
    warnings: list[str] = []
    result = mobileprep.memmap(graph, tmp_path / "m.pb", min_size=30, warn=warnings.append)
    assert [tensor.nbytes for _, tensor in result.model.regions] == [160]
    assert len(warnings) == 1
    assert "the node 'twice' may write its result" in warnings[0]
    assert mobileprep.memmap(graph, tmp_path / "m.pb", min_size=30, safe=True).model.regions == []


def test_compare_accepts_graphs_and_files(graph: Graph, tmp_path: Path) -> None:
    mobileprep.save_graph(graph, tmp_path / "model.pb")
    assert mobileprep.compare(graph, tmp_path / "model.pb") == []
    more = graph.with_nodes([*graph, Node("more", "NoOp")])
    (difference,) = mobileprep.compare(str(tmp_path / "model.pb"), more)
    assert (difference.kind, difference.name) == ("added", "more")


def test_draw_selects_the_format_by_extension(graph: Graph, tmp_path: Path) -> None:
    assert mobileprep.draw(graph, tmp_path / "g.dot") == [tmp_path / "g.dot"]
    assert (tmp_path / "g.dot").read_text().startswith("digraph")
    written = mobileprep.draw(graph, tmp_path / "g.json", format="model-explorer")
    assert all(path.is_file() for path in written)
    with pytest.raises(UsageError, match="collapses scopes itself"):
        mobileprep.draw(graph, tmp_path / "g.json", format="model-explorer", collapse=1)
    with pytest.raises(UsageError, match="'damage' is an overlay"):
        mobileprep.draw(graph, tmp_path / "g.dot", damage="damage.json")


def test_migrate_has_a_route_for_each_runtime(graph: Graph, tmp_path: Path) -> None:
    mobileprep.save_graph(graph, tmp_path / "model.pb")
    result = mobileprep.migrate(tmp_path / "model.pb")
    assert result.routes[-1].verdict == "as it is"


def test_plan_predicts_the_stages_of_a_build(digits: Path, tmp_path: Path) -> None:  # noqa: F811
    (recipe,) = mobileprep.validate(digits)
    steps = mobileprep.plan(recipe, tmp_path / "out", targets=["phone"])
    assert all(not step.fresh for step in steps)
    result = mobileprep.build(recipe, tmp_path / "out", targets=["phone"])
    assert set(result.ran) <= {step.task for step in steps}
    assert all(step.fresh for step in mobileprep.plan(digits, tmp_path / "out", targets="phone"))


def test_validate_opens_files_by_default(digits: Path) -> None:  # noqa: F811
    (digits.parent / "model" / "graph.pbtxt").unlink()
    assert [recipe.name for recipe in mobileprep.validate(digits, files=False)] == ["digits"]
    with pytest.raises(mobileprep.MobileprepError, match=r"graph\.pbtxt"):
        mobileprep.validate(digits)


Function = Callable[..., object]


@pytest.mark.parametrize(
    "function",
    [
        mobileprep.migrate,
        lambda path: mobileprep.compare(path, path),
        lambda path: mobileprep.draw(path, "g.dot"),
        lambda path: mobileprep.memmap(path, "m.pb"),
        lambda path: mobileprep.to_tflite(path, "m.tflite"),
    ],
    ids=["migrate", "compare", "draw", "memmap", "to_tflite"],
)
def test_missing_file_is_reported_with_its_path(function: Function, tmp_path: Path) -> None:
    with pytest.raises(mobileprep.CorruptFileError) as caught:
        function(tmp_path / "none.pb")
    assert "none.pb" in str(caught.value)
