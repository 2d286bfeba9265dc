"""Conv2D with the padding and the resizing before it in one op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.pattern import Match, OpTypePattern
from mobileprep.ir.refs import Ref
from mobileprep.ir.rewrite import Leave, Rewritten, Rule, rewrite, rewrite_all
from mobileprep.rewriting.layers import layout

Fusion = Callable[[Match], Sequence[Node] | Leave]
"""``match -> the nodes that take its place``."""

_ONE_IMAGE: Final = "the fused op is right for batches of one image only"
_TYPES: Final = (DType.FLOAT, DType.HALF, DType.DOUBLE)


def fuse(
    graph: Graph, protected: Collection[str], pattern: OpTypePattern, fused: Fusion, *, tf115: bool
) -> Rewritten:
    """Replace every place of a pattern, which labels ``conv``, ``pad`` and ``resize``.

    1.15 looks once, and with ``tf115`` so does this; otherwise places that share a node are all
    fused.
    """
    rule = Rule(pattern, fused, reason_not_to_fuse)
    run = rewrite if tf115 else rewrite_all
    return run(graph, rule, protected)


def faults(done: Rewritten) -> tuple[str, ...]:
    """What TensorFlow's kernels of the fused ops get wrong, as seen in 2.21."""
    return (_ONE_IMAGE,) if done.matched else ()


def reason_not_to_fuse(match: Match) -> str:
    """Why the fused op would not compute the same; the original fuses all the same."""
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


def fused_node(match: Match, op: str, inputs: Sequence[Ref], **attrs: AttrValue) -> Node:
    """The fused op, under the convolution's name, after whatever the single ops ran after."""
    conv = match["conv"]
    parts = (n for n in map(match.find, ("conv", "pad", "resize")) if n is not None)
    controls = dict.fromkeys(r for part in parts for r in part.control_inputs)
    kept = {name: conv.attribute(name) for name in ("T", "padding", "strides")}
    return Node(conv.name, op, (*inputs, *controls), attrs={**attrs, **kept})


def align_corners(resize: Node) -> AttrValue:
    """The resizing's attribute, under whatever name."""
    return resize.attrs.get("align_corners", attr.boolean(False))
