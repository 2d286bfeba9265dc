"""Graphs of a single op, with attributes inferred from its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, OpDef
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import any_op_def, output_count
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter


def value(kind: str, raw: Any) -> AttrValue:
    """A Python value as an attribute of the kind that the op's definition names."""
    if isinstance(raw, AttrValue):
        return raw
    if kind == "string":
        return attr.string(raw)
    if kind == "list(string)":
        return AttrValue(kind, tuple(s.encode() if isinstance(s, str) else s for s in raw))
    if kind == "tensor":
        return attr.tensor(Tensor.of(np.asarray(raw)))
    if kind.startswith("list("):
        return AttrValue(kind, tuple(raw))
    if kind == "type":
        return attr.dtype(raw if isinstance(raw, DType) else dtype_of(np.empty(0, raw)))
    return AttrValue(kind, raw)


def dtype_of(array: np.ndarray) -> DType:
    result = dtype_from_numpy(array.dtype)
    assert result is not None
    return result


def attributes(
    definition: OpDef, inputs: Sequence[np.ndarray], **values: Any
) -> dict[str, AttrValue]:
    """The attributes in ``values``, and the types and counts that follow from the inputs."""
    kinds = {a.name: a.kind for a in definition.attrs}
    inferred = {name: value(kinds.get(name, "int"), v) for name, v in values.items()}
    remaining = list(inputs)
    lists = [a for a in definition.inputs if a.number_attr or a.type_list_attr]
    share = (len(inputs) - (len(definition.inputs) - len(lists))) // max(len(lists), 1)
    for arg in definition.inputs:
        count = 1
        if arg.number_attr:
            count = inferred.setdefault(arg.number_attr, attr.integer(share)).value
        elif arg.type_list_attr:
            types = inferred.get(arg.type_list_attr)
            count = share if types is None else len(types.value)
        chunk, remaining = remaining[:count], remaining[count:]
        if arg.type_list_attr:
            kinds_of = tuple(dtype_of(x) for x in chunk)
            inferred.setdefault(arg.type_list_attr, AttrValue("list(type)", kinds_of))
        if arg.type_attr and chunk:
            inferred.setdefault(arg.type_attr, attr.dtype(dtype_of(chunk[0])))
    return inferred


def op_graph(
    op: str, inputs: Sequence[np.ndarray], *, constants: Sequence[int] = (), **attrs: Any
) -> Graph:
    """Placeholders x0, x1, ... (constants where listed), and the node "y" with these inputs."""
    definition = any_op_def(op)
    assert definition is not None, op
    sources = []
    for i, x in enumerate(inputs):
        if i in constants:
            sources.append(constant(f"x{i}", Tensor.of(x)))
        else:
            kinds = {"dtype": attr.dtype(dtype_of(x)), "shape": attr.shape(x.shape)}
            sources.append(Node(f"x{i}", "Placeholder", (), "", kinds))
    refs = tuple(Ref(f"x{i}") for i in range(len(inputs)))
    return Graph([*sources, Node("y", op, refs, "", attributes(definition, inputs, **attrs))])


def fetches(graph: Graph) -> list[str]:
    """The names of all outputs of "y"."""
    count = output_count(graph["y"]) or 0
    return [f"y:{i}" if i else "y" for i in range(count)]


def run_all(op: str, *inputs: Any, **attrs: Any) -> list[np.ndarray]:
    """All outputs of one op."""
    arrays = [np.asarray(x) for x in inputs]
    graph = op_graph(op, arrays, **attrs)
    feeds = {f"x{i}": x for i, x in enumerate(arrays)}
    return Interpreter(graph).run(fetches(graph), feeds)


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    """The first output of one op."""
    return run_all(op, *inputs, **attrs)[0]


def f32(*values: Any) -> np.ndarray:
    """A float32 array; several arguments make a vector."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.float32)


def i32(*values: Any) -> np.ndarray:
    """An int32 array; several arguments make a vector."""
    return np.array(values[0] if len(values) == 1 else values, dtype=np.int32)


def n(name: str, op: str, *inputs: str, **attrs: Any) -> Node:
    """A node; inputs as in a graph, attributes as Python values."""
    definition = any_op_def(op)
    kinds = {a.name: a.kind for a in definition.attrs} if definition is not None else {}
    parsed = {name: value(kinds.get(name, "int"), v) for name, v in attrs.items()}
    return Node(name, op, tuple(parse_ref(i) for i in inputs), "", parsed)


def c(name: str, content: Any, *controls: str, dtype: Any = None) -> Node:
    """A constant; Python numbers become float32 or int32."""
    array = np.asarray(content, dtype=dtype)
    if dtype is None and array.dtype.kind in "if":
        array = array.astype(np.int32 if array.dtype.kind == "i" else np.float32)
    return constant(name, Tensor.of(array), "", tuple(parse_ref(i) for i in controls))


def p(name: str, dtype: Any = np.float32, shape: tuple[int, ...] | None = None) -> Node:
    """A placeholder."""
    return n(name, "Placeholder", dtype=dtype, shape=attr.shape(shape))
