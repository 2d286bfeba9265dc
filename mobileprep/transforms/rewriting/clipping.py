"""The range of weights that loses least to rounding and clipping, for a number of bits."""

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
"""Sixteen bins for a step of 8 bits: a bin hides a thousandth of the rounding error."""
_SHARES: Final = np.linspace(1.0, 0.02, 50).tolist()
_COARSE: Final = np.geomspace(1.0, 0.02, 16).tolist()
_ROUNDS: Final = 2
_BLOCK: Final = 1 << 18
_CODES: Final = 1 << 8
_MANY: Final = 4 * _CODES
# Of Python: a numpy number would have the width of a range cast to its own type.
_LEAST_WIDTH: Final = float(np.finfo(np.float32).tiny)
# Within such a range the sum and the difference of two float32 numbers are finite.
_MOST_WIDTH: Final = float(np.finfo(np.float32).max) / 2


def best_range(values: Array, bits: int) -> tuple[float, float]:
    """The range with the least mean squared error of weights that are stored in few bits.

    The range holds zero and ``2 ** bits - 1`` equal steps, and what lies outside of it takes its
    ends. Errors are measured over a histogram.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019), which minimizes the same error over symmetric ranges.

    Args:
        bits: 2 to 8.
    """
    low, high = range_with_zero(values)
    if not high - low > _LEAST_WIDTH:
        return low, high
    # numpy looks for the bins in the type of the values.
    wide = values if high - low < _MOST_WIDTH else values.astype(np.float64)
    counts, edges = np.histogram(wide, _BINS, (low, high))
    used = counts > 0
    centres, counts = ((edges[:-1] + edges[1:]) / 2)[used], counts[used]

    def error(limits: tuple[float, float]) -> float:
        return _error(centres, counts, limits, bits)

    # Both ends at once first: moving one alone gains nothing where the other decides the step.
    best = min(((low * a, high * b) for a in _COARSE for b in _COARSE), key=error)
    for _ in range(_ROUNDS):
        best = min(((low * share, best[1]) for share in _SHARES), key=error)
        best = min(((best[0], high * share) for share in _SHARES), key=error)
    whole = (low, high)
    gains = rounding_error(values, best, bits) < rounding_error(values, whole, bits)
    return best if gains else whole


def range_with_zero(values: Array) -> tuple[float, float]:
    """From the least to the greatest of some floats, or to zero where that lies outside."""
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def rounded(values: Array, limits: tuple[float, float], bits: int) -> Array:
    """Weights as they come back from few bits, in double precision.

    They are multiples of the step, as Dequantize by the rule MIN_FIRST gives them.
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
    """The sum of the squared errors of weights that are stored in few bits."""
    flat = values.reshape(-1)
    blocks = (flat[i : i + _BLOCK] for i in range(0, flat.size, _BLOCK))
    return sum(float(np.square(rounded(b, limits, bits) - b).sum()) for b in blocks)


def _error(centres: Array, counts: Array, limits: tuple[float, float], bits: int) -> float:
    return float((np.square(rounded(centres, limits, bits) - centres) * counts).sum())


def has_few_values(values: Array) -> bool:
    """Whether many weights have so few different values that 8 bits were enough for them before."""
    flat = values.reshape(-1)
    if flat.size < _MANY or np.unique(flat[:_MANY]).size > _CODES:
        return False
    return np.unique(flat).size <= _CODES


# Of the zero point, that is a few thousandths of a step: more than single precision rounds by.
_WIDER: Final = np.float32(1 + 2.0**-16)


class EightbitConstant(Struct, frozen=True):
    """Eight-bit elements, and the numbers that 0 and 255 stand for."""

    values: NDArray[np.uint8]
    low: np.float32
    high: np.float32

    def decoded(self) -> NDArray[np.float32]:
        """The floats that Dequantize gives for them, to the bit."""
        return Dequantizer.of(Limits(self.low, self.high), self.values.dtype)(self.values)


def eightbit_constant(values: Array, *, tf115: bool = False) -> EightbitConstant | None:
    """A float32 constant in eight bits; None where its range is not finite.

    The range holds zero. Where it is too narrow for Dequantize, as that of nothing but zeros, it
    is 0 to 1. Where zero lies halfway between two steps, as in the range from -x to x, what stores
    and what decodes may round it to different ones, and all floats come back one step off: the
    range is made wider by a 65,536th then.

    Args:
        tf115: as TensorFlow 1.15 has it, with floats one step off.

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
    """Whether zero comes back as zero."""
    zero = np.zeros(1, np.float32)
    stored = EightbitConstant(to_quint8(zero, low, high), low, high)
    return not stored.decoded().any()


# The original starts looking for a maximum here: it takes the least positive normal number of
# C++ for the most negative one.
LEAST_MAXIMUM: Final = np.finfo(np.float32).tiny
# To hand a constant of fewer elements to another thread takes longer than its arithmetic.
_LARGE: Final = 1 << 14

_Result = TypeVar("_Result")
_Stored = TypeVar("_Stored")


def float_value(node: Node, transform: str) -> Tensor | None:
    """The value of a float32 constant, or None for any other node."""
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
        graph: the graph; the one that was given where nothing was converted.
        matched: how many constants were converted.
        skipped: how many float constants were left as they are, by reason.
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
        convert: gives a constant's new form, or None and why it stays as it is. Called in several
            threads for large ones.
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
    """What ``convert`` gives for each node that is a float32 constant; None for the others."""
    # By place, for a graph may have two nodes of one name.
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
    """The least and the greatest of float32 values, of which there must be one; NaN if one is."""
    return values.min(), values.max()


class Replacements(Struct, frozen=True, dict=True):
    """Makes constants that stand in for others of a graph.

    With ``tf115`` they have neither device nor control inputs, as the original's have none. Those
    that decide whether a constant exists, in a branch or a loop, have to stay.
    """

    graph: Graph
    tf115: bool

    def make(self, old: Node, name: str, value: Tensor) -> Node:
        """The constant that replaces ``old``, or is one of several that do."""
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
    """Works out the constants of one graph, each once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[str, Tensor | None] = {}

    def value(self, ref: Ref) -> Tensor | None:
        """The value of a tensor, or None where it is no constant, or no small expression."""
        return None if ref.index else self._value(ref.node, 0)

    def unused(self, graph: Graph, names: Iterable[str], protected: Collection[str]) -> set[str]:
        """Which nodes of constants are not needed any more.

        Args:
            names: the nodes that lost a consumer; what they alone needed is looked at as well.
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
            # Two small constants may make a huge one between them.
            sizes = np.broadcast_shapes(*(t.shape for t in inputs))
            if int(np.prod(sizes, dtype=np.float64)) > _LARGEST:
                return None
        with np.errstate(all="ignore"):
            return evaluate_node(node, inputs)[0]
    except (InvalidGraphError, UnsupportedError, ValueError):
        # Not what this is after: whoever runs the node will say what is wrong with it.
        return None
