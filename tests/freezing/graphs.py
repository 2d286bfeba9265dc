"""Short constructors of graphs and models for the tests of freezing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.formats.checkpoint import open_checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.text_proto import text_to_wire
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions, FreezeResult, LoadedSource
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Tensor
from tests.formats.checkpoint_writer import write_bundle

FLOAT = DType.FLOAT


def attr_value(value: Any) -> AttrValue:
    """Return an attribute whose kind follows from the type of the value."""
    simple = {bool: attr.boolean, int: attr.integer, float: attr.floating, str: attr.string}
    if type(value) in simple:
        return simple[type(value)](value)
    if isinstance(value, DType):
        return attr.dtype(value)
    if isinstance(value, FuncRef):
        return AttrValue("func", value)
    if isinstance(value, np.ndarray):
        return attr.tensor(Tensor.of(value))
    kinds = {DType: "type", str: "string", FuncRef: "func", int: "int"}
    kind = kinds[type(value[0])]
    items = [x.encode() if isinstance(x, str) else x for x in value]
    return AttrValue(f"list({kind})", tuple(items))


def node(name: str, op: str, *inputs: str, device: str = "", **attrs: Any) -> Node:
    refs = tuple(map(parse_ref, inputs))
    return Node(name, op, refs, device, {k: attr_value(v) for k, v in attrs.items()})


def const(name: str, array: Any, *inputs: str) -> Node:
    return constant(name, Tensor.of(np.asarray(array)), inputs=tuple(map(parse_ref, inputs)))


def placeholder(name: str, *shape: int, dtype: DType = FLOAT) -> Node:
    return Node(
        name, "Placeholder", (), "", {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
    )


def ref_variable(name: str, *shape: int, dtype: DType = FLOAT, **more: Any) -> list[Node]:
    """Return a variable of TensorFlow 1 and its read."""
    variable = node(name, "VariableV2", dtype=dtype, container="", shared_name="", **more)
    read = node(f"{name}/read", "Identity", name, T=dtype, _class=[f"loc:@{name}"])
    return [variable.with_attrs(shape=attr.shape(shape)), read]


def handle(name: str, *shape: int, dtype: DType = FLOAT, shared_name: str = "") -> Node:
    """Return a resource variable."""
    variable = node(name, "VarHandleOp", dtype=dtype, shared_name=shared_name or name)
    return variable.with_attrs(shape=attr.shape(shape))


def reading(name: str, of: str, *inputs: str, dtype: DType = FLOAT) -> Node:
    return node(name, "ReadVariableOp", of, *inputs, dtype=dtype)


def parsed(text: str) -> Graph:
    """Parse a graph from protobuf text."""
    return graph_from_bytes(text_to_wire(text.encode(), pb.GraphDef, "test"), "test")


def source(
    nodes: list[Any],
    tensors: dict[str, np.ndarray] | None = None,
    folder: Path | None = None,
    *,
    library: Library | None = None,
    **more: Any,
) -> LoadedSource:
    """Return a model of nodes or lists of nodes, with the tensors of its checkpoint."""
    flat = [n for item in nodes for n in (item if isinstance(item, list) else [item])]
    checkpoint = None
    if tensors is not None and folder is not None:
        write_bundle(folder / "ckpt", tensors)
        checkpoint = open_checkpoint(folder / "ckpt")
    return LoadedSource(Graph(flat, library), "model", checkpoint, **more)


def frozen(model: LoadedSource, *outputs: str, **options: Any) -> FreezeResult:
    return freeze(model, FreezeOptions(outputs=outputs, **options))


def listing(graph: Graph) -> list[str]:
    """Return a line ``name = Op(inputs)`` for each node."""
    return [f"{n.name} = {n.op}({', '.join(map(str, n.inputs))})" for n in graph]
