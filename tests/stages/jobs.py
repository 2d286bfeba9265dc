"""Jobs for stages, and small graphs for them to work on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.files import write_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Tensor
from mobileprep.plan.spec import InputFile
from mobileprep.stages.base import Job

PLACES = {
    name: f"recipe.yaml:{line}:1"
    for line, name in enumerate(
        (
            "source",
            "inputs",
            "outputs",
            "freeze",
            "transforms",
            "validation",
            "max_drop",
            "budget",
            "engine",
            "check",
            "data",
        ),
        start=3,
    )
}


def job(
    folder: Path,
    parameters: Mapping[str, Any],
    *,
    files: Mapping[str, Path] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Job:
    """A job in ``folder/work``; inputs are graphs, or data for JSON, or paths."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    named = files or {}
    return Job(
        "r/task",
        parameters,
        {slot: (InputFile(path.name, path),) for slot, path in named.items()},
        dict(named),
        {slot: _stored(folder / slot, value) for slot, value in (inputs or {}).items()},
        work,
        PLACES,
    )


def _stored(path: Path, value: Any) -> Path:
    if isinstance(value, Path):
        return value
    if isinstance(value, Graph):
        write_graph(path, value)
    else:
        path.write_text(json.dumps(value))
    return path


NUMPY: dict[str, Any] = {"engine": "numpy", "engines": {}}
"""What a stage is told that runs graphs with the interpreter."""


def assets(folder: Path, **files: bytes) -> Path:
    """The files of a model as the freeze stage leaves them; a name's underscore is a dot."""
    path = folder / "assets.npz"
    named = {name.replace("_", "."): np.frombuffer(data, np.uint8) for name, data in files.items()}
    write_arrays(path, named)
    return path


def left(done: Job, name: str) -> Any:
    """A JSON output of a job."""
    return json.loads((done.folder / name).read_text())


def interface(*outputs: str, inputs: tuple[str, ...] = ("x",)) -> dict[str, Any]:
    """What the freeze stage says of a model."""
    return {"inputs": list(inputs), "outputs": list(outputs), "init_ops": []}


def placeholder(shape: TensorShape, dtype: DType = DType.FLOAT, name: str = "x") -> Node:
    """An input."""
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
    return Node(name, "Placeholder", attrs=attrs)


def op(name: str, kind: str, *inputs: str, **attrs: attr.AttrValue) -> Node:
    """A node on floats."""
    refs = tuple(parse_ref(t) for t in inputs)
    return Node(name, kind, refs, attrs={"T": attr.dtype(DType.FLOAT), **attrs})


def classifier(batch: int = -1, *, scale: float = 1.0, shift: float = 0.0) -> Graph:
    """``y = x * w + b`` with three features, which are scores of three classes."""
    weights = np.eye(3, dtype=np.float32) * np.float32(scale)
    return Graph(
        [
            placeholder((batch, 3)),
            constant("w", Tensor.of(weights)),
            constant("b", Tensor.of(np.array([shift, 0, 0], np.float32))),
            op("product", "MatMul", "x", "w"),
            op("y", "BiasAdd", "product", "b"),
        ]
    )
