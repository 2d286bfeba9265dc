"""Cases of shape functions and costs: an op, its inputs, and what follows from them by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.opdefs.definitions import any_op_def, input_types
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops import shape_inference
from mobileprep.ops.cost import Sizes, count_flops, counted_ops
from mobileprep.ops.shape_function import ShapeConflictError
from tests.ops.graphs import value

NODE = "node"
REFUSED = "refused"
UNCOUNTED = -1
_PRODUCER = 1482
_LIKELY = (DType.FLOAT, DType.INT32, DType.INT64, DType.COMPLEX64, DType.STRING, DType.BOOL)


class Partly(Struct, frozen=True):
    """An input that holds sizes of which some (-1) are not known."""

    sizes: tuple[int, ...]


class OpCase(Struct, frozen=True):
    """An op with its inputs, and the shapes of its outputs.

    Args:
        op: the op.
        inputs: for each input its shape, as a tuple or None; or its elements, as a number or a
            list; or ``Partly``; or a case whose first output it is.
        outputs: the shapes, or ``REFUSED`` where the inputs do not fit.
        flops: the operations, None where they are not known; not looked at for ops without a cost,
            nor where it is ``UNCOUNTED``.
        attrs: attributes that have no default, or another value.
        unlike: whether TensorFlow's shape inference knows more or less, or refuses it or not.
    """

    op: str
    inputs: list[Any]
    outputs: Any
    flops: int | None = 0
    attrs: Mapping[str, Any] = field(default_factory=dict)
    unlike: bool = False

    def __str__(self) -> str:
        return f"{self.op} {self.inputs}"

    def graph(self, prefix: str = "") -> Graph:
        """The node, named ``NODE``, with nodes that feed it."""
        deprecated = _definition(self.op).deprecated_at
        # Graphs of some versions may not have ops that are older.
        versions = Versions(deprecated - 1 if deprecated else _PRODUCER)
        return Graph(list(self.nodes(f"{prefix}{NODE}")), versions=versions)

    def nodes(self, name: str) -> Iterator[Node]:
        """The node with nodes that feed it."""
        definition = _definition(self.op)
        bare = Node(name, self.op, attrs=_attrs(definition, len(self.inputs), self.attrs))
        types = input_types(bare, definition)
        assert len(types) == len(self.inputs), f"{self.op} takes {len(types)} inputs"
        refs = []
        for i, (given, dtype) in enumerate(zip(self.inputs, types, strict=True)):
            refs.append(Ref(f"{name}_{i}"))
            yield from _feeding(f"{name}_{i}", given, dtype.base)
        yield Node(name, self.op, tuple(refs), attrs=bare.attrs)

    def check(self) -> None:
        """Compare the inferred shapes and the counted operations with the expected ones."""
        graph = self.graph()
        node = graph[NODE]
        defaults = {a.name: a.default for a in _definition(self.op).attrs}
        written = {name: v for name, v in node.attrs.items() if v != defaults[name]}
        short = replace(node, attrs=written)
        for given in (graph, graph.with_nodes([*graph.nodes[:-1], short])):
            assert infer(given) == self.outputs
        if self.outputs == REFUSED or self.flops == UNCOUNTED or self.op not in counted_ops():
            return
        known = shape_inference.infer_shapes(graph)
        inputs = [known[r.node][r.index] for r in node.data_inputs]
        assert count_flops(Sizes(node, inputs, self.outputs)) == self.flops


class CostCase(Struct, frozen=True):
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
        kinds = {a.name: a.kind for a in _definition(self.op).attrs}
        attrs = {name: value(kinds[name], given) for name, given in self.attrs.items()}
        node = Node(NODE, self.op, attrs=attrs)
        assert count_flops(Sizes(node, self.inputs, self.outputs)) == self.flops


def case(op: str, inputs: list[Any], outputs: Any, flops: int | None = 0, **attrs: Any) -> OpCase:
    """A case; attributes by name."""
    return OpCase(op, inputs, outputs, flops, attrs)


def shapes(op: str, inputs: list[Any], outputs: Any, **attrs: Any) -> OpCase:
    """A case of a shape function alone; ``outputs`` is None where the inputs do not fit."""
    return OpCase(op, inputs, REFUSED if outputs is None else outputs, UNCOUNTED, attrs)


def cost(
    op: str,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    flops: int | None,
    **attrs: Any,
) -> CostCase:
    """A case of a cost alone; no operations are known where ``flops`` is None."""
    return CostCase(op, inputs, outputs, flops, attrs)


def refused(op: str, inputs: list[Any], **attrs: Any) -> OpCase:
    """Inputs that do not fit each other or the op."""
    return OpCase(op, inputs, REFUSED, attrs=attrs)


def unlike(tried: OpCase) -> OpCase:
    """A case of which TensorFlow's shape inference knows more or less."""
    return replace(tried, unlike=True)


