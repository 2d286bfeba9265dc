"""Findings about an input from the layers that read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.constant_evaluation import StaticValues

# Number of nodes behind an input to inspect.
MOST_NODES: Final = 200
_FILES: Final = frozenset(
    {"DecodeWav", "DecodePng", "DecodeBmp", "DecodeJpeg", "DecodeImage", "DecodeGif"}
    | {"DecodeAndCropJpeg", "ParseExample", "ParseExampleV2", "ParseSingleExample", "DecodeRaw"}
)
_AUDIO: Final = frozenset({"AudioSpectrogram", "RFFT", "FFT"})
_CONVOLUTIONS: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "Conv3D"})
# Distance from the training mean, in standard deviations, that covers most inputs.
_SPREAD: Final = 2.0


@dataclass
class FirstOps:
    """Findings about one input; unknown ones are empty or None.

    Args:
        layers: scale and offset with which the input reaches a layer: ``scale * x + offset``.
        limits: the range that the graph itself states for the input.
        rows: number of rows of a table that the input indexes.
        file: the node that decodes the input as a file's content.
        is_audio: whether a Fourier transform reads the input.
        is_image: whether the input is convolved in two dimensions, or resized.
        channels_first: whether the channels of an image come before its rows.
        sizes: sizes that the first layers require, by axis counted from the last one, from -1 on.
        rank: the rank that the first layer requires.
        elements: number of elements of a sample, if the input is reshaped first.
        probability: the value that disables a dropout, if the input is the probability of a
            dropout.
        divides: whether a tensor is divided by the input.
    """

    layers: list[tuple[float, float]] = field(default_factory=list)
    limits: tuple[float, float] | None = None
    rows: int | None = None
    file: Node | None = None
    is_audio: bool = False
    is_image: bool = False
    channels_first: bool = False
    sizes: dict[int, int] = field(default_factory=dict)
    rank: int | None = None
    elements: int | None = None
    probability: float | None = None
    divides: bool = False


class Reached(NamedTuple):
    """A tensor that equals ``scale * x + offset`` of the input, in its shape or another."""

    ref: Ref
    scale: float
    offset: float
    same_shape: bool


class ReachedInput(NamedTuple):
    """A node that reads a reached tensor, and the input slot."""

    graph: Graph
    values: StaticValues
    node: Node
    slot: int
    reached: Reached

    def constant(self, slot: int) -> Array | None:
        """Return the value of another input, if the graph determines it."""
        inputs = self.node.data_inputs
        if slot >= len(inputs):
            return None
        ref = inputs[slot]
        for _ in range(MOST_NODES):
            node = self.graph.get(ref.node)
            if node is None or not node.data_inputs or node.op not in ("Identity", "Enter"):
                break
            ref = node.data_inputs[0]
        node = self.graph.get(ref.node)
        if node is None:
            return None
        if node.op == "Const":
            return node.attr_tensor("value").array()
        try:
            return self.values.value(ref)
        except (MobileprepError, KeyError):
            return None

    def sizes_of(self, slot: int) -> tuple[int, ...]:
        """Return the shape of a constant input without reading its elements; empty if unknown."""
        inputs = self.node.data_inputs
        node = self.graph.get(inputs[slot].node) if slot < len(inputs) else None
        while node is not None and node.op in ("Identity", "Enter") and node.data_inputs:
            node = self.graph.get(node.data_inputs[0].node)
        if node is None or node.op != "Const":
            return ()
        return node.attr_tensor("value").shape


def note(place: ReachedInput, findings: FirstOps) -> None:
    """Record the findings of an op behind which the input is not followed."""
    node, reached = place.node, place.reached
    if node.op in _FILES:
        findings.file = findings.file or node
    elif node.op in _TABLES:
        _note_table(place, findings)
    elif node.op in _AUDIO:
        findings.is_audio = True
        note_layer(reached, findings)
    elif node.op in FUSED_BATCH_NORMS and place.slot == 0:
        _note_norm(place, findings)
        note_layer(reached, findings)
    elif node.op in _CONVOLUTIONS and place.slot == 0:
        _note_convolution(place, findings)
        note_layer(reached, findings)
    elif node.op in ("MatMul", "BatchMatMul", "BatchMatMulV2") and place.slot == 0:
        weights = place.sizes_of(1)
        if reached.same_shape and len(weights) >= 2:
            flipped = node.attrs.get("transpose_b") or node.attrs.get("adj_y")
            findings.sizes.setdefault(-1, weights[-1 if flipped and flipped.value else -2])
            findings.rank = findings.rank or (2 if node.op == "MatMul" else None)
        note_layer(reached, findings)
    else:
        note_layer(reached, findings)


def note_layer(reached: Reached, findings: FirstOps) -> None:
    """Record that the input reaches a layer with its current scale and offset."""
    findings.layers.append((reached.scale, reached.offset))


def _note_convolution(place: ReachedInput, findings: FirstOps) -> None:
    node, reached = place.node, place.reached
    flat = node.op != "Conv3D"
    first = node.attr_str("data_format", "NHWC") in ("NCHW", "NCDHW")
    findings.is_image = True
    findings.channels_first = findings.channels_first or (first and reached.same_shape)
    filters = place.sizes_of(1)
    if reached.same_shape:
        findings.rank = findings.rank or (4 if flat else 5)
        if len(filters) >= 4:
            axis = (-3 if flat else -4) if first else -1
            findings.sizes.setdefault(axis, filters[-2])


def _note_norm(place: ReachedInput, findings: FirstOps) -> None:
    mean, variance = place.constant(3), place.constant(4)
    if mean is None or variance is None or not mean.size or mean.size != variance.size:
        return
    deviation = np.sqrt(np.maximum(variance.astype(np.float64), 0.0))
    low = float(np.min(mean - _SPREAD * deviation))
    high = float(np.max(mean + _SPREAD * deviation))
    _note_range(place.reached, low, high, findings)


def note_limits(place: ReachedInput, findings: FirstOps) -> None:
    """Record the range of a fake quantization op."""
    node = place.node
    if node.op == "FakeQuantWithMinMaxArgs":
        low, high = node.attr_float("min", -6.0), node.attr_float("max", 6.0)
    else:
        ends = place.constant(1), place.constant(2)
        if ends[0] is None or ends[1] is None or not ends[0].size or not ends[1].size:
            return
        low, high = float(np.min(ends[0])), float(np.max(ends[1]))
    _note_range(place.reached, low, high, findings)


def _note_range(reached: Reached, low: float, high: float, findings: FirstOps) -> None:
    ends = sorted((end - reached.offset) / reached.scale for end in (low, high))
    if findings.limits is None and all(map(math.isfinite, ends)) and ends[0] < ends[1]:
        findings.limits = ends[0], ends[1]


def note_reshaped(place: ReachedInput, findings: FirstOps) -> None:
    """Record the shape that a reshaping or resizing op requires."""
    node = place.node
    if node.op.startswith("Resize") or node.op == "CropAndResize":
        findings.is_image = True
        if place.reached.same_shape:
            findings.rank = findings.rank or 4
    if node.op != "Reshape" or not place.reached.same_shape:
        return
    target = place.constant(1)
    if target is None or target.ndim != 1 or len(target) < 2:
        return
    sizes = [int(size) for size in target]
    if sizes[0] in (-1, 1) and all(size > 0 for size in sizes[1:]):
        findings.elements = findings.elements or math.prod(sizes[1:])
        findings.is_image = findings.is_image or (len(sizes) == 4 and sizes[3] in (1, 3))


def note_broadcast(shape: tuple[int, ...], reached: Reached, findings: FirstOps) -> None:
    """Record the sizes that a constant in elementwise arithmetic requires."""
    if reached.same_shape:
        for axis in range(-len(shape), 0):
            if shape[axis] > 1:
                findings.sizes.setdefault(axis, shape[axis])


_TABLES: Final = {"Gather": 1, "GatherV2": 1, "GatherNd": 1, "OneHot": 0}


def _note_table(place: ReachedInput, findings: FirstOps) -> None:
    """Record the number of table rows, if the input is the indices."""
    node = place.node
    if place.slot != _TABLES[node.op]:
        return
    rows: int | None
    if node.op == "OneHot":
        depth = place.constant(1)
        rows = int(depth) if depth is not None and depth.size == 1 else None
    else:
        axis = place.constant(2) if node.op == "GatherV2" else None
        table = place.sizes_of(0)
        at = int(axis) if axis is not None and axis.size == 1 else 0
        rows = table[at] if -len(table) <= at < len(table) else None
    if rows is not None and rows > 0:
        findings.rows = rows if findings.rows is None else min(findings.rows, rows)
