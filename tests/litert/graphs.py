"""Build small graphs, convert them, and run LiteRT's interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.graph_engines import NumpyEngine


def feed(name: str, shape: Sequence[int] | None, dtype: DType = DType.FLOAT) -> Node:
    """Build a placeholder; its rank is unknown without a shape."""
    sizes = None if shape is None else tuple(shape)
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(sizes)}
    return Node(name, "Placeholder", (), "", attrs)


def const(name: str, values: Any) -> Node:
    """Build a constant; Python numbers become float32 and int32."""
    array = np.asarray(values)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if array.dtype == np.int64 and not isinstance(values, np.ndarray):
        array = array.astype(np.int32)
    return constant(name, Tensor.of(array))


def op(name: str, kind: str, inputs: Sequence[str], **attrs: Any) -> Node:
    """Build a node; attributes are Python values or ``AttrValue``."""
    values = {key: attribute(value) for key, value in attrs.items()}
    return Node(name, kind, tuple(map(parse_ref, inputs)), "", values)


def attribute(value: Any) -> attr.AttrValue:
    kinds = {bool: attr.boolean, int: attr.integer, float: attr.floating, str: attr.string}
    if isinstance(value, attr.AttrValue):
        return value
    if isinstance(value, DType):
        return attr.dtype(value)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return attr.AttrValue("list(float)", tuple(value))
    if isinstance(value, list):
        return attr.integers(*value) if value else attr.AttrValue("list", ())
    return kinds[type(value)](value)


def model(
    graph: Graph,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    mode: Mode = "float",
    **options: Any,
) -> ModelRecord:
    """Convert a graph to the records of a .tflite file, with options of ``converted``."""
    specs = [CutInput(name, (shapes or {}).get(name)) for name in inputs]
    return converted(graph, specs, outputs, mode=mode, **options)


def codes(record: ModelRecord, subgraph: int = 0) -> list[str]:
    """Operators of a subgraph in execution order."""
    return [o.code.custom or o.code.builtin for o in record.subgraphs[subgraph].operators]


def expected(graph: Graph, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
    """Run a graph with our own kernels."""
    return NumpyEngine(graph, "test").run(outputs, feeds)


def answered(content: bytes | memoryview, feeds: Sequence[Array]) -> list[Array]:
    """Run a file in LiteRT's interpreter; skip the test if it is not installed.

    Args:
        content: a .tflite file.
        feeds: arrays in the order of the file's inputs.
    """
    module = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    interpreter = module.Interpreter(model_content=bytes(content), num_threads=1)
    details = interpreter.get_input_details()
    for detail, array in zip(details, feeds, strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(details, feeds, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def numpy_type(array: Array) -> DType:
    """Element type of an array."""
    dtype = dtype_from_numpy(array.dtype)
    assert dtype is not None
    return dtype
