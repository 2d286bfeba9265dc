"""Costs of .tflite files, and the memory of their tensors."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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


_ALIGNMENT: Final = 64
# Tensors of at most so many bytes are not overwritten.
_SCALAR: Final = 4
_MAX_PLANNED: Final = 20_000
"""With more tensors, the arena is at least as large as those in use at the same time."""

# Operators whose first output can share the memory of an input: unchanged, or overwritten.
_UNCHANGED: Final = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_OVERWRITTEN: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("ADD", "DIV", "MUL", "SUB"), (0, 1)),
    **dict.fromkeys(("DYNAMIC_UPDATE_SLICE", "SOFTMAX"), (0,)),
}
_KEPT: Final = frozenset({"RANK", "SHAPE"})


class LiteArena(Struct, frozen=True):
    """The memory of an interpreter in bytes.

    Args:
        arena: tensors of a run, which share memory.
        persistent: tensors that are computed once and kept.
    """

    arena: int
    persistent: int


class _Use(Struct):
    """Memory that is in use from one operator to another, both included.

    Args:
        nbytes: size.
        first: index of the operator that writes it.
        last: index of the last operator that reads it.
        is_whole: whether it lives for the whole run.
    """

    nbytes: int
    first: int
    last: int
    is_whole: bool = False


def lite_arena(graph: Graph, feeds: Mapping[str, TensorShape], outputs: Sequence[str]) -> LiteArena:
    """Plan the memory of the main subgraph.

    Args:
        feeds: input shapes that replace the recorded ones. Unknown sizes count as 1.
        outputs: outputs of the file.
    """
    layouts = lite_layouts(graph, feeds, 1)
    operators = [n for n in graph if n.op not in ("Const", "Placeholder")]
    plan = _Plan(graph, layouts, operators, [edge(parse_ref(name)) for name in outputs])
    uses = list(plan.uses())
    arena = _arena(uses) if len(uses) <= _MAX_PLANNED else _most(uses, len(operators))
    return LiteArena(arena, plan.persistent)


class _Plan:
    """The lifetimes of all tensors."""

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[Edge, TensorLayout],
        operators: Sequence[Node],
        outputs: Sequence[Edge],
    ) -> None:
        self._graph = graph
        self._layouts = layouts
        self._operators = operators
        self._kept = {(n.name, 0) for n in graph if n.op == "Placeholder"} | set(outputs)
        self._outputs = frozenset(outputs)
        self._owner: dict[Edge, Edge] = {}
        self.persistent = 0
        references = Counter(edge(ref) for n in operators for ref in n.data_inputs)
        self._references = references + Counter(self._kept)

    def uses(self) -> Iterator[_Use]:
        """Yield the memory of tensors and of the operators' temporary tensors."""
        end = len(self._operators)
        owned = {
            place: _Use(self._layouts[place].nbytes, 0, end, is_whole=True)
            for place in ((n.name, 0) for n in self._graph if n.op == "Placeholder")
        }
        last: dict[Edge, int] = {}
        for step, node in enumerate(self._operators):
            for place in self._own_outputs(node):
                owned[place] = _Use(self._layouts[place].nbytes, step, end)
            for ref in node.data_inputs:
                last[self._owner_of(edge(ref))] = step
            temporary, persistent = _temporaries(node, self._layouts)
            self.persistent += sum(map(_aligned, persistent))
            yield from (_Use(nbytes, step, step) for nbytes in temporary)
        final = {self._owner_of(place) for place in self._kept}
        for place, use in owned.items():
            if place not in final:
                use.last = last.get(place, end)
            elif use.first == 0:
                use.is_whole = True
        yield from owned.values()

    def _own_outputs(self, node: Node) -> Iterator[Edge]:
        """Yield the outputs with memory of their own in the arena."""
        for index in range(len(node.attr_dtypes("T"))):
            place = (node.name, index)
            shared = self._shared(node) if index == 0 else None
            if shared is not None:
                self._owner[place] = shared
            elif self._is_persistent(node):
                self.persistent += _aligned(self._layouts[place].nbytes)
            else:
                yield place

    def _owner_of(self, place: Edge) -> Edge:
        return self._owner.get(place, place)

    def _is_persistent(self, node: Node) -> bool:
        name = node.op.removeprefix(PREFIX)
        if name == "DEQUANTIZE":
            return all(self._graph[ref.node].op == "Const" for ref in node.data_inputs)
        return name in _KEPT

    def _shared(self, node: Node) -> Edge | None:
        """Return the tensor whose memory the first output shares, or None."""
        name = node.op.removeprefix(PREFIX)
        output = (node.name, 0)
        if output in self._outputs:
            return None
        for index in (0,) if name in _UNCHANGED else _OVERWRITTEN.get(name, ()):
            if index >= len(node.data_inputs):
                continue
            place = edge(node.data_inputs[index])
            source = self._graph[place[0]]
            if source.op in ("Const", "Placeholder") or self._is_persistent(source):
                continue
            sizes = (self._layouts[place].nbytes, self._layouts[output].nbytes)
            if sizes[0] != sizes[1]:
                continue
            owner = self._owner_of(place)
            if name in _UNCHANGED:
                return owner
            if sizes[0] > _SCALAR and self._references[place] <= 1:
                return owner if self._references[owner] <= 1 else None
        return None


