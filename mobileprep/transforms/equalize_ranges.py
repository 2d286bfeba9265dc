"""Scales channels between layers so that the weights on both sides have like ranges."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.verify import check_inputs
from mobileprep.options.declare import Option
from mobileprep.rewriting.channel_scales.analysis import find_scales
from mobileprep.rewriting.channel_scales.applying import apply_scales, without_overflow
from mobileprep.rewriting.channel_scales.equalizing import equalizing_exponents
from mobileprep.transforms.base import Context, Result, Transform, transform


@transform("equalize_ranges")
@dataclass(frozen=True)
class EqualizeRanges(Transform):
    """Weights, biases and bounds of activations are scaled, and the graph computes the same.

    The channels of Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul, Conv2DBackpropInput and
    Conv3D are scaled, through all that passes scales on: Relu, LeakyRelu, biases, padding with
    zeros, pools, means and sizes of images, reshaping, sums of layers and concatenation. A Relu6
    becomes Relu and Minimum, with a bound of its own for each channel. Weights that have 256
    different values at most were in eight bits before, lose nothing there, and stay.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.1; there Relu6 becomes Relu, which is another function.
    """

    summary = (
        "Scales the channels between layers, up in one and down in the next, so that few have "
        "weights much smaller than others, which 8 bits for a whole tensor would lose. The graph "
        "computes what it did before. Batch normalizations are to be fused before."
    )

    relu6: Annotated[
        Literal["carry", "keep"],
        Option(
            "carry: scale channels through Relu6, which becomes Relu and Minimum with a bound for "
            "each channel. keep: leave the channels that go through a Relu6."
        ),
    ] = "carry"
    powers_of_two: Annotated[
        bool,
        Option(
            "Scale by powers of two alone, so that floats are rounded as before and results stay "
            "the same to the bit."
        ),
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Scale the channels of every layer whose weights nothing else uses.

        Raises:
            InvalidGraphError: an input is not there.
        """
        check_inputs(graph, "")
        protected = context.protected
        carry = self.relu6 == "carry"
        scales = find_scales(graph, protected, through_relu6=carry, keep_stored=True)
        found = equalizing_exponents(scales, whole=self.powers_of_two)
        exponents = without_overflow(scales, found)
        matched = sum(bool(exponents[layer.outputs].any()) for layer in scales.layers)
        reasons = (scales.variables.reason(layer.outputs) for layer in scales.layers)
        skipped = Counter(scales.refused)
        skipped.update(reason for reason in reasons if reason)
        done = apply_scales(graph, scales, exponents, protected) if matched else graph
        return Result(done, matched, skipped)
