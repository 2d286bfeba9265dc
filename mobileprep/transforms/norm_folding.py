"""Fold constant multiplications and batch normalizations into the convolutions before them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS, GLOBAL_BATCH_NORM
from mobileprep.graph.pattern import Match, OpTypePattern, op
from mobileprep.graph.reachability import without_orphans
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.rewrite import Leave, Rewritten, Rule, rewrite, rewrite_all
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.batch_norms import (
    Statistics,
    is_inference,
    scale_and_offset,
    statistics,
)
from mobileprep.transforms.rewriting.constants import ConstantExpressions, Replacements
from mobileprep.transforms.rewriting.layers import (
    along_axis,
    channel_axis,
    layer_kind,
    layout,
    output_axis,
    output_channels,
    scaled,
)

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
        folding = _MulFolding(Replacements(graph, context.tf115))
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


class _MulFolding(Struct, frozen=True):
    """Factory of the replacement of a match."""

    constants: Replacements

    def fold_as_tf115(self, match: Match) -> Sequence[Node] | Leave:
        """Fold, raise an error, or restore the nodes in the order of the original."""
        reason = _mul_use_reason(match)
        if not reason:
            _check_as_tf115(match)
            reason = _mul_shape_reason(match)
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
    return _mul_use_reason(match) or _mul_shape_reason(match)


def _mul_use_reason(match: Match) -> str:
    names = (match[label].name for label in ("layer", "weights", "factors"))
    if not match.used_outside.isdisjoint(names):
        return "the layer, its weights or the factors are used elsewhere"
    return ""


def _mul_shape_reason(match: Match) -> str:
    weights, values = (match[label].attr_tensor("value") for label in ("weights", "factors"))
    if weights.dtype != values.dtype or not weights.dtype.is_floating:
        return "weights and factors are not of one floating type"
    if _factors(match["layer"], weights, values) is None:
        return _NOT_PER_CHANNEL
    return ""


def _factors(layer: Node, weights: Tensor, values: Tensor) -> Array | None:
    channels = output_channels(layer, weights)
    if channels is None:
        return None
    return along_axis(values.array(), channels, output_axis(layer), layer_kind(layer).rank)


def _check_as_tf115(match: Match) -> None:
    """Raise the original's errors: it requires a vector, and ignores transposition in MatMul."""
    layer = match["layer"]
    weights, values = (match[label].attr_tensor("value") for label in ("weights", "factors"))
    if weights.dtype is not DType.FLOAT or values.dtype is not DType.FLOAT:
        raise _refuse(FoldBatchNorms, match, "weights and factors must be float32")
    columns = {"Conv2D": (3,), "DepthwiseConv2dNative": (2, 3), "MatMul": (1,)}[layer.op]
    if len(weights.shape) <= columns[-1]:
        raise _refuse(
            FoldBatchNorms, match, f"the weights have the bad shape {list(weights.shape)}"
        )
    if values.shape != (math.prod(weights.shape[axis] for axis in columns),):
        raise _refuse(
            FoldBatchNorms, match, f"the constant input has the bad shape {list(values.shape)}"
        )


def _refuse(kind: type[Transform], match: Match, message: str) -> TransformError:
    hint = "ignore_errors skips the step; a recipe folds all possible matches"
    return refuse(kind.transform_name, f"node {match.node.name!r}: {message}", hint)


FOLDED: Final = (GLOBAL_BATCH_NORM, "FusedBatchNorm")


def _convolution(number: int) -> OpTypePattern:
    return op(
        "Conv2D|DepthwiseConv2dNative",
        op("*", label=f"input{number}"),
        op("Const", label=f"weights{number}"),
        label=f"layer{number}",
    )


def _norm(source: OpTypePattern) -> OpTypePattern:
    constants = (op("Const", label=f"statistic{i}", borrowed=True) for i in range(4))
    return op("|".join(FOLDED), source, *constants)


_CONSTANT_INPUTS: Final = ("block_shape", "crops", "axis")
_PATTERNS: Final = (
    _norm(_convolution(0)),
    _norm(
        op(
            "BatchToSpaceND",
            _convolution(0),
            op("Const", label="block_shape"),
            op("Const", label="crops"),
            label="between",
        )
    ),
    _norm(
        op("ConcatV2", _convolution(0), _convolution(1), op("Const", label="axis"), label="between")
    ),
)


