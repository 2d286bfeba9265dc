"""Jobs for stages, and small graphs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from mobileprep.building.plan.engines import EngineChoice
from mobileprep.building.plan.spec import Files, Section, Stage, StageFile, Upstream
from mobileprep.building.stages.base import Job
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.files import MemmappedModel, read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.targets.memmapped import write_memmapped

SECTIONS: Final[tuple[Section, ...]] = (
    *("source", "inputs", "outputs", "freeze", "transforms"),
    *("validation", "budget", "engine", "check", "data"),
)
PLACES = {name: f"recipe.yaml:{line}:1" for line, name in enumerate(SECTIONS, start=3)}


def slots(*names: str) -> dict[str, Upstream]:
    """Outputs of an earlier stage for the inputs of those names."""
    return {name: Upstream("r/earlier", name) for name in names}


StageType = TypeVar("StageType", bound=Stage)


def job(folder: Path, stage: StageType, **inputs: Any) -> Job[StageType]:
    """A job in ``folder/work``; the inputs by slot are graphs, JSON data, or paths."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    stored = {stage.upstream[slot]: _stored(folder / slot, v) for slot, v in inputs.items()}
    return Job("r/task", stage, FileExchange(stored, work), work, PLACES)


class FileExchange:
    """An exchange that stores graphs in files of the directory of the stage."""

    def __init__(self, inputs: Mapping[Upstream, Path], folder: Path) -> None:
        self._inputs = inputs
        self._folder = folder
        self.offloaded: list[Tensor] = []

    def path(self, upstream: Upstream) -> Path:
        return self._inputs[upstream]

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        yield self._inputs[upstream].read_bytes()

    def graph(self, upstream: Upstream) -> Graph:
        return read_graph(self._inputs[upstream])

    def offload(self, tensor: Tensor) -> None:
        self.offloaded.append(tensor)

    def leave_graph(self, name: str, graph: Graph) -> int:
        path = self._folder / name
        write_graph(path, graph)
        return path.stat().st_size

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        path = self._folder / name
        write_memmapped(path, model)
        return path.stat().st_size


def files(path: Path, name: str = "") -> Files:
    """An input file under its name in the recipe."""
    return Files(name or path.name, path, (StageFile(name or path.name, path),))


def _stored(path: Path, value: Any) -> Path:
    if isinstance(value, Path):
        return value
    if isinstance(value, Graph):
        write_graph(path, value)
    else:
        path.write_text(json.dumps(value))
    return path


NUMPY = EngineChoice("numpy", {})
"""The engine choice of stages that run graphs with the interpreter."""


def assets(folder: Path, **files: bytes) -> Path:
    """The asset files as the freeze stage stores them; underscores in names become dots."""
    path = folder / "assets.npz"
    named = {name.replace("_", "."): np.frombuffer(data, np.uint8) for name, data in files.items()}
    write_arrays(path, named)
    return path


def json_output(done: Job[Any], name: str) -> Any:
    """A JSON output of a job."""
    return json.loads((done.folder / name).read_text())


def interface(*outputs: str, inputs: tuple[str, ...] = ("x",)) -> dict[str, Any]:
    """The interface record of the freeze stage."""
    return {"inputs": list(inputs), "outputs": list(outputs), "init_ops": []}


def placeholder(shape: TensorShape, dtype: DType = DType.FLOAT, name: str = "x") -> Node:
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
    return Node(name, "Placeholder", attrs=attrs)


def op(name: str, kind: str, *inputs: str, **attrs: attr.AttrValue) -> Node:
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
