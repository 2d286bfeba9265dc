"""Shape and cost test cases: an op, its inputs, and the expected result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, OpDef, TensorShape
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import any_op_def, input_types
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops import shape_inference
from mobileprep.ops.kernel import Sizes, count_flops, counted_ops
from mobileprep.ops.shape_function import ShapeConflictError
from tests.ops.graphs import value

NODE = "node"
REFUSED = "refused"
UNCOUNTED = -1
_PRODUCER = 1482
_PREFERRED = (DType.FLOAT, DType.INT32, DType.INT64, DType.COMPLEX64, DType.STRING, DType.BOOL)


class Partly(Struct, frozen=True):
    """A shape input with some unknown (-1) sizes."""

    sizes: tuple[int, ...]


class OpCase(Struct, frozen=True):
    """An op with its inputs, and the expected shapes of its outputs.

    Args:
        op: the op.
        inputs: one entry per input: a shape (tuple or None), a value (number or list), ``Partly``,
            or a case whose first output is the input.
        outputs: the shapes, or ``REFUSED`` for invalid inputs.
        flops: the number of operations, or None if unknown; ignored for ops without a cost and
            for ``UNCOUNTED``.
        attrs: attributes without a default, or with another value.
        unlike: whether TensorFlow's shape inference gives another result.
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
        """A graph of the node, named ``NODE``, and its inputs."""
        deprecated = _definition(self.op).deprecated_at
        # Newer graphs may not have deprecated ops.
        versions = Versions(deprecated - 1 if deprecated else _PRODUCER)
        return Graph(list(self.nodes(f"{prefix}{NODE}")), versions=versions)

    def nodes(self, name: str) -> Iterator[Node]:
        """The node, after its input nodes."""
        definition = _definition(self.op)
        bare = Node(name, self.op, attrs=_attrs(definition, len(self.inputs), self.attrs))
        types = input_types(bare, definition)
        assert len(types) == len(self.inputs), f"{self.op} takes {len(types)} inputs"
        refs = []
        for i, (spec, dtype) in enumerate(zip(self.inputs, types, strict=True)):
            refs.append(Ref(f"{name}_{i}"))
            yield from _feeding(f"{name}_{i}", spec, dtype.base)
        yield Node(name, self.op, tuple(refs), attrs=bare.attrs)

    def check(self) -> None:
        """Compare the inferred shapes and the counted operations with the expected ones."""
        graph = self.graph()
        node = graph[NODE]
        defaults = {a.name: a.default for a in _definition(self.op).attrs}
        written = {name: v for name, v in node.attrs.items() if v != defaults[name]}
        short = replace(node, attrs=written)
        for variant in (graph, graph.with_nodes([*graph.nodes[:-1], short])):
            assert infer(variant) == self.outputs
        if self.outputs == REFUSED or self.flops == UNCOUNTED or self.op not in counted_ops():
            return
        inferred = shape_inference.infer_shapes(graph)
        inputs = [inferred[r.node][r.index] for r in node.data_inputs]
        assert count_flops(Sizes(node, inputs, self.outputs)) == self.flops


class CostCase(Struct, frozen=True):
    """An op with its tensors' shapes and attributes, and its number of operations."""

    op: str
    inputs: Sequence[TensorShape]
    outputs: Sequence[TensorShape]
    flops: int | None
    attrs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.op} {self.inputs} {self.attrs or ''}"

    def check(self) -> None:
        kinds = {a.name: a.kind for a in _definition(self.op).attrs}
        attrs = {name: value(kinds[name], raw) for name, raw in self.attrs.items()}
        node = Node(NODE, self.op, attrs=attrs)
        assert count_flops(Sizes(node, self.inputs, self.outputs)) == self.flops


def case(op: str, inputs: list[Any], outputs: Any, flops: int | None = 0, **attrs: Any) -> OpCase:
    """A case with attributes by name."""
    return OpCase(op, inputs, outputs, flops, attrs)


def shapes(op: str, inputs: list[Any], outputs: Any, **attrs: Any) -> OpCase:
    """A case of a shape function only; ``outputs`` is None for invalid inputs."""
    return OpCase(op, inputs, REFUSED if outputs is None else outputs, UNCOUNTED, attrs)


