"""Folds whole batch normalization ops into the convolutions before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.pattern import Match, OpTypePattern, op
from mobileprep.ir.refs import Ref
from mobileprep.ir.rewrite import Leave, Rewritten, Rule, rewrite_all, unique_name
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.transforms import _statistics
from mobileprep.transforms._layers import data_format, output_channels, scaled
from mobileprep.transforms._rewriting import as_result, fed_and_fetched
from mobileprep.transforms._statistics import Statistics, is_inference, scale_and_offset
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NORMS: Final = "BatchNormWithGlobalNormalization|FusedBatchNorm"
_CONVOLUTIONS: Final = "Conv2D|DepthwiseConv2dNative"
_STATISTICS: Final = tuple(op("Const", label=f"statistic{i}", borrowed=True) for i in range(4))


def _convolution(number: int) -> OpTypePattern:
    weights = op("Const", label=f"weights{number}")
    return op(_CONVOLUTIONS, op("*", label=f"input{number}"), weights, label=f"layer{number}")


def _norm(source: OpTypePattern) -> OpTypePattern:
    return op(_NORMS, source, *_STATISTICS)


_AFTER_CONVOLUTION: Final = _norm(_convolution(0))
_AFTER_BATCH_TO_SPACE: Final = _norm(
    op(
        "BatchToSpaceND",
        _convolution(0),
        op("Const", label="block_shape"),
        op("Const", label="crops"),
        label="between",
    )
)
_AFTER_CONCAT: Final = _norm(
    op("ConcatV2", _convolution(0), _convolution(1), op("Const", label="axis"), label="between")
)


@transform("fold_old_batch_norms")
@dataclass(frozen=True)
class FoldOldBatchNorms(Transform):
    """FusedBatchNorm and BatchNormWithGlobalNormalization become scaled weights and BiasAdd.

    They may follow the convolution directly, behind BatchToSpaceND, or behind the concatenation
    of two convolutions. Source: ``fold_old_batch_norms`` of TensorFlow 1.15's graph transforms.
    """

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fold every batch normalization that uses constant statistics.

        Raises:
            TransformError: in the faithful mode, constants that the original refuses.
        """
        protected = fed_and_fetched(context)
        matched, skipped = 0, dict[str, int]()
        now = graph
        for pattern, parts in (
            (_AFTER_CONVOLUTION, _one_part),
            (_AFTER_BATCH_TO_SPACE, _one_part),
            (_AFTER_CONCAT, _two_parts),
        ):
            folding = _Folding(parts, context.faithful)
            done = rewrite_all(now, Rule(pattern, folding.rewrite, folding.check), protected)
            now = done.graph
            matched += done.matched
            for reason, count in done.skipped.items():
                skipped[reason] = skipped.get(reason, 0) + count
        if matched:
            now = _without_unused(now, _statistic_names(graph), protected)
        return as_result(Rewritten(now, matched, skipped), graph, context)


@dataclass(frozen=True)
class _Part:
    """A convolution of a match, and which of the statistics' channels are its own."""

    layer: Node
    weights: Tensor
    start: int
    stop: int

    @property
    def fits(self) -> bool:
        return output_channels(self.layer, self.weights) == self.stop - self.start


_Parts = Callable[[Match, int, bool], list[_Part]]
"""``(match, channels of the statistics, faithful) -> the convolutions of the match``."""


@dataclass(frozen=True)
class _Folding:
    parts: _Parts
    faithful: bool

    def check(self, match: Match) -> str:
        """Why a place cannot be folded.

        Raises:
            TransformError: what the original ends the run for.
        """
        reason = _structural_reason(match)
        if reason:
            return reason
        reason = self._shape_reason(match)
        if reason and self.faithful:
            hint = "ignore_errors skips the step; a recipe folds what can be folded"
            raise refuse("fold_old_batch_norms", f"node {match.node.name!r}: {reason}", hint)
        return reason

    def rewrite(self, match: Match) -> Sequence[Node] | Leave:
        stats = _stats(match)
        scale, offset = scale_and_offset(match.node, stats)
        between = match.find("between")
        nodes: list[Node] = []
        outputs: list[Node] = []
        for number, part in enumerate(self.parts(match, len(scale), self.faithful)):
            name = _output_name(match, number, between)
            own = slice(part.start, part.stop)
            new = _folded(match, number, part, scale[own], offset[own], name)
            nodes += new
            outputs.append(new[-1])
        controls = match.node.control_inputs
        if between is None:
            nodes[-1] = replace(outputs[0], inputs=outputs[0].inputs + controls)
            return nodes
        rest = between.inputs[len(outputs) :]
        inputs = (*(Ref(n.name) for n in outputs), *rest, *controls)
        settings = [n for n in map(match.find, ("block_shape", "crops", "axis")) if n is not None]
        return [*nodes, *settings, replace(between, name=match.node.name, inputs=inputs)]

    def _shape_reason(self, match: Match) -> str:
        stats = _stats(match)
        misshapen = stats.misshapen()
        if misshapen:
            return f"the {misshapen} input has a bad shape"
        parts = self.parts(match, stats.mean.size, self.faithful)
        if not stats.all_float or any(p.weights.dtype is not DType.FLOAT for p in parts):
            return "weights and statistics are not all float32"
        if not all(p.fits for p in parts):
            return "the statistics do not have as many channels as the weights"
        return ""


def _structural_reason(match: Match) -> str:
    """Why folding would change what the graph computes; the original would corrupt it, or hang."""
    norm = match.node
    owned = [n for n in match.nodes if n.op != "Const" and n is not norm and not _is_input(match, n)]
    weights = [n for n in map(match.find, ("weights0", "weights1")) if n is not None]
    if not match.used_outside.isdisjoint(n.name for n in owned):
        return "what comes before the batch normalization is used elsewhere"
    if not match.used_outside.isdisjoint(n.name for n in weights):
        return "the weights are used elsewhere"
    ...
    return ""
