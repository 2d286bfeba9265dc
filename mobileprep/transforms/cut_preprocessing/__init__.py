"""Cut decoding, cropping, resizing, and scaling off the front of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from mobileprep.data.options import Preprocessing
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import nodes_of, without_newly_unused
from mobileprep.graph.refs import Ref, control
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.cut_preprocessing.recognition import (
    Front,
    NoFrontError,
    find_front,
    prepared,
)

__all__ = ["CutPreprocessing", "Front", "NoFrontError", "find_front", "prepared", "without_front"]

_STATED: Final = "the app now does this: "


@transform("cut_preprocessing")
class CutPreprocessing(Transform, frozen=True):
    """Replace an image or audio decoder, and the ops that prepare its output, with an input."""

    summary = (
        "Moves decoding, cropping, resizing, channel order, and scaling into the app: an input "
        "replaces them, with the name of the last op."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Cut the front, and print the steps that the app has to do instead."""
        try:
            front = find_front(graph)
        except NoFrontError as reason:
            return Result(graph, skipped={str(reason): 1})
        conflicts = nodes_of(context.outputs) & set(front.cut)
        if conflicts:
            message = f"the output {min(conflicts)!r} is before the new input"
            raise refuse(self.transform_name, message, "name outputs after the preprocessing")
        warning = f"{_STATED}{front.preprocessing}"
        return Result(without_front(graph, front, context.outputs), 1, warnings=(warning,))


def without_front(graph: Graph, front: Front, outputs: tuple[str, ...]) -> Graph:
    """Replace the last recognized op with a placeholder, and drop the nodes that only it needs."""
    preprocessing: Preprocessing = front.preprocessing
    new = {front.last.node: _placeholder(front.last.node, front.dtype, front.shape)}
    moved = {control(name): control(front.last.node) for name in front.cut}
    if preprocessing.rate:
        moved[Ref(preprocessing.decoded, 1)] = Ref(preprocessing.rate)
    nodes = [new.get(node.name) or _redirected(node, moved) for node in graph]
    if preprocessing.rate:
        nodes.append(_placeholder(preprocessing.rate, DType.INT32, ()))
    changed = graph.with_nodes(nodes)
    cut = without_newly_unused(graph, changed, nodes_of(outputs))
    if preprocessing.decoded in cut and preprocessing.decoded != front.last.node:
        user = cut.consumers[preprocessing.decoded][0]
        message = f"{user.name!r} ({user.op}) reads the decoded image elsewhere"
        raise refuse(CutPreprocessing.transform_name, message, "keep the decoder in the graph")
    return cut


def _placeholder(name: str, dtype: DType, shape: attr.TensorShape) -> Node:
    return Node(name, "Placeholder", attrs={"dtype": attr.dtype(dtype), "shape": attr.shape(shape)})


def _redirected(node: Node, moved: Mapping[Ref, Ref]) -> Node:
    """Replace references to removed tensors, and control dependencies on removed nodes."""
    if moved.keys().isdisjoint(node.inputs):
        return node
    inputs = dict.fromkeys(moved.get(ref, ref) for ref in node.inputs if ref.is_control)
    data = tuple(moved.get(ref, ref) for ref in node.data_inputs)
    return replace(node, inputs=(*data, *inputs))
