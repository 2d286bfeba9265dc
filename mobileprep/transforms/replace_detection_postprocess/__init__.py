"""Replace the post-processor of an SSD detection model with TFLite_Detection_PostProcess."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

import numpy as np
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import ENTERS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, Result, Transform, make_transform, refuse, transform
from mobileprep.transforms.replace_detection_postprocess.recognition import (
    RAW_OUTPUTS,
    Detector,
    Images,
    recognized,
)

__all__ = ["KEEP_FLOAT", "ReplaceDetectionPostprocess"]


# Rounding may swap or drop a box whose overlap is at the threshold.
_LEAST_EQUAL: Final = 0.95


_FLOWS: Final = frozenset({"TensorArrayScatterV3", "Enter", "Exit"})


@transform("replace_detection_postprocess")
class ReplaceDetectionPostprocess(Transform, frozen=True):
    """Replace box decoding and non-maximum suppression with one TFLite_Detection_PostProcess node.

    The anchors, the scales of the box coder, the thresholds, and the limits are those of the graph.
    Boxes are clipped to the image before or after the suppression, as in the graph, and boxes
    outside of the image are dropped.

    Source: the exporter of TensorFlow's object detection API.
    """

    summary = (
        "Replaces the post-processor of an SSD model, as TensorFlow's object "
        "detection API exports it, with LiteRT's custom operator "
        "TFLite_Detection_PostProcess."
    )

    required: Annotated[
        bool, Option("Fail if the outputs do not depend on a NonMaxSuppression.")
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace the post-processor, and compare the detections on a random image."""
        images = Images(graph, context)
        detector = recognized(graph, images, self.transform_name)
        if detector is None:
            if self.required:
                message = "the outputs do not depend on a NonMaxSuppression"
                hint = "name the detections as outputs, or remove detection_postprocess"
                raise refuse(self.transform_name, message, hint)
            return Result(graph)
        nodes = Replacement(graph, detector).nodes()
        new_names = {node.name for node in nodes}
        whole = graph.with_nodes([*(n for n in graph if n.name not in new_names), *nodes])
        ends = [ref.node for ref in images.outputs]
        needed = reachable(whole, ends) | {ref.node for ref in images.inputs}
        before = reachable(graph, ends)
        remaining = [n for n in whole if n.name in needed or n.name not in before]
        done = _without_loops(
            graph.with_nodes(remaining), context, images, detector.outputs.values()
        )
        self._check(done, detector, images)
        return Result(done, 1)

    def _check(self, graph: Graph, detector: Detector, images: Images) -> None:
        """Raise an error if the detections of the replacement differ from those of the graph."""
        names = [detector.outputs[role] for role in ("boxes", "scores", "classes")]
        values = Interpreter(graph).run(names, images.feeds(0))
        expected = [images.values([name])[0] for name in names]
        equal = _share_of_equal(expected, values)
        if equal < _LEAST_EQUAL:
            message = f"the replacement finds {equal:.0%} of the detections in a random image"
            raise refuse(self.transform_name, message, RAW_OUTPUTS)


def _without_loops(
    graph: Graph, context: Context, images: Images, detections: Collection[str]
) -> Graph:
    """Unroll loops that run once for one image, such as the preprocessor's."""
    needed = reachable(graph, detections, through_control=False)
    entering = {n.data_inputs[0] for n in graph if n.op in ENTERS and n.name in needed}
    if not entering:
        return graph
    numbers = {}
    for ref in entering:
        node = graph[ref.node]
        if node.op not in {"Const", "TensorArrayV3", *_FLOWS} and ref.index == 0:
            value = images.constant(ref)
            if value is not None and value.shape == () and value.dtype == np.int32:
                numbers[node.name] = constant(node.name, Tensor.of(value))
    counted = graph.with_nodes(numbers.get(n.name, n) for n in graph)
    outputs = tuple(map(str, images.outputs))
    inputs = tuple(map(str, images.inputs))
    raising = make_transform("raise_control_flow", {"unroll": 1})
    try:
        unrolled = raising.apply(counted, replace(context, inputs=inputs, outputs=outputs)).graph
    except UnsupportedError:
        # The conversion reports the loop if LiteRT cannot express it.
        return graph
    if any(node.op == "While" for node in unrolled):
        return graph
    return _without_single_rows(unrolled, Images(unrolled, context))


