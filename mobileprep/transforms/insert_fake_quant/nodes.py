"""New nodes of a training graph: ops, variables with initializers, and unique names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.meta_graph import TRAINABLE
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor

FLOAT: Final = attr.dtype(DType.FLOAT)
_INT32: Final = attr.dtype(DType.INT32)


class NewNodes:
    """Nodes that are added to a graph, with unique names.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self._names = FreshNames(name for node in graph for name in _scopes(node.name))

    def scope(self, base: str) -> str:
        """Return a prefix that no other node has."""
        return self._names.name(base)

    def add(self, name: str, op: str, *inputs: Ref, **attrs: AttrValue) -> Ref:
        """Add a node on float32 tensors, and return its output."""
        return self.add_node(Node(name, op, inputs, attrs={"T": FLOAT, **attrs}))

    def add_node(self, node: Node) -> Ref:
        """Add a node, and return its first output."""
        self.nodes.append(node)
        return Ref(node.name)

    def constant(self, name: str, value: Array | float) -> Ref:
        """Add a constant; floats become float32."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value, np.float32)
        return self.add_node(constant(name, Tensor.packed(array)))

    def reduction(self, name: str, op: str, values: Ref, axes: Array) -> Ref:
        """Add a reduction over axes that are not kept."""
        axes_ref = self.constant(f"{name}/axes", axes)
        return self.add(name, op, values, axes_ref, Tidx=_INT32, keep_dims=attr.boolean(False))

    def reshape(self, name: str, values: Ref, shape: tuple[int, ...]) -> Ref:
        """Add a Reshape."""
        shape_ref = self.constant(f"{name}/shape", np.array(shape, np.int32))
        return self.add(name, "Reshape", values, shape_ref, Tshape=_INT32)

    def variable(self, name: str, initial: Array, *, trainable: bool = False) -> Ref:
        """Add a variable with an initializer and a read, and return the variable.

        The names of the nodes are those that ``tf.get_variable`` gives them.
        """
        value = self.constant(f"{name}/Initializer/Const", initial)
        dtype = self.nodes[-1].attribute("dtype")
        attrs = {
            "dtype": dtype,
            "shape": attr.shape(initial.shape),
            "container": attr.string(""),
            "shared_name": attr.string(""),
        }
        if trainable:
            attrs[TRAINABLE] = attr.boolean(True)
        variable = self.add_node(Node(name, "VariableV2", attrs=attrs))
        near = {"T": dtype, "_class": AttrValue("list(string)", (f"loc:@{name}".encode(),))}
        flags = {"validate_shape": attr.boolean(True), "use_locking": attr.boolean(True)}
        self.add_node(Node(f"{name}/Assign", "Assign", (variable, value), attrs=near | flags))
        self.add_node(Node(f"{name}/read", "Identity", (variable,), attrs=near))
        return variable


def _scopes(name: str) -> Iterator[str]:
    """Yield a name and the scopes that it is in."""
    while name:
        yield name
        name = name.rpartition("/")[0]
