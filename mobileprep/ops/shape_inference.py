"""Shape inference for a graph's tensors, from the graph alone, and sizes of a node's outputs.

Source: ``ShapeRefiner`` of TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import FuncRef, TensorShape
from mobileprep.graph.graph import Function, Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import body_of
from mobileprep.graph.opdefs.definitions import MOST_TENSORS, any_op_def, output_count, output_types
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import execution_order
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_function import ShapeConflictError, find_shape_fn, merge

Shapes = tuple[TensorShape, ...]

_RECORDED = "_output_shapes"
# Maximum depth of nested function calls.
_MOST_CALLS = 64

# Ops that return their input handle unchanged.
_PASS_HANDLES = frozenset({"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"})


def infer_shapes(
    graph: Graph,
    feeds: Mapping[str, TensorShape] | None = None,
    *,
    values: type[StaticValues] = StaticValues,
    recorded: bool = False,
    strict: bool = False,
) -> Mapping[str, Shapes]:
    """Infer the shape of each output of each node.

    A shape is None if its rank is unknown, and has -1 for each unknown size. If inputs do not
    match, and for unknown ops, shapes are unknown.

    Args:
        feeds: shapes of fed tensors, by name; they replace the shapes of the graph.
        values: computes the values of tensors that shapes depend on; the class of ``tf115``
            computes fewer.
        recorded: whether to trust shapes that are recorded as ``_output_shapes``.
        strict: whether to raise an error if shapes do not match.

    Raises:
        InvalidGraphError: shapes do not match, if ``strict``.
    """
    fed_shapes = {parse_ref(name): shape for name, shape in (feeds or {}).items()}
    return _Inference(graph, fed_shapes, values, recorded, strict, {}).run()


def shapes_if_valid(graph: Graph) -> Mapping[str, Shapes]:
    """Infer shapes like ``infer_shapes``; return none for an invalid graph."""
    try:
        return infer_shapes(graph)
    except InvalidGraphError:
        return {}


def shape_of(shapes: Mapping[str, Shapes], ref: Ref) -> TensorShape:
    """Return the shape of a tensor among those of all nodes; None if unknown."""
    outputs = shapes.get(ref.node, ())
    return outputs[ref.index] if 0 <= ref.index < len(outputs) else None


class _Inference:
    """One pass over a graph, inputs before consumers."""

    def __init__(
        self,
        graph: Graph,
        fed: Mapping[Ref, TensorShape],
        values: type[StaticValues],
        recorded: bool,
        strict: bool,
        calls: dict[tuple[str, Shapes], Shapes],
    ) -> None:
        self.calls = calls
        self.callers: tuple[str, ...] = ()
        self.graph = graph
        self.fed = fed
        self.recorded = recorded
        self.strict = strict
        self.shapes: dict[str, Shapes] = {}
        self.handles: dict[str, TensorShape] = {}
        fed_nodes = frozenset(ref.node for ref in fed)
        self.values = values(graph.by_name, self.shape_of, fed_nodes)

    def run(self) -> Mapping[str, Shapes]:
        fed_nodes = {ref.node for ref in self.fed}
        for node in execution_order(self.graph, ""):
            outputs = self._infer(node)
            if self.recorded:
                outputs = _with_recorded(node, outputs)
            if node.name in fed_nodes:
                outputs = tuple(self.fed.get(Ref(node.name, i), s) for i, s in enumerate(outputs))
            self.shapes[node.name] = outputs
        return self.shapes

    def shape_of(self, ref: Ref) -> TensorShape:
        """Return a tensor's shape; unknown if its node comes later, as at the end of a loop."""
        return shape_of(self.shapes, ref)

    def called(self, func: FuncRef, shapes: Shapes) -> Shapes:
        """Infer the output shapes of a function for argument shapes; see ``ShapeArgs``."""
        function = self.graph.library.functions.get(func.name)
        if function is None:
            return ()
        key = (func.name, shapes)
        if key not in self.calls:
            # The outputs of a recursive call are unknown.
            self.calls[key] = (None,) * len(function.signature.outputs)
            self.calls[key] = self._within(function, func, shapes)
        return self.calls[key]

    def _within(self, function: Function, func: FuncRef, shapes: Shapes) -> Shapes:
        body = body_of(function, self.graph.library, func.attrs)
        args = [Node(ref.node, "Placeholder") for ref in body.args]
        arg_shapes = dict(zip(body.args, shapes, strict=True))
        graph = self.graph.with_nodes([*args, *body.nodes])
        if len(self.callers) >= _MOST_CALLS:
            return (None,) * len(body.rets)
        inner = _Inference(
            graph, arg_shapes, type(self.values), self.recorded, self.strict, self.calls
        )
        inner.callers = (*self.callers, func.name)
        inner.run()
        return tuple(map(inner.shape_of, body.rets))

    def _infer(self, node: Node) -> Shapes:
        if _declares_many(node):
            return self._unknown(node)
        function = find_shape_fn(node.op)
        if function is not None and node.op not in self.graph.library.functions:
            args = _Args(node, tuple(map(self.shape_of, node.data_inputs)), self)
            try:
                outputs = tuple(function(args))
            except ShapeConflictError as error:
                if self.strict:
                    raise _conflict(node, error) from error
                return self._unknown(node)
            except (InvalidGraphError, UnsupportedError, IndexError, ValueError):
                # Running the graph reports the error, if this node runs at all.
                return self._unknown(node)
            if node.op in _PASS_HANDLES and node.data_inputs:
                self.handles[node.name] = args.handle(0)
            return outputs
        return self._unknown(node)

    def _unknown(self, node: Node) -> Shapes:
        try:
            return (None,) * (output_count(node, self.graph.library) or 0)
        except InvalidGraphError:
            return ()


