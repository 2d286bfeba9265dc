"""Replace float ops with the original tool's 8-bit ops, and merge conversions between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from functools import cached_property, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import input_types, output_types, signature_of
from mobileprep.graph.pattern import Match, NodeMatch, OpTypePattern, op
from mobileprep.graph.reachability import closure, conditional_nodes, dependents
from mobileprep.graph.refs import FreshNames, Ref, control, edge
from mobileprep.graph.rewrite import Renames, Rewritten, Rule, rename_inputs, rewrite
from mobileprep.ops.nn.conv import has_channel_groups
from mobileprep.ops.quantized.arithmetic import always_align
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of
from mobileprep.transforms.quantize_nodes.nodes import QINT32, QUINT8
from mobileprep.transforms.rewriting.layers import layout

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
    fallback: tuple[float, float] | None,
    tied: Container[str] | None,
    empty: Container[str] = frozenset(),
) -> list[Node]:
    """Return the nodes that compute a float node in 8 bits.

    Its inputs are quantized with their ranges at run time, and its result is converted to float
    under the node's own name.

    Args:
        fallback: the range of 32-bit results, which is measured at run time without it.
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
    main: str, names: FreshNames, fallback: tuple[float, float] | None, *, with_zero: bool
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
    lowest = make.scalar(names.name(f"{main}/fallback_min"), fallback[0])
    highest = make.scalar(names.name(f"{main}/fallback_max"), fallback[1])
    name = names.name(f"{main}/requantize")
    narrow = make.requantize(name, main, Ref(lowest.name), Ref(highest.name))
    return [lowest, highest, narrow]


def _as_name(ref: Ref) -> str:
    """Return a tensor's name as part of a node's name."""
    return f"{ref.node}__port__{ref.index}" if ref.index or ref.explicit else ref.node


# Ops with results of a size that is only known at run time, and may be zero.
_SIZED_BY_DATA: Final = frozenset(
    {
        *("BooleanMask", "DynamicPartition", "ListDiff", "NonMaxSuppression", "Unique", "Where"),
        *(f"NonMaxSuppressionV{version}" for version in range(2, 6)),
        *("NonMaxSuppressionWithOverlaps", "SetDiff1D", "UniqueV2", "UniqueWithCounts"),
    }
)
_BROADCASTING: Final = frozenset({"Add", "Mul"})


def may_be_empty(graph: Graph) -> frozenset[str]:
    """Return the nodes in branches and loops, and those with data-dependent sizes."""
    sized = [n.name for n in graph if n.op in _SIZED_BY_DATA]
    return conditional_nodes(graph) | dependents(graph, sized)


class WouldRun:
    """Checks of the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _shapes(self) -> Mapping[str, Shapes]:
        return infer_shapes(self._graph)

    def reason_not(self, node: Node) -> str:
        """Return why a node's 8-bit form would fail or differ, or an empty string."""
        if node.op in _BROADCASTING and not self._aligns(*node.data_inputs):
            return "its eight-bit form may not be able to broadcast its inputs"
        if node.op == "Conv2D" and has_channel_groups(node, self._shapes):
            return "groups of channels have no 8-bit form"
        return self._reason_windows_differ(node) if node.op == "Conv2D" else ""

    def as_original(self, node: Node) -> Node:
        """Return the equivalent node of an older op with an 8-bit form, or the node itself."""
        if node.op == "AddV2":
            return replace(node, op="Add")
        if node.op != "ConcatV2" or len(node.data_inputs) < 3:
            return node
        *parts, axis = node.data_inputs
        along = None if axis.index else constant_behind(self._graph, axis)
        if along is None or along.size != 1 or int(along.array().reshape(-1)[0]) < 0:
            return node
        inputs = (axis, *parts, *node.control_inputs)
        return replace(node, op="Concat", inputs=inputs).without_attrs("Tidx")

    def _reason_windows_differ(self, conv: Node) -> str:
        """Return why the 8-bit form may place its windows differently, or an empty string.

        It has one stride for both axes. If strides skip pixels at the end of an axis, it skips as
        many at the beginning, which makes a difference from two pixels on.
        """
        strides = conv.attr_ints("strides")
        if len(strides) != 4 or strides[1] != strides[2] or strides[0] != 1 or strides[3] != 1:
            return "unequal strides have no 8-bit form"
        stride = strides[1]
        if conv.attr_str("padding") == "VALID":
            fits = stride <= 3
        else:
            fits = self._filter_size(conv) >= stride - 1
        return "" if fits else "the windows of its eight-bit form may lie elsewhere"

    def _filter_size(self, conv: Node) -> int:
        """Return the smaller of a filter's height and width; 1 if unknown."""
        shape = shape_of(self._shapes, conv.data_inputs[1])
        return max(min(shape[:2]), 1) if shape is not None and len(shape) == 4 else 1

    def _aligns(self, x: Ref, y: Ref) -> bool:
        shapes = (shape_of(self._shapes, ref) for ref in (x, y))
        return edge(x) == edge(y) or always_align(*shapes)


