"""``--check`` and ``check: true`` report the step that breaks a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.arrays import write_arrays
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import classifier, op, placeholder
from tests.cli.conftest import Run

PLUGIN = """
from msgspec.structs import replace

import numpy as np

from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Result, Transform, transform


@transform("spoil")
class Spoil(Transform, frozen=True):
    how: str = "number"

    def apply(self, graph, context):
        return Result(graph.with_nodes(self.spoilt(n) for n in graph), 1)

    def spoilt(self, node):
        if node.name == "w" and self.how in VALUES:
            return constant("w", Tensor.of(np.full((3, 3), VALUES[self.how], np.float32)))
        if node.name == "w" and self.how == "shape":
            return constant("w", Tensor.of(np.ones((2, 3), np.float32)))
        return replace(node, op="Nonsense") if node.name == "y" and self.how == "op" else node


VALUES = {"number": 7, "nan": np.nan}
"""
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"how": {"type": "string", "default": "number"}},
}
RECIPE = """
version: 1
name: r
plugins: [spoil.py]
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
check: true
transforms:
  - remove_device
  - spoil: {how: HOW}
  - sort_by_execution_order
targets: {phone: {}}
"""
BROKEN = [
    ("nan", 8, "is NaN or infinite where the source's is not"),
    ("shape", 5, "cannot run"),
    ("op", 6, "'Nonsense'"),
]


@pytest.fixture(autouse=True)
def _folder(workdir: Path) -> None:
    write_graph(Path("model.pb"), classifier())
    Path("spoil.py").write_text(PLUGIN)
    Path("spoil.json").write_text(json.dumps(SCHEMA))


def transform(run: Run, how: str) -> tuple[int, str]:
    result = run(
        "transform",
        "--in_graph=model.pb",
        "--out_graph=out.pb",
        "--inputs=x",
        "--outputs=y",
        "--plugins=spoil.py",
        f"--transforms=remove_device spoil(how={how}) sort_by_execution_order",
        "--check",
    )
    return result.code, result.err


def build(run: Run, how: str, check: str = "true") -> tuple[int, str]:
    recipe = RECIPE.replace("HOW", how).replace("check: true", f"check: {check}")
    Path("recipe.yaml").write_text(recipe)
    # One job, so that the check of an earlier step fails first.
    result = run("build", "recipe.yaml", "--json", "-j", "1")
    return result.code, result.err if result.code else result.out


def test_transform_prints_the_difference_after_each_step(run: Run) -> None:
    code, err = transform(run, "number")
    assert code == 0
    checked = [line for line in err.splitlines() if "difference" in line]
    differences = [line.rpartition("difference ")[2] for line in checked]
    assert differences[0] == "0"
    assert differences[1].endswith(" of the peak of 'y'")
    assert float(differences[1].partition(",")[0]) > 1
    assert differences[1:] == [differences[1]] * 2


def test_build_reports_the_difference_after_each_step(run: Run) -> None:
    code, out = build(run, "number")
    assert code == 0
    data = [step["largest_difference"] for step in json.loads(out)[0]["steps"]]
    assert data[0] == 0
    assert data[1] > 1
    assert data[1:] == [data[1]] * 2


def test_step_above_max_difference_fails_the_build(run: Run) -> None:
    assert build(run, "none", "{max_difference: 0.01}")[0] == 0
    before = {p: p.read_bytes() for p in Path("out").rglob("*") if p.is_file()}
    code, err = build(run, "number", "{max_difference: 0.01}")
    assert code == 8
    assert "recipe.yaml:11:5: after spoil the output 'y' differs from the source's by " in err
    assert "of its peak" in err
    assert "at most 0.01 is allowed" in err
    assert {p: p.read_bytes() for p in Path("out").rglob("*") if p.is_file()} == before
    assert build(run, "number", "{max_difference: 1e6}")[0] == 0


def test_check_data_replaces_random_samples(run: Run) -> None:
    rng = np.random.default_rng(0)
    write_arrays(Path("data.npz"), {"x": rng.standard_normal((20, 3)).astype(np.float32)})
    code, out = build(run, "none", "{data: data.npz, samples: 5}")
    assert code == 0
    data = json.loads(out)[0]["check"]
    assert (data["data"], data["samples"], data["share_of_peak"]) == ("data.npz", 5, 0)
    assert run("build", "recipe.yaml").err.startswith("out")  # nothing ran
    write_arrays(Path("data.npz"), {"x": rng.standard_normal((20, 3)).astype(np.float32)})
    result = run("build", "recipe.yaml", "--explain").err
    assert "r/samples: input data:data.npz has changed" in result


def test_report_lists_inputs_and_largest_difference(run: Run) -> None:
    Path("recipe.yaml").write_text(RECIPE.replace("HOW", "number"))
    result = run("build", "recipe.yaml")
    assert "check    8 samples drawn: largest difference " in result.out
    assert " of the peak of 'y' after spoil\n  x: float32 [1, 3], 0 to 1 (the graph" in result.out
    assert "'check: {max_difference: ...}' would refuse it" in result.err
    # The check of the packaged file does not repeat warnings of steps.
    assert "in r.pb the output" not in result.err


def test_input_without_placeholder_uses_the_recipe_shape(run: Run) -> None:
    filters = np.random.default_rng(0).standard_normal((3, 3, 3, 2)).astype(np.float32)
    same = {"strides": attr.integers(1, 1, 1, 1), "padding": attr.string("SAME")}
    nodes = [
        placeholder(None),
        constant("scale", Tensor.of(np.float32(1 / 128))),
        op("Mul", "Mul", "x", "scale"),
        constant("filters", Tensor.of(filters)),
        op("conv", "Conv2D", "Mul", "filters", **same),
        op("y", "Relu", "conv"),
    ]
    write_graph(Path("model.pb"), Graph(nodes))
    recipe = RECIPE.replace("x: {}", "Mul: {dtype: float32, shape: [1, 32, 32, 3]}")
    chain = "transforms: [strip_unused_nodes, remove_nodes: {op: Identity}, fold_constants]\n"
    Path("recipe.yaml").write_text(
        recipe.partition("transforms:")[0] + chain + "targets: {phone: {quantize: weights}}\n"
    )
    assert run("validate", "recipe.yaml").code == 0
    result = run("build", "recipe.yaml")
    assert result.code == 0, result.err
    assert "  Mul: float32 [1, 32, 32, 3], " in result.out


@pytest.mark.parametrize(("how", "code", "message"), BROKEN)
def test_transform_names_the_breaking_step(run: Run, how: str, code: int, message: str) -> None:
    exit_code, err = transform(run, how)
    assert exit_code == code
    assert "after spoil" in err
    assert message in err
    assert not Path("out.pb").exists()


@pytest.mark.parametrize(("how", "code", "message"), BROKEN)
def test_build_names_the_breaking_step(run: Run, how: str, code: int, message: str) -> None:
    exit_code, err = build(run, how)
    assert exit_code == code
    assert "after spoil" in err
    assert message in err
