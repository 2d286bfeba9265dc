"""The float ops that have an eight-bit form, and the nodes that take the place of one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.opdefs.signatures import input_types, output_types, signature_of
from mobileprep.rewriting.layers import layout
from mobileprep.transforms.quantize_nodes.nodes import QINT32, QUINT8


@dataclass(frozen=True)
class EightbitOp:
    """How an op is turned into its eight-bit form, which is named ``Quantized`` and the op.

    Args:
        copied: attributes that both forms have.
        types: type attributes of the eight-bit form.
        widens: whether it puts out 32-bit integers, which have to be brought back to eight bits.
        plain_inputs: inputs that are no floats, such as shapes.
        ranges_apart: whether all minimums come before all maximums, and not pair by pair.
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


@dataclass(frozen=True)
class Fallback:
    """The range that 32-bit results are brought to, where it is not measured at run time."""

    low: float
    high: float


def reason_to_stay_float(node: Node) -> str:
    """Why a node of an op with an eight-bit form has none; empty where it has one."""
    definition = signature_of(node)
    if definition is None:
        return "its op is not known"
    plain = EIGHTBIT_OPS[node.op].plain_inputs
    taken = input_types(node, definition)
    if len(taken) != len(node.data_inputs):
        return "it does not have the inputs of its op"
    types = [t for i, t in enumerate(taken) if i not in plain]
    if any(t is not DType.FLOAT for t in (*types, *output_types(node, definition))):
        return "it is no float32 op"
    if "data_format" in node.attrs and layout(node) != "NHWC":
        return "there is no eight-bit form with channels first"
    if node.op == "MaxPool" and node.attr_ints("ksize")[-1] != 1:
        return "there is no eight-bit form along channels"
    if any(d != 1 for d in node.attr_ints("dilations", (1,))):
        return "there is no eight-bit form with dilations"
    if "padding" in node.attrs and node.attr_str("padding") not in ("SAME", "VALID"):
        return "there is no eight-bit form with explicit padding"
    return ""


def takes_one_twice(node: Node) -> bool:
    """Whether two of a node's floats are one tensor, spelt alike."""
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
    """The nodes that compute what a float node does in eight bits.

    Its inputs are quantized by the range that they have at run time, and its result becomes float
    again under the node's own name.

    Args:
        node: a node that has no ``reason_to_stay_float``.
        names: gives the names of the others.
        fallback: the range of 32-bit results, or None to measure it at run time.
        tied: the nodes that need constants of their own beside them, or None for all.
        empty: the nodes whose results may be empty, so that no range can be measured.
    """
    kind = EIGHTBIT_OPS[node.op]
    nodes: list[Node] = []
    made: dict[str, str] = {}
    quantized: list[str] = []
    values: list[Ref] = []
    for i, ref in enumerate(node.data_inputs):
        if i in kind.plain_inputs:
            values.append(ref)
            continue
        prefix = f"{node.name}_eightbit/{_as_name(ref)}"
        if prefix not in made:
            tie, with_zero = tied is None or ref.node in tied, ref.node in empty
            nodes += make.quantized_input(names, prefix, ref, tied=tie, with_zero=with_zero)
            made[prefix] = nodes[-1].name
        quantized.append(made[prefix])
        values.append(make.port(made[prefix], 0))
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
    """The attributes of a node's eight-bit form."""
    kind = EIGHTBIT_OPS[node.op]
    attrs = {name: node.attrs[name] for name in kind.copied if name in node.attrs}
    attrs.update(kind.types)
    # The original leaves these two at their defaults, whatever they were.
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
    """32-bit results to eight bits; the last node has the result."""
    if fallback is None:
        measured = make.requantization_range(names.name(f"{main}/requant_range"), main)
        low, high = make.port(measured.name, 0), make.port(measured.name, 1)
        held: list[Node] = []
        if with_zero:
            # Of an empty result, the range measured ends before it begins.
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
    """A tensor's name as part of a node's."""
    return f"{ref.node}__port__{ref.index}" if ref.index or ref.explicit else ref.node
