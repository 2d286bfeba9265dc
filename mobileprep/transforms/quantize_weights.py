"""Store large float constants as 8-bit numbers, which are dequantized at run time."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Final, NamedTuple

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.batch_norms import variances
from mobileprep.transforms.rewriting.clipping import Replacements, convert_floats, eightbit_constant

_TOO_SMALL: Final = "fewer elements than minimum_size"
_NOT_FINITE: Final = "it holds infinity or NaN, or spans more than float32 can"
_VARIANCE: Final = "a variance, where small values weigh the most"


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

    summary = (
        "Stores large float constants as eight-bit numbers, which become floats again at run time."
    )
    of_graph_transform_tool = True

    minimum_size: Annotated[int, Option("Constants with fewer elements stay as they are.")] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        kept_float = frozenset() if context.tf115 else variances(graph)
        replacements = Replacements(graph, context.tf115)
        return Result(
            *convert_floats(
                graph,
                self.transform_name,
                lambda node, value: self._quantized(node, value, kept_float, context),
                lambda node, stored: _nodes(node, stored, replacements),
            )
        )

    def _quantized(
        self, node: Node, value: Tensor, kept_float: Container[str], context: Context
    ) -> tuple[str, _Stored | None]:
        """Return the constant in 8 bits, or the reason to keep it."""
        if not 0 <= self.minimum_size <= value.size or not value.size:
            return _TOO_SMALL, None
        if node.name in kept_float:
            return _VARIANCE, None
        quantized = eightbit_constant(value.array(), tf115=context.tf115)
        if quantized is None:
            return _NOT_FINITE, None
        values = Tensor.of(quantized.values, DType.QUINT8)
        context.offload(values)
        return "", _Stored(values, quantized.low, quantized.high)


class _Stored(NamedTuple):
    """A constant in 8 bits, and its range."""

    values: Tensor
    low: np.float32
    high: np.float32


def _nodes(old: Node, stored: _Stored, replacements: Replacements) -> list[Node]:
    """Return the nodes that replace a constant; the last one has its name."""
    parts = {
        "const": stored.values,
        "min": _scalar(stored.low),
        "max": _scalar(stored.high),
    }
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
