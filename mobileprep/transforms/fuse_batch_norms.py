"""Fuses batch normalizations of every form into the layers before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated, Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.channel_statistics import ChannelStatistics, with_statistics
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.options.declare import Option
from mobileprep.rewriting.affine.chain import AffineStep
from mobileprep.rewriting.affine.channels import SUMS
from mobileprep.rewriting.affine.merge import Merged, merge_chains
from mobileprep.rewriting.affine.runs import pairs, shorten_runs
from mobileprep.rewriting.batch_norms import statistics, uses_gamma
from mobileprep.rewriting.constant_expressions import ConstantExpressions
from mobileprep.transforms.base import Context, Result, Transform, transform

_STAYS: Final = "one Mul and one Add"
_NO_LAYER: Final = "no layer with constant weights comes before it"


@transform("fuse_batch_norms")
@dataclass(frozen=True)
class FuseBatchNorms(Transform):
    """A layer and its batch normalization become the layer with other weights and a BiasAdd.

    Layers are Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul, Conv2DBackpropInput and Conv3D,
    the channels first or last. Normalizations are FusedBatchNorm, V2 and V3,
    BatchNormWithGlobalNormalization, and the multiplications and additions that
    ``tf.nn.batch_normalization`` and Keras leave, their factors still computed or folded already.
    A bias, a padding, Squeeze, Reshape or BatchToSpaceND may lie between. Weights that other
    layers use too are copied for those that are normalized.

    A normalization that no layer takes in, as before an activation, becomes one Mul and one Add.

    The mean and the deviation that a normalization op gives each channel, its ``beta`` and
    ``gamma``, can be kept as attributes of the BiasAdd in its place, from which absorb_high_biases
    and correct_bias take them instead of data. Multiplications and additions tell no ``beta``.
    """

    summary = (
        "Fuses batch normalizations of every form into the layers before them, whose weights it "
        "scales and to which it gives a bias. Those that no layer takes in, as before an "
        "activation, become one Mul and one Add."
    )

    keep_statistics: Annotated[
        bool,
        Option(
            "Keep the mean and the deviation of each channel that normalization ops tell, for "
            "absorb_high_biases and correct_bias without data. correct_bias and packaging remove "
            "them again."
        ),
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fuse every batch normalization that uses constant statistics.

        Scales and offsets are found in double precision and rounded once.
        """
        protected = context.protected
        done = norms_merged(graph, protected)
        short = shorten_runs(done, protected)
        left = (n.name for n in short.graph if n.op in BATCH_NORMS)
        skipped = Counter(done.reasons.get(name, _NO_LAYER) for name in left)
        for pair in pairs(short.graph):
            reasons = (done.reasons[n.name] for n in pair if n.name in done.reasons)
            skipped[f"{_STAYS}: {next(reasons, _NO_LAYER)}"] += 1
        after = with_norms_statistics(short.graph, graph) if self.keep_statistics else short.graph
        return Result(after, done.layers + short.runs, skipped)


def norms_merged(graph: Graph, protected: Collection[str]) -> Merged:
    """The graph with each batch normalization in the layer before it, where one takes it in."""
    return merge_chains(graph, _up_to_last_norm, protected)


def with_norms_statistics(fused: Graph, before: Graph) -> Graph:
    """A graph whose every BiasAdd has the statistics of the normalization op whose place it took.

    Args:
        fused: the graph with normalizations fused.
        before: the graph with them.
    """
    constants = ConstantExpressions(before)

    def kept(node: Node) -> Node:
        norm = before.get(node.name)
        if node.op != "BiasAdd" or norm is None or norm.op not in BATCH_NORMS:
            return node
        values = [constants.value(ref) for ref in norm.data_inputs[1:]]
        found = statistics(norm, [v for v in values if v is not None])
        gamma = found.gamma.array() if uses_gamma(norm) else np.ones_like(found.gamma.array())
        means, deviations = found.beta.array().astype(np.float64), np.abs(gamma).astype(np.float64)
        return with_statistics(node, ChannelStatistics(means, deviations))

    return fused.with_nodes(map(kept, fused))


def _up_to_last_norm(steps: Sequence[AffineStep]) -> int:
    """How many steps there are up to the end of the last normalization."""
    found, scaled = 0, False
    for count, step in enumerate(steps, start=1):
        scaled = scaled or step.node.op in SCALINGS
        if step.node.op in BATCH_NORMS or (scaled and step.node.op in SUMS):
            found, scaled = count, False
    return found
