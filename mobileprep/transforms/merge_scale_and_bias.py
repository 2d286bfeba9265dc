"""Merge chains of multiplications and additions into the preceding weights and bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.affine.chain import AffineStep
from mobileprep.transforms.rewriting.affine.channels import SUMS
from mobileprep.transforms.rewriting.affine.merge import merge_chains


@transform("merge_scale_and_bias")
class MergeScaleAndBias(Transform, frozen=True):
    """Merge constants that scale and shift a layer's output into its weights and a BiasAdd.

    The transform merges Mul, RealDiv, Add, AddV2, Sub, and BiasAdd with one constant per channel,
    in any number and order, after Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul,
    Conv2DBackpropInput, or Conv3D. A single addition becomes a BiasAdd, because other tools fuse
    BiasAdd with the layer.
    """

    summary = (
        "Merges constants that are multiplied with and added to a layer's output into its "
        "weights and one BiasAdd."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Merge every chain; factors are combined in double precision and rounded once."""
        done = merge_chains(graph, _up_to_last_number, context.protected)
        arithmetic = (n.name for n in done.graph if n.op in SCALINGS | SUMS)
        skipped = Counter(done.reasons[name] for name in arithmetic if name in done.reasons)
        return Result(done.graph, done.layers, skipped)


def _up_to_last_number(steps: Sequence[AffineStep]) -> int:
    """Return the length of the chain, or 0 if merging it gains nothing."""
    end = next((i for i, s in enumerate(steps) if s.node.op in BATCH_NORMS), len(steps))
    counts = [i for i, s in enumerate(steps[:end], start=1) if s.node.op in SCALINGS | SUMS]
    if not counts or (len(counts) == 1 and steps[counts[0] - 1].node.op == "BiasAdd"):
        return 0
    return counts[-1]
