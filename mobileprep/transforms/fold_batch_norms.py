"""Multiplies constants that scale a layer's output into the layer's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.pattern import Match, op
from mobileprep.ir.rewrite import Leave, Rule, rewrite
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.transforms._layers import output_channels, per_channel, scaled
from mobileprep.transforms._rewriting import as_result, fed_and_fetched
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_PATTERN = op(
    "Mul",
    op(
        "Conv2D|MatMul|DepthwiseConv2dNative",
        op("*", label="input"),
        op("Const", label="weights"),
        label="layer",
    ),
    op("Const", label="factors"),
)
_USED_ELSEWHERE = "the layer, its weights or the factors are used elsewhere"
_NOT_PER_CHANNEL = "the factors are not one for each output channel"
_WRONG_TYPE = "weights and factors are not of one floating type"


@transform("fold_batch_norms")
@dataclass(frozen=True)
class FoldBatchNorms(Transform):
    """Conv2D, DepthwiseConv2dNative or MatMul, then Mul with a constant, become the layer alone.

    Source: ``fold_batch_norms`` of TensorFlow 1.15's graph transforms.
    """

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fold every multiplication by one factor a channel.

        Raises:
            TransformError: in the faithful mode, a constant that the original refuses.
        """

        def fold(match: Match) -> Sequence[Node] | Leave:
            return _fold(match, faithful=context.faithful)

        done = rewrite(graph, Rule(_PATTERN, fold), fed_and_fetched(context))
        return as_result(done, graph, context)


def _fold(match: Match, *, faithful: bool) -> Sequence[Node] | Leave:
    mul, layer = match.node, match["layer"]
    source, weights_node, factors_node = match["input"], match["weights"], match["factors"]
    kept = (mul, layer, source, weights_node, factors_node)
    if not match.used_outside.isdisjoint((layer.name, weights_node.name, factors_node.name)):
        return Leave(_USED_ELSEWHERE, kept)
    weights, values = weights_node.attr_tensor("value"), factors_node.attr_tensor("value")
    if faithful:
        _check_like_original(mul, layer, weights, values)
    if weights.dtype != values.dtype or not weights.dtype.is_floating:
        return Leave(_WRONG_TYPE, kept)
    factors = _factors(layer, weights, values)
    if factors is None:
        return Leave(_NOT_PER_CHANNEL, kept)
    # A constant in a loop's body belongs to its frame by a control input.
    product = constant(
        weights_node.name, scaled(layer, weights, factors), inputs=weights_node.control_inputs
    )
    controls = tuple(r for r in mul.control_inputs if r not in layer.inputs)
    return [product, source, replace(layer, name=mul.name, inputs=layer.inputs + controls)]


def _factors(layer: Node, weights: Tensor, values: Tensor) -> Array | None:
    channels = output_channels(layer, weights)
    return None if channels is None else per_channel(layer, channels, values.array())


def _check_like_original(mul: Node, layer: Node, weights: Tensor, values: Tensor) -> None:
    """Refuse what the original refuses: it looks for a vector, and at MatMul untransposed."""
    hint = "ignore_errors skips the step; in a recipe, what can be folded is folded"
    if weights.dtype is not DType.FLOAT or values.dtype is not DType.FLOAT:
        raise _refuse(mul, "weights and factors must be float32", hint)
    if len(weights.shape) < (2 if layer.op == "MatMul" else 4):
        raise _refuse(mul, f"the weights have the bad shape {list(weights.shape)}", hint)
    columns = {
        "Conv2D": lambda shape: shape[3],
        "DepthwiseConv2dNative": lambda shape: shape[2] * shape[3],
        "MatMul": lambda shape: shape[1],
    }[layer.op](weights.shape)
    if values.shape != (columns,):
        raise _refuse(mul, f"the constant input has the bad shape {list(values.shape)}", hint)


def _refuse(mul: Node, message: str, hint: str) -> TransformError:
    return refuse(FoldBatchNorms.transform_name, f"node {mul.name!r}: {message}", hint)