_MEASURED: Final = op(
    "Requantize",
    op("*", label="source"),
    "*",
    "*",
    "RequantizationRange",
    "RequantizationRange",
)
_REQUANTIZED_TWICE: Final = op(
    "Requantize",
    op(
        "QuantizeV2",
        op("Dequantize", _MEASURED, "Requantize", "Requantize"),
        "Const",
        "Const",
    ),
    "QuantizeV2",
    "QuantizeV2",
    op("Const", label="min"),
    op("Const", label="max"),
)
_WITH_ZERO: Final = frozenset({"Minimum", "Maximum"})
_DEQUANTIZED_AND_BACK: Final = op(
    "QuantizeV2", op("Dequantize", label="float"), "Min|Minimum", "Max|Maximum"
)


def merge_adjacent_requantizes(graph: Graph, protected: Collection[str], *, borrow: bool) -> Graph:
    """Replace a range measured at run time with a learned range directly after it.

    Args:
        borrow: allow several matches to share the constants of the range.

    Source: ``MergeAdjacentRequantizes`` of TensorFlow 1.15's graph transforms.
    """
    pattern = _REQUANTIZED_TWICE.borrowing("min", "max") if borrow else _REQUANTIZED_TWICE
    return rewrite(graph, Rule(pattern, _requantized_once), protected).graph


def remove_redundant_quantizations(graph: Graph, protected: Collection[str]) -> Graph:
    """Connect 8-bit ops directly if there is only a conversion to float and back between them.

    The conversions are kept if other nodes need the floats. Source:
    ``RemoveRedundantQuantizations`` of TensorFlow 1.15's graph transforms.
    """
    renames = Renames()

    def connect(match: Match) -> list[Node]:
        back, eightbit = match.node, match["float"].inputs
        if back.name in protected:
            return list(match.nodes)
        for index, source in enumerate(eightbit[:3]):
            renames.tensor(make.port(back.name, index), source)
        renames.tensor(control(back.name), control(eightbit[0].node))
        needed = match.used_outside - {back.name}
        return list(match.nodes) if needed else []

    rule = Rule(_DEQUANTIZED_AND_BACK, connect, _reason_to_keep, allow_inconsistencies=True)
    return rename_inputs(rewrite(graph, rule, protected).graph, renames)


def _requantized_once(match: Match) -> list[Node]:
    source, low, high = match["source"], match["min"], match["max"]
    inputs = (*make.ports(source.name), *match.node.inputs[3:])
    # The original spells the constants without an output number, as in the inputs.
    return [source, low, high, replace(match.node, inputs=inputs)]


def _reason_to_keep(match: Match) -> str:
    back, floats = match.node, match["float"]
    if back.attr_dtype("T") is not floats.attr_dtype("T"):
        return "the integers are of another type"
    ends = [m.node for m in match.root.inputs[1:]]
    if any(n.op in _WITH_ZERO and not make.holds_zero(n.name) for n in ends):
        return "its range is not measured"
    if back.attr_str("mode", "") != floats.attr_str("mode", ""):
        return "the integers are of another mode"
    return ""


_FAKE_QUANT: Final = "FakeQuantWithMinMaxVars"
_LONGEST_HOIST: Final = 3

