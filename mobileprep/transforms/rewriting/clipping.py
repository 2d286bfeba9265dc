"""The range of weights with the least rounding and clipping error for a number of bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.core.parallel import at_once
from mobileprep.errors import InvalidGraphError, TransformError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import unused
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.numerics.quantization import STEPS, Dequantizer, Limits, to_quint8

_BINS: Final = 4096
"""16 bins per step of 8 bits: a bin hides a thousandth of the rounding error."""
_SHARES: Final = np.linspace(1.0, 0.02, 50).tolist()
_COARSE: Final = np.geomspace(1.0, 0.02, 16).tolist()
_ROUNDS: Final = 2
_BLOCK: Final = 1 << 18
_CODES: Final = 1 << 8
_MANY: Final = 4 * _CODES
# A Python float: a range's width would be cast to the type of a numpy number.
_LEAST_WIDTH: Final = float(np.finfo(np.float32).tiny)
# Within this range, the sum and difference of two float32 numbers are finite.
_MOST_WIDTH: Final = float(np.finfo(np.float32).max) / 2


def best_range(values: Array, bits: int) -> tuple[float, float]:
    """Return the range with the least mean squared error of weights stored in few bits.

    The range contains zero and has ``2 ** bits - 1`` equal steps; values outside are clipped to its
    ends. Errors are measured on a histogram.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019), which minimizes the same error over symmetric ranges.

    Args:
        bits: 2 to 8.
    """
    low, high = range_with_zero(values)
    if not high - low > _LEAST_WIDTH:
        return low, high
    # numpy computes the bins in the type of the values.
    wide = values if high - low < _MOST_WIDTH else values.astype(np.float64)
    counts, edges = np.histogram(wide, _BINS, (low, high))
    used = counts > 0
    centres, counts = ((edges[:-1] + edges[1:]) / 2)[used], counts[used]

    def error(limits: tuple[float, float]) -> float:
        return _error(centres, counts, limits, bits)

    # Both ends together first: moving one gains nothing if the other determines the step.
    best = min(((low * a, high * b) for a in _COARSE for b in _COARSE), key=error)
    for _ in range(_ROUNDS):
        best = min(((low * share, best[1]) for share in _SHARES), key=error)
        best = min(((best[0], high * share) for share in _SHARES), key=error)
    whole = (low, high)
    gains = rounding_error(values, best, bits) < rounding_error(values, whole, bits)
    return best if gains else whole


def range_with_zero(values: Array) -> tuple[float, float]:
    """Return the minimum and maximum of some floats, extended to contain zero."""
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def rounded(values: Array, limits: tuple[float, float], bits: int) -> Array:
    """Return weights after quantization to few bits, in double precision.

    They are multiples of the step, as in Dequantize with the mode MIN_FIRST.
    """
    low, high = limits
    steps = (1 << bits) - 1
    step = (high - low) / steps
    if step <= 0:
        return np.full(values.shape, low)
    lowest = np.rint(low / step)
    multiples = np.clip(np.rint(values / np.float64(step)), lowest, lowest + steps)
    back: Array = multiples * step
    return back


def rounding_error(values: Array, limits: tuple[float, float], bits: int) -> float:
    """Return the sum of squared errors of weights stored in few bits."""
    flat = values.reshape(-1)
    blocks = (flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK))
    return sum(float(np.square(rounded(b, limits, bits) - b).sum()) for b in blocks)


def _error(centres: Array, counts: Array, limits: tuple[float, float], bits: int) -> float:
    return float((np.square(rounded(centres, limits, bits) - centres) * counts).sum())


def has_few_values(values: Array) -> bool:
    """Return whether many weights have so few distinct values that they were stored in 8 bits."""
    flat = values.reshape(-1)
    if flat.size < _MANY or np.unique(flat[:_MANY]).size > _CODES:
        return False
    return np.unique(flat).size <= _CODES


# Shifts the zero point by a few thousandths of a step, more than single-precision rounding.
_WIDER: Final = np.float32(1 + 2.0**-16)


class EightbitConstant(Struct, frozen=True):
    """8-bit elements, and the numbers that 0 and 255 represent."""

    values: NDArray[np.uint8]
    low: np.float32
    high: np.float32

    def decoded(self) -> NDArray[np.float32]:
        """Return the floats that Dequantize outputs for them, bit-identical."""
        return Dequantizer.of(Limits(self.low, self.high), self.values.dtype)(self.values)


def eightbit_constant(values: Array, *, tf115: bool = False) -> EightbitConstant | None:
    """Quantize a float32 constant to 8 bits; None if its range is not finite.

    The range contains zero. If it is too narrow for Dequantize, as for a constant of zeros, it is 0
    to 1. If zero lies halfway between two steps, as in the range from -x to x, encoder and decoder
    may round it differently, and all floats are off by one step. In this case, the range is
    extended by 1/65536.

    Args:
        tf115: reproduce TensorFlow 1.15, with floats off by one step.

    Source: ``quantize_weights`` of TensorFlow 1.15's graph transforms.
    """
    low, high = value_range(values)
    low, high = min(low, np.float32(0)), max(high, LEAST_MAXIMUM)
    with np.errstate(over="ignore"):
        step = (high - low) / np.float32(STEPS - 1)
    if not np.isfinite(step):
        return None
    if step < LEAST_MAXIMUM:
        low, high = np.float32(0), np.float32(1)
    if not tf115 and not _agree_on_zero(low, high):
        high *= _WIDER
    return EightbitConstant(to_quint8(values, low, high), low, high)


def _agree_on_zero(low: np.float32, high: np.float32) -> bool:
    """Return whether zero is decoded as zero."""
    zero = np.zeros(1, np.float32)
    stored = EightbitConstant(to_quint8(zero, low, high), low, high)
    return not stored.decoded().any()


# The original starts its search for a maximum here: it uses the smallest positive normal number of
# C++ instead of the most negative one.
LEAST_MAXIMUM: Final = np.finfo(np.float32).tiny
# Passing a smaller constant to another thread takes longer than its arithmetic.
_LARGE: Final = 1 << 14

_Result = TypeVar("_Result")
_Stored = TypeVar("_Stored")


def float_value(node: Node, transform: str) -> Tensor | None:
    """Return the value of a float32 constant, or None for any other node.

    Raises:
        TransformError: a constant has no type or value.
    """
    if node.op != "Const":
        return None
    for name in ("dtype", "value"):
        if name not in node.attrs:
            message = f"{transform}: the constant {node.name!r} has no attribute {name!r}"
            raise TransformError(message, "export the graph again")
    if node.attr_dtype("dtype") is not DType.FLOAT:
        return None
    value = node.attr_tensor("value")
    return value if value.dtype is DType.FLOAT else None


class ConvertedFloats(NamedTuple):
    """A graph whose float constants are stored in another form.

    Args:
        graph: the graph; the original object if nothing was converted.
        matched: number of converted constants.
        skipped: number of unchanged float constants, by reason.
    """

    graph: Graph
    matched: int
    skipped: Counter[str]


def convert_floats(
    graph: Graph,
    transform: str,
    convert: Callable[[Node, Tensor], tuple[str, _Stored | None]],
    put: Callable[[Node, _Stored], Iterable[Node]],
) -> ConvertedFloats:
    """Store the float32 constants of a graph in another form.

    Args:
        convert: returns an empty string and a constant's new form, or the reason to keep it and
            None. Called from several threads for large constants.
        put: returns the nodes that replace a constant, from its new form.
    """
    skipped: Counter[str] = Counter()
    nodes: list[Node] = []
    matched = 0
    for node, result in zip(graph, _each_float(graph, transform, convert), strict=True):
        reason, stored = result or ("", None)
        if stored is not None:
            matched += 1
            nodes += put(node, stored)
            continue
        nodes.append(node)
        if reason:
            skipped[reason] += 1
    return ConvertedFloats(graph.with_nodes(nodes) if matched else graph, matched, skipped)


def _each_float(
    graph: Graph, transform: str, convert: Callable[[Node, Tensor], _Result]
) -> list[_Result | None]:
    """Return the result of ``convert`` for each float32 constant, and None for other nodes."""
    # By position, because a graph may have two nodes with the same name.
    values = [float_value(node, transform) for node in graph]
    large = [at for at, value in enumerate(values) if value is not None and value.size >= _LARGE]

    def converted(at: int) -> _Result | None:
        value = values[at]
        return None if value is None else convert(graph.nodes[at], value)

    def converted_large(at: int) -> _Result | None:
        result, value = converted(at), values[at]
        if value is not None:
            value.let_go()
        return result

    done = dict(zip(large, at_once(converted_large, large), strict=True))
    return [done[at] if at in done else converted(at) for at in range(len(values))]


def value_range(values: Array) -> tuple[np.float32, np.float32]:
    """Return the minimum and maximum of a non-empty float32 array; NaN if it contains NaN."""
    return values.min(), values.max()


class Replacements(Struct, frozen=True, dict=True):
    """Factory of constants that replace others of a graph.

    With ``tf115``, they have neither device nor control inputs, like in the original, except for
    control inputs that determine whether a constant in a branch or a loop runs.
    """

    graph: Graph
    tf115: bool

    def make(self, old: Node, name: str, value: Tensor) -> Node:
        """Create the constant that replaces ``old``, or one of several that do."""
        old.attr_tensor("value").let_go()
        if not self.tf115:
            return constant(name, value, old.device, old.inputs)
        return constant(name, value, inputs=self._ties(old))

    def _ties(self, old: Node) -> tuple[Ref, ...]:
        return tuple(r for r in old.inputs if r.node in self._conditional) if old.inputs else ()

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self.graph)


_LARGEST: Final = 1 << 16
_DEEPEST: Final = 32
_ELEMENTWISE: Final = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Neg", "Rsqrt", "Sqrt", "Square", "Reciprocal"}
)
_RESHAPING: Final = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims"})


class ConstantExpressions:
    """Evaluator of the constant expressions of one graph, with cached values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[str, Tensor | None] = {}

    def value(self, ref: Ref) -> Tensor | None:
        """Return the value of a tensor, or None if it is not a constant or a small expression."""
        return None if ref.index else self._value(ref.node, 0)

    def unused(self, graph: Graph, names: Iterable[str], protected: Collection[str]) -> set[str]:
        """Return the constant nodes that are no longer needed.

        Args:
            names: the nodes that lost a consumer; their exclusive inputs are checked as well.
        """

        def stays(node: Node) -> bool:
            return node.name in protected or (node.op != "Const" and node.name not in self._values)

        return unused(graph, names, stays)

    def _value(self, name: str, depth: int) -> Tensor | None:
        if name not in self._values:
            self._values[name] = self._computed(name, depth)
        return self._values[name]

    def _computed(self, name: str, depth: int) -> Tensor | None:
        node = self._graph.get(name)
        if node is None:
            return None
        if node.op == "Const":
            return node.attr_tensor("value")
        if (node.op not in _ELEMENTWISE and node.op not in _RESHAPING) or depth == _DEEPEST:
            return None
        inputs: list[Tensor] = []
        for ref in node.data_inputs:
            value = None if ref.index else self._value(ref.node, depth + 1)
            if value is None:
                return None
            inputs.append(value)
        return _evaluated(node, inputs)


def _evaluated(node: Node, inputs: list[Tensor]) -> Tensor | None:
    if node.op == "Identity" and len(inputs) == 1:
        return inputs[0]
    try:
        if node.op in _ELEMENTWISE:
            # Two small constants may broadcast to a huge one.
            sizes = np.broadcast_shapes(*(t.shape for t in inputs))
            if int(np.prod(sizes, dtype=np.float64)) > _LARGEST:
                return None
        with np.errstate(all="ignore"):
            return evaluate_node(node, inputs)[0]
    except (InvalidGraphError, UnsupportedError, ValueError):
        # Not reported here: running the node will report the error.
        return None
