"""Small valid files of every format."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import tempfile
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np

from mobileprep.cli.main import main
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.ops.registry import import_ops
from tests.fuzz.case import Case, tree
from tests.fuzz.limits import case_environment, scratch
from tests.ops.cases import OpCase
from tests.ops.graphs import c, p
from tests.transforms.busy import busy_graph
from tests.transforms.graphs import conv, node, normal

_ROOT = Path(__file__).parents[2]
_OPS = _ROOT / "tests" / "ops"
GOLDEN = _ROOT / "tests" / "golden" / "checkpoints"
KEY = "00112233445566778899aabbccddeeff" * 2
_MODEL = """\
version: 1
name: small
source: {frozen: model.pb}
inputs:
  x: {dtype: float32, shape: [-1, 4, 4, 3]}
outputs: [y]
"""
_CALIBRATION = "calibration: {data: data.npz, method: min_max}\n"
_VALIDATION = "validation: {data: data.npz, labels: label, metric: top1, max_drop: 1.0}\n"
RECIPE = f"""\
{_MODEL}transforms:
  - strip_unused_nodes
  - fold_constants: {{ignore_errors: true}}
  - merge_duplicate_nodes
{_CALIBRATION}{_VALIDATION}targets:
  phone: {{platform: android, sort: true, quantize: weights}}
  eight: {{platform: android, quantize: {{mode: nodes, ranges: observed}}}}
"""
PLAIN = f"{_MODEL}targets:\n  phone: {{platform: android}}\n"
"""Builds in a quarter of the time of ``RECIPE``."""
VALIDATED = f"{_MODEL}{_VALIDATION}targets:\n  phone: {{platform: android}}\n"
"""Builds in a third of the time, and reads samples."""
CALIBRATED = f"""\
{_MODEL}{_CALIBRATION}targets:
  eight: {{platform: android, quantize: {{mode: nodes, ranges: observed}}}}
"""
"""Calibrates in half of the time."""


_IMPORTED = ("cli", "transforms", "stages", "datasets", "pipeline", "api", "report", "litert")

_LIBRARIES = (
    *("PIL.Image", "yaml", "jsonschema", "re2", "doit.cmd_base", "cryptography"),
    "ai_edge_litert.interpreter",
)


def import_all() -> None:
    """Import the modules that verbs import when they run, to save time in forks."""
    import_ops()
    for package in _IMPORTED:
        for path in sorted((_ROOT / "mobileprep" / package).rglob("*.py")):
            name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            if path.stem not in ("__init__", "__main__"):
                importlib.import_module(name)
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@lru_cache(maxsize=1)
def op_cases() -> tuple[OpCase, ...]:
    """The cases of all ops."""
    cases: list[OpCase] = []
    for path in sorted(_OPS.glob("*/test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.parent.name}.{path.stem}")
        cases += getattr(module, "OP_CASES", ())
    return tuple(cases)


def loop_graph() -> Graph:
    """While x < 100: x = x + 30, in control flow v1."""
    frame = {"frame_name": "while", "is_constant": False, "parallel_iterations": 10}
    return Graph(
        [
            p("x", np.float32, ()),
            node("enter", "Enter", "x", **frame),
            node("head", "Merge", "enter next", N=2),
            c("most", 100.0, "^head"),
            node("less", "Less", "head most"),
            node("go", "LoopCond", "less", T=None),
            node("turn", "Switch", "head go"),
            node("body", "Identity", "turn:1"),
            c("step", 30.0, "^body"),
            node("more", "Add", "body step"),
            node("next", "NextIteration", "more"),
            node("y", "Exit", "turn"),
        ]
    )


def small_graph() -> Graph:
    """A classifier of three classes for images of 4 x 4 pixels."""
    return Graph(
        [
            p("x", np.float32, (-1, 4, 4, 3)),
            c("w", normal(3, 3, 3, 4)),
            conv("conv", "x w"),
            c("b", normal(4)),
            node("bias", "BiasAdd", "conv b"),
            node("relu", "Relu", "bias"),
            c("axes", np.array([1, 2], np.int32)),
            node("mean", "Mean", "relu axes", Tidx=DType.INT32, keep_dims=False),
            c("v", normal(4, 3)),
            node("scores", "MatMul", "mean v", transpose_a=False, transpose_b=False),
            node("y", "Softmax", "scores"),
        ]
    )


@lru_cache(maxsize=1)
def graphs() -> tuple[bytes, ...]:
    """Serialized graphs of several kinds, without those of a single op."""
    return tuple(graph_to_bytes(g) for g in (busy_graph(), loop_graph(), small_graph()))


def any_graph(rng: random.Random) -> bytes:
    """A valid graph, often one of a single op."""
    if rng.random() < 0.6:
        case = rng.choice(op_cases())
        with contextlib.suppress(AssertionError):
            return graph_to_bytes(case.graph())
    return rng.choice(graphs())


def data(name: str = "x") -> dict[str, np.ndarray]:
    """Samples of the small graph with labels."""
    rng = np.random.default_rng(2)
    images = rng.random((6, 4, 4, 3)).astype(np.float32)
    return {name: images, "label": np.arange(6) % 3}


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz file."""
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


@lru_cache(maxsize=8)
def recipe_files(recipe: str = RECIPE) -> dict[str, bytes]:
    """A recipe with its model and data."""
    return {
        "recipe.yaml": recipe.encode(),
        "model.pb": graph_to_bytes(small_graph()),
        "data.npz": archive(data()),
    }


def run_commands(files: dict[str, bytes], *commands: str, **environment: str) -> dict[str, bytes]:
    """Run commands in a directory with some files, and return all files, including the cache."""
    with tempfile.TemporaryDirectory(dir=scratch()) as root, mock.patch.dict(os.environ):
        folder = Path(root)
        Case((), files).write(folder)
        os.environ.update(case_environment(folder, {"MODEL_KEY": KEY, **environment}))
        before = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                codes = [main(command.split()) for command in commands]
        finally:
            os.chdir(before)
        assert not any(codes), commands
        return dict(tree(folder))
