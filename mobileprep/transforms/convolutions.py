"""Flatten atrous convolutions, and fuse padding and resizing into the following convolution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.pattern import Match, OpTypePattern, op
from mobileprep.graph.reachability import without_orphans
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.rewrite import Rewritten, Rule, rewrite, rewrite_all
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.constants import Replacements
from mobileprep.transforms.rewriting.layers import layout

_SETTINGS: Final = ("block", "paddings", "block_after", "crops")
_ATROUS: Final = op(
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
        "Replaces a convolution between SpaceToBatchND and BatchToSpaceND with one "
        "with a larger filter of mostly zeros."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Flatten every atrous convolution with constant settings."""
        protected = context.protected
        flattening = _Flattening(Replacements(graph, context.tf115), context.tf115)
        if context.tf115:
            rule = Rule(_ATROUS, flattening.rewrite, flattening.check)
            return Result.of(rewrite(graph, rule, protected), graph, context)
        pattern = _ATROUS.borrowing("source", *_SETTINGS)
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


_RESIZE: Final = op("ResizeBilinear", label="resize")
_PADDINGS: Final = op("*", label="paddings")
_WEIGHTS: Final = op("*", label="weights")
_NO_PADDING: Final = Tensor.packed(np.zeros((4, 2), np.int32))
_TYPES: Final = (DType.FLOAT, DType.HALF, DType.DOUBLE)
# TensorFlow's kernels of the fused ops have this error, as of 2.21.
_ONE_IMAGE: Final = "the fused op is right for batches of one image only"


class _Fusion(Transform, frozen=True):
    """Replacement of all matches of a pattern with the labels ``conv``, ``pad``, and ``resize``."""

    of_graph_transform_tool = True
    pattern: ClassVar[OpTypePattern]

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fuse all matches; 1.15 makes a single pass, and misses matches that share a node."""
        rule = Rule(self.pattern, self._fused, _reason_not_to_fuse)
        run = rewrite if context.tf115 else rewrite_all
        done = run(graph, rule, context.protected)
        return Result.of(done, graph, context, (_ONE_IMAGE,) if done.matched else ())

    @abstractmethod
    def _fused(self, match: Match) -> Sequence[Node]:
        """Return the nodes that replace a match."""


@transform("fuse_pad_and_conv")
class FusePadAndConv(_Fusion, frozen=True):
    """Replace MirrorPad and Conv2D with FusedPadConv2D, which needs no padded copy of its input.

    Source: ``fuse_pad_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Fuses MirrorPad into the Conv2D after it, which then needs no padded copy of its input."
    )
    pattern = op(
        "Conv2D",
        op("MirrorPad", op("*", label="source"), _PADDINGS, label="pad"),
        _WEIGHTS,
        label="conv",
    )

    def _fused(self, match: Match) -> list[Node]:
        conv, pad = match["conv"], match["pad"]
        inputs = (*pad.inputs[:2], conv.inputs[1])
        node = _fused_node(match, "FusedPadConv2D", inputs, mode=pad.attribute("mode"))
        return [match["weights"], match["source"], match["paddings"], node]


@transform("fuse_resize_and_conv")
class FuseResizeAndConv(_Fusion, frozen=True):
    """Replace ResizeBilinear and Conv2D with FusedResizeAndPadConv2D and zero-size padding.

    Source: ``fuse_resize_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Fuses ResizeBilinear into the Conv2D after it."
    pattern = op("Conv2D", _RESIZE, _WEIGHTS, label="conv")

    def _fused(self, match: Match) -> list[Node]:
        name = unique_name(f"{match['conv'].name}_dummy_paddings", match.graph.by_name)
        node = _with_resize(match, Ref(name), attr.string("REFLECT"))
        return [match["weights"], constant(name, _NO_PADDING), node]


@transform("fuse_resize_pad_and_conv")
class FuseResizePadAndConv(_Fusion, frozen=True):
    """Replace ResizeBilinear, MirrorPad, and Conv2D with FusedResizeAndPadConv2D.

    Source: ``fuse_resize_pad_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Fuses ResizeBilinear and MirrorPad into the Conv2D after them."
    pattern = op("Conv2D", op("MirrorPad", _RESIZE, _PADDINGS, label="pad"), _WEIGHTS, label="conv")

    def _fused(self, match: Match) -> list[Node]:
        pad = match["pad"]
        node = _with_resize(match, pad.inputs[1], pad.attribute("mode"))
        return [match["weights"], match["paddings"], node]


def _with_resize(match: Match, paddings: Ref, mode: AttrValue) -> Node:
    conv, resize = match["conv"], match["resize"]
    corners = resize.attrs.get("align_corners", attr.boolean(False))
    inputs = (*resize.inputs[:2], paddings, conv.inputs[1])
    return _fused_node(
        match, "FusedResizeAndPadConv2D", inputs, resize_align_corners=corners, mode=mode
    )


def _reason_not_to_fuse(match: Match) -> str:
    """Return why the fused op would compute another result, which the original ignores, or ""."""
    conv, pad, resize = match["conv"], match.find("pad"), match.find("resize")
    if layout(conv) != "NHWC":
        return "the fused op has no channels first"
    if any(d != 1 for d in conv.attr_ints("dilations", (1,))):
        return "the fused op has no dilations"
    if conv.attr_str("padding") not in ("SAME", "VALID"):
        return "the fused op has no explicit padding"
    if conv.attr_dtype("T") not in _TYPES:
        return "the fused op does not take the type"
    if pad is not None and pad.attr_dtype("Tpaddings", DType.INT32) is not DType.INT32:
        return "the fused op takes paddings as int32"
    return _reason_not_to_resize(conv, resize) if resize is not None else ""


def _reason_not_to_resize(conv: Node, resize: Node) -> str:
    if resize.attr_bool("half_pixel_centers", False):
        return "the fused op has no half_pixel_centers"
    if resize.attr_dtype("T") is not conv.attr_dtype("T"):
        return "the fused op does not convert the image's type"
    return ""


def _fused_node(match: Match, op: str, inputs: Sequence[Ref], **attrs: AttrValue) -> Node:
    """Return the fused op, with the convolution's name and the control inputs of all fused ops."""
    conv = match["conv"]
    parts = (n for n in map(match.find, ("conv", "pad", "resize")) if n is not None)
    controls = dict.fromkeys(r for part in parts for r in part.control_inputs)
    conv_attrs = {name: conv.attribute(name) for name in ("T", "padding", "strides")}
    return Node(conv.name, op, (*inputs, *controls), attrs={**attrs, **conv_attrs})
