"""Cases of shape functions and costs, each with an answer worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue, TensorShape
from mobileprep.ir.graph import Graph, Versions
from mobileprep.ir.node import Node, constant
from mobileprep.ir.opdef import OpDef
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.definitions import any_op_def
from mobileprep.opdefs.signatures import input_types
from mobileprep.ops.cost import Sizes, count_flops
from mobileprep.ops.shape_inference import infer_shapes
from tests.ops.graphs import value

NODE = "node"
_PRODUCER = 1482

Given = TensorShape | int | list[Any]
"""An input: a shape that is fed (None for an unknown rank), or a constant's elements."""


@dataclass(frozen=True)
class ShapeCase:
    """An op with its inputs and attributes, and its outputs' shapes; None where they do not fit."""

    op: str
    inputs: Sequence[Given]
    outputs: Sequence[TensorShape] | None
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.op} {self.inputs} {self.attrs or ''}"

    def graph(self) -> Graph:
        """The node, named ``NODE``, and its inputs."""
        definition = any_op_def(self.op)
        assert definition is not None, self.op
        attrs = _attrs(definition, self.attrs)
        types = input_types(Node(NODE, self.op, attrs=attrs), definition)
        pairs = zip(self.inputs, types, strict=True)
        sources = [_source(f"input{i}", x, dtype) for i, (x, dtype) in enumerate(pairs)]
        refs = tuple(Ref(n.name) for n in sources)
        # Graphs of some versions may not have ops that are older.
        producer = definition.deprecated_at - 1 if definition.deprecated_at else _PRODUCER
        node = Node(NODE, self.op, refs, attrs=attrs)
        return Graph([*sources, node], versions=Versions(producer))

    def check(self) -> None:
        """Compare what is inferred with the case's outputs, with and without defaults written."""
        graph = self.graph()
        bare = replace(graph[NODE], attrs=self._without_defaults(graph[NODE]))
        for given in (graph, graph.with_nodes([*graph.nodes[:-1], bare])):
            found = infer_shapes(given)[NODE]
            expected = [None] * len(found) if self.outputs is None else list(self.outputs)
            assert list(found) == expected

    def _without_defaults(self, node: Node) -> dict[str, AttrValue]:
        definition = any_op_def(self.op)
        assert definition is not None
        defaults = {a.name: a.default for a in definition.attrs}
        return {name: v for name, v in node.attrs.items() if v != defaults[name]}


@dataclass(frozen=True)
class CostCase:
    """An op with its tensors' shapes and attributes, and how many operations it does."""

    op: str
    inputs: Sequence[TensorShape]
    outputs: Sequence[TensorShape]
    flops: int | None
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.op} {self.inputs} {self.attrs or ''}"

    def check(self) -> None:
        """Compare what is counted with the case's number."""
        definition = any_op_def(self.op)
        assert definition is not None, self.op
        kinds = {a.name: a.kind for a in definition.attrs}
        attrs = {name: value(kinds[name], given) for name, given in self.attrs.items()}
        assert count_flops(Sizes(Node(NODE, self.op, attrs=attrs), self.inputs, self.outputs)) == (
            self.flops
        )


def shapes(
    op: str, inputs: Sequence[Given], outputs: Sequence[TensorShape] | None, **attrs: Any
) -> ShapeCase:
    """A case of a shape function; attributes that are not given have their defaults."""
    return ShapeCase(op, inputs, outputs, attrs)


def cost(
    op: str,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    flops: int | None,
    **attrs: Any,
) -> CostCase:
    """A case of a cost; no operations are known where ``flops`` is None."""
    return CostCase(op, inputs, outputs, flops, attrs)


def _attrs(definition: OpDef, given: Mapping[str, Any]) -> dict[str, AttrValue]:
    """All attributes of an op: the given ones, defaults, and the likeliest types."""
    found = {}
    for declared in definition.attrs:
        if declared.name in given:
            found[declared.name] = value(declared.kind, given[declared.name])
        elif declared.kind == "type" and declared.default is None:
            allowed = (DType.FLOAT,) if declared.allowed is None else declared.allowed.value
            likely = DType.FLOAT if DType.FLOAT in allowed else allowed[0]
            found[declared.name] = attr.dtype(likely)
        elif declared.default is not None:
            found[declared.name] = declared.default
    unknown = given.keys() - found.keys()
    assert not unknown, f"{definition.name} has no {unknown}"
    return found


def _source(name: str, given: Given, dtype: DType) -> Node:
    if isinstance(given, int | list):
        return constant(name, Tensor.of(np.asarray(given, dtype.numpy)))
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(given)}
    return Node(name, "Placeholder", attrs=attrs)
