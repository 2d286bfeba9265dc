"""Store large float constants in 2 to 8 bits, with a scale per channel."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Final, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.batch_norms import variances
from mobileprep.transforms.rewriting.constants import convert_floats
from mobileprep.transforms.rewriting.layers import (
    LinearWeights,
    linear_weights,
    weight_axes,
    weights_stored_before,
)

_NO_SMALLER: Final = "what decodes it would take more than is saved"


@transform("linear_quantize_weights")
class LinearQuantizeWeights(Transform, frozen=True):
    """Replace float32 constants with low-bit integers and nodes that decode them.

    Layer weights have one scale per output channel, tables one per row, and other constants one in
    total. Weights that are already multiples of one step, because they were quantized before, keep
    that step. Zero is preserved. Codes of less than 8 bits are packed into bytes; codes of 3, 5, 6,
    or 7 bits are split into parts of 4, 2, and 1 bits. Decoding uses RightShift, BitwiseAnd, Cast,
    Sub, and Mul, which TensorFlow's default mobile builds include.
    """

    summary = (
        "Stores large float constants in 2 to 8 bits, with a scale for each channel, "
        "and dequantizes them with plain ops at run time."
    )

    bits: Annotated[int, Option("Number of bits of an element.", minimum=2, maximum=8)] = 8
    granularity: Annotated[
        Literal["channel", "tensor"],
        Option(
            "channel: a scale for each output channel of a layer, and for each row of a "
            "table. tensor: one for the whole constant."
        ),
    ] = "channel"
    minimum_size: Annotated[
        int, Option("Constants with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        kept_float = variances(graph)
        decoding = Decoding(graph, self.bits)
        return convert_floats(
            graph,
            self.transform_name,
            lambda node, value: self._quantized(graph, node, value, kept_float, decoding),
            decoding.nodes,
        )

    def _quantized(
        self, graph: Graph, node: Node, value: Tensor, kept_float: Container[str], to: Decoding
    ) -> LinearWeights | str:
        """Return a constant in few bits, or the reason to keep it."""
        if value.size < max(self.minimum_size, 1):
            return "fewer elements than minimum_size"
        if node.name in kept_float:
            return "a variance, where small values weigh the most"
        values = value.array()
        if not np.isfinite(values).all():
            return "it holds infinity or NaN"
        axes = weight_axes(graph, node) if self.granularity == "channel" else ()
        stored = weights_stored_before(values, self.bits)
        weights = linear_weights(values, axes, self.bits) if stored is None else stored
        return _NO_SMALLER if to.size(node, weights) >= value.nbytes else weights


_BYTE: Final = 8
_PARTS: Final = (4, 2, 1)
_NODE: Final = 100
"""Approximate size of a node in bytes, without its names and elements."""

_UINT8: Final = {"T": attr.dtype(DType.UINT8)}
_INDEX: Final = {"Index": attr.dtype(DType.INT32)}
_SHAPE: Final = {"Tshape": attr.dtype(DType.INT32)}


class _Part(Struct, frozen=True):
    """A range of bits of each code.

    Args:
        width: number of bits.
        shift: number of lower bits in the code.
    """

    width: int
    shift: int


def parts_of(bits: int) -> list[_Part]:
    """Return the parts of 4, 2, and 1 bits that store codes of fewer than 8 bits."""
    parts = []
    for width in _PARTS:
        if bits >= width:
            bits -= width
            parts.append(_Part(width, bits))
    return parts


def packed(codes: NDArray[np.uint8], part: _Part) -> NDArray[np.uint8]:
    """Pack some bits of codes into bytes, with the first code in the lowest bits."""
    each = _BYTE // part.width
    digits = (codes >> part.shift) & ((1 << part.width) - 1)
    shifted = digits.reshape(-1, each) << (np.arange(each, dtype=np.uint8) * part.width)
    joined: NDArray[np.uint8] = np.bitwise_or.reduce(shifted, axis=1, keepdims=True)
    return joined.astype(np.uint8)


class Decoding:
    """Decoding nodes of one graph; small constants are shared.

    Args:
        graph: the graph.
        bits: number of bits per code.
    """

    def __init__(self, graph: Graph, bits: int) -> None:
        self._bits = bits
        self._names = FreshNames(graph.by_name)
        self._shared: dict[tuple[str, str, tuple[Ref, ...]], str] = {}

    def size(self, old: Node, weights: LinearWeights) -> int:
        """Return the approximate size of the nodes in a file, in bytes."""
        count = 5 if self._bits == _BYTE else 5 + 5 * len(parts_of(self._bits))
        elements = weights.codes.size * self._bits // _BYTE + weights.scale.nbytes
        return elements + count * (_NODE + 2 * len(old.name))

    def nodes(self, old: Node, weights: LinearWeights) -> list[Node]:
        """Return the nodes that decode weights; the last one has the old constant's name."""
        builder = _Nodes(old, self._names, self._shared)
        if self._bits == _BYTE:
            codes = builder.constant("codes", weights.codes)
        else:
            codes = self._unpacked(builder, weights.codes)
        types = {"SrcT": attr.dtype(DType.UINT8), "DstT": attr.dtype(DType.FLOAT)}
        cast = builder.add("cast", "Cast", (codes,), types)
        usual = weights.zero == 1 << (self._bits - 1)
        what = "zero" if usual else f"zero_{weights.zero}"
        zero = builder.shared(what, np.array(weights.zero, np.float32))
        difference = builder.add("centred", "Sub", (cast, zero), {"T": attr.dtype(DType.FLOAT)})
        scale = builder.constant("scale", weights.scale)
        inputs = (Ref(difference), Ref(scale))
        kind = {"T": attr.dtype(DType.FLOAT)}
        return [*builder.nodes, Node(old.name, "Mul", inputs, old.device, kind)]

    def _unpacked(self, builder: _Nodes, codes: NDArray[np.uint8]) -> str:
        """Return the name of the node that outputs the codes in their shape."""
        flat = codes.reshape(-1)
        filled = np.pad(flat, (0, -flat.size % _BYTE))
        whole = ""
        for part in parts_of(self._bits):
            digits = _digits(builder, packed(filled, part), part)
            if part.shift:
                by = builder.shared(f"up_{part.shift}", np.array(part.shift, np.uint8))
                digits = builder.add(f"placed_{part.width}", "LeftShift", (digits, by), _UINT8)
            if whole:
                digits = builder.add(f"with_{part.width}", "BitwiseOr", (whole, digits), _UINT8)
            whole = digits
        if filled.size > flat.size:
            begin = builder.shared("begin", np.zeros(1, np.int32))
            size = builder.constant("size", np.array([flat.size], np.int32))
            whole = builder.add("cut", "Slice", (whole, begin, size), _UINT8 | _INDEX)
        shape = builder.constant("shape", np.array(codes.shape, np.int32))
        return builder.add("shaped", "Reshape", (whole, shape), _UINT8 | _SHAPE)


