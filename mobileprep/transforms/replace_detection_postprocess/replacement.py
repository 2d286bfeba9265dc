"""The nodes that take the place of a detection post-processor."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.replace_detection_postprocess.recognition import Detector

PREFIX: Final = "detection_postprocess"
"""What the names of new nodes begin with."""
KEEP_FLOAT: Final = "_keep_float"
"""The attribute of nodes that are not quantized for LiteRT."""
_OP: Final = "TFLite_Detection_PostProcess"
_SMALLEST: Final = 1e-20


class Replacement:
    """The nodes in place of a post-processor."""

    def __init__(self, graph: Graph, found: Detector) -> None:
        self._fresh = FreshNames(n.name for n in graph)
        self._found = found
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        """The new nodes; the last ones have the names of the graph's outputs."""
        found, anchors = self._found, self._found.anchors
        count = len(anchors)
        scale = np.array(found.scales, np.float32)
        shape = self._constant("shape", np.array([1, count, 4], np.int32))
        encodings = self._node("Reshape", "encodings", found.encodings, shape, Tshape=DType.INT32)
        shape = self._constant("shape", np.array([1, count, found.columns], np.int32))
        scores = self._node("Reshape", "scores", found.scores, shape, Tshape=DType.INT32)
        # Boxes as two corners, cut to the image.
        relative = self._mul("relative", encodings, 1 / scale)
        centers = self._add(
            "centers",
            self._mul("offsets", self._columns(relative, 0), anchors[:, 2:]),
            self._constant("anchor_centers", anchors[:, :2]),
        )
        sizes = self._node("Exp", "sizes", self._columns(relative, 2))
        halves = self._mul("halves", sizes, anchors[:, 2:] / np.float32(2))
        low = self._clipped("low", self._node("Sub", "low", centers, halves))
        high = self._clipped("high", self._add("high", centers, halves))
        extent = self._node("Sub", "extent", high, low)
        # A box without area in the image is no detection.
        axis = self._constant("axis", np.array([2], np.int32))
        least = self._node(
            "Min", "least_extent", extent, axis, Tidx=DType.INT32, keep_dims=attr.boolean(True)
        )
        zero = self._constant("zero", np.array(0, np.float32))
        inside = self._node("Greater", "inside", least, zero)
        factor = self._raw("Cast", "factor", [inside], SrcT=DType.BOOL, DstT=DType.FLOAT)
        scores = self._node("Mul", "scores_inside", scores, factor)
        if found.clips_first:
            encodings = self._encoded(low, high, extent, scale)
        last = self._raw(
            _OP,
            _OP,
            [encodings, scores, self._constant("anchors", anchors)],
            **{
                **found.options,
                **dict(
                    zip(
                        (f"{s}_scale" for s in "yxhw"),
                        map(attr.floating, found.scales),
                        strict=True,
                    )
                ),
            },
        )
        classes = Ref(last.node, 1)
        if found.first_class:
            offset = self._constant("first_class", np.array(found.first_class, np.float32))
            classes = self._node("Add", "classes", classes, offset)
        results = {
            "boxes": self._clipped("boxes", last),
            "classes": classes,
            "scores": Ref(last.node, 2),
            "count": Ref(last.node, 3),
        }
        for role, name in found.outputs.items():
            attrs = {"T": attr.dtype(DType.FLOAT)}
            result = results[role]
            if role == "count" and found.count_type is not DType.FLOAT:
                kinds = {"SrcT": attr.dtype(DType.FLOAT), "DstT": attr.dtype(found.count_type)}
                self._nodes.append(Node(name, "Cast", (result,), "", kinds))
            else:
                self._nodes.append(Node(name, "Identity", (result,), "", attrs))
        return self._nodes

    def _encoded(self, low: Ref, high: Ref, extent: Ref, scale: Array) -> Ref:
        """The encodings of boxes that were cut to the image."""
        anchors = self._found.anchors
        middle = self._mul("middle", self._add("sum", low, high), np.array(0.5, np.float32))
        from_anchor = self._node(
            "Sub", "from_anchor", middle, self._constant("anchor_centers", anchors[:, :2])
        )
        offsets = self._mul("clipped_offsets", from_anchor, scale[:2] / anchors[:, 2:])
        smallest = self._constant("smallest", np.array(_SMALLEST, np.float32))
        positive = self._node("Maximum", "positive", extent, smallest)
        growth = self._mul("growth", positive, 1 / anchors[:, 2:])
        sizes = self._mul("clipped_sizes", self._node("Log", "log", growth), scale[2:])
        axis = self._constant("axis", np.array(2, np.int32))
        return self._raw(
            "ConcatV2",
            "clipped_encodings",
            [offsets, sizes, axis],
            T=DType.FLOAT,
            Tidx=DType.INT32,
            N=attr.integer(2),
        )

    def _columns(self, value: Ref, start: int) -> Ref:
        begin = self._constant("begin", np.array([0, 0, start], np.int32))
        size = self._constant("size", np.array([-1, -1, 2], np.int32))
        return self._node("Slice", "columns", value, begin, size, Index=DType.INT32)

    def _clipped(self, name: str, value: Ref) -> Ref:
        one, zero = (
            self._constant(n, np.array(v, np.float32)) for n, v in (("one", 1), ("zero", 0))
        )
        most = self._node("Minimum", f"{name}_below_one", value, one)
        return self._node("Maximum", f"{name}_clipped", most, zero)

    def _mul(self, name: str, value: Ref, factor: Array) -> Ref:
        return self._node("Mul", name, value, self._constant(f"{name}_factor", factor))

    def _add(self, name: str, value: Ref, other: Ref) -> Ref:
        return self._node("Add", name, value, other)

    def _constant(self, name: str, value: Array) -> Ref:
        node = constant(
            self._fresh.name(f"{PREFIX}/{name}"), Tensor.of(np.ascontiguousarray(value))
        )
        self._nodes.append(node)
        return Ref(node.name)

    def _node(self, op: str, name: str, *inputs: Ref, **attrs: AttrValue | DType) -> Ref:
        return self._raw(op, name, list(inputs), T=DType.FLOAT, **attrs)

    def _raw(self, op: str, name: str, inputs: list[Ref], **attrs: AttrValue | DType) -> Ref:
        values = {k: attr.dtype(v) if isinstance(v, DType) else v for k, v in attrs.items()}
        values[KEEP_FLOAT] = attr.boolean(True)
        node = Node(self._fresh.name(f"{PREFIX}/{name}"), op, tuple(inputs), "", values)
        self._nodes.append(node)
        return Ref(node.name)