def _temporaries(node: Node, layouts: Mapping[Edge, TensorLayout]) -> tuple[list[int], list[int]]:
    """Return the bytes of an operator's large temporary tensors, and of those that it keeps."""
    name = node.op.removeprefix(PREFIX)
    inputs = [layouts[edge(ref)] for ref in node.data_inputs]
    output = layouts.get((node.name, 0))
    if output is None or len(inputs) < 2 or inputs[1].shape is None or inputs[0].shape is None:
        return [], []
    first, filters, out = inputs[0].shape, inputs[1].shape, output.shape or ()
    # A float input with weights in 8 bits is quantized in each run.
    is_hybrid = inputs[0].itemsize == 4 and inputs[1].itemsize == 1
    quantized = [math.prod(first)] if is_hybrid else []
    if name == "CONV_2D" and len(filters) == 4 and len(out) == 4 and len(first) == 4:
        window = filters[1] * filters[2] * filters[3]
        needs_columns = filters[1:3] != (1, 1) or out[1:3] != first[1:3]
        width = 1 if is_hybrid else inputs[0].itemsize
        columns = [math.prod(out[:3]) * window * width] if needs_columns else []
        sums = [4 * math.prod(out)] if is_hybrid else []
        return [*columns, *quantized, *sums], []
    if name == "DEPTHWISE_CONV_2D":
        return quantized, []
    if name == "FULLY_CONNECTED":
        return [*quantized, *([4 * math.prod(out)] if is_hybrid else [])], []
    if name == "TRANSPOSE_CONV" and len(inputs) > 2 and len(filters) == 4:
        image = inputs[2].shape or ()
        columns = [math.prod(image[:3]) * math.prod(filters[:3]) * 4]
        return columns, [math.prod(filters) * inputs[1].itemsize]
    return [], []


def _arena(uses: Sequence[_Use]) -> int:
    """Return the size of the arena after its greedy placement.

    Tensors of the whole run come first, then the largest ones. Each is placed in the tightest gap
    between those that are in use at the same time, or after all of them.
    """
    ordered = sorted(uses, key=lambda u: (not u.is_whole, 0 if u.is_whole else -u.nbytes, u.first))
    placed: list[tuple[int, int, _Use]] = []
    most = 0
    for number, use in enumerate(ordered):
        if not use.nbytes:
            continue
        best = fit = None
        end = 0
        for offset, _, other in placed:
            if other.last < use.first or other.first > use.last:
                continue
            start = _aligned(end)
            if start + use.nbytes <= offset and (fit is None or offset - start < fit):
                best, fit = start, offset - end
            end = max(end, offset + other.nbytes)
            if fit == 0:
                break
        offset = _aligned(end) if best is None else best
        most = max(most, offset + use.nbytes)
        bisect.insort_right(placed, (offset, number, use))
    return most


def _most(uses: Sequence[_Use], steps: int) -> int:
    """Return the highest sum of tensors that are in use at the same time."""
    change = [0] * (steps + 2)
    for use in uses:
        change[use.first] += _aligned(use.nbytes)
        change[use.last + 1] -= _aligned(use.nbytes)
    most = total = 0
    for difference in change:
        total += difference
        most = max(most, total)
    return most


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