# Rounding to the steps of a range can be done before or after these ops.
_MOVABLE: Final = frozenset(
    {
        *("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot"),
        *("Relu", "Relu6", "MaxPool", "AvgPool", "Squeeze"),
        *("BatchToSpace", "SpaceToBatch", "DepthToSpace", "SpaceToDepth"),
    }
)


def hoist(graph: Graph, protected: Collection[str], *, borrow: bool) -> Graph:
    """Move fake quantizations up through one to three single-input ops, to the wide results.

    Args:
        borrow: allow several fake quantizations to share constants and inputs. The original moves
            only one of them.

    Source: ``HoistFakeQuants`` of TensorFlow 1.15's graph transforms.
    """
    for length in range(_LONGEST_HOIST, 0, -1):
        pattern = _chain(length)
        if borrow:
            pattern = pattern.borrowing("min", "max", "source")
        hoisted = partial(_hoisted, FreshNames(graph.by_name))
        graph = rewrite(graph, Rule(pattern, hoisted, _reason_not_to_hoist), protected).graph
    return graph


def convert(graph: Graph, protected: Collection[str], *, borrow: bool) -> Rewritten:
    """Replace fake quantizations with quantization, requantization, and dequantization.

    The arguments are those of ``hoist``. Source: ``ConvertFakeQuantsToRequantize`` of TensorFlow
    1.15's graph transforms.
    """
    pattern = _fake_quant(op("*", label="source"))
    if borrow:
        pattern = pattern.borrowing("min", "max", "source")
    converted = partial(_converted, FreshNames(graph.by_name))
    return rewrite(graph, Rule(pattern, converted, _reason_not_to_convert), protected)


def _fake_quant(source: OpTypePattern) -> OpTypePattern:
    return op(_FAKE_QUANT, source, op("Const", label="min"), op("Const", label="max"))


def _chain(length: int) -> OpTypePattern:
    pattern = op("*", label="source")
    for _ in range(length):
        pattern = op("*", pattern)
    return _fake_quant(pattern)


def _links(match: Match) -> list[Node]:
    """Return the single-input nodes of a chain, the last one first."""
    links: list[Node] = []
    below: NodeMatch = match.root.inputs[0]
    while below.inputs:
        links.append(below.node)
        below = below.inputs[0]
    return links


def _reason_not_to_hoist(match: Match) -> str:
    links = _links(match)
    if any(n.op not in _MOVABLE for n in links):
        return "an op before the fake quantization changes its range"
    # Other consumers would get values that are rounded and clipped to a range not their own.
    if not match.used_outside.isdisjoint(n.name for n in links):
        return "a node before the fake quantization is used elsewhere"
    return ""


def _hoisted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant = match.node
    links = _links(match)
    name = names.name(f"{fake_quant.name}_hoisted")
    earlier = replace(fake_quant, name=name, inputs=(links[-1].inputs[0], *fake_quant.inputs[1:]))
    links[-1] = replace(links[-1], inputs=(Ref(name), *links[-1].inputs[1:]))
    links[0] = replace(links[0], name=fake_quant.name)
    return [earlier, match["min"], match["max"], *links, match["source"]]


def _reason_not_to_convert(match: Match) -> str:
    low, high = (match[label].attr_tensor("value") for label in ("min", "max"))
    if low.size != 1 or high.size != 1:
        return "the range of the fake quantization is not a pair of numbers"
    least, greatest = float(low.array().reshape(-1)[0]), float(high.array().reshape(-1)[0])
    if not (least <= 0 and least < greatest):
        # Requantize fails at run time with such a range.
        return "the range of the fake quantization is empty or above zero"
    return ""


def _converted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant, low, high = match.node, match["min"], match["max"]
    prefix = f"{fake_quant.name}_eightbit"
    name = names.name(f"{prefix}/quantize")
    wide = make.quantize(name, fake_quant.inputs[0], low.name, high.name, QINT32)
    name = names.name(f"{prefix}/requantize")
    narrow = make.requantize(name, wide.name, Ref(low.name), Ref(high.name))
    result = make.dequantize(fake_quant.name, make.ports(narrow.name))
    wide = replace(wide, inputs=wide.inputs + fake_quant.control_inputs)
    return [match["source"], low, high, wide, narrow, result]
