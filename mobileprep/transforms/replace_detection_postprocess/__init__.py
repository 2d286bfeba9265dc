"""Replaces the post-processor of an SSD detection model by TFLite_Detection_PostProcess."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

import numpy as np
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import UnsupportedError
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import ENTERS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import (
    Context,
    Result,
    Transform,
    make_transform,
    refuse,
    transform,
)
from mobileprep.transforms.replace_detection_postprocess.box_coder import RAW_OUTPUTS
from mobileprep.transforms.replace_detection_postprocess.images import Images
from mobileprep.transforms.replace_detection_postprocess.recognition import (
    Detector,
    recognized,
)
from mobileprep.transforms.replace_detection_postprocess.replacement import (
    KEEP_FLOAT,
    Replacement,
)

__all__ = ["KEEP_FLOAT", "ReplaceDetectionPostprocess"]

# Rounding may swap or drop a box whose overlap is at the threshold.
_LEAST_EQUAL: Final = 0.95
_FLOWS: Final = frozenset({"TensorArrayScatterV3", "Enter", "Exit"})


@transform("replace_detection_postprocess")
class ReplaceDetectionPostprocess(Transform, frozen=True):
    """Box decoding and the suppression of each class become one node, TFLite_Detection_PostProcess.

    The anchors, the scales of the box coder, the thresholds, and the limits are those of the graph.
    Boxes are clipped to the image before or after the suppression, as in the graph, and boxes
    outside of the image are dropped.
    Source: the exporter of TensorFlow's object detection API.
    """

    summary = (
        "Replaces the post-processor of an SSD model, as TensorFlow's object detection API exports "
        "it, by LiteRT's custom operator TFLite_Detection_PostProcess."
    )

    required: Annotated[
        bool, Option("Fail if the outputs do not depend on a NonMaxSuppression.")
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace the post-processor, and compare the detections on a random image."""
        images = Images(graph, context)
        found = recognized(graph, images, self.transform_name)
        if found is None:
            if self.required:
                message = "the outputs do not depend on a NonMaxSuppression"
                hint = "name the detections as outputs, or remove detection_postprocess"
                raise refuse(self.transform_name, message, hint)
            return Result(graph)
        nodes = Replacement(graph, found).nodes()
        made = {node.name for node in nodes}
        whole = graph.with_nodes([*(n for n in graph if n.name not in made), *nodes])
        ends = [ref.node for ref in images.outputs]
        needed = reachable(whole, ends) | {ref.node for ref in images.inputs}
        before = reachable(graph, ends)
        kept = [n for n in whole if n.name in needed or n.name not in before]
        done = _without_loops(graph.with_nodes(kept), context, images, found.outputs.values())
        self._check(done, found, images)
        return Result(done, 1)

    def _check(self, graph: Graph, found: Detector, images: Images) -> None:
        """Compare the detections of the replacement with those of the graph."""
        names = [found.outputs[role] for role in ("boxes", "scores", "classes")]
        values = Interpreter(graph).run(names, images.feeds(0))
        expected = [images.values([name])[0] for name in names]
        equal = _share_of_equal(expected, values)
        if equal < _LEAST_EQUAL:
            message = f"the replacement finds {equal:.0%} of the detections in a random image"
            raise refuse(self.transform_name, message, RAW_OUTPUTS)


def _without_loops(
    graph: Graph, context: Context, images: Images, detections: Collection[str]
) -> Graph:
    """A graph without the loops that run once for one image, such as the preprocessor's."""
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
        # The conversion names the loop if LiteRT cannot express it.
        return graph
    if any(node.op == "While" for node in unrolled):
        return graph
    return _without_single_rows(unrolled, Images(unrolled, context))


def _without_single_rows(graph: Graph, images: Images) -> Graph:
    """A graph that does not write and read the only row of tensors; these were TensorArrays."""

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
    """The share of detections that have a counterpart of the same class, score, and box."""
    rows, others = (
        np.concatenate([found[0][0], found[1][0][:, None], found[2][0][:, None]], axis=1)
        for found in (expected, values)
    )
    rows = rows[rows[:, 4] > 0]
    close = np.isclose(rows[:, None], others[None], rtol=1e-3, atol=1e-3).all(axis=2)
    return float(close.any(axis=1).mean()) if len(rows) else 1.0
