"""Fold constant multiplications into the weights of the preceding layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.rewrite import Leave, Rule, rewrite, rewrite_all
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.clipping import ConstantExpressions, Replacements
from mobileprep.transforms.rewriting.layers import output_channels, per_channel, scaled

_LAYERS: Final = ("Conv2D", "MatMul", "DepthwiseConv2dNative")
_PATTERN = op(
    "Mul",
    op(
        "|".join(_LAYERS),
        op("*", label="input"),
        op("Const", label="weights"),
        label="layer",
    ),
    op("Const", label="factors"),
)
_COMPUTED: Final = (
    "weights or factors are still computed, or the factors come first; fold_constants before it "
    "helps, or fuse_batch_norms in its place"
)
_NOT_PER_CHANNEL: Final = "the factors are not one for each output channel"


@transform("fold_batch_norms")
class FoldBatchNorms(Transform, frozen=True):
    """Fold a constant Mul into the Conv2D, DepthwiseConv2dNative, or MatMul before it.

    Source: ``fold_batch_norms`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Multiplies constants that scale the output of Conv2D, DepthwiseConv2dNative or MatMul "
        "into its weights."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fold every multiplication with one factor per channel."""
        protected = context.protected
        folding = _Folding(Replacements(graph, context.tf115))
        if context.tf115:
            done = rewrite(graph, Rule(_PATTERN, folding.fold_as_tf115), protected)
        else:
            # The original makes a single pass and misses layers that share an input with a folded
            # one.
            ready = without_idle_controls(graph, protected)
            done = rewrite_all(ready, Rule(_PATTERN, folding.fold, _reason), protected)
        skipped = {**done.skipped, **_unlike(done.graph)}
        return Result.of(replace(done, skipped=skipped), graph, context)


def _unlike(graph: Graph) -> dict[str, int]:
    """Count constant multiplications directly after a layer that do not match the pattern."""
    constants = ConstantExpressions(graph)
    count = sum(node.op == "Mul" and _is_unlike(node, graph, constants) for node in graph)
    return {_COMPUTED: count} if count else {}


def _is_unlike(mul: Node, graph: Graph, constants: ConstantExpressions) -> bool:
    refs = mul.data_inputs
    sources = [graph.get(r.node) for r in refs]
    layers = [i for i, n in enumerate(sources) if n is not None and n.op in _LAYERS]
    if len(refs) != 2 or len(layers) != 1:
        return False
    factors, layer = refs[1 - layers[0]], sources[layers[0]]
    weights = () if layer is None else layer.data_inputs[1:2]
    if any(constants.value(r) is None for r in (factors, *weights)):
        return False
    ops = [graph[r.node].op for r in (factors, *weights)]
    return layers[0] == 1 or ops != ["Const", "Const"]


class _Folding(Struct, frozen=True):
    """Factory of the replacement of a match."""

    constants: Replacements

    def fold_as_tf115(self, match: Match) -> Sequence[Node] | Leave:
        """Fold, raise an error, or restore the nodes in the order of the original."""
        reason = _use_reason(match)
        if not reason:
            _check_as_tf115(match)
            reason = _shape_reason(match)
        if reason:
            labels = ("layer", "input", "weights", "factors")
            return Leave(reason, (match.node, *(match[label] for label in labels)))
        return self.fold(match)

    def fold(self, match: Match) -> Sequence[Node] | Leave:
        """Return the layer with scaled weights, under the multiplication's name."""
        mul, layer, old = match.node, match["layer"], match["weights"]
        weights = old.attr_tensor("value")
        factors = _factors(layer, weights, match["factors"].attr_tensor("value"))
        if factors is None:
            return Leave(_NOT_PER_CHANNEL)
        product = self.constants.make(old, old.name, scaled(layer, weights, factors))
        controls = tuple(r for r in mul.control_inputs if r not in layer.inputs)
        folded = replace(layer, name=mul.name, inputs=layer.inputs + controls)
        return [product, match["input"], folded]


def _reason(match: Match) -> str:
    """Return the reason why a multiplication cannot be folded, or an empty string."""
    return _use_reason(match) or _shape_reason(match)


def _use_reason(match: Match) -> str:
    names = (match[label].name for label in ("layer", "weights", "factors"))
    if not match.used_outside.isdisjoint(names):
        return "the layer, its weights or the factors are used elsewhere"
    return ""


def _shape_reason(match: Match) -> str:
    weights, values = (match[label].attr_tensor("value") for label in ("weights", "factors"))
    if weights.dtype != values.dtype or not weights.dtype.is_floating:
        return "weights and factors are not of one floating type"
    if _factors(match["layer"], weights, values) is None:
        return _NOT_PER_CHANNEL
    return ""


def _factors(layer: Node, weights: Tensor, values: Tensor) -> Array | None:
    channels = output_channels(layer, weights)
    return None if channels is None else per_channel(layer, channels, values.array())


def _check_as_tf115(match: Match) -> None:
    """Raise the original's errors: it requires a vector, and ignores transposition in MatMul."""
    layer = match["layer"]
    weights, values = (match[label].attr_tensor("value") for label in ("weights", "factors"))
    if weights.dtype is not DType.FLOAT or values.dtype is not DType.FLOAT:
        raise _refuse(match, "weights and factors must be float32")
    columns = {"Conv2D": (3,), "DepthwiseConv2dNative": (2, 3), "MatMul": (1,)}[layer.op]
    if len(weights.shape) <= columns[-1]:
        raise _refuse(match, f"the weights have the bad shape {list(weights.shape)}")
    if values.shape != (math.prod(weights.shape[axis] for axis in columns),):
        raise _refuse(match, f"the constant input has the bad shape {list(values.shape)}")


def _refuse(match: Match, message: str) -> TransformError:
    hint = "ignore_errors skips the step; a recipe folds all possible matches"
    return refuse(FoldBatchNorms.transform_name, f"node {match.node.name!r}: {message}", hint)
