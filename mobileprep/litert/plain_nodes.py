"""Plain nodes and functions that replace a node with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import Body, function_of
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Tensor

_INT32: Final = attr.dtype(DType.INT32)


class PlainNodes:
    """The plain ops that replace one node, in order."""

    def __init__(self, node: Node, fresh: FreshNames, functions: dict[str, Function]) -> None:
        self.node = node
        self.functions = functions
        self.kind = node.attr_dtype("T", DType.FLOAT)
        self.fresh = fresh
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: Ref, **attrs: AttrValue) -> Ref:
        """Add an op with the dtype of the replaced node."""
        return self.put(op, inputs, T=attr.dtype(self.kind), **attrs)

    def put(self, op: str, inputs: Sequence[Ref], **attrs: AttrValue) -> Ref:
        """Add an op with exactly these attributes."""
        name = self.fresh.name(f"{self.node.name}/{op}")
        self.nodes.append(Node(name, op, tuple(inputs), self.node.device, attrs))
        return Ref(name)

    def constant(self, what: str, value: object, kind: DType = DType.INT32) -> Ref:
        name = self.fresh.name(f"{self.node.name}/{what}")
        self.nodes.append(constant(name, Tensor.of(np.asarray(value, kind.numpy))))
        return Ref(name)

    def gather(self, values: Ref, index: Ref, kind: DType, axis: int = 0) -> Ref:
        """Return the elements at indices of an axis; the axes before it are common to both."""
        kinds = {"Tparams": attr.dtype(kind), "Tindices": _INT32, "Taxis": _INT32}
        inputs = (values, index, self.constant("axis", axis))
        return self.put("GatherV2", inputs, batch_dims=attr.integer(axis), **kinds)

    def written(self, values: Ref, index: Ref, row: Ref, kind: DType) -> Ref:
        """Return the values with the row at an index of the first axis replaced."""
        place = self.put("Reshape", (index, self.constant("one", [1, 1])), T=_INT32, Tshape=_INT32)
        wide = self.put(
            "ExpandDims", (row, self.constant("axis", 0)), T=attr.dtype(kind), Tdim=_INT32
        )
        return self.put(
            "TensorScatterUpdate", (values, place, wide), T=attr.dtype(kind), Tindices=_INT32
        )

    def pack(self, values: Sequence[Ref], kind: DType) -> Ref:
        """Stack values along a new first axis."""
        count = attr.integer(len(values))
        return self.put("Pack", values, N=count, T=attr.dtype(kind), axis=attr.integer(0))


def added_loop(
    work: PlainNodes,
    arguments: Sequence[Ref],
    types: Sequence[DType],
    goes_on: Callable[[PlainNodes, Sequence[Ref]], Ref],
    step: Callable[[PlainNodes, Sequence[Ref]], Sequence[Ref]],
    library: Library,
) -> Node:
    """Add a While with its two functions, and return it.

    Args:
        arguments: the initial values of the loop variables.
        types: their dtypes.
        goes_on: adds the nodes of the condition to those it gets, and returns its value.
        step: adds the nodes of a step, and returns the next values.
        library: existing functions; new ones have other names.
    """
    args = tuple(Ref(f"arg_{i}") for i in range(len(arguments)))

    def added(what: str, kinds: Sequence[DType], rets: Callable[..., Sequence[Ref]]) -> AttrValue:
        inner = PlainNodes(work.node, FreshNames(r.node for r in args), work.functions)
        ends = tuple(rets(inner, args))
        fresh_names = FreshNames([*work.functions, *library.functions])
        name = fresh_names.name(f"{work.node.name}_{what}".replace("/", "_"))
        inputs = tuple(ArgDef(r.node, kind) for r, kind in zip(args, types, strict=True))
        outputs = tuple(ArgDef(f"ret_{i}", kind) for i, kind in enumerate(kinds))
        body = Body(args, tuple(inner.nodes), ends)
        work.functions[name] = function_of(body, Function(OpDef(name, inputs, outputs)), library)
        return AttrValue("func", FuncRef(name))

    body = added("body", types, step)
    cond = added("cond", (DType.BOOL,), lambda inner, own: (goes_on(inner, own),))
    work.put(
        "StatelessWhile",
        arguments,
        T=AttrValue("list(type)", tuple(types)),
        cond=cond,
        body=body,
        output_shapes=AttrValue("list", ()),
        parallel_iterations=attr.integer(10),
    )
    return work.nodes[-1]
