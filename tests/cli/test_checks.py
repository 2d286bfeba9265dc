"""With ``--check``, or ``check: true``, the step that breaks a model is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.ir.files import write_graph
from tests.cli.conftest import Run
from tests.stages.jobs import classifier

PLUGIN = """
from dataclasses import dataclass, replace

import numpy as np

from mobileprep.ir.node import constant
from mobileprep.ir.tensor import Tensor
from mobileprep.transforms.base import Result, Transform, transform


@transform("spoil")
@dataclass(frozen=True)
class Spoil(Transform):
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
    ("nan", 8, "the outputs are not numbers where the source's are"),
    ("shape", 5, "cannot run"),
    ("op", 6, "'Nonsense'"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    write_graph(Path("model.pb"), classifier())
    Path("spoil.py").write_text(PLUGIN)
    Path("spoil.json").write_text(json.dumps(SCHEMA))


def transform(run: Run, how: str) -> tuple[int, str]:
    told = run(
        "transform",
        "--in_graph=model.pb",
        "--out_graph=out.pb",
        "--inputs=x",
        "--outputs=y",
        "--plugins=spoil.py",
        f"--transforms=remove_device spoil(how={how}) sort_by_execution_order",
        "--check",
    )
    return told.code, told.err


def build(run: Run, how: str) -> tuple[int, str]:
    Path("recipe.yaml").write_text(RECIPE.replace("HOW", how))
    told = run("build", "recipe.yaml", "--json")
    return told.code, told.err if told.code else told.out


def test_transform_tells_how_far_each_step_is_from_the_source(run: Run) -> None:
    code, err = transform(run, "number")
    assert code == 0
    checked = [line for line in err.splitlines() if "difference" in line]
    found = [line.rpartition("difference ")[2] for line in checked]
    assert found[0] == "0"
    assert float(found[1]) > 1
    assert found[1:] == [found[1]] * 2


def test_a_build_tells_how_far_each_step_is_from_the_source(run: Run) -> None:
    code, out = build(run, "number")
    assert code == 0
    found = [step["largest_difference"] for step in json.loads(out)[0]["steps"]]
    assert found[0] == 0
    assert found[1] > 1
    assert found[1:] == [found[1]] * 2


@pytest.mark.parametrize(("how", "code", "told"), BROKEN)
def test_transform_names_the_step_after_which_the_model_is_broken(
    run: Run, how: str, code: int, told: str
) -> None:
    found, err = transform(run, how)
    assert found == code
    assert "after spoil" in err
    assert told in err
    assert not Path("out.pb").exists()


@pytest.mark.parametrize(("how", "code", "told"), BROKEN)
def test_a_build_names_the_step_after_which_the_model_is_broken(
    run: Run, how: str, code: int, told: str
) -> None:
    found, err = build(run, how)
    assert found == code
    assert "after spoil" in err
    assert told in err
