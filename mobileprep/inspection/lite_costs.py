"""Costs of a .tflite file, from the recorded shapes of its tensors.

Operators count as the TensorFlow ops that they replace: two operations for a multiplication and an
addition, and one for each element of a fused activation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge, edge, parse_ref
from mobileprep.graph.tflite import PREFIX, SHAPES
from mobileprep.ops.kernel import Sizes, count_flops
from mobileprep.runtime.accounting.costs import (
    Executed,
    GraphCosts,
    NodeCost,
    TensorLayout,
    peak_bytes,
)

# Builtins that compute the same as a TensorFlow op, from inputs of the same shapes.
_SAME: Final[Mapping[str, str]] = {
    **{f"{op.upper()}": op for op in ("Abs", "Add", "Ceil", "Cos", "Div", "Elu", "Equal", "Exp")},
    **{f"{op.upper()}": op for op in ("Floor", "Greater", "Less", "Log", "Maximum", "Minimum")},
    **{f"{op.upper()}": op for op in ("Mul", "Neg", "Pow", "Relu", "Relu6", "Round", "Rsqrt")},
    **{f"{op.upper()}": op for op in ("Sin", "Softmax", "Sqrt", "Square", "Sub", "Sum", "Tanh")},
    **{f"REDUCE_{op.upper()}": op for op in ("All", "Any", "Max", "Min", "Prod")},
    "ARG_MAX": "ArgMax",
    "ARG_MIN": "ArgMin",
    "ADD_N": "AddN",
    "MEAN": "Mean",
    "SIGN": "Sign",
    "FLOOR_DIV": "FloorDiv",
    "FLOOR_MOD": "FloorMod",
    "GREATER_EQUAL": "GreaterEqual",
    "LESS_EQUAL": "LessEqual",
    "LOGICAL_AND": "LogicalAnd",
    "LOGICAL_NOT": "LogicalNot",
    "LOGICAL_OR": "LogicalOr",
    "LOGISTIC": "Sigmoid",
    "LOG_SOFTMAX": "LogSoftmax",
    "NOT_EQUAL": "NotEqual",
    "RELU_N1_TO_1": "Relu6",
    "GELU": "Tanh",
    "HARD_SWISH": "Relu6",
    "SQUARED_DIFFERENCE": "SquaredDifference",
    "CUMSUM": "Cumsum",
    "LEAKY_RELU": "LeakyRelu",
    "RESIZE_BILINEAR": "ResizeBilinear",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor",
}
_FREE: Final = frozenset(
    {
        *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "CAST", "CONCATENATION", "DELEGATE", "DENSIFY"),
        *("DEPTH_TO_SPACE", "EMBEDDING_LOOKUP", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND"),
        *("MIRROR_PAD", "ONE_HOT", "PACK", "PAD", "PADV2", "RANGE", "RANK", "RESHAPE"),
        *("REVERSE_SEQUENCE", "REVERSE_V2", "SELECT", "SELECT_V2", "SHAPE", "SLICE"),
        *("SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE"),
        *("TILE", "TRANSPOSE", "UNPACK", "WHERE", "ZEROS_LIKE"),
    }
)
_POOLS: Final = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"})
_RECURRENT: Final = frozenset(
    {"LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
     "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN"}
)  # fmt: skip
_NO_ACTIVATION: Final = ("", "NONE")


class _Operator(Struct, frozen=True):
    """An operator with the shapes of its tensors.

    Args:
        node: the operator.
        inputs: shapes of its inputs.
        weights: for each input, whether it is a constant.
        outputs: shapes of its outputs.
    """

    node: Node
    inputs: Sequence[tuple[int, ...]]
    weights: Sequence[bool]
    outputs: Sequence[tuple[int, ...]]

    @property
    def elements(self) -> int:
        """Number of elements of the first output."""
        return math.prod(self.outputs[0])


def lite_costs(
    graph: Graph, outputs: Sequence[str], feeds: Mapping[str, TensorShape], batch: int
) -> GraphCosts:
    """Compute the costs of the main subgraph.

    Args:
        feeds: input shapes that replace the recorded ones.
    """
    layouts = lite_layouts(graph, feeds, batch)
    ran: list[Executed] = []
    costs: list[NodeCost] = []
    constants: set[str] = set()
    for node in graph:
        if node.op in ("Const", "Placeholder"):
            continue
        outputs_of_node = tuple(layouts[(node.name, i)] for i in range(len(node.attr_dtypes("T"))))
        inputs = [layouts[edge(ref)] for ref in node.data_inputs]
        weights = [graph[ref.node].op == "Const" for ref in node.data_inputs]
        constants |= {
            r.node for r, is_constant in zip(node.data_inputs, weights, strict=True) if is_constant
        }
        operator = _Operator(
            node, [i.shape or () for i in inputs], weights, [o.shape or () for o in outputs_of_node]
        )
        read, written = (sum(t.nbytes for t in side) for side in (inputs, outputs_of_node))
        costs.append(NodeCost(node.name, node.op, _flops(operator), read, written))
        ran.append(Executed(node, outputs_of_node))
    fed = {(n.name, 0): layouts[n.name, 0] for n in graph if n.op == "Placeholder"}
    values = [graph[name].attr_tensor("value") for name in sorted(constants)]
    return GraphCosts(
        tuple(costs),
        sum(v.size for v in values),
        sum(v.nbytes for v in values),
        peak_bytes(ran, fed, [edge(parse_ref(name)) for name in outputs]),
    )


def lite_layouts(
    graph: Graph, feeds: Mapping[str, TensorShape], batch: int
) -> dict[Edge, TensorLayout]:
    """Return the layouts of all tensors of the main subgraph; see ``lite_costs``."""
    layouts: dict[Edge, TensorLayout] = {}
    for node in graph:
        if node.op == "Const":
            layouts[(node.name, 0)] = _constant(node)
        elif node.op == "Placeholder":
            shape = feeds.get(node.name) or node.attr_shape("shape") or ()
            width = node.attr_dtype("dtype").itemsize
            layouts[(node.name, 0)] = TensorLayout(_closed(shape, batch), width)
        else:
            shapes, types = node.attr_shapes(SHAPES), node.attr_dtypes("T")
            for index, (sizes, dtype) in enumerate(zip(shapes, types, strict=True)):
                layout = TensorLayout(_closed(sizes or (), batch), dtype.itemsize)
                layouts[(node.name, index)] = layout
    return layouts


def _constant(node: Node) -> TensorLayout:
    tensor = node.attr_tensor("value")
    return TensorLayout(tensor.shape, tensor.dtype.itemsize)


def _closed(shape: Sequence[int], batch: int) -> tuple[int, ...]:
    return tuple(batch if size < 0 else size for size in shape)


def _flops(operator: _Operator) -> int | None:
    """Count the operations of an operator; None if its builtin is unknown."""
    builtin = operator.node.op.removeprefix(PREFIX)
    if builtin in _FREE or not operator.outputs:
        return 0
    if builtin in _SAME:
        node = Node(operator.node.name, _SAME[builtin])
        count = count_flops(Sizes(node, operator.inputs, operator.outputs))
    elif builtin in _POOLS:
        attrs = operator.node
        window = attrs.attr_int("_filter_width", 0) * attrs.attr_int("_filter_height", 0)
        count = operator.elements * window
    elif builtin in _RECURRENT:
        count = _recurrent(operator)
    elif builtin in _RULES:
        count = _RULES[builtin](operator)
    else:
        return None
    activation = operator.node.attr_str("_fused_activation_function", "")
    return None if count is None else count + operator.elements * (activation not in _NO_ACTIVATION)


def _product(weights: slice) -> Callable[[_Operator], int]:
    """Count products of each output with a part of the weights' shape, and a bias."""

    def count(operator: _Operator) -> int:
        products = math.prod(operator.inputs[1][weights])
        return 2 * operator.elements * products + _bias(operator, 2)

    return count


