"""Evaluation of constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from mobileprep.core.limits import MEMORY_VARIABLE, OverWorkError, working
from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MemoryLimitError,
    UnsupportedError,
    WorkLimitError,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import Cursor, encode_varint
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import shape_from_proto, shape_to_proto
from mobileprep.graph.opdefs.definitions import any_op_def, output_types
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.arrays import handle_of
from mobileprep.ops.kernel import call_kernel, charge, find_kernel
from mobileprep.ops.numerics.allocation import OverBudgetError
from mobileprep.ops.numerics.quantization import flushed
from mobileprep.ops.shape_function import MAX_RANK, UNKNOWN, element_count, is_full

# Exceptions that numpy raises if sizes, indices, or numbers do not match.
_NUMERIC = (ValueError, IndexError, TypeError, ArithmeticError, MemoryError)


# Ops whose results are rounded; others only move or compare numbers.
_ARITHMETIC = frozenset(
    {
        *("Add", "AddN", "AddV2", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd"),
        *("Conv2D", "Cumprod", "Cumsum", "DepthwiseConv2dNative", "Div", "DivNoNan", "Exp"),
        *("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "L2Loss", "MatMul", "Mean"),
        *("Mul", "MulNoNan", "Pow", "Prod", "RealDiv", "Rsqrt", "Sigmoid", "Softmax", "Sqrt"),
        *("Square", "SquaredDifference", "Sub", "Sum"),
    }
)


def evaluate_node(
    node: Node, inputs: Sequence[Tensor], *, tf115: bool = False
) -> tuple[Tensor, ...]:
    """Compute the outputs of a node; an output that is an unchanged input is the same object.

    Arithmetic reads and writes denormal numbers as zeros, like TensorFlow's processor mode.

    Args:
        tf115: compute and store like TensorFlow 1.15: ranges of floats as running sums, and lists
            in its form.

    Raises:
        UnsupportedError: the op does not have a kernel.
        InvalidGraphError: the inputs do not match.
        MemoryLimitError: the node exceeds the memory limit.
        WorkLimitError: the node exceeds the operations limit.
    """
    if node.op == "Const":
        return (node.attr_tensor("value"),)
    run, definition = find_kernel(node.op), any_op_def(node.op)
    if run is None or definition is None:
        message = f"node {node.name!r}: no kernel for {node.op}"
        raise UnsupportedError(message)
    arrays = [constant_array(t) for t in inputs]
    rounds = node.op in _ARITHMETIC
    try:
        with np.errstate(all="ignore"):
            outputs = call_kernel(run, node, list(map(_flushed, arrays)) if rounds else arrays)
        charge(node.op, arrays, outputs)
    except OverBudgetError as error:
        message = f"node {node.name!r} ({node.op}): {error}"
        hint = f"allow more by --memory or {MEMORY_VARIABLE}, or do not fold it"
        raise MemoryLimitError(message, hint) from error
    except OverWorkError as error:
        message = f"node {node.name!r} ({node.op}): {error}"
        raise WorkLimitError(message, "do not fold it") from error
    except _NUMERIC as error:
        message = f"node {node.name!r} ({node.op}) cannot be computed: {error}"
        raise InvalidGraphError(message, "its inputs do not fit each other") from error
    types = output_types(node, definition)
    _check_outputs(node, outputs, types)
    if rounds:
        return tuple(Tensor.of(_flushed(a), t) for a, t in zip(outputs, types, strict=True))
    if tf115 and node.op == "Range":
        outputs = (_running_sums(arrays, outputs[0]),)
    if tf115 and DType.VARIANT in types:
        return tuple(list_constant(node, a) for a in outputs)
    tensors = {id(a): t for a, t in zip(arrays, inputs, strict=True)}
    return tuple(_shared(a, t, tensors) for a, t in zip(outputs, types, strict=True))


def _running_sums(limits: Sequence[Array], numbers: Array) -> Array:
    """Return a range of floats with the accumulated rounding errors of TensorFlow 1.15."""
    if numbers.dtype.kind != "f" or not numbers.size:
        return numbers
    start, _, delta = limits
    steps = np.full_like(numbers, delta)
    steps[:1] = start
    return np.add.accumulate(steps, dtype=steps.dtype)


def _check_outputs(node: Node, outputs: Sequence[Array], types: Sequence[DType]) -> None:
    """Raise an error for outputs that contradict a node's attributes, such as strings."""
    if len(outputs) != len(types):
        message = f"node {node.name!r} ({node.op}) gives {len(outputs)} outputs, not {len(types)}"
        raise InvalidGraphError(message, "export the graph again")
    for array, dtype in zip(outputs, types, strict=True):
        if array.dtype == object and dtype.numpy is not None:
            message = f"node {node.name!r} ({node.op}) gives no {dtype.short}, as it says"
            raise InvalidGraphError(message, "export the graph again")


def _shared(array: Array, dtype: DType, tensors: dict[int, Tensor]) -> Tensor:
    same = tensors.get(id(array))
    return same if same is not None and same.dtype is dtype else Tensor.of(array, dtype)


