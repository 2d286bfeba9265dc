"""Fuses batch normalizations of every form into the layers before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.rewriting.affine.chain import AffineStep
from mobileprep.rewriting.affine.channels import SUMS
from mobileprep.rewriting.affine.merge import Merged, merge_chains
from mobileprep.rewriting.affine.runs import pairs, shorten_runs
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
    """

    summary = (
        "Fuses batch normalizations of every form into the layers before them, whose weights it "
        "scales and to which it gives a bias. Those that no layer takes in, as before an "
        "activation, become one Mul and one Add."
    )

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
        return Result(short.graph, done.layers + short.runs, skipped)


def norms_merged(graph: Graph, protected: Collection[str]) -> Merged:
    """The graph with each batch normalization in the layer before it, where one takes it in."""
    return merge_chains(graph, _up_to_last_norm, protected)


def _up_to_last_norm(steps: Sequence[AffineStep]) -> int:
    """How many steps there are up to the end of the last normalization."""
    found, scaled = 0, False
    for count, step in enumerate(steps, start=1):
        scaled = scaled or step.node.op in SCALINGS
        if step.node.op in BATCH_NORMS or (scaled and step.node.op in SUMS):
            found, scaled = count, False
    return found
