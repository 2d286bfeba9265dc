"""Store large float constants in 2 to 8 bits, with a scale per channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Annotated, Final, Literal

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.linear_quantize_weights.decoding import Decoding
from mobileprep.transforms.rewriting.batch_norms import variances
from mobileprep.transforms.rewriting.clipping import float_value
from mobileprep.transforms.rewriting.layers import (
    linear_weights,
    weight_axes,
    weights_stored_before,
)

_TOO_SMALL: Final = "fewer elements than minimum_size"
_NOT_FINITE: Final = "it holds infinity or NaN"
_VARIANCE: Final = "a variance, where small values weigh the most"
_NO_SMALLER: Final = "what decodes it would take more than is saved"
_BITS: Final = (2, 8)


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
        "Stores large float constants in 2 to 8 bits, with a scale for each channel, which plain "
        "ops make floats of again at run time."
    )

    bits: Annotated[int, Option("How many bits an element takes.", minimum=2, maximum=8)] = 8
    granularity: Annotated[
        Literal["channel", "tensor"],
        Option(
            "channel: a scale for each channel that a layer puts out, and for each row of a table. "
            "tensor: one for the whole constant."
        ),
    ] = "channel"
    minimum_size: Annotated[
        int, Option("Constants with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        if not _BITS[0] <= self.bits <= _BITS[1]:
            message = f"bits is {self.bits}"
            raise refuse(self.transform_name, message, "weights are stored in 2 to 8 bits")
        kept_float = variances(graph)
        decoding = Decoding(graph, self.bits)
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            value = float_value(node, self.transform_name)
            if value is None:
                nodes.append(node)
                continue
            replacement = self._decoded(graph, node, value, kept_float, decoding)
            if isinstance(replacement, str):
                skipped[replacement] += 1
                nodes.append(node)
            else:
                matched += 1
                nodes += replacement
        return Result(graph.with_nodes(nodes) if matched else graph, matched, skipped)

    def _decoded(
        self, graph: Graph, node: Node, value: Tensor, kept_float: Container[str], to: Decoding
    ) -> list[Node] | str:
        """Return the nodes that replace a constant, or the reason to keep it."""
        if value.size < max(self.minimum_size, 1):
            return _TOO_SMALL
        if node.name in kept_float:
            return _VARIANCE
        values = value.array()
        if not np.isfinite(values).all():
            return _NOT_FINITE
        axes = weight_axes(graph, node) if self.granularity == "channel" else ()
        stored = weights_stored_before(values, self.bits)
        weights = linear_weights(values, axes, self.bits) if stored is None else stored
        if to.size(node, weights) >= value.nbytes:
            return _NO_SMALLER
        return to.nodes(node, weights)
