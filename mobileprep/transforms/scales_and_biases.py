"""Merge batch normalizations, multiplications, and additions into the layers before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.statistics import ChannelStatistics, with_statistics
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.affine import (
    MISFIT,
    SUMS,
    Affine,
    AffineChains,
    AffineStep,
    Channels,
    Merged,
    awaited,
    merge_chains,
    norm_affine,
)
from mobileprep.transforms.rewriting.batch_norms import statistics, uses_gamma
from mobileprep.transforms.rewriting.constants import ConstantExpressions
from mobileprep.transforms.rewriting.layers import channel_axis, layout

_STAYS: Final = "one Mul and one Add"
_NO_LAYER: Final = "no layer with constant weights comes before it"


@transform("fuse_batch_norms")
class FuseBatchNorms(Transform, frozen=True):
    """Fold batch normalizations into the weights of the preceding layer and a BiasAdd.

    Supported layers are Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul, Conv2DBackpropInput,
    and Conv3D, with channels first or last. Supported normalizations are FusedBatchNorm, V2, and
    V3, BatchNormWithGlobalNormalization, and the multiplications and additions of
    ``tf.nn.batch_normalization`` and Keras, with their factors folded or not. A bias, padding,
    Squeeze, Reshape, or BatchToSpaceND may come between. Weights that other layers share are copied
    for the normalized layers.

    A normalization without a suitable layer, for example before an activation, becomes one Mul and
    one Add.

    With ``keep_statistics``, the mean and deviation of each channel after a normalization op, that
    is its ``beta`` and ``gamma``, are stored as attributes of the BiasAdd that replaces it.
    absorb_high_biases and correct_bias can use them instead of data. Multiplications and additions
    do not provide a ``beta``.
    """

    summary = (
        "Fuses batch normalizations of every form into the layers before them, by "
        "scaling their weights and adding a bias. Others, such as those without a layer "
        "before them, become one Mul and one Add."
    )

    keep_statistics: Annotated[
        bool,
        Option(
            "Keep the mean and the deviation of each channel from normalization ops, for "
            "absorb_high_biases and correct_bias without data. correct_bias and packaging remove "
            "them."
        ),
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fuse every batch normalization that uses constant statistics.

        Scales and offsets are computed in double precision and rounded once.
        """
        protected = context.protected
        done = norms_merged(graph, protected)
        short = shorten_runs(done, protected)
        remaining = (n.name for n in short.graph if n.op in BATCH_NORMS)
        skipped = Counter(done.reasons.get(name, _NO_LAYER) for name in remaining)
        for pair in pairs(short.graph):
            reasons = (done.reasons[n.name] for n in pair if n.name in done.reasons)
            skipped[f"{_STAYS}: {next(reasons, _NO_LAYER)}"] += 1
        after = with_norms_statistics(short.graph, graph) if self.keep_statistics else short.graph
        return Result(after, done.layers + short.runs, skipped)


def norms_merged(graph: Graph, protected: Collection[str]) -> Merged:
    """Merge each batch normalization into the layer before it, where possible."""
    return merge_chains(graph, _up_to_last_norm, protected)


def with_norms_statistics(fused: Graph, before: Graph) -> Graph:
    """Store statistics on the BiasAdd nodes that replaced normalizations."""
    constants = ConstantExpressions(before)

    def annotate(node: Node) -> Node:
        norm = before.get(node.name)
        if node.op != "BiasAdd" or norm is None or norm.op not in BATCH_NORMS:
            return node
        values = [constants.value(ref) for ref in norm.data_inputs[1:]]
        stats = statistics(norm, [v for v in values if v is not None])
        gamma = stats.gamma.array() if uses_gamma(norm) else np.ones_like(stats.gamma.array())
        means, deviations = stats.beta.array().astype(np.float64), np.abs(gamma).astype(np.float64)
        return with_statistics(node, ChannelStatistics(means, deviations))

    return fused.with_nodes(map(annotate, fused))


def _up_to_last_norm(steps: Sequence[AffineStep]) -> int:
    """Return the number of steps up to the end of the last normalization."""
    end, scaled = 0, False
    for count, step in enumerate(steps, start=1):
        scaled = scaled or step.node.op in SCALINGS
        if step.node.op in BATCH_NORMS or (scaled and step.node.op in SUMS):
            end, scaled = count, False
    return end


