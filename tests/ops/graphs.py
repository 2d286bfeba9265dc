"""Graphs of a single op, with the attributes that follow from its inputs filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.opdefs.definitions import any_op_def, output_count
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter


def value(kind: str, given: Any) -> AttrValue:
    """A Python value as an attribute of the kind that the op's definition names."""
    if isinstance(given, AttrValue):
        return given
    if kind == "string":
        return attr.string(given)
    if kind == "list(string)":
        return AttrValue(kind, tuple(s.encode() if isinstance(s, str) else s for s in given))
    if kind == "tensor":
        return attr.tensor(Tensor.of(np.asarray(given)))
    if kind.startswith("list("):
        return AttrValue(kind, tuple(given))
    if kind == "type":
        return attr.dtype(given if isinstance(given, DType) else dtype_of(np.empty(0, given)))
    return AttrValue(kind, given)


def dtype_of(array: np.ndarray) -> DType:
    found = dtype_from_numpy(array.dtype)
    assert found is not None
    return found


def attributes(
    definition: OpDef, inputs: Sequence[np.ndarray], **given: Any
) -> dict[str, AttrValue]:
    """The given attributes, and the types and numbers that follow from the inputs."""
    kinds = {a.name: a.kind for a in definition.attrs}
    found = {name: value(kinds.get(name, "int"), v) for name, v in given.items()}
    left = list(inputs)
    lists = [a for a in definition.inputs if a.number_attr or a.type_list_attr]
    share = (len(inputs) - (len(definition.inputs) - len(lists))) // max(len(lists), 1)
    for arg in definition.inputs:
        count = 1
        if arg.number_attr:
            count = found.setdefault(arg.number_attr, attr.integer(share)).value
        elif arg.type_list_attr:
            known = found.get(arg.type_list_attr)
            count = share if known is None else len(known.value)
        taken, left = left[:count], left[count:]
        if arg.type_list_attr:
            kinds_of = tuple(dtype_of(x) for x in taken)
            found.setdefault(arg.type_list_attr, AttrValue("list(type)", kinds_of))
        if arg.type_attr and taken:
            found.setdefault(arg.type_attr, attr.dtype(dtype_of(taken[0])))
    return found


def op_graph(
    op: str, inputs: Sequence[np.ndarray], *, constants: Sequence[int] = (), **attrs: Any
) -> Graph:
    """Placeholders x0, x1, ... (constants where listed), and the node "y" that takes them."""
    definition = any_op_def(op)
    assert definition is not None, op
    sources = []
    for i, x in enumerate(inputs):
        if i in constants:
            sources.append(constant(f"x{i}", Tensor.of(x)))
        else:
            known = {"dtype": attr.dtype(dtype_of(x)), "shape": attr.shape(x.shape)}
            sources.append(Node(f"x{i}", "Placeholder", (), "", known))
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
    """A node; inputs as a graph spells them, attributes of the kinds that its op names."""
    definition = any_op_def(op)
    kinds = {a.name: a.kind for a in definition.attrs} if definition is not None else {}
    known = {name: value(kinds.get(name, "int"), v) for name, v in attrs.items()}
    return Node(name, op, tuple(parse_ref(i) for i in inputs), "", known)


def c(name: str, given: Any, *controls: str, dtype: Any = None) -> Node:
    """A constant; Python's numbers become float32 or int32."""
    array = np.asarray(given, dtype=dtype)
    if dtype is None and array.dtype.kind in "if":
        array = array.astype(np.int32 if array.dtype.kind == "i" else np.float32)
    return constant(name, Tensor.of(array), "", tuple(parse_ref(i) for i in controls))


def p(name: str, dtype: Any = np.float32, shape: tuple[int, ...] | None = None) -> Node:
    """A placeholder."""
    return n(name, "Placeholder", dtype=dtype, shape=attr.shape(shape))