def _without_single_rows(graph: Graph, images: Images) -> Graph:
    """Bypass writes and reads of tensors with a single row; these were TensorArrays."""

    def simplified(node: Node) -> Node:
        if node.op not in ("TensorScatterUpdate", "GatherV2"):
            return node
        inputs = node.data_inputs
        tensor, index, third = (images.values([str(ref)])[0] for ref in inputs)
        if tensor.ndim == 0 or len(tensor) != 1 or index.size != 1:
            return node
        is_read = node.op == "GatherV2"
        source = inputs[0] if is_read else inputs[2]
        if is_read and third.any():
            return node
        attrs = {"T": node.attrs["Tparams" if is_read else "T"]}
        if is_read and index.ndim == 0:
            attrs["squeeze_dims"] = attr.integers(0)
            return Node(node.name, "Squeeze", (source,), node.device, attrs)
        return Node(node.name, "Identity", (source,), node.device, attrs)

    done = graph.with_nodes(map(simplified, graph))
    ends_at = [ref.node for ref in (*images.inputs, *images.outputs)]
    needed, before = reachable(done, ends_at), reachable(graph, ends_at)
    return done.with_nodes(n for n in done if n.name in needed or n.name not in before)


def _share_of_equal(expected: list[Array], values: list[Array]) -> float:
    """Return the share of detections with a counterpart of the same class, score, and box."""
    rows, others = (
        np.concatenate(
            [detections[0][0], detections[1][0][:, None], detections[2][0][:, None]], axis=1
        )
        for detections in (expected, values)
    )
    rows = rows[rows[:, 4] > 0]
    close = np.isclose(rows[:, None], others[None], rtol=1e-3, atol=1e-3).all(axis=2)
    return float(close.any(axis=1).mean()) if len(rows) else 1.0


PREFIX: Final = "detection_postprocess"
"""Prefix of the names of new nodes."""


KEEP_FLOAT: Final = "_keep_float"
"""Attribute of nodes that must not be quantized for LiteRT."""


_OP: Final = "TFLite_Detection_PostProcess"


_SMALLEST: Final = 1e-20


class Replacement:
    """Nodes that replace a post-processor."""

    def __init__(self, graph: Graph, detector: Detector) -> None:
        self._fresh = FreshNames(n.name for n in graph)
        self._detector = detector
        self._nodes: list[Node] = []

    def nodes(self) -> list[Node]:
        """Return the new nodes; the last ones have the names of the graph's outputs."""
        detector, anchors = self._detector, self._detector.anchors
        count = len(anchors)
        scale = np.array(detector.scales, np.float32)
        shape = self._constant("shape", np.array([1, count, 4], np.int32))
        encodings = self._node(
            "Reshape", "encodings", detector.encodings, shape, Tshape=DType.INT32
        )
        shape = self._constant("shape", np.array([1, count, detector.columns], np.int32))
        scores = self._node("Reshape", "scores", detector.scores, shape, Tshape=DType.INT32)
        # Boxes as two corners, clipped to the image.
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
        # A box without area in the image is not a detection.
        axis = self._constant("axis", np.array([2], np.int32))
        least = self._node(
            "Min", "least_extent", extent, axis, Tidx=DType.INT32, keep_dims=attr.boolean(True)
        )
        zero = self._constant("zero", np.array(0, np.float32))
        inside = self._node("Greater", "inside", least, zero)
        factor = self._raw("Cast", "factor", [inside], SrcT=DType.BOOL, DstT=DType.FLOAT)
        scores = self._node("Mul", "scores_inside", scores, factor)
        if detector.clips_first:
            encodings = self._encoded(low, high, extent, scale)
        last = self._raw(
            _OP,
            _OP,
            [encodings, scores, self._constant("anchors", anchors)],
            **{
                **detector.options,
                **dict(
                    zip(
                        (f"{s}_scale" for s in "yxhw"),
                        map(attr.floating, detector.scales),
                        strict=True,
                    )
                ),
            },
        )
        classes = Ref(last.node, 1)
        if detector.first_class:
            offset = self._constant("first_class", np.array(detector.first_class, np.float32))
            classes = self._node("Add", "classes", classes, offset)
        results = {
            "boxes": self._clipped("boxes", last),
            "classes": classes,
            "scores": Ref(last.node, 2),
            "count": Ref(last.node, 3),
        }
        for role, name in detector.outputs.items():
            attrs = {"T": attr.dtype(DType.FLOAT)}
            result = results[role]
            if role == "count" and detector.count_type is not DType.FLOAT:
                kinds = {"SrcT": attr.dtype(DType.FLOAT), "DstT": attr.dtype(detector.count_type)}
                self._nodes.append(Node(name, "Cast", (result,), "", kinds))
            else:
                self._nodes.append(Node(name, "Identity", (result,), "", attrs))
        return self._nodes

    def _encoded(self, low: Ref, high: Ref, extent: Ref, scale: Array) -> Ref:
        """Return the encodings of boxes that were clipped to the image."""
        anchors = self._detector.anchors
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
