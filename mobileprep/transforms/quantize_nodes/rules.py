"""Rules that select the nodes to quantize and their settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import input_types, output_types, signature_of
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.ops.numerics.ranges import ChannelMethod
from mobileprep.ops.numerics.regular_expressions import compiled
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.nodes import QINT32, QUINT8
from mobileprep.transforms.quantize_nodes.weights import Granularity, WeightSettings
from mobileprep.transforms.quantize_nodes.would_run import WouldRun
from mobileprep.transforms.rewriting.layers import layout

Mode: TypeAlias = Literal["nodes", "weights", "float"]

_KEYS: Final = ("mode", "bits", "granularity", "method", "percentile", "ops", "nodes")
_CHOICES: Final = {
    "mode": get_args(Mode),
    "granularity": get_args(Granularity),
    "method": get_args(ChannelMethod),
    "bits": ("2", "3", "4", "5", "6", "7", "8"),
}
_LEAST_PERCENTILE: Final = 50
_MOST_PERCENTILE: Final = 100
_HINT: Final = "write it as 'mode=float ops=Conv2D,MatMul nodes=REGEX', blanks between"
# Ops with an 8-bit form. For other ops, a rule without a mode only stores the weights in 8 bits.
_EIGHTBIT: Final = frozenset({"Conv2D", "MatMul"})


class Settings(Struct, frozen=True):
    """Quantization settings of a layer.

    Args:
        mode: ``nodes`` computes in 8 bits, ``weights`` only stores the weights in 8 bits, and
            ``float`` does neither.
        weights: how its weights are quantized.
    """

    mode: Mode
    weights: WeightSettings = field(default_factory=WeightSettings)


class LayerRule(Struct, frozen=True):
    """Settings for some nodes; None means that the rule does not set a value.

    Args:
        nodes: a regular expression to search for in node names.
        ops: matching ops, or empty for all.
        mode: see ``Settings``.
        bits: see ``WeightSettings``.
        granularity: see ``WeightSettings``.
        method: see ``WeightSettings``.
        percentile: see ``WeightSettings``.
    """

    nodes: str = ""
    ops: tuple[str, ...] = ()
    mode: Mode | None = None
    bits: int | None = None
    granularity: Granularity | None = None
    method: ChannelMethod | None = None
    percentile: float | None = None

    def fits(self, node: Node) -> bool:
        """Return whether the rule applies to a node."""
        if self.ops and node.op not in self.ops:
            return False
        return not self.nodes or compiled(self.nodes.encode()).is_in(node.name.encode())


class Rules:
    """Rules in the order of their definition; the last one that matches a node applies.

    Args:
        transform: the name of the transform, for errors.
        texts: one rule per string: ``key=value`` words separated by spaces.
        eightbit: ops that compute in 8 bits with a rule that does not set a mode.

    Raises:
        TransformError: a rule is invalid.
    """

    def __init__(
        self, transform: str, texts: Sequence[str], eightbit: frozenset[str] = _EIGHTBIT
    ) -> None:
        self._transform = transform
        self._eightbit = eightbit
        self._rules = [_parsed(transform, text) for text in texts]

    def settings(self, node: Node) -> Settings:
        """Return the settings of a layer."""
        fitting = [rule for rule in self._rules if self._fits(rule, node)]
        return Settings("nodes") if not fitting else self._by_rule(node, fitting[-1])

    def decide(self, node: Node) -> bool:
        """Return whether any rule applies to a node."""
        return any(self._fits(rule, node) for rule in self._rules)

    def _by_rule(self, node: Node, rule: LayerRule) -> Settings:
        details = {
            name: value
            for name in ("bits", "granularity", "method", "percentile")
            if (value := getattr(rule, name)) is not None
        }
        # A rule that only sets details implies that the layer is quantized.
        mode = rule.mode or ("nodes" if node.op in self._eightbit else "weights")
        return Settings(mode, WeightSettings(**details))

    def _fits(self, rule: LayerRule, node: Node) -> bool:
        try:
            return rule.fits(node)
        except UnsupportedError as error:
            raise refuse(self._transform, error.message, error.hint) from error


def _parsed(transform: str, text: str) -> LayerRule:
    options: dict[str, Any] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key not in _KEYS or not (equals and value) or key in options:
            message = f"the rule {text!r} has the word {word!r}, which is not understood"
            raise refuse(transform, message, nearest_hint(key, _KEYS) or _HINT)
        allowed = _CHOICES.get(key, (value,))
        if value not in allowed:
            message = f"the rule {text!r} gives {key} the value {value!r}"
            raise refuse(transform, message, f"one of {', '.join(allowed)}")
        options[key] = value
    if not options.keys() - {"nodes", "ops"}:
        raise refuse(transform, f"the rule {text!r} has no effect", _HINT)
    _check_expression(transform, options.get("nodes", ""))
    if "bits" in options:
        options["bits"] = int(options["bits"])
    if "percentile" in options:
        options["percentile"] = _percentile(transform, text, options)
    options["ops"] = tuple(filter(None, options.get("ops", "").split(",")))
    return LayerRule(**options)


def _percentile(transform: str, text: str, options: Mapping[str, str]) -> float:
    try:
        value = float(options["percentile"])
    except ValueError:
        value = math.nan
    if not _LEAST_PERCENTILE <= value <= _MOST_PERCENTILE:
        message = f"the rule {text!r} gives percentile the value {options['percentile']!r}"
        raise refuse(transform, message, "a number from 50 to 100")
    if options.get("method") != "percentile":
        message = f"the rule {text!r} gives percentile without its method"
        raise refuse(transform, message, "write method=percentile as well")
    return value


def _check_expression(transform: str, nodes: str) -> None:
    try:
        compiled(nodes.encode())
    except (ValueError, UnsupportedError) as error:
        raise refuse(transform, str(error), "fix the regular expression of the rule") from error


# Ops that compute enough to justify converting their inputs.
_HEAVY: Final = frozenset({"Conv2D", "MatMul"})
_ALONE: Final = "no eight-bit op feeds it, so that converting would cost more than it saves"


class Choice(Struct, frozen=True):
    """Nodes to convert, by name and in the form to convert, and counts of float nodes by reason."""

    nodes: Mapping[str, Node]
    skipped: Counter[str]


def choose(graph: Graph, ignored: Collection[str], *, all_possible: bool) -> Choice:
    """Choose the nodes of a graph that compute in 8 bits.

    Args:
        all_possible: choose every node that has an 8-bit form, like the original. It replaces each
            with at least seven nodes, so a graph of small ops becomes many times larger. Otherwise,
            only convolutions, matrix products, and the ops after them are chosen.
    """
    skipped: Counter[str] = Counter()
    possible: dict[str, Node] = {}
    runs = None if all_possible else WouldRun(graph)
    for original in graph:
        if original.op in ignored:
            continue
        node = original if runs is None else runs.as_original(original)
        if node.op not in EIGHTBIT_OPS:
            continue
        reason = reason_to_stay_float(node) or ("" if runs is None else runs.reason_not(node))
        if reason:
            skipped[reason] += 1
        else:
            possible[node.name] = node
    names = set(possible) if all_possible else _fed_by_eightbit(graph, possible)
    if len(names) < len(possible):
        skipped[_ALONE] += len(possible) - len(names)
    return Choice({name: node for name, node in possible.items() if name in names}, skipped)


def _fed_by_eightbit(graph: Graph, possible: Collection[str]) -> set[str]:
    """Return the compute-heavy nodes, and those that a chain of 8-bit nodes leads to."""
    starts = [n.name for n in graph if n.op in _HEAVY and n.name in possible]
    starts += [n.name for n in graph if n.op == "Dequantize" and not _is_constant(graph, n)]

    def fed(name: str) -> Iterator[str]:
        return (c.name for c in graph.consumers.get(name, ()) if c.name in possible)

    return closure(starts, fed).intersection(possible)


def _is_constant(graph: Graph, node: Node) -> bool:
    return all(graph[r.node].op == "Const" for r in node.data_inputs)


class EightbitOp(Struct, frozen=True):
    """Conversion of an op to its 8-bit form, which is named ``Quantized`` and the op.

    Args:
        copied: attributes that both forms have.
        types: type attributes of the 8-bit form.
        widens: whether it outputs 32-bit integers, which must be requantized to 8 bits.
        plain_inputs: indices of inputs that are not floats, such as shapes.
        ranges_apart: whether all minimums come before all maximums, instead of in pairs.
    """

    copied: tuple[str, ...] = ()
    types: tuple[tuple[str, AttrValue], ...] = ()
    widens: bool = False
    plain_inputs: frozenset[int] = frozenset()
    ranges_apart: bool = False


def _types(*names: str, out: str = "") -> tuple[tuple[str, AttrValue], ...]:
    eightbit = tuple((name, QUINT8) for name in names)
    return (*eightbit, (out, QINT32)) if out else eightbit


_POOL: Final = EightbitOp(("ksize", "strides", "padding"), _types("T"))
_SUM: Final = EightbitOp((), _types("T1", "T2", out="Toutput"), widens=True)
_CONV2D: Final = _types("Tinput", "Tfilter", out="out_type")
_MATMUL: Final = _types("T1", "T2", out="Toutput")

EIGHTBIT_OPS: Final[Mapping[str, EightbitOp]] = {
    "Add": _SUM,
    "AvgPool": _POOL,
    "BiasAdd": EightbitOp((), _types("T1", "T2", out="out_type"), widens=True),
    "Concat": EightbitOp(("N",), _types("T"), plain_inputs=frozenset({0}), ranges_apart=True),
    "Conv2D": EightbitOp(("strides", "padding"), _CONV2D, widens=True),
    "MatMul": EightbitOp(("transpose_a", "transpose_b"), _MATMUL, widens=True),
    "MaxPool": _POOL,
    "Mul": _SUM,
    "Relu": EightbitOp((), _types("Tinput")),
    "Relu6": EightbitOp((), _types("Tinput")),
    "Reshape": EightbitOp((), _types("T"), plain_inputs=frozenset({1})),
    "ResizeBilinear": EightbitOp(("align_corners",), _types("T"), plain_inputs=frozenset({1})),
}


class Fallback(Struct, frozen=True):
    """Fixed range of 32-bit results, used instead of measuring it at run time."""

    low: float
    high: float


def reason_to_stay_float(node: Node) -> str:
    """Return why a node of an op with an 8-bit form must stay float, or an empty string."""
    definition = signature_of(node)
    if definition is None:
        return "its op is not known"
    plain = EIGHTBIT_OPS[node.op].plain_inputs
    dtypes = input_types(node, definition)
    if len(dtypes) != len(node.data_inputs):
        return "it does not have the inputs of its op"
    types = [t for i, t in enumerate(dtypes) if i not in plain]
    if any(t is not DType.FLOAT for t in (*types, *output_types(node, definition))):
        return "it is not a float32 op"
    if "data_format" in node.attrs and layout(node) != "NHWC":
        return "channels first has no 8-bit form"
    if node.op == "MaxPool" and node.attr_ints("ksize")[-1] != 1:
        return "this axis has no 8-bit form"
    if any(d != 1 for d in node.attr_ints("dilations", (1,))):
        return "dilations have no 8-bit form"
    if "padding" in node.attrs and node.attr_str("padding") not in ("SAME", "VALID"):
        return "explicit padding has no 8-bit form"
    return ""


def takes_one_twice(node: Node) -> bool:
    """Return whether two of a node's float inputs are the same tensor, spelled the same way."""
    plain = EIGHTBIT_OPS[node.op].plain_inputs
    floats = [_as_name(ref) for i, ref in enumerate(node.data_inputs) if i not in plain]
    return len(set(floats)) < len(floats)


