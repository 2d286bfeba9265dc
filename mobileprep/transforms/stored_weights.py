"""Store float constants in fewer bits, or with fewer distinct values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Annotated, Final, Literal

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref, unique_name
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.batch_norms import variances
from mobileprep.transforms.rewriting.clipping import (
    LEAST_MAXIMUM,
    best_range,
    eightbit_constant,
    value_range,
)
from mobileprep.transforms.rewriting.constants import Replacements, convert_floats
from mobileprep.transforms.rewriting.layers import weight_axes

_TOO_SMALL: Final = "fewer elements than minimum_size"
_VARIANCE: Final = "a variance, where small values weigh the most"
_NOT_FINITE: Final = "it holds infinity or NaN, or spans more than float32 can"

_TYPES: Final = {"float16": DType.HALF, "bfloat16": DType.BFLOAT16}


@transform("cast_weights")
class CastWeights(Transform, frozen=True):
    """Replace each float32 constant with a float16 or bfloat16 constant and a Cast.

    The Cast keeps the name of the constant. Elements are rounded to nearest, ties to even.
    Infinities and NaN are preserved.
    """

    summary = (
        "Stores large float constants as float16 or bfloat16, in half the bytes, and "
        "casts them at run time."
    )

    type: Annotated[
        Literal["float16", "bfloat16"],
        Option(
            "float16: 11 significant bits, up to 65504. bfloat16: 8 significant bits, as large and "
            "as small as float32."
        ),
    ] = "float16"
    minimum_size: Annotated[
        int, Option("Constants with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        kept_float = variances(graph)
        names = FreshNames(graph.by_name)
        return convert_floats(
            graph,
            self.transform_name,
            lambda node, value: self._narrow(node, value, kept_float),
            lambda node, narrow: self._cast(node, narrow, names),
        )

    def _cast(self, node: Node, narrow: Tensor, names: FreshNames) -> list[Node]:
        stored = names.name(f"{node.name}_{self.type}")
        types = {"SrcT": attr.dtype(narrow.dtype), "DstT": attr.dtype(DType.FLOAT)}
        return [
            constant(stored, narrow, node.device, node.inputs),
            Node(node.name, "Cast", (Ref(stored),), node.device, types),
        ]

    def _narrow(self, node: Node, value: Tensor, kept_float: Container[str]) -> Tensor | str:
        """Return the constant in the narrower type, or the reason to keep it."""
        if value.size < max(self.minimum_size, 1):
            return _TOO_SMALL
        if node.name in kept_float:
            return _VARIANCE
        dtype = _TYPES[self.type]
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = value.array().astype(dtype.numpy)
        if (np.isinf(narrow.astype(np.float32)) & np.isfinite(value.array())).any():
            return "it holds numbers beyond the type's largest"
        return Tensor.packed(narrow, dtype)


@transform("clip_weights")
class ClipWeights(Transform, frozen=True):
    """Clip the weights of layers to the range with the least mean squared error.

    Each tensor has one range, which includes zero, as in quantize_weights and quantize_nodes.
    Cutting off a few outliers makes the quantization step finer.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019).
    """

    summary = (
        "Clips the weights of layers to the range that loses least when a whole "
        "tensor is quantized: a few outliers are clipped, and all other elements have"
        " finer steps."
    )

    bits: Annotated[
        int, Option("Number of bits in which the weights will be stored.", minimum=2, maximum=8)
    ] = 8
    minimum_size: Annotated[
        int, Option("Weights with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        check_inputs(graph, "")
        replacements = Replacements(graph, tf115=False)
        return convert_floats(
            graph,
            self.transform_name,
            lambda node, value: self._clipped(graph, node, value, context),
            lambda node, clipped: [replacements.make(node, node.name, clipped)],
        )

    def _clipped(self, graph: Graph, node: Node, value: Tensor, context: Context) -> Tensor | str:
        """Return the clipped weights, or the reason to keep them."""
        if value.size < max(self.minimum_size, 1):
            return _TOO_SMALL
        if node.name in context.protected or not weight_axes(graph, node):
            return "something else than one kind of layer takes it"
        values = value.array()
        if not np.isfinite(values).all():
            return "it holds infinity or NaN"
        low, high = best_range(values, self.bits)
        clipped = np.clip(values, np.float32(low), np.float32(high))
        if np.array_equal(clipped, values):
            return "its whole range loses least"
        return Tensor.packed(clipped, value.dtype)


@transform("quantize_weights")
class QuantizeWeights(Transform, frozen=True):
    """Replace a float32 constant with an 8-bit constant, its range, and a Dequantize.

    The Dequantize keeps the name of the constant. The range always contains zero. If the original's
    range is so narrow that Dequantize returns NaN, as for a constant of zeros, the range is 0 to 1
    here. Constants that are not finite are not changed. In a recipe, this also applies to the
    variances of unfolded batch normalizations, and floats are not off by one step if zero lies
    halfway between two steps.

    Source: ``quantize_weights`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Stores large float constants in 8 bits, and dequantizes them at run time."
    of_graph_transform_tool = True

    minimum_size: Annotated[int, Option("Constants with fewer elements stay as they are.")] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        kept_float = frozenset() if context.tf115 else variances(graph)
        replacements = Replacements(graph, context.tf115)
        return convert_floats(
            graph,
            self.transform_name,
            lambda node, value: self._quantized(node, value, kept_float, context),
            lambda node, parts: _dequantized(node, parts, replacements),
        )

    def _quantized(
        self, node: Node, value: Tensor, kept_float: Container[str], context: Context
    ) -> Mapping[str, Tensor] | str:
        """Return the constant in 8 bits and its range, or the reason to keep it."""
        if not 0 <= self.minimum_size <= value.size or not value.size:
            return _TOO_SMALL
        if node.name in kept_float:
            return _VARIANCE
        quantized = eightbit_constant(value.array(), tf115=context.tf115)
        if quantized is None:
            return _NOT_FINITE
        values = Tensor.of(quantized.values, DType.QUINT8)
        context.offload(values)
        return {"const": values, "min": _scalar(quantized.low), "max": _scalar(quantized.high)}


def _dequantized(old: Node, parts: Mapping[str, Tensor], replacements: Replacements) -> list[Node]:
    """Return the nodes that replace a constant; the last one has its name."""
    used_names = replacements.graph.by_name
    constants = [
        replacements.make(old, unique_name(f"{old.name}_quantized_{part}", used_names), value)
        for part, value in parts.items()
    ]
    attrs = {"T": attr.dtype(DType.QUINT8), "mode": attr.string("MIN_FIRST")}
    inputs = tuple(Ref(n.name) for n in constants)
    device = constants[0].device
    return [*constants, Node(old.name, "Dequantize", inputs, device, attrs)]


def _scalar(value: np.float32) -> Tensor:
    # As raw bytes, like in the original.
    return Tensor(DType.FLOAT, (), content=np.float32(value).tobytes())


_LEAST_SIZE: Final = 16
_NEARLY_ZERO: Final = np.float32(1e-6)
_BLOCK: Final = 1 << 16


@transform("round_weights")
class RoundWeights(Transform, frozen=True):
    """Round each element of a float32 constant to the middle of its bucket.

    The buckets divide the range from minimum to maximum into equal parts. The original needs an
    extra bucket for the maximum, starts the range of negative constants at zero, and changes the
    elements of constants that are all equal; a recipe does none of this.

    Source: ``round_weights`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Rounds float constants of 16 or more elements to a few different values, so "
        "that the graph compresses well."
    )
    of_graph_transform_tool = True

    num_steps: Annotated[
        int,
        Option("Maximum number of different values in a constant.", minimum=1),
    ] = 256

    def apply(self, graph: Graph, context: Context) -> Result:
        """Round the constants with at least 16 elements."""
        replacements = Replacements(graph, context.tf115)
        return convert_floats(
            graph,
            self.transform_name,
            lambda _, value: self._rounded(value, context),
            lambda node, rounded: [replacements.make(node, node.name, rounded)],
        )

    def _rounded(self, value: Tensor, context: Context) -> Tensor | str:
        """Return the constant with rounded elements, or the reason to keep it."""
        if value.size < _LEAST_SIZE:
            return f"fewer than {_LEAST_SIZE} elements"
        low, high = value_range(value.array())
        if context.tf115:
            high = max(high, LEAST_MAXIMUM)
            if low == high:
                high = low + np.float32(1) if low < _NEARLY_ZERO else low + low
        elif low == high:
            return "all its elements are equal"
        with np.errstate(over="ignore", invalid="ignore"):
            width = (high - low) / np.float32(self.num_steps)
        if not np.isfinite(width):
            return _NOT_FINITE
        last = None if context.tf115 else np.float32(self.num_steps - 1)
        rounded = Tensor.of(_to_buckets(value.array(), low, width, last), DType.FLOAT)
        context.offload(rounded)
        return rounded


def _to_buckets(
    values: Array, low: np.float32, width: np.float32, last: np.float32 | None
) -> Array:
    """Return the bucket middles of float32 values, in single precision like the original."""
    flat = values.reshape(-1)
    out = np.empty(flat.size, dtype=np.float32)
    for start in range(0, flat.size, _BLOCK):
        block = out[start : start + _BLOCK]
        np.subtract(flat[start : start + _BLOCK], low, out=block)
        block /= width
        np.floor(block, out=block)
        if last is not None:
            np.minimum(block, last, out=block)
        block += np.float32(0.5)
        block *= width
        block += low
    return out.reshape(values.shape)
