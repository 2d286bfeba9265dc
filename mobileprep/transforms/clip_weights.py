"""Clip weights to the range with the smallest quantization error."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.clipping import Replacements, best_range, float_value
from mobileprep.transforms.rewriting.layers import weight_axes

_TOO_SMALL: Final = "fewer elements than minimum_size"
_NO_WEIGHTS: Final = "something else than one kind of layer takes it"
_NOT_FINITE: Final = "it holds infinity or NaN"
_WHOLE: Final = "its whole range loses least"


@transform("clip_weights")
class ClipWeights(Transform, frozen=True):
    """Clip the weights of layers to the range with the least mean squared error.

    Each tensor has one range, which includes zero, as in quantize_weights and quantize_nodes.
    Cutting off a few outliers makes the quantization step finer.

    Source: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
    (2019).
    """

    summary = (
        "Clips the weights of layers to the range that loses least in some bits for a whole "
        "tensor: a few far elements are cut off, and all others get finer steps."
    )

    bits: Annotated[
        int, Option("How many bits the weights will be stored in.", minimum=2, maximum=8)
    ] = 8
    minimum_size: Annotated[
        int, Option("Weights with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        if not 2 <= self.bits <= 8:
            message = f"bits is {self.bits}"
            raise refuse(self.transform_name, message, "weights are stored in 2 to 8 bits")
        check_inputs(graph, "")
        replacements = Replacements(graph, tf115=False)
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            value = float_value(node, self.transform_name)
            clipped = "" if value is None else self._clipped(graph, node, value, context)
            if isinstance(clipped, Tensor):
                matched += 1
                nodes.append(replacements.make(node, node.name, clipped))
            else:
                nodes.append(node)
                skipped.update([clipped] if clipped else [])
        return Result(graph.with_nodes(nodes) if matched else graph, matched, skipped)

    def _clipped(self, graph: Graph, node: Node, value: Tensor, context: Context) -> Tensor | str:
        """Return the clipped weights, or the reason to keep them."""
        if value.size < max(self.minimum_size, 1):
            return _TOO_SMALL
        if node.name in context.protected or not weight_axes(graph, node):
            return _NO_WEIGHTS
        values = value.array()
        if not np.isfinite(values).all():
            return _NOT_FINITE
        low, high = best_range(values, self.bits)
        clipped = np.clip(values, np.float32(low), np.float32(high))
        return _WHOLE if np.array_equal(clipped, values) else Tensor.packed(clipped, value.dtype)