def cost(
    op: str,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    flops: int | None,
    **attrs: Any,
) -> CostCase:
    """A case of a cost only; ``flops`` is None if unknown."""
    return CostCase(op, inputs, outputs, flops, attrs)


def case_tests(*tables: Sequence[OpCase | CostCase]) -> Callable[..., None]:
    """A test of each case in the tables."""

    @pytest.mark.parametrize("case", [case for table in tables for case in table], ids=str)
    def check(case: OpCase | CostCase) -> None:
        case.check()

    return check


def refused(op: str, inputs: list[Any], **attrs: Any) -> OpCase:
    """A case with invalid inputs."""
    return OpCase(op, inputs, REFUSED, attrs=attrs)


def unlike(tried: OpCase) -> OpCase:
    """A case with another result in TensorFlow's shape inference."""
    return replace(tried, unlike=True)


def output_of(op: str, *inputs: Any, **attrs: Any) -> OpCase:
    """An input that is the output of another op."""
    return OpCase(op, list(inputs), None, attrs=attrs)


def infer(graph: Graph) -> Any:
    """The output shapes of the node as a list, or ``REFUSED``."""
    errors: list[Exception] = []

    def recording(op: str) -> Any:
        function = original(op)

        def run(args: Any) -> Any:
            try:
                return function(args)
            except (ShapeConflictError, InvalidGraphError, IndexError, ValueError) as error:
                if args.node.name == NODE:
                    errors.append(error)
                raise

        return function and run

    original = shape_inference.find_shape_fn
    with mock.patch.object(shape_inference, "find_shape_fn", recording):
        shapes = shape_inference.infer_shapes(graph)[NODE]
    # Another error type would be a bug in the shape function.
    assert all(isinstance(e, ShapeConflictError | InvalidGraphError) for e in errors), errors
    return REFUSED if errors else list(shapes)


def _definition(op: str) -> OpDef:
    definition = any_op_def(op)
    assert definition is not None, op
    return definition


def _feeding(name: str, spec: Any, dtype: DType) -> Iterator[Node]:
    if isinstance(spec, OpCase):
        yield from spec.nodes(name)
    elif isinstance(spec, Partly):
        yield _placeholder(f"{name}_of", spec.sizes, DType.FLOAT)
        kinds = {"T": attr.dtype(DType.FLOAT), "out_type": attr.dtype(dtype)}
        yield Node(name, "Shape", (Ref(f"{name}_of"),), attrs=kinds)
    elif spec is None or isinstance(spec, tuple):
        yield _placeholder(name, spec, dtype)
    else:
        yield constant(name, Tensor.of(np.array(spec, dtype.numpy or object), dtype))


def _placeholder(name: str, shape: Any, dtype: DType) -> Node:
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(dtype), "shape": attr.shape(shape)})


def _attrs(definition: OpDef, inputs: int, values: Mapping[str, Any]) -> dict[str, AttrValue]:
    attrs = {}
    for declared in definition.attrs:
        if declared.name in values:
            attrs[declared.name] = value(declared.kind, values[declared.name])
        elif declared.default is not None:
            attrs[declared.name] = declared.default
        elif declared.kind == "type":
            allowed = None if declared.allowed is None else declared.allowed.value
            candidates = [t for t in _PREFERRED if allowed is None or t in allowed]
            attrs[declared.name] = attr.dtype((candidates or allowed)[0])
        elif declared.kind == "int":
            attrs[declared.name] = attr.integer(_repeated(definition, declared.name, inputs))
    unknown = set(values) - set(attrs)
    assert not unknown, f"{definition.name} has no attributes {unknown}"
    return attrs


def _repeated(definition: OpDef, name: str, inputs: int) -> int:
    """How often the arguments that an attribute counts occur among ``inputs`` inputs."""
    counted = [a for a in definition.inputs if a.number_attr == name]
    assert counted, f"{definition.name} needs a value of {name}"
    return (inputs - len(definition.inputs) + len(counted)) // len(counted)