def _flushed(array: Array) -> Array:
    return flushed(array) if array.dtype.kind == "f" else array


SHAPE_OPS: Final = frozenset({"Shape", "ShapeN", "Rank", "Size"})


Values = tuple[Tensor, ...] | None


# Shapes, axes, and paddings are small; weights are not needed.
_MAX_ELEMENTS: Final = 1 << 16


# Maximum number of operations, a moment's work.
_FLOPS: Final = 1 << 33


# Maximum depth to trace a partly known shape.
MAX_DEPTH: Final = 64


# Merge and Enter begin loops, and values of placeholders are unknown before they are fed.
_NOT_STATIC = frozenset(
    {
        *("Enter", "Exit", "Merge", "NextIteration", "Switch"),
        *("RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"),
        *("Placeholder", "PlaceholderV2", "PlaceholderWithDefault"),
    }
)


# Ops that only move elements, which may be unknown, with the slice of the moved inputs. The other
# inputs control the movement and must be known.
_MOVED: Final[Mapping[str, slice]] = {
    "Cast": slice(1),
    "Concat": slice(1, None),
    "ConcatV2": slice(-1),
    "ExpandDims": slice(1),
    "Gather": slice(1),
    "GatherV2": slice(1),
    "Identity": slice(1),
    "Pack": slice(None),
    "Reshape": slice(1),
    "Slice": slice(1),
    "Squeeze": slice(1),
    "StridedSlice": slice(1),
}


def shape_values(node: Node, shapes: Sequence[TensorShape]) -> Values:
    """Return the outputs of a Shape, ShapeN, Rank, or Size, or None if a shape is not known enough.

    Sizes that exceed the op's output type count as unknown.
    """
    if not shapes or any(s is None for s in shapes):
        return None
    if node.op == "Rank":
        return (Tensor.of(np.int32(len(shapes[0] or ()))),)
    if not all(map(is_full, shapes)):
        return None
    dtype = node.attr_dtype("out_type", DType.INT32)
    values: list[tuple[int, ...] | int] = [s or () for s in shapes]
    sizes = [d for s in shapes for d in s or ()]
    if node.op == "Size":
        values = list(sizes := [element_count(shapes[0])])
    if dtype.numpy is None or dtype.numpy.kind not in "iu":
        return None
    if max(sizes, default=0) > np.iinfo(dtype.numpy).max:
        return None
    return tuple(Tensor.of(np.array(v, dtype=dtype.numpy), dtype) for v in values)


def is_static(node: Node) -> bool:
    """Return whether a node's outputs depend only on its inputs."""
    if node.op in _NOT_STATIC:
        return False
    definition = any_op_def(node.op)
    return definition is not None and not definition.is_stateful


class StaticValues:
    """Values of a graph's tensors, computed on request.

    Args:
        nodes: the nodes by name.
        shape_of: returns the shape of a tensor as far as it is known.
        fed: names of nodes whose outputs are unknown, regardless of their inputs.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        shape_of: Callable[[Ref], TensorShape],
        fed: frozenset[str] = frozenset(),
    ) -> None:
        self._nodes = nodes
        self._shape_of = shape_of
        self._values: dict[str, Values] = dict.fromkeys(fed)
        self._partial: dict[Ref, Array | None] = {}

    def value(self, ref: Ref) -> Array | None:
        """Return a tensor's elements, or None if they are unknown or too many."""
        if ref.node not in self._values:
            self._find(ref.node)
        outputs = self._values[ref.node]
        if outputs is None or ref.index >= len(outputs):
            return None
        return outputs[ref.index].array()

    def as_shape(self, ref: Ref) -> TensorShape:
        """Return a tensor's elements as a shape with -1 for unknown sizes, or None."""
        sizes = self._elements(ref, 0)
        if (
            sizes is None
            or sizes.ndim != 1
            or len(sizes) > MAX_RANK
            or sizes.dtype.kind not in "iu"
        ):
            return None
        return tuple(max(int(size), UNKNOWN) for size in sizes)

    def size(self, ref: Ref) -> int | None:
        """Return a nonnegative scalar, possibly from a partly known shape, or None."""
        value = self._elements(ref, 0)
        if value is None or value.ndim or value.dtype.kind not in "iu" or value < 0:
            return None
        return int(value)

    def _find(self, name: str) -> None:
        """Compute a node's values, after those of its inputs."""
        stack = [name]
        while stack:
            node = self._nodes[stack[-1]]
            if node.name in self._values:
                stack.pop()
                continue
            outputs = self._independent_values(node)
            if outputs is None and self._is_computed(node):
                missing = [r.node for r in node.data_inputs if r.node not in self._values]
                if missing:
                    stack += missing
                    continue
                outputs = self._computed(node)
            self._values[node.name] = outputs
            stack.pop()

    def _independent_values(self, node: Node) -> Values:
        """Return values that do not depend on other values."""
        if node.op == "Const":
            return (node.attr_tensor("value"),)
        if node.op in SHAPE_OPS:
            return shape_values(node, [self._shape_of(r) for r in node.data_inputs])
        return None

    def _is_computed(self, node: Node) -> bool:
        if not node.data_inputs or not is_static(node):
            return False
        shape = self._shape_of(Ref(node.name))
        return shape is None or element_count(shape) <= _MAX_ELEMENTS

    def _computed(self, node: Node) -> Values:
        inputs = []
        for ref in node.data_inputs:
            outputs = self._values[ref.node]
            if outputs is None or ref.index >= len(outputs):
                return None
            inputs.append(outputs[ref.index])
        if any(t.size > _MAX_ELEMENTS for t in inputs):
            return None
        try:
            with working(_FLOPS):
                return evaluate_node(node, inputs)
        except (InvalidGraphError, UnsupportedError):
            # Values that cannot be computed are unknown; running the graph reports the error.
            return None

    def _elements(self, ref: Ref, depth: int) -> Array | None:
        """Return a tensor's elements with -1 for unknown ones, or None."""
        value = self.value(ref)
        if value is not None:
            return value
        if ref not in self._partial:
            self._partial[ref] = None
            self._partial[ref] = self._moved(ref, depth)
        elements = self._partial[ref]
        return self._unknown(ref) if elements is None else elements

    def _unknown(self, ref: Ref) -> Array | None:
        shape = self._shape_of(ref)
        if shape is None or len(shape) > 1 or not 0 <= element_count(shape) <= MAX_RANK:
            return None
        return np.full(shape, UNKNOWN)

    def _moved(self, ref: Ref, depth: int) -> Array | None:
        node = self._nodes[ref.node]
        if node.op in ("Shape", "ShapeN"):
            shape = self._shape_of(node.data_inputs[ref.index])
            return None if shape is None else np.array(shape, dtype=np.int64)
        if node.op not in _MOVED or depth > MAX_DEPTH:
            return None
        refs = node.data_inputs
        moved = frozenset(range(*_MOVED[node.op].indices(len(refs))))
        inputs = [
            self._elements(r, depth + 1) if i in moved else self.value(r)
            for i, r in enumerate(refs)
        ]
        # Use one type for all, because unknown elements do not have one.
        arrays = [a.astype(np.int64) for a in inputs if a is not None and a.dtype.kind == "i"]
        if len(arrays) < len(inputs):
            return None
        try:
            with working(_FLOPS):
                return evaluate_node(node, [Tensor.of(a) for a in arrays])[0].array()
        except (InvalidGraphError, UnsupportedError):
            return None