def _conflict(node: Node, error: ShapeConflictError) -> InvalidGraphError:
    message = f"the inputs of node {node.name!r} ({node.op}) do not fit each other: {error}"
    return InvalidGraphError(message, "give other shapes, or export the graph again")


def _declares_many(node: Node) -> bool:
    """Return whether an attribute may declare more outputs than a node can have."""
    return any(v.kind == "int" and v.value > MOST_TENSORS for v in node.attrs.values())


def _with_recorded(node: Node, outputs: Shapes) -> Shapes:
    if _RECORDED not in node.attrs:
        return outputs
    try:
        shapes = node.attr_shapes(_RECORDED)
        return tuple(map(merge, outputs, shapes)) if len(shapes) >= len(outputs) else outputs
    except (InvalidGraphError, ShapeConflictError):
        # Recorded shapes may be out of date.
        return outputs


class _Args(Struct, frozen=True):
    """The arguments of a shape function for one node."""

    node: Node
    shapes: Sequence[TensorShape]
    _inference: _Inference

    @property
    def producer(self) -> int:
        return self._inference.graph.versions.producer

    def value(self, index: int) -> Array | None:
        value = self._inference.values.value(self.node.data_inputs[index])
        # Graphs that cannot run may have strings instead of numbers.
        return None if value is None or value.dtype == object else value

    def integers(self, index: int) -> tuple[int, ...] | None:
        value = self.value(index)
        if value is None or value.dtype.kind not in "iu":
            return None
        return tuple(int(x) for x in value.reshape(-1))

    def scalar(self, index: int) -> int | None:
        values = self.integers(index)
        return values[0] if values is not None and len(values) == 1 else None

    def as_shape(self, index: int) -> TensorShape:
        return self._inference.values.as_shape(self.node.data_inputs[index])

    def handle(self, index: int) -> TensorShape:
        return self._inference.handles.get(self.node.data_inputs[index].node)

    def set_handle(self, shape: TensorShape) -> None:
        self._inference.handles[self.node.name] = shape

    def called(self, attribute: str, shapes: Sequence[TensorShape]) -> Sequence[TensorShape]:
        return self._inference.called(self.node.attr_func(attribute), tuple(shapes))

    def count(self) -> int:
        return output_count(self.node, self._inference.graph.library) or 0


_PROBE: Final = "node"
# Tensors that hold shapes or axes have fewer elements.
_MOST_ELEMENTS: Final = 1 << 12
_POINTER: Final = 8
# Their results share the memory of their inputs.
_VIEWS: Final = frozenset(
    ("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "Slice", "Split")
)


def planned_bytes(node: Node, inputs: Sequence[Any]) -> int | None:
    """Return the bytes of a node's outputs for given inputs; None if shapes do not suffice."""
    if node.op in _VIEWS:
        return 0
    feeding = list(_feeding(inputs))
    refs = tuple(Ref(f.name) for f in feeding)
    probe = Node(_PROBE, node.op, refs, attrs=node.attrs)
    definition = any_op_def(node.op)
    if definition is None:
        return None
    try:
        shapes = infer_shapes(Graph([*feeding, probe]))[_PROBE]
        types = output_types(probe, definition)
    except InvalidGraphError:
        return None
    if len(types) != len(shapes) or any(s is None or min(s, default=0) < 0 for s in shapes):
        return None
    sizes = (t.base.numpy.itemsize if t.base.numpy is not None else _POINTER for t in types)
    return sum(math.prod(s or ()) * size for s, size in zip(shapes, sizes, strict=True))


def _feeding(inputs: Sequence[Any]) -> Iterator[Node]:
    """Yield a node for each input: a constant if its elements may matter."""
    for index, value in enumerate(inputs):
        name = f"{_PROBE}_{index}"
        if not isinstance(value, np.ndarray):
            yield Node(name, "NoOp")
        elif value.size <= _MOST_ELEMENTS and value.dtype != object:
            yield constant(name, Tensor.of(value))
        else:
            kind = attr.dtype(dtype_from_numpy(value.dtype) or DType.FLOAT)
            shape = attr.shape(value.shape)
            yield Node(name, "Placeholder", attrs={"dtype": kind, "shape": shape})
