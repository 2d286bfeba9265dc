"""Convert graphs that quantize_nodes converted to 8 bits back to float.

Constant ranges become fake quantization, so the file saturates where the graph does, and the
integer modes need no calibration for these tensors. Ranges measured at run time are dropped.

Source: the kernels of the quantized ops of TensorFlow 1.15 and 2.21.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.bypass import constant_behind, node_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.numerics.quantization import Limits, offset_of_zero, steps_of
from mobileprep.ops.shape_inference import infer_shapes, shape_of

_FLOAT: Final = attr.dtype(DType.FLOAT)
_PLAIN: Final = {
    DType.QUINT8: DType.UINT8,
    DType.QINT8: DType.INT8,
    DType.QUINT16: DType.UINT16,
    DType.QINT16: DType.INT16,
    DType.QINT32: DType.INT32,
}
# Maximum number of ops between a tensor and its measured range.
_MAX_RANGE_OPS: Final = 16
_LOW_ENDS: Final = ("Min", "Minimum", "Reshape", "RequantizationRange")
_HIGH_ENDS: Final = ("Max", "Maximum", "Reshape", "RequantizationRange")
_HINT: Final = "convert the original float graph instead"


def dequantized(graph: Graph, outputs: Sequence[Ref]) -> tuple[Graph, int]:
    """Replace quantized ops by their float ops.

    Returns:
        The graph, and the number of quantized ops replaced.
    """
    count = sum(node.op in QUANTIZED for node in graph)
    if not count and not any(node.op == "Dequantize" for node in graph):
        return graph, 0
    for ref in outputs:
        is_range = ref.index and graph[ref.node].op in QUANTIZED
        if is_range or tensor_dtype(graph, ref) in _PLAIN:
            message = f"the output {str(ref)!r} is quantized, and LiteRT files compute in floats"
            raise UnsupportedError(message, "fetch the float tensor after its Dequantize")
    result = graph.with_nodes(_Dequantizing(graph).nodes())
    needed = reachable(result, [r.node for r in outputs])
    retained = [n for n in result if n.name in needed or n.op == "Placeholder"]
    return result.with_nodes(retained), count


class _Dequantizing:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shapes = infer_shapes(graph)
        self._fresh = FreshNames(graph.by_name)
        self._new: list[Node] = []

    def nodes(self) -> list[Node]:
        """Return the float nodes; each has the name of the quantized node that it replaces."""
        result = []
        for node in self._graph:
            changed = self._changed(node)
            result += [*self._new, changed]
            self._new = []
        return result

    def _changed(self, node: Node) -> Node:
        kinds = {k: v for k, v in node.attrs.items() if v.kind == "type" and v.value in _PLAIN}
        if node.op == "Placeholder":
            changes = {key: attr.dtype(_PLAIN[v.value]) for key, v in kinds.items()}
            return node.with_attrs(**changes) if changes else node
        if node.op in FLOAT_OPS:
            return self._float_op(node, FLOAT_OPS[node.op])
        if node.op in ROUNDING:
            return self._rounded(node)
        if node.op == "Dequantize":
            return self._floats(node)
        if node.op == "Const" or not kinds or not node.data_inputs or self._is_raw(node):
            return node
        return node.with_attrs(**dict.fromkeys(kinds, _FLOAT))

    def _is_raw(self, node: Node) -> bool:
        """Return whether integers come from a constant or placeholder, not a quantized op."""
        while node.op not in ("Const", "Placeholder"):
            if node.op in QUANTIZED or not node.data_inputs:
                return False
            node = self._graph[node.data_inputs[0].node]
        return True

    def _float_op(self, node: Node, form: FloatOp) -> Node:
        count = form.count or node.attr_int("N")
        inputs = list(node.data_inputs)
        plain = [] if form.plain is None else [inputs.pop(0 if form.plain == 0 else count)]
        if len(inputs) < 3 * count:
            return node
        values, ends = inputs[:count], inputs[count : 3 * count]
        pairs = [ends[2 * i : 2 * i + 2] for i in range(count)]
        if not form.is_paired:
            pairs = [[ends[i], ends[count + i]] for i in range(count)]
        floats = [self._float(node, v, *pair) for v, pair in zip(values, pairs, strict=True)]
        if form.op == "Conv2D":
            self._check_window(node)
        operands = [*plain, *floats] if form.plain == 0 else [*floats, *plain]
        attrs = {key: node.attrs[key] for key in form.attrs if key in node.attrs}
        limits = self._limits(*ends) if form.op in ACTIVATIONS else None
        if limits is not None:
            # The values are already rounded; this records the range for the integer modes.
            return self._in_range(node, self._add(node, form.op, *operands), limits)
        return _node(node, form.op, operands, **attrs, T=_FLOAT)

    def _rounded(self, node: Node) -> Node:
        value, *ends = node.data_inputs
        low, high = ends[-2:]
        if node.op == "Requantize":
            value = self._float(node, value, *ends[:2])
        limits = self._limits(low, high)
        kind = node.attr_dtype("T" if node.op == "QuantizeV2" else "out_type", DType.QUINT8)
        if limits is not None and kind in (DType.QUINT8, DType.QINT8):
            return self._in_range(node, value, limits)
        if self._is_measured(low, high, node.data_inputs[0]):
            return _node(node, "Identity", [value], T=_FLOAT)
        least = self._add(node, "Maximum", value, low)
        return _node(node, "Minimum", [least, high], T=_FLOAT)

    def _in_range(self, node: Node, value: Ref, limits: Limits) -> Node:
        """Round and clip values to the 8-bit grid of a range."""
        if limits.is_empty:
            return _node(node, "Identity", [value], T=_FLOAT)
        ends = {"min": attr.floating(float(limits.low)), "max": attr.floating(float(limits.high))}
        return _node(node, "FakeQuantWithMinMaxArgs", [value], num_bits=attr.integer(8), **ends)

    def _floats(self, node: Node) -> Node:
        source = self._graph[node.data_inputs[0].node]
        if not self._is_raw(source):
            return _node(node, "Identity", node.data_inputs[:1], T=_FLOAT)
        constants = [constant_behind(self._graph, ref) for ref in node.data_inputs]
        tensors = [tensor for tensor in constants if tensor is not None]
        if len(tensors) == len(constants):
            (values,) = evaluate_node(node, tensors)
            return constant(node.name, values, node.device, node.control_inputs)
        if node.attr_str("mode", "MIN_COMBINED") != "MIN_FIRST":
            return node
        return _node(node, "Identity", [self._float(node, *node.data_inputs)], T=_FLOAT)

    def _float(self, node: Node, ref: Ref, low: Ref, high: Ref) -> Ref:
        """Return the float form of a quantized tensor that a node reads with its range."""
        source = node_behind(self._graph, ref)
        if not self._is_raw(source):
            return ref
        limits, value = self._limits(low, high, with_zero=False), constant_behind(self._graph, ref)
        kind = tensor_dtype(self._graph, Ref(source.name))
        if limits is None or kind not in _PLAIN or source.op not in ("Const", "Placeholder"):
            message = f"{node.op} {node.name!r} takes integers whose range is not constant"
            raise UnsupportedError(message, _HINT)
        plain = _PLAIN[kind]
        zero, step = _affine(limits, plain)
        if value is not None:
            numbers = (value.array().astype(np.float64) - zero) * np.float64(step)
            return self._constant(node, "values", numbers)
        cast = self._fresh.name(f"{node.name}/Cast")
        kinds = {"SrcT": attr.dtype(plain), "DstT": _FLOAT}
        self._new.append(Node(cast, "Cast", (ref,), node.device, kinds))
        moved = self._add(node, "Sub", Ref(cast), self._constant(node, "zero", zero))
        scaled = self._add(node, "Mul", moved, self._constant(node, "step", step))
        if not limits.low <= 0 < limits.high:
            return scaled
        # The values are already rounded; this records the range for the integer modes.
        held = replace(
            self._in_range(node, scaled, limits), name=self._fresh.name(f"{node.name}/x")
        )
        self._new.append(held)
        return Ref(held.name)

    def _limits(self, low: Ref, high: Ref, *, with_zero: bool = True) -> Limits | None:
        """Return a constant range, or None if it is computed."""
        tensors = [self._end(ref) for ref in (low, high)]
        ends = [
            float(t.array().reshape(-1)[0]) for t in tensors if t is not None and t.array().size
        ]
        if len(ends) < 2:
            return None
        if with_zero:
            ends = [min(ends[0], 0.0), max(ends[1], 0.0)]
        return Limits(np.float32(ends[0]), np.float32(ends[1]))

    def _end(self, ref: Ref) -> Tensor | None:
        """Return the constant end of a range, looking through ops that pass it on."""
        passing = self._graph[ref.node]
        while ref.index and (passing.op in ROUNDING or passing.op in KEEPING_RANGES):
            ref = passing.data_inputs[-2:][ref.index - 1]
            passing = self._graph[ref.node]
        return constant_behind(self._graph, ref)

    def _is_measured(self, low: Ref, high: Ref, value: Ref) -> bool:
        """Return whether a range is computed from the values that it covers."""
        value = source_behind(self._graph, value)
        return all(
            self._follows(end, value, ops) for end, ops in ((low, _LOW_ENDS), (high, _HIGH_ENDS))
        )

    def _follows(self, end: Ref, value: Ref, ops: Collection[str]) -> bool:
        """Return whether the end of a range is computed from a value using only the given ops."""
        waiting, visited = [end], 0
        while waiting and visited < _MAX_RANGE_OPS:
            ref = source_behind(self._graph, waiting.pop())
            visited += 1
            if ref == value:
                return True
            node = self._graph[ref.node]
            if node.op in ops:
                waiting += node.data_inputs[:1] if node.op == "Reshape" else node.data_inputs
        return False

    def _check_window(self, node: Node) -> None:
        """Reject a convolution whose windows are placed differently by the quantized kernel."""
        image, filters = (shape_of(self._shapes, ref) for ref in node.data_inputs[:2])
        is_same = node.attr_str("padding") == "SAME"
        for axis, stride in enumerate(node.attr_ints("strides")[1:3], 1):
            size = filters[axis - 1] if filters and len(filters) == 4 else 1
            extent = image[axis] if image and len(image) == 4 else -1
            if stride <= (size + 1 if is_same else 3):
                continue
            room = extent if is_same else extent - size + 1
            missing = (-(-room // stride) - 1) * stride + size - extent
            if extent < 0 or missing < (-1 if is_same else -2):
                message = (
                    f"QuantizedConv2D {node.name!r} leaves out pixels at the edges, and Conv2D "
                    "leaves out others"
                )
                raise UnsupportedError(message, _HINT)

    def _add(self, node: Node, op: str, *inputs: Ref) -> Ref:
        name = self._fresh.name(f"{node.name}/{op}")
        self._new.append(Node(name, op, inputs, node.device, {"T": _FLOAT}))
        return Ref(name)

    def _constant(self, node: Node, what: str, value: object) -> Ref:
        name = self._fresh.name(f"{node.name}/{what}")
        self._new.append(constant(name, Tensor.of(np.asarray(value, np.float32))))
        return Ref(name)


def _affine(limits: Limits, plain: DType) -> tuple[int, np.float32]:
    """Return the zero point and scale of a range, as in quantized kernels."""
    assert plain.numpy is not None
    steps = steps_of(plain.numpy)
    if steps.lowest < 0:
        return 0, limits.span / np.float32(2 * steps.highest)
    return offset_of_zero(limits, plain.numpy), limits.span / np.float32(steps.highest)


def _node(node: Node, op: str, inputs: Sequence[Ref], **attrs: AttrValue) -> Node:
    """Return a node with the name, device, and control inputs of another."""
    return Node(node.name, op, (*inputs, *node.control_inputs), node.device, attrs)


class FloatOp(Struct, frozen=True):
    """The float op that corresponds to a quantized op.

    Args:
        op: its name.
        count: the number of quantized inputs of the quantized op.
        attrs: the attributes that both have.
        plain: the position of the input that is not quantized, such as a shape.
        is_paired: whether each minimum is followed by its maximum.
    """

    op: str
    count: int = 1
    attrs: tuple[str, ...] = ()
    plain: int | None = None
    is_paired: bool = True


_POOL: Final = ("ksize", "strides", "padding")
_WINDOW: Final = ("strides", "padding", "dilations")
FLOAT_OPS: Final[Mapping[str, FloatOp]] = {
    "QuantizeDownAndShrinkRange": FloatOp("Identity"),
    "QuantizedAdd": FloatOp("AddV2", 2),
    "QuantizedAvgPool": FloatOp("AvgPool", attrs=_POOL),
    "QuantizedBiasAdd": FloatOp("BiasAdd", 2),
    "QuantizedConcat": FloatOp("Concat", 0, ("N",), plain=0, is_paired=False),
    "QuantizedConcatV2": FloatOp("ConcatV2", 0, ("N", "Tidx"), plain=-1, is_paired=False),
    "QuantizedConv2D": FloatOp("Conv2D", 2, _WINDOW),
    "QuantizedDepthwiseConv2D": FloatOp("DepthwiseConv2dNative", 2, _WINDOW),
    "QuantizedMatMul": FloatOp("MatMul", 2, ("transpose_a", "transpose_b")),
    "QuantizedMaxPool": FloatOp("MaxPool", attrs=_POOL),
    "QuantizedMul": FloatOp("Mul", 2),
    "QuantizedRelu": FloatOp("Relu"),
    "QuantizedRelu6": FloatOp("Relu6"),
    "QuantizedReshape": FloatOp("Reshape", attrs=("Tshape",), plain=1),
    "QuantizedResizeBilinear": FloatOp(
        "ResizeBilinear", attrs=("align_corners", "half_pixel_centers"), plain=1
    ),
}
"""The float op of each quantized op."""

ROUNDING: Final = frozenset({"QuantizeV2", "Requantize"})
"""Ops that round to the integers of a range, given as their last two inputs."""
QUANTIZED: Final = frozenset({*FLOAT_OPS, *ROUNDING})
"""Ops with quantized outputs."""
ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})
"""Float ops whose quantized versions keep a range that is wider than their results."""
KEEPING_RANGES: Final = (
    *("QuantizedAvgPool", "QuantizedMaxPool", "QuantizedRelu", "QuantizedRelu6"),
    *("QuantizedReshape", "QuantizedResizeBilinear"),
)
"""Ops that pass on the range of their input, given as their last two inputs."""
