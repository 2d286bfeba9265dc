"""Build a small recipe, and record the version of each stage and the digests of its outputs.

python -m tests.golden.stages.make

All numbers are small integers, so that every processor computes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import PAGE
from mobileprep.building.stages.package.spec import CompressStage
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import op, placeholder
from tests.building.stages.kinds import STAGES

DIGESTS = Path(__file__).parent / "digests.json"
COMMAND = "python -m tests.golden.stages.make"
_COMPRESSED = {"bytes", "compressed", "compressor"}
Noted = dict[str, dict[str, Any]]

_RECIPE = """\
version: 1
name: golden
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 4]}}
outputs: [y]
transforms:
  - strip_unused_nodes
  - remove_nodes: {op: [Identity]}
  - quantize_weights: {minimum_size: 2}
  - sort_by_execution_order
check: {data: data.npz, samples: 3, max_difference: 0}
validation: {data: data.npz}
targets:
  phone:
    platform: android
    abis: [arm64-v8a]
    registration: {tensorflow: ["1.15", "2.21"]}
    budget: {model_bytes: 1 MB}
    integration: {languages: [java, kotlin, cpp, objc], threads: 2}
    migration_report: true
  private:
    transforms: null
    check: null
    validation: null
    protect: {encrypt: {key: env:GOLDEN_KEY}}
  eight:
    transforms: null
    check: null
    validation: null
    calibration: {data: data.npz, method: min_max}
    quantize: {mode: nodes, ranges: observed}
  auto:
    transforms: null
    check: null
    calibration: {data: data.npz, method: min_max}
    quantize: {mode: auto, trials: 2}
"""


_CASCADE = """\
version: 1
name: cascade
device: smartphone
inputs: {x: {}}
outputs: [y]
validation:
  - {name: studio, data: data.npz}
  - {name: phone, data: data.npz, samples: 2, max_gap: 1}
models: {first: {source: {frozen: model.pb}}, second: {source: {frozen: model.pb}}}
targets: {phone: {}}
pipeline:
  steps:
    - {model: first, runs: {expected: 2.5, p95: 6, worst: 9}}
    - {model: second, pass_rate: {data: data.npz, threshold: 1}}
"""


def noted(folder: Path) -> Noted:
    """The version of each stage, and the digests of its outputs in a new directory."""
    _write_inputs(folder)
    os.environ["GOLDEN_KEY"] = "00" * 32
    names = ("recipe.yaml", "cascade.yaml")
    recipes = [load_recipe(folder / name, environ={}) for name in names]
    state = State(plan_recipes(recipes), Store(folder / "store"))
    build(Executor(state))
    records: Noted = {
        kind.stage_name: {"version": kind.stage_version, "outputs": {}} for kind in STAGES
    }
    for spec in state.plan.stages:
        for name in state.verdict(spec.task).record.outputs:  # type: ignore[union-attr]
            data = b"".join(state.store.pieces(state.record(spec.task).outputs[name]))
            records[spec.kind]["outputs"][f"{spec.task}: {name}"] = _digest(name, data)
    return records


def complaints(before: Noted, after: Noted) -> list[str]:
    """Instructions for stages whose outputs or versions changed."""
    messages = []
    for kind in STAGES:
        old, new = before.get(kind.stage_name), after[kind.stage_name]
        if old is None or new["version"] != old["version"]:
            messages.append(f"{kind.__name__} has a new version: run {COMMAND}")
        elif new["outputs"] != old["outputs"]:
            changed = sorted(dict(new["outputs"].items() ^ old["outputs"].items()))
            messages.append(
                f"{kind.__name__} leaves something else ({', '.join(changed)}): raise its version "
                f"in the spec.py of its slice in mobileprep/building/stages and run {COMMAND}"
            )
    return messages


def _write_inputs(folder: Path) -> None:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    weights[3, 2] = 255  # so that 8-bit weights are exact
    nodes = [
        placeholder((-1, 4)),
        constant("w", Tensor.of(weights)),
        constant("b", Tensor.of(np.array([1, 2, 3], np.float32))),
        op("same", "Identity", "w"),
        op("product", "MatMul", "x", "same"),
        op("y", "BiasAdd", "product", "b"),
        op("unused", "Relu", "y"),
    ]
    write_graph(folder / "model.pb", Graph(nodes))
    x = np.array([[i % 5, (3 * i) % 7, i % 3, i % 2] for i in range(8)], np.float32)
    write_arrays(folder / "data.npz", {"x": x, "label": np.array([2] * 8)})
    (folder / "recipe.yaml").write_text(_RECIPE)
    (folder / "cascade.yaml").write_text(_CASCADE)


def _digest(name: str, data: bytes) -> str:
    if name in (CompressStage.RECORD, PAGE):
        record = json.loads(data)
        # Another release of the compressor may pack better.
        record |= {key: type(record[key]).__name__ for key in _COMPRESSED & record.keys()}
        data = json.dumps(record, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(noted(Path(name)), indent=1, sort_keys=True)
    DIGESTS.write_text(f"{text}\n", encoding="utf-8")
