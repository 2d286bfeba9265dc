"""What the first ops behind an input tell of it: its range, what it stands for, some sizes.

Networks bring their inputs into a small range before the first layer: they divide by 255,
subtract means, look rows of a table up. What is fed can be read off from that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from mobileprep.ir.dropout import neutral_probability
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import DIVISIONS, SWITCHES
from mobileprep.ir.refs import Ref
from mobileprep.ops.static_values import StaticValues
from mobileprep.runtime.sampling.findings import (
    MOST_NODES,
    FirstOps,
    Reached,
    ReachedInput,
    note,
    note_broadcast,
    note_layer,
    note_limits,
    note_reshaped,
)

_SAME_SHAPE: Final = frozenset(
    {"Identity", "Cast", "StopGradient", "Snapshot", "CheckNumerics", "Reverse", "ReverseV2"}
    | {"Maximum", "Minimum", "ClipByValue", "Enter", "Switch", "RefSwitch", "Merge"}
    | {"Select", "SelectV2", "PlaceholderWithDefault", "DebugGradientIdentity", "Print", "PrintV2"}
    | {"ReverseSequence"}
)
_OTHER_SHAPE: Final = frozenset(
    {"Reshape", "ExpandDims", "Squeeze", "Transpose", "Pad", "PadV2", "MirrorPad", "Slice"}
    | {"StridedSlice", "ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"}
    | {"Gather", "GatherV2", "GatherNd", "CropAndResize", "Unpack", "SplitV", "Tile"}
    | {"SpaceToBatchND", "SpaceToDepth"}
)
_SPLIT_TENSOR: Final = 1
# Elements of constants that scale an input: one, or one a channel or pixel.
_FEW: Final = 1 << 16


def first_ops(graph: Graph, ref: Ref) -> FirstOps:
    """Follow an input through ops that move, cast and scale it, to the first layers."""
    found = FirstOps(probability=neutral_probability(graph, ref.node))
    values = StaticValues(graph.by_name, lambda _ref: None)
    waiting = deque([Reached(ref, 1.0, 0.0, same_shape=True)])
    seen = {ref}
    while waiting and len(seen) < MOST_NODES:
        reached = waiting.popleft()
        for node in graph.consumers.get(reached.ref.node, ()):
            for slot, taken in enumerate(node.data_inputs):
                if taken != reached.ref:
                    continue
                place = ReachedInput(graph, values, node, slot, reached)
                for after in _after(place, found):
                    if after.ref not in seen:
                        seen.add(after.ref)
                        waiting.append(after)
    return found


def _after(place: ReachedInput, found: FirstOps) -> Iterator[Reached]:
    """What an op makes of the tensor; a layer makes nothing, and its findings are noted."""
    node, reached = place.node, place.reached
    if node.op in _SAME_SHAPE or (node.op in _OTHER_SHAPE and place.slot == 0):
        yield from _moved(place, found)
    elif node.op in _ARITHMETIC:
        yield from _computed(place, found)
    elif node.op == "Neg":
        yield _scaled(reached, Ref(node.name), -reached.scale, -reached.offset)
    elif node.op == "Split" and place.slot == _SPLIT_TENSOR:
        for index in range(min(node.attr_int("num_split", 1), MOST_NODES)):
            yield reached._replace(ref=Ref(node.name, index), same_shape=False)
    elif node.op.startswith("FakeQuantWithMinMax"):
        note_limits(place, found)
        yield reached._replace(ref=Ref(node.name))
    elif node.op == "ConcatV2":
        yield reached._replace(ref=Ref(node.name), same_shape=False)
    else:
        note(place, found)


def _moved(place: ReachedInput, found: FirstOps) -> Iterator[Reached]:
    """Where an op puts the tensor that leaves its values as they are."""
    node, reached = place.node, place.reached
    if node.op in _OTHER_SHAPE:
        note_reshaped(place, found)
    outputs = node.attr_int("num", 1) if node.op == "Unpack" else 2 if node.op in SWITCHES else 1
    same = reached.same_shape and node.op in _SAME_SHAPE
    for index in range(min(outputs, MOST_NODES)):
        yield reached._replace(ref=Ref(node.name, index), same_shape=same)


def _computed(place: ReachedInput, found: FirstOps) -> Iterator[Reached]:
    """What arithmetic with a constant makes of the tensor."""
    node, reached = place.node, place.reached
    found.divides = found.divides or (node.op in DIVISIONS and place.slot == 1)
    other = place.constant(1 - place.slot)
    if other is None or other.dtype.kind not in "iuf" or not 0 < other.size <= _FEW:
        note_layer(reached, found)
        return
    note_broadcast(other.shape, reached, found)
    scale, offset = _ARITHMETIC[node.op](reached, float(np.mean(other)), place.slot)
    if math.isfinite(scale) and math.isfinite(offset) and scale:
        yield _scaled(reached, Ref(node.name), scale, offset)


def _scaled(reached: Reached, ref: Ref, scale: float, offset: float) -> Reached:
    """The same with another scale and offset."""
    return reached._replace(ref=ref, scale=scale, offset=offset)


def _times(reached: Reached, c: float, _slot: int) -> tuple[float, float]:
    return reached.scale * c, reached.offset * c


def _over(reached: Reached, c: float, slot: int) -> tuple[float, float]:
    if slot or not c:
        return 0.0, 0.0
    return reached.scale / c, reached.offset / c


def _plus(reached: Reached, c: float, _slot: int) -> tuple[float, float]:
    return reached.scale, reached.offset + c


def _minus(reached: Reached, c: float, slot: int) -> tuple[float, float]:
    if slot:
        return -reached.scale, c - reached.offset
    return reached.scale, reached.offset - c


_ARITHMETIC: Final[Mapping[str, Callable[[Reached, float, int], tuple[float, float]]]] = {
    "Mul": _times,
    "RealDiv": _over,
    "Div": _over,
    "DivNoNan": _over,
    "Add": _plus,
    "AddV2": _plus,
    "BiasAdd": _plus,
    "Sub": _minus,
}