def eightbit_nodes(
    node: Node,
    names: FreshNames,
    fallback: Fallback | None,
    tied: Container[str] | None,
    empty: Container[str] = frozenset(),
) -> list[Node]:
    """Return the nodes that compute a float node in 8 bits.

    Its inputs are quantized with their ranges at run time, and its result is converted to float
    under the node's own name.

    Args:
        tied: the nodes whose constants need control inputs, or None for all.
        empty: the nodes whose tensors may be empty, so that their ranges are extended to zero.
    """
    kind = EIGHTBIT_OPS[node.op]
    nodes: list[Node] = []
    by_prefix: dict[str, str] = {}
    quantized: list[str] = []
    values: list[Ref] = []
    for i, ref in enumerate(node.data_inputs):
        if i in kind.plain_inputs:
            values.append(ref)
            continue
        prefix = f"{node.name}_eightbit/{_as_name(ref)}"
        if prefix not in by_prefix:
            tie, with_zero = tied is None or ref.node in tied, ref.node in empty
            nodes += make.quantized_input(names, prefix, ref, tied=tie, with_zero=with_zero)
            by_prefix[prefix] = nodes[-1].name
        quantized.append(by_prefix[prefix])
        values.append(make.port(by_prefix[prefix], 0))
    inputs = (*values, *_ranges(quantized, apart=kind.ranges_apart), *node.control_inputs)
    name = names.name(f"{node.name}/eightbit")
    main = Node(name, f"Quantized{node.op}", inputs, attrs=eightbit_attrs(node))
    nodes.append(main)
    result = main
    if kind.widens:
        nodes += _narrowed(main.name, names, fallback, with_zero=node.name in empty)
        result = nodes[-1]
    nodes.append(make.dequantize(node.name, make.ports(result.name)))
    return nodes


