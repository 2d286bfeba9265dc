"""Memory-mapped models against the original writer and loader of TensorFlow 1.15."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.transforming import transform
from mobileprep.formats.dtypes import DType
from mobileprep.formats.memmapped import GRAPH_REGION, read_package
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import IMMUTABLE, MemmappedModel, read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.targets.memmapped import convert, write_memmapped
from mobileprep.targets.target_check import target_gaps
from tests.reference.native import fetched_memmapped, program
from tests.reference.original import known_to_original
from tests.transforms.graphs import const, conv, node

pytestmark = pytest.mark.reference

Array = np.ndarray


def convert_like_original(graph: Graph, minimum: int) -> MemmappedModel:
    """Convert with the options that match the original's behavior."""
    return convert(graph, minimum, quantized=False, safe=False).model


def write_with_original(home: Path, graph: Graph, folder: Path, minimum: int) -> bytes:
    """Pass our regions and graph to the original writer, and return the package."""
    model = convert_like_original(graph, minimum)
    names = [n.name for n in model.graph if n.op == IMMUTABLE]
    lines = [f"{n} {region}" for n, (region, _) in zip(names, model.regions, strict=True)]
    write_graph(folder / "constants.pb", graph)
    write_graph(folder / "graph.pb", model.graph)
    files = [str(folder / f) for f in ("constants.pb", "graph.pb", "package")]
    command = [str(program(home, "write_package")), *files]
    subprocess.run(command, input="\n".join(lines), text=True, check=True, timeout=300)
    return (folder / "package").read_bytes()


def every_type() -> Graph:
    """Constants of all types that the original converts, at sizes that need padding."""
    types = [
        *(DType.FLOAT, DType.DOUBLE, DType.HALF, DType.BFLOAT16, DType.INT64, DType.INT32),
        *(DType.INT16, DType.UINT16, DType.INT8, DType.UINT8, DType.COMPLEX64, DType.BOOL),
    ]
    nodes = [
        constant(f"scope/c-{t.name}", Tensor.of(np.arange(20 + i) % 2, t))
        for i, t in enumerate(types)
    ]
    filled = Tensor(DType.FLOAT, (7, 9), values=np.array([1.5], np.float32))
    return Graph([*nodes, constant("filled", filled), constant("scope_c_INT8", filled)])


@pytest.mark.parametrize("name", ["mtcnn/mtcnn.pb", "arm-kws/DS_CNN_S.pb", "every type"])
def test_packages_are_equal(original: Path, models: Path, name: str, tmp_path: Path) -> None:
    graph = every_type() if name == "every type" else read_graph(models / name)
    theirs = write_with_original(original, graph, tmp_path, 1)
    write_memmapped(tmp_path / "ours", convert_like_original(graph, 1))
    ours = (tmp_path / "ours").read_bytes()
    # The C++ library writes the attributes of a node in the order of a hash table.
    regions = read_package(ours, "ours"), read_package(theirs, "theirs")
    graphs = [package[GRAPH_REGION] for package in regions]
    assert graphs[0].offset == graphs[1].offset
    assert len(graphs[0].view) == len(graphs[1].view)
    start, stop = graphs[0].offset, graphs[0].offset + len(graphs[0].view)
    assert ours[:start] + ours[stop:] == theirs[:start] + theirs[stop:]
    mine, original_graph = (graph_from_bytes(region.view, "graph") for region in graphs)
    assert mine.nodes == original_graph.nodes


@pytest.mark.parametrize("name", ["frozen_eval_graph", "frozen_float_fusedbn"])
@pytest.mark.parametrize("chain", ["", "fold_constants", "quantize_weights(minimum_size=100)"])
def test_original_loader_runs_models(
    original: Path, models: Path, name: str, chain: str, tmp_path: Path
) -> None:
    graph = known_to_original(read_graph(models / f"made-qat-mnist-tf115/{name}.pb"))
    if chain:
        graph = transform(graph, chain, inputs=["input"], outputs=["output"]).graph
    # A low limit, to use regions with many kinds of ops.
    model = convert(graph, 64, quantized=True, safe=True).model
    kinds = {tensor.dtype for _, tensor in model.regions}
    assert (DType.QUINT8 in kinds) == chain.startswith("quantize")
    write_memmapped(tmp_path / "m.pb", model)
    value = np.random.default_rng(3).random((8, 28, 28, 1), np.float32)
    output = fetched_memmapped(original, tmp_path / "m.pb", "input", "output", value)
    (expected,) = Interpreter(graph).run(["output"], {"input": value})
    # The order of sums differs; the outputs are probabilities.
    np.testing.assert_allclose(output, expected.ravel(), rtol=0, atol=1e-5)
    (again,) = Interpreter(read_graph(tmp_path / "m.pb")).run(["output"], {"input": value})
    np.testing.assert_array_equal(again, expected)


def test_original_loader_crashes_without_safe(original: Path, models: Path, tmp_path: Path) -> None:
    """Because of weights that an element-wise op reads."""
    graph = known_to_original(read_graph(models / "made-qat-mnist-tf115/frozen_eval_graph.pb"))
    done = convert(graph, quantized=True, safe=False)
    assert done.written
    write_memmapped(tmp_path / "m.pb", done.model)
    value = np.zeros((8, 28, 28, 1), np.float32)
    with pytest.raises(AssertionError):
        fetched_memmapped(original, tmp_path / "m.pb", "input", "output", value)


def test_original_kernel_rejects_grouped_convolutions(original: Path, tmp_path: Path) -> None:
    """``check-target`` reports the same for 1.15 from the shapes alone."""
    nodes = [
        node("x", "Placeholder", T=None, dtype=DType.FLOAT, shape=attr.shape((1, 4, 4, 4))),
        const("w", np.ones((3, 3, 2, 6))),
        conv("y", "x w"),
    ]
    (gap,) = target_gaps(Graph(nodes), "1.15", "linux")
    write_memmapped(tmp_path / "m.pb", convert(Graph(nodes), 64, quantized=True, safe=True).model)
    with pytest.raises(AssertionError, match="does not support grouped convolutions on the CPU"):
        fetched_memmapped(original, tmp_path / "m.pb", "x", "y", np.ones((1, 4, 4, 4), np.float32))
    assert gap.node == "y"