def made(op: str, *inputs: Any, **attrs: Any) -> OpCase:
    """An input that another op gives."""
    return OpCase(op, list(inputs), None, attrs=attrs)


def infer(graph: Graph) -> Any:
    """The shapes of the node's outputs as a list, or ``REFUSED``."""
    refusals: list[Exception] = []

    def found(op: str) -> Any:
        function = original(op)

        def run(args: Any) -> Any:
            try:
                return function(args)
            except (ShapeConflictError, InvalidGraphError, IndexError, ValueError) as error:
                if args.node.name == NODE:
                    refusals.append(error)
                raise

        return function and run

    original = shape_inference.find_shape_fn
    with mock.patch.object(shape_inference, "find_shape_fn", found):
        shapes = shape_inference.infer_shapes(graph)[NODE]
    # What is refused must be told as such: another error would be a slip of the function.
    assert all(isinstance(e, ShapeConflictError | InvalidGraphError) for e in refusals), refusals
    return REFUSED if refusals else list(shapes)


def _definition(op: str) -> OpDef:
    definition = any_op_def(op)
    assert definition is not None, op
    return definition


def _feeding(name: str, given: Any, dtype: DType) -> Iterator[Node]:
    if isinstance(given, OpCase):
        yield from given.nodes(name)
    elif isinstance(given, Partly):
        yield _placeholder(f"{name}_of", given.sizes, DType.FLOAT)
        kinds = {"T": attr.dtype(DType.FLOAT), "out_type": attr.dtype(dtype)}
        yield Node(name, "Shape", (Ref(f"{name}_of"),), attrs=kinds)
    elif given is None or isinstance(given, tuple):
        yield _placeholder(name, given, dtype)
    else:
        yield constant(name, Tensor.of(np.array(given, dtype.numpy or object), dtype))


def _placeholder(name: str, shape: Any, dtype: DType) -> Node:
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(dtype), "shape": attr.shape(shape)})


def _attrs(definition: OpDef, inputs: int, given: Mapping[str, Any]) -> dict[str, AttrValue]:
    attrs = {}
    for declared in definition.attrs:
        if declared.name in given:
            attrs[declared.name] = value(declared.kind, given[declared.name])
        elif declared.default is not None:
            attrs[declared.name] = declared.default
        elif declared.kind == "type":
            allowed = None if declared.allowed is None else declared.allowed.value
            likely = [t for t in _LIKELY if allowed is None or t in allowed]
            attrs[declared.name] = attr.dtype((likely or allowed)[0])
        elif declared.kind == "int":
            attrs[declared.name] = attr.integer(_repeated(definition, declared.name, inputs))
    unknown = set(given) - set(attrs)
    assert not unknown, f"{definition.name} has no attributes {unknown}"
    return attrs


def _repeated(definition: OpDef, name: str, inputs: int) -> int:
    """How often the arguments that an attribute counts stand among so many inputs."""
    counted = [a for a in definition.inputs if a.number_attr == name]
    assert counted, f"{definition.name} needs a value of {name}"
    return (inputs - len(definition.inputs) + len(counted)) // len(counted)