_NAME: Final = "tensorflow::TensorList"


_ALL_BITS: Final = (1 << 64) - 1


_Message = TypeVar("_Message", pb.TensorProto, pb.TensorShapeProto)


def list_constant(node: Node, handle: Array) -> Tensor:
    """Create the constant of a list without set elements."""
    from mobileprep.ops.data_flow.tensor_list import TensorList

    held = handle.item() if handle.dtype == object and handle.size == 1 else None
    if (
        not isinstance(held, TensorList)
        or any(x is not None for x in held.items)
        or "element_dtype" not in node.attrs
    ):
        message = "only lists without values are written as constants"
        raise UnsupportedError(message)
    shape = pb.TensorShapeProto()
    shape_to_proto(held.shape, shape)
    count, element = len(held.items), node.attr_dtype("element_dtype").value
    numbers = (count, *range(count), element, held.limit & _ALL_BITS)
    proto = pb.TensorProto(dtype=DType.VARIANT.value)  # type: ignore[arg-type]
    proto.tensor_shape.SetInParent()
    written = proto.variant_val.add(type_name=_NAME)
    written.metadata = b"".join(map(encode_varint, numbers)) + shape.SerializeToString()
    return Tensor(DType.VARIANT, (), opaque=proto.SerializeToString(deterministic=True))


def constant_array(tensor: Tensor) -> Array:
    """Return a constant's elements, or the list handle of a variant."""
    if tensor.dtype is not DType.VARIANT:
        return tensor.array()
    return _list_handle(tensor)


def _list_handle(tensor: Tensor) -> Array:
    from mobileprep.ops.data_flow.tensor_list import MOST_ELEMENTS, TensorList

    values = _parsed(pb.TensorProto, tensor.opaque).variant_val
    if len(values) != 1 or values[0].type_name != _NAME or values[0].tensors:
        message = "of variants only TensorLists without values can be read"
        raise UnsupportedError(message)
    cursor = Cursor(values[0].metadata, file="a TensorList")
    unset = cursor.varint()
    if unset > min(MOST_ELEMENTS, cursor.end):
        message = f"a TensorList of {unset} elements in {cursor.end} bytes"
        raise UnsupportedError(message)
    for _ in range(unset):
        cursor.varint()
    element, limit = DType(cursor.varint()), cursor.varint()
    shape = _parsed(pb.TensorShapeProto, bytes(cursor.take(cursor.end - cursor.position)))
    limit -= (limit >> 63) << 64
    kind = np.dtype(element.numpy or object)
    return handle_of(TensorList((None,) * unset, kind, shape_from_proto(shape), limit))


def _parsed(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        message = "the bytes of a TensorList are not a protobuf message"
        raise CorruptFileError(message, "the file is damaged") from error