def _transposed(operator: _Operator) -> int:
    """Count the image's elements times the filters without their input channels, and a bias."""
    filters, image = operator.inputs[1], operator.inputs[2]
    return 2 * math.prod(image) * math.prod(filters[:-1]) + _bias(operator, 3)


def _matrix_product(operator: _Operator) -> int:
    """Count a product of matrices, either of which may be transposed."""
    rows, (first, second) = operator.outputs[0][-2], operator.inputs[0][-2:]
    return 2 * operator.elements * (second if first == rows else first)


def _bias(operator: _Operator, place: int) -> int:
    return operator.elements if len(operator.inputs) > place else 0


def _recurrent(operator: _Operator) -> int:
    """Count a matrix-vector product for each weight matrix and each step of each sequence."""
    steps = math.prod(operator.inputs[0][:-1])
    matrices = (
        math.prod(shape)
        for shape, is_constant in zip(operator.inputs, operator.weights, strict=True)
        if is_constant and len(shape) == 2
    )
    return 2 * steps * sum(matrices)


def _each(factor: int) -> Callable[[_Operator], int]:
    return lambda operator: factor * operator.elements


_RULES: Final[Mapping[str, Callable[[_Operator], int]]] = {
    "BATCH_MATMUL": _matrix_product,
    "CONV_2D": _product(slice(1, None)),  # [outputs, *window, inputs]
    "CONV_3D": _product(slice(-1)),  # [*window, inputs, outputs]
    "CONV_3D_TRANSPOSE": _transposed,
    "DEPTHWISE_CONV_2D": _product(slice(1, -1)),  # [1, *window, outputs]
    "DEQUANTIZE": _each(2),
    "FULLY_CONNECTED": _product(slice(-1, None)),  # [outputs, inputs]
    "L2_NORMALIZATION": _each(3),
    "PRELU": _each(2),
    "QUANTIZE": _each(2),
    "TRANSPOSE_CONV": _transposed,
}
