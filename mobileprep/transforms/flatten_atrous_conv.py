"""Flatten an atrous convolution into an ordinary one with a larger filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.reachability import without_orphans
from mobileprep.graph.refs import Ref
from mobileprep.graph.rewrite import Rewritten, Rule, rewrite, rewrite_all
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.clipping import Replacements
from mobileprep.transforms.rewriting.layers import layout

_SETTINGS: Final = ("block", "paddings", "block_after", "crops")
_PATTERN: Final = op(
    "BatchToSpaceND",
    op(
        "Conv2D|DepthwiseConv2dNative",
        op(
            "SpaceToBatchND",
            op("*", label="source"),
            op("*", label="block"),
            op("*", label="paddings"),
            label="to_batch",
        ),
        op("*", label="filter"),
        label="layer",
    ),
    op("*", label="block_after"),
    op("*", label="crops"),
)
# A filter with this many elements takes 256 MB; malicious block sizes must not allocate more.
_LARGEST_FILTER: Final = 1 << 26


@transform("flatten_atrous_conv")
class FlattenAtrousConv(Transform, frozen=True):
    """Replace SpaceToBatchND, a convolution, and BatchToSpaceND with a single convolution.

    The filter has zeros between the elements of the original, and the results are the same.

    Source: ``flatten_atrous_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Replaces a convolution between SpaceToBatchND and BatchToSpaceND by one with a larger "
        "filter of mostly zeros."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Flatten every atrous convolution with constant settings."""
        protected = context.protected
        flattening = _Flattening(Replacements(graph, context.tf115), context.tf115)
        if context.tf115:
            rule = Rule(_PATTERN, flattening.rewrite, flattening.check)
            return Result.of(rewrite(graph, rule, protected), graph, context)
        pattern = _PATTERN.borrowing("source", *_SETTINGS)
        done = rewrite_all(graph, Rule(pattern, flattening.rewrite, flattening.check), protected)
        if done.matched:
            now = without_orphans(done.graph, graph, protected)
            done = Rewritten(now, done.matched, done.skipped)
        return Result.of(done, graph, context)


class _Flattening(Struct, frozen=True):
    """Check and rewrite of matches in either mode."""

    constants: Replacements
    tf115: bool

    def check(self, match: Match) -> str:
        """Return the reason why a match cannot be flattened, or an empty string."""
        reason = _missing_constant(match)
        if reason and self.tf115:
            message = f"node {match.node.name!r}: {reason}"
            raise refuse(FlattenAtrousConv.transform_name, message, "fold constants first")
        if not reason and match["filter"].name in match.read_outside:
            # The original also gives the larger filter to its other consumers.
            reason = "the filter is used elsewhere"
        return reason or self._meaning_reason(match)

    def rewrite(self, match: Match) -> Sequence[Node]:
        """Return the input, the larger filter, and the convolution under the last node's name."""
        layer, old, to_batch = match["layer"], match["filter"], match["to_batch"]
        block = _ints(match["block"])
        large = self.constants.make(old, old.name, _spread(old.attr_tensor("value"), block))
        parts = (layer, to_batch, match.node)
        controls = dict.fromkeys(r for part in parts for r in part.control_inputs)
        names = ("T", "strides", "data_format", "use_cudnn_on_gpu")
        attrs = {name: layer.attrs[name] for name in names if name in layer.attrs}
        attrs["padding"] = attr.string(_padding(match) or "SAME")
        # The original omits the output number.
        source = replace(to_batch.inputs[0], explicit=False)
        inputs = (source, Ref(large.name), *controls)
        flat = replace(layer, name=match.node.name, inputs=inputs, attrs=attrs)
        return [match["source"], large, flat]

    def _meaning_reason(self, match: Match) -> str:
        layer = match["layer"]
        if layout(layer) != "NHWC" or any(s != 1 for s in layer.attr_ints("strides")):
            return "the convolution has strides, or channels first"
        if any(d != 1 for d in layer.attr_ints("dilations", (1,))):
            return "the convolution has dilations of its own"
        if not all(match[label].op == "Const" for label in _SETTINGS):
            # The original assumes that these compensate for the larger filter.
            return "" if self.tf115 else "paddings and crops are not constant"
        if not np.array_equal(_ints(match["block"]), _ints(match["block_after"])):
            return "the blocks before and after the convolution differ"
        return "" if _padding(match) else "paddings and crops are those of no ordinary convolution"


def _missing_constant(match: Match) -> str:
    block, filter_node = match["block"], match["filter"]
    if block.op != "Const" or filter_node.op != "Const":
        return "block shape and filter are not constant"
    weights = filter_node.attr_tensor("value")
    if weights.dtype is not DType.FLOAT or len(weights.shape) != 4:
        return f"the filter is not a float32 tensor of four dimensions, but {weights}"
    sizes = _ints(block)
    if sizes.shape != (2,) or not (sizes > 0).all():
        return f"the block shape is not a pair of positive numbers, but {sizes.tolist()}"
    height, width, *channels = weights.shape
    elements = _reach(height, int(sizes[0])) * _reach(width, int(sizes[1])) * channels[0]
    if elements * channels[1] > _LARGEST_FILTER:
        return "the larger filter would be beyond all measure"
    return ""


def _padding(match: Match) -> str:
    """Return the padding of the equivalent ordinary convolution, or an empty string if none fits.

    The zeros padded before, minus the elements cropped after, must equal the padding that SAME or
    VALID applies for the larger filter.
    """
    layer, weights = match["layer"], match["filter"].attr_tensor("value")
    if any(match[label].op != "Const" for label in _SETTINGS):
        return "SAME"
    block = _ints(match["block"])
    before, after = _pairs(match["paddings"]), _pairs(match["crops"])
    if before is None or after is None or after[:, 0].any():
        return ""
    around = before - after
    extra = np.array([_reach(n, int(b)) - 1 for n, b in zip(weights.shape, block, strict=False)])
    if layer.attr_str("padding") == "SAME":
        # Inside the batch, an even filter is padded asymmetrically by a whole block.
        odd = all(n % 2 for n in weights.shape[:2])
        return "SAME" if odd and not around.any() and not before[:, 0].any() else ""
    if layer.attr_str("padding") != "VALID":
        return ""
    if np.array_equal(around, np.stack([extra // 2, extra - extra // 2], axis=1)):
        return "SAME"
    return "" if around.any() else "VALID"


def _pairs(node: Node) -> Array | None:
    values = _ints(node)
    return values if values.shape == (2, 2) else None


def _ints(node: Node) -> Array:
    value = node.attr_tensor("value")
    return (
        value.array().astype(np.int64) if value.dtype in (DType.INT32, DType.INT64) else np.empty(0)
    )


def _reach(size: int, block: int) -> int:
    """Return the extent of a filter with its elements a block apart."""
    return (size - 1) * block + 1


def _spread(weights: Tensor, block: Array) -> Tensor:
    """Insert zeros between the elements of a filter of shape [height, width, in, out]."""
    down, right = (int(b) for b in block)
    height, width, *channels = weights.shape
    large = np.zeros((_reach(height, down), _reach(width, right), *channels), np.float32)
    large[::down, ::right] = weights.array()
    return Tensor.packed(large)
