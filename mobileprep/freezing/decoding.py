"""Images that a graph decodes itself: the tensor to feed instead, and its preprocessing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.freezing.fetchable import always_there
from mobileprep.freezing.flows import Flows
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import DIVISIONS, SUMS
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array

_DECODERS: Final = frozenset(
    {"DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeAndCropJpeg"}
)
_PREPROCESSING_MOVES: Final = frozenset(
    {"Cast", "ExpandDims", "Squeeze", "Reshape", "Identity", "Pack", "Slice", "StridedSlice"}
    | {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea", "Reverse"}
    | {"ReverseV2", "Transpose"}
)
_MEASURES: Final = frozenset({"Shape", "Size", "Rank"})
# Longer than any preprocessing.
_MOST_STEPS: Final = 40
# Channels of an image: a larger constant is not a mean or a deviation.
_MOST_CHANNELS: Final = 4


@dataclass(frozen=True)
class DecodedImage:
    """An image that a graph decodes.

    Args:
        ref: the decoded and preprocessed tensor, which the app can feed.
        contents: the tensor of the file's content.
        formula: how ``ref`` follows from pixels ``x`` from 0 to 255.
        is_fed: whether the app feeds the content, so that it is not constant.
    """

    ref: Ref
    contents: Ref
    formula: str
    is_fed: bool = False


def decoded_images(graph: Graph, flows: Flows, entries: Collection[Ref]) -> list[DecodedImage]:
    """The images that a graph decodes from a constant, or from a content that the app feeds.

    Args:
        graph: the graph.
        flows: its flows.
        entries: the tensors that an app may feed.
    """
    fed = {ref.node for ref in entries}
    images = []
    for node in graph:
        if node.op in _DECODERS and node.data_inputs:
            image = _followed(graph, flows, node)
            if always_there(graph, [graph[image.ref.node]]):
                is_fed = not fed.isdisjoint(flows.leading_to([node.name]))
                images.append(replace(image, is_fed=is_fed))
    return images


def _followed(graph: Graph, flows: Flows, decoder: Node) -> DecodedImage:
    """Follow an image to the last op of its preprocessing."""
    ref = Ref(decoder.name)
    scale, offset = np.ones(()), np.zeros(())
    for _ in range(_MOST_STEPS):
        takers = [n for n, _ in flows.takers(ref.node) if n.op not in _MEASURES]
        if len(takers) != 1:
            break
        (node,) = takers
        if node.op not in _PREPROCESSING_MOVES:
            step = _affine_step(graph, node, ref, scale, offset)
            if step is None:
                break
            scale, offset = step
        elif node.data_inputs.index(ref) or _is_split(node):
            break
        ref = Ref(node.name)
    return DecodedImage(ref, decoder.data_inputs[0], _formula(scale, offset))


def _is_split(node: Node) -> bool:
    """Whether an op joins the image with others."""
    return node.op == "Pack" and len(node.data_inputs) > 1


def _affine_step(
    graph: Graph, node: Node, ref: Ref, scale: Array, offset: Array
) -> tuple[Array, Array] | None:
    """The scale and offset after an op; None for an op that is not preprocessing."""
    tensors = node.data_inputs
    if len(tensors) != 2 or ref not in tensors:
        return None
    slot = tensors.index(ref)
    constant = constant_behind(graph, tensors[1 - slot])
    if constant is None or constant.size > _MOST_CHANNELS or not constant.dtype.is_floating:
        return None
    value = constant.array().astype(np.float64).ravel()
    value = value[0] if value.size == 1 else value
    if node.op in SUMS:
        return scale, offset + value
    if node.op == "Sub":
        return (scale, offset - value) if not slot else (-scale, value - offset)
    if node.op == "Mul":
        return scale * value, offset * value
    if node.op in DIVISIONS and not slot and np.all(value):
        return scale / value, offset / value
    return None


def _formula(scale: Array, offset: Array) -> str:
    """``(x - 128) / 128`` for a scale of 1/128 and an offset of -1."""
    if not np.all(scale):
        return "x"
    mean, deviation = -offset / scale, 1 / scale
    shifted = "x" if not np.any(mean) else f"x - {_shown(mean)}"
    if np.all(np.isclose(deviation, 1)):
        return shifted
    return f"({shifted}) / {_shown(deviation)}" if np.any(mean) else f"x / {_shown(deviation)}"


def _shown(value: Array) -> str:
    numbers = [f"{number:.6g}" for number in np.atleast_1d(value)]
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers)}]"