_FLOATS: Final = frozenset({DType.FLOAT, DType.DOUBLE})
_NAMES: Final = {"Mul": "scale", "Add": "offset"}


class Shortened(Struct, frozen=True):
    """A shortened graph, and the number of shortened runs."""

    graph: Graph
    runs: int


def shorten_runs(merged: Merged, protected: Collection[str]) -> Shortened:
    """Reduce runs that scale and shift channels to one Mul and one Add.

    A run is a batch normalization op, or consecutive multiplications and additions of constants
    without other consumers in between. Normalizations that a layer could absorb are not changed.
    """
    runs = _Runs(merged, protected)
    for node in execution_order(merged.graph):
        runs.look_at(node)
    return runs.result()


class _Runs:
    """Collector of replacements by node name."""

    def __init__(self, merged: Merged, protected: Collection[str]) -> None:
        self._graph = merged.graph
        self._protected = protected
        self._reasons = merged.reasons
        self._constants = ConstantExpressions(merged.graph)
        self._chains = AffineChains(merged.graph, self._constants, protected)
        self._names = FreshNames(merged.graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []
        self._seen = set(merged.behind)
        self._count = 0

    def result(self) -> Shortened:
        if not self._count:
            return Shortened(self._graph, 0)
        now = self._constants.replaced(self._new, self._lost, self._protected)
        return Shortened(now, self._count)

    def look_at(self, node: Node) -> None:
        """Shorten the run that starts at a node, if there is one."""
        started = None if node.name in self._seen else self._start(node)
        if started is None:
            return
        source, channels = started
        followed = self._chains.along(channels, source, node)
        steps = _up_to_last_number(followed)
        self._seen.update(s.node.name for s in steps)
        whole = self._chains.whole(steps) if _is_long(steps) else ""
        if not isinstance(whole, str):
            self._replace(source, channels.axis, steps, whole.affine)

    def _start(self, node: Node) -> tuple[Ref, Channels] | None:
        """Return the tensor and the channels that a node scales or shifts, or None."""
        if node.op not in BATCH_NORMS | SCALINGS | SUMS or "T" not in node.attrs:
            return None
        if node.attr_dtype("T") not in _FLOATS or self._reasons.get(node.name) == MISFIT:
            return None
        if node.op in BATCH_NORMS:
            return self._start_of_norm(node)
        return self._start_of_arithmetic(node)

    def _start_of_norm(self, norm: Node) -> tuple[Ref, Channels] | None:
        affine = norm_affine(norm, self._constants, None)
        if isinstance(affine, str) or affine.scale is None:
            return None
        rank = len(layout(norm))
        axis = channel_axis(norm) - rank
        channels = Channels(norm, affine.scale.size, self._constants, axis, rank)
        return norm.data_inputs[0], channels

    def _start_of_arithmetic(self, node: Node) -> tuple[Ref, Channels] | None:
        values = [self._constants.value(r) for r in node.data_inputs]
        constants = [v.shape for v in values if v is not None]
        if len(values) != 2 or len(constants) != 1:
            return None
        source = node.data_inputs[values.index(None)]
        shape = self._chains.shape_of(source)
        rank = None if shape is None else len(shape)
        wide = [i - len(constants[0]) for i, size in enumerate(constants[0]) if size > 1]
        if len(wide) != 1:
            return None
        axis = wide[0]
        if node.op == "BiasAdd" and channel_axis(node) < len(layout(node)) - 1:
            if rank is None:
                return None
            axis = 1 - rank
        return source, Channels(node, max(constants[0]), self._constants, axis, rank)

    def _replace(self, source: Ref, axis: int, steps: Sequence[AffineStep], affine: Affine) -> None:
        self._count += 1
        for step in steps:
            self._new[step.node.name] = []
            self._lost += [r.node for r in step.node.inputs]
        final = steps[-1].node
        parts = [
            (op, v) for op, v in (("Mul", affine.scale), ("Add", affine.offset)) if v is not None
        ]
        nodes: list[Node] = []
        for op, values in parts:
            last = op == parts[-1][0]
            name = final.name if last else self._names.name(f"{final.name}/{op.lower()}")
            number = self._constant(f"{final.name}/{_NAMES[op]}", steps, axis, values)
            nodes += [number, _arithmetic(name, op, source, number, steps[0].node)]
            source = Ref(name)
        controls = awaited(steps, {s.node.name for s in steps})
        end = nodes.pop()
        self._new[final.name] = [*nodes, replace(end, inputs=(*end.inputs, *controls))]

    def _constant(self, name: str, steps: Sequence[AffineStep], axis: int, values: Array) -> Node:
        """Create a constant with one value per channel, in the branch or loop of the originals."""
        first = steps[0].node
        dtype = first.attr_dtype("T")
        shaped = values.astype(dtype.numpy).reshape(-1, *[1] * (-axis - 1))
        sources = (self._graph[r.node] for s in steps for r in s.node.data_inputs)
        awaited = dict.fromkeys(r for n in sources if n.op == "Const" for r in n.control_inputs)
        tensor = Tensor.packed(shaped, dtype)
        return constant(self._names.name(name), tensor, first.device, tuple(awaited))


def _up_to_last_number(steps: Sequence[AffineStep]) -> Sequence[AffineStep]:
    """Return the steps before the first that moves channels, without trailing Identity nodes."""
    end = next((i for i, s in enumerate(steps) if s.affine is None), len(steps))
    while end and steps[end - 1].node.op == "Identity":
        end -= 1
    return steps[:end]


def _is_long(steps: Sequence[AffineStep]) -> bool:
    """Return whether steps are more than one multiplication and one addition."""
    products = sum(s.node.op in SCALINGS for s in steps)
    sums = sum(s.node.op in SUMS for s in steps)
    return products > 1 or sums > 1 or any(s.node.op in BATCH_NORMS for s in steps)


def _arithmetic(name: str, op: str, source: Ref, number: Node, like: Node) -> Node:
    inputs = (source, Ref(number.name))
    return Node(name, op, inputs, like.device, {"T": like.attrs["T"]})


def pairs(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield each constant per-channel multiplication that is followed by a per-channel addition.

    The constants have more than one element, and the product has no other consumers. These are the
    remains of batch normalizations that no layer absorbs.
    """
    constants = ConstantExpressions(graph)
    for node in graph:
        users = graph.consumers.get(node.name, ())
        if node.op == "Mul" and len(users) == 1 and _is_wide(node, constants):
            after = users[0]
            if after.op in ("Add", "AddV2", "Sub") and _is_wide(after, constants):
                yield node, after


def _is_wide(node: Node, constants: ConstantExpressions) -> bool:
    """Return whether exactly one of two inputs is a constant, with one value per channel."""
    values = [constants.value(r) for r in node.data_inputs]
    sizes = [(max(v.shape, default=1), v.size) for v in values if v is not None]
    return len(values) == 2 and len(sizes) == 1 and 1 < sizes[0][0] == sizes[0][1]


@transform("merge_scale_and_bias")
class MergeScaleAndBias(Transform, frozen=True):
    """Merge constants that scale and shift a layer's output into its weights and a BiasAdd.

    The transform merges Mul, RealDiv, Add, AddV2, Sub, and BiasAdd with one constant per channel,
    in any number and order, after Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul,
    Conv2DBackpropInput, or Conv3D. A single addition becomes a BiasAdd, because other tools fuse
    BiasAdd with the layer.
    """

    summary = (
        "Merges constants that scale and shift a layer's output into its weights and one BiasAdd."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Merge every chain; factors are combined in double precision and rounded once."""
        done = merge_chains(graph, _up_to_last_arithmetic, context.protected)
        arithmetic = (n.name for n in done.graph if n.op in SCALINGS | SUMS)
        skipped = Counter(done.reasons[name] for name in arithmetic if name in done.reasons)
        return Result(done.graph, done.layers, skipped)


def _up_to_last_arithmetic(steps: Sequence[AffineStep]) -> int:
    """Return the length of the chain, or 0 if merging it gains nothing."""
    end = next((i for i, s in enumerate(steps) if s.node.op in BATCH_NORMS), len(steps))
    counts = [i for i, s in enumerate(steps[:end], start=1) if s.node.op in SCALINGS | SUMS]
    if not counts or (len(counts) == 1 and steps[counts[0] - 1].node.op == "BiasAdd"):
        return 0
    return counts[-1]