@transform("fold_old_batch_norms")
class FoldOldBatchNorms(Transform, frozen=True):
    """Replace FusedBatchNorm and BatchNormWithGlobalNormalization with scaled weights and BiasAdd.

    They may directly follow the convolution, BatchToSpaceND, or the concatenation of two
    convolutions. Source: ``fold_old_batch_norms`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Folds FusedBatchNorm and BatchNormWithGlobalNormalization into the convolutions before "
        "them."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fold every batch normalization that uses constant statistics."""
        protected = context.protected
        folding = _NormFolding(Replacements(graph, context.tf115), context.tf115)
        now = graph if context.tf115 else without_idle_controls(graph, protected)
        matched, skipped = 0, Counter[str]()
        for pattern in _PATTERNS:
            done = rewrite_all(now, Rule(pattern, folding.rewrite, folding.check), protected)
            now = done.graph
            matched += done.matched
            skipped.update(done.skipped)
        if matched:
            now = without_orphans(now, graph, protected)
        skipped.update(_unlike_norms(now, skipped.total()))
        return Result.of(Rewritten(now, matched, skipped), graph, context)


def _unlike_norms(graph: Graph, counted: int) -> dict[str, int]:
    """Count the batch normalizations that no pattern matches, by reason."""
    later = Counter(n.op for n in graph if n.op in FUSED_BATCH_NORMS and n.op not in FOLDED)
    reasons = {f"{op}, which fuse_batch_norms folds": count for op, count in later.items()}
    others = sum(n.op in FOLDED for n in graph) - counted
    if others > 0:
        reasons["no convolution with constant weights comes right before it"] = others
    return reasons


class _Part(Struct, frozen=True):
    """A convolution of a match, and its slice of the statistics."""

    number: int
    layer: Node
    weights: Tensor
    channels: slice

    @property
    def fits(self) -> bool:
        """Whether it has as many output channels as statistics."""
        count: int = self.channels.stop - self.channels.start
        return output_channels(self.layer, self.weights) == count


class _NormFolding(Struct, frozen=True):
    """Check and rewrite of matches in either mode."""

    constants: Replacements
    tf115: bool

    def check(self, match: Match) -> str:
        """Return the reason why a match cannot be folded, or an empty string."""
        reason = _use_reason(match) or _meaning_reason(match)
        if reason:
            return reason
        reason = self._shape_reason(match)
        if reason and self.tf115:
            raise _refuse(FoldOldBatchNorms, match, reason)
        return reason

    def rewrite(self, match: Match) -> Sequence[Node]:
        """Return the scaled weights, the convolutions, their biases, and the op between."""
        scale, offset = scale_and_offset(match.node, _stats(match))
        nodes: list[Node] = []
        outputs: list[Ref] = []
        for part in self._parts(match, scale.size):
            nodes += self._folded(match, part, scale[part.channels], offset[part.channels])
            outputs.append(Ref(nodes[-1].name))
        between = match.find("between")
        controls = match.node.control_inputs
        if between is None:
            last = nodes.pop()
            return [*nodes, replace(last, inputs=last.inputs + controls)]
        settings = [match[label] for label in _CONSTANT_INPUTS if match.find(label)]
        inputs = (*outputs, *between.inputs[len(outputs) :], *controls)
        return [*nodes, *settings, replace(between, name=match.node.name, inputs=inputs)]

    def _folded(self, match: Match, part: _Part, scale: Array, offset: Array) -> list[Node]:
        """Return one convolution with scaled weights, and its BiasAdd."""
        layer, old = part.layer, match[f"weights{part.number}"]
        weights = self.constants.make(old, old.name, scaled(layer, part.weights, scale))
        bias_name = unique_name(f"{layer.name}_bn_offset", match.graph.by_name)
        bias = self.constants.make(old, bias_name, Tensor.packed(offset))
        attrs = {"T": attr.dtype(layer.attr_dtype("T"))}
        if "data_format" in layer.attrs:
            attrs["data_format"] = layer.attribute("data_format")
        inputs = (Ref(layer.name), Ref(bias_name))
        add = Node(_output_name(match, part), "BiasAdd", inputs, attrs=attrs)
        return [weights, match[f"input{part.number}"], layer, bias, add]

    def _shape_reason(self, match: Match) -> str:
        stats = _stats(match)
        misshapen = stats.misshapen()
        if misshapen:
            return f"the {misshapen} input has a bad shape"
        parts = self._parts(match, stats.mean.size)
        if not stats.all_float or any(p.weights.dtype is not DType.FLOAT for p in parts):
            return "weights and statistics are not all float32"
        if not all(p.fits for p in parts):
            return "the statistics have not as many channels as the weights"
        return ""

    def _parts(self, match: Match, channels: int) -> list[_Part]:
        """Return the convolutions of a match, with their channels of the statistics."""
        layers = _layers(match)
        if not self._divides(match):
            return [_Part(i, n, _weights(match, i), slice(0, channels)) for i, n in layers]
        first = _weights(match, 0)
        if self.tf115:
            # The original uses the last dimension, also for depthwise weights.
            middle = first.shape[-1] if first.shape else 0
        else:
            middle = output_channels(match["layer0"], first) or 0
        middle = min(middle, channels)
        ranges = (slice(0, middle), slice(middle, channels))
        return [_Part(i, n, _weights(match, i), ranges[i]) for i, n in layers]

    def _divides(self, match: Match) -> bool:
        """Return whether a concatenation of two convolutions stacks their channels."""
        axis_node = match.find("axis")
        if axis_node is None:
            return False
        axis = _scalar(axis_node)
        if self.tf115:
            return axis == 3
        return axis is not None and axis % 4 == channel_axis(match["layer0"])