def _digits(builder: _Nodes, stored: Array, part: _Part) -> str:
    """Return the name of the node that outputs some bits of each code, in one dimension."""
    width = part.width
    codes = builder.constant(f"codes_{width}", stored)
    steps = np.arange(0, _BYTE, width, dtype=np.uint8)
    by = builder.shared(f"down_{width}", steps)
    mask = builder.shared(f"mask_{width}", np.array((1 << width) - 1, np.uint8))
    flat = builder.shared("flat", np.array([-1], np.int32))
    shifted = builder.add(f"shifted_{width}", "RightShift", (codes, by), _UINT8)
    masked = builder.add(f"masked_{width}", "BitwiseAnd", (shifted, mask), _UINT8)
    return builder.add(f"flat_{width}", "Reshape", (masked, flat), _UINT8 | _SHAPE)


class _Nodes:
    """Nodes for one constant, in order."""

    def __init__(
        self,
        old: Node,
        names: FreshNames,
        shared: dict[tuple[str, str, tuple[Ref, ...]], str],
    ) -> None:
        self._old = old
        self._names = names
        self._shared = shared
        self.nodes: list[Node] = []

    def add(self, what: str, op: str, inputs: tuple[str, ...], attrs: dict[str, AttrValue]) -> str:
        """Add a node and return its name."""
        name = self._names.name(f"{self._old.name}_{what}")
        refs = tuple(Ref(i) for i in inputs)
        self.nodes.append(Node(name, op, refs, self._old.device, attrs))
        return name

    def constant(self, what: str, values: Array) -> str:
        """Add a constant in the branch or loop of the old one and return its name."""
        name = self._names.name(f"{self._old.name}_{what}")
        self.nodes.append(constant(name, Tensor.packed(values), self._old.device, self._old.inputs))
        return name

    def shared(self, what: str, values: Array) -> str:
        """Return the name of a constant shared by all weights of one device, branch, and loop."""
        key = (what, self._old.device, self._old.inputs)
        if key not in self._shared:
            self._shared[key] = self._names.name(f"decoding/{what}")
            self.nodes.append(
                constant(
                    self._shared[key], Tensor.packed(values), self._old.device, self._old.inputs
                )
            )
        return self._shared[key]