def eightbit_attrs(node: Node) -> dict[str, AttrValue]:
    """Return the attributes of a node's 8-bit form."""
    kind = EIGHTBIT_OPS[node.op]
    attrs = {name: node.attrs[name] for name in kind.copied if name in node.attrs}
    attrs.update(kind.types)
    # The original always resets these two to their defaults.
    if node.attr_bool("half_pixel_centers", False):
        attrs["half_pixel_centers"] = attr.boolean(True)
    if node.op == "Reshape" and node.attr_dtype("Tshape", DType.INT32) is not DType.INT32:
        attrs["Tshape"] = node.attribute("Tshape")
    return attrs


def _ranges(quantized: list[str], *, apart: bool) -> list[Ref]:
    if apart:
        return [make.port(name, index) for index in (1, 2) for name in quantized]
    return [make.port(name, index) for name in quantized for index in (1, 2)]


def _narrowed(
    main: str, names: FreshNames, fallback: Fallback | None, *, with_zero: bool
) -> list[Node]:
    """Requantize 32-bit results to 8 bits; the last node has the result."""
    if fallback is None:
        measured = make.requantization_range(names.name(f"{main}/requant_range"), main)
        low, high = make.port(measured.name, 0), make.port(measured.name, 1)
        held: list[Node] = []
        if with_zero:
            # The measured range of an empty result is reversed.
            held = make.held_by_zero(names, measured.name, low, high)
            low, high = Ref(held[-2].name), Ref(held[-1].name)
        name = names.name(f"{main}/requantize")
        return [measured, *held, make.requantize(name, main, low, high)]
    lowest = make.scalar(names.name(f"{main}/fallback_min"), fallback.low)
    highest = make.scalar(names.name(f"{main}/fallback_max"), fallback.high)
    name = names.name(f"{main}/requantize")
    narrow = make.requantize(name, main, Ref(lowest.name), Ref(highest.name))
    return [lowest, highest, narrow]


def _as_name(ref: Ref) -> str:
    """Return a tensor's name as part of a node's name."""
    return f"{ref.node}__port__{ref.index}" if ref.index or ref.explicit else ref.node