def _output_name(match: Match, part: _Part) -> str:
    between = match.find("between")
    if between is None:
        return match.node.name
    if between.op == "BatchToSpaceND":
        return unique_name(f"{part.layer.name}/biasadd", match.graph.by_name)
    return unique_name(f"{between.name}_bn_in{part.number}", match.graph.by_name)


def _use_reason(match: Match) -> str:
    """Return why other consumers would see the change; the original breaks them or never ends."""
    numbers = [i for i, _ in _layers(match)]
    layers = {match[f"layer{i}"].name for i in numbers}
    weights = {match[f"weights{i}"].name for i in numbers}
    between = match.find("between")
    lost = set() if between is None else {between.name}
    is_used = not match.used_outside.isdisjoint(lost) or not match.read_outside.isdisjoint(layers)
    if is_used or len(layers) < len(numbers):
        return "the input of the batch normalization has other consumers"
    if not match.read_outside.isdisjoint(weights) or len(weights) < len(numbers):
        return "the weights are used elsewhere"
    consumers = match.graph.consumers.get(match.node.name, ())
    if any(r.node == match.node.name and r.index > 0 for c in consumers for r in c.inputs):
        return "the statistics that the batch normalization puts out are used"
    return ""


def _meaning_reason(match: Match) -> str:
    """Return why folding would change the result; the original folds these matches incorrectly."""
    norm = match.node
    if not is_inference(norm):
        return "the batch normalization uses the batch's statistics (is_training)"
    if any(layout(norm) != layout(layer) for _, layer in _layers(match)):
        return "convolution and batch normalization differ in data_format"
    block = match.find("block_shape")
    if block is not None and (channel_axis(norm) < 3 or block.attr_tensor("value").size > 2):
        return "BatchToSpaceND moves channels"
    return ""


def _layers(match: Match) -> list[tuple[int, Node]]:
    candidates = ((i, match.find(f"layer{i}")) for i in range(2))
    return [(i, layer) for i, layer in candidates if layer is not None]


def _weights(match: Match, number: int) -> Tensor:
    return match[f"weights{number}"].attr_tensor("value")


def _stats(match: Match) -> Statistics:
    constants = (match[f"statistic{i}"] for i in range(4))
    return statistics(match.node, [n.attr_tensor("value") for n in constants])


def _scalar(node: Node) -> int | None:
    value = node.attr_tensor("value")
    return int(value.array().reshape(-1)[0]) if value.size == 1 else None
