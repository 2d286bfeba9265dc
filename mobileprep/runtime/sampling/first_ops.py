"""Findings from the first ops of a graph about its inputs: ranges, norms, and moved axes."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.dropout import neutral_probability
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import DIVISIONS, FUSED_BATCH_NORMS, SWITCHES
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.numerics.differences import is_counted, peak, wide_type
from mobileprep.runtime.interpreter import Interpreter
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
from mobileprep.runtime.sampling.inputs import FedTensor, is_long, setting

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
# Elements of constants that scale an input: one in total, or one for each channel or pixel.
_FEW: Final = 1 << 16


def first_ops(graph: Graph, ref: Ref) -> FirstOps:
    """Follow an input through ops that move, cast, and scale it, to the first layers."""
    findings = FirstOps(probability=neutral_probability(graph, ref.node))
    values = StaticValues(graph.by_name, lambda _ref: None)
    waiting = deque([Reached(ref, 1.0, 0.0, same_shape=True)])
    seen = {ref}
    while waiting and len(seen) < MOST_NODES:
        reached = waiting.popleft()
        for node in graph.consumers.get(reached.ref.node, ()):
            for slot, source in enumerate(node.data_inputs):
                if source != reached.ref:
                    continue
                place = ReachedInput(graph, values, node, slot, reached)
                for after in _after(place, findings):
                    if after.ref not in seen:
                        seen.add(after.ref)
                        waiting.append(after)
    return findings


def _after(place: ReachedInput, findings: FirstOps) -> Iterator[Reached]:
    """Yield the outputs of an op that contain the tensor; layers only record findings."""
    node, reached = place.node, place.reached
    if node.op in _SAME_SHAPE or (node.op in _OTHER_SHAPE and place.slot == 0):
        yield from _moved(place, findings)
    elif node.op in _ARITHMETIC:
        yield from _computed(place, findings)
    elif node.op == "Neg":
        yield _scaled(reached, Ref(node.name), -reached.scale, -reached.offset)
    elif node.op == "Split" and place.slot == _SPLIT_TENSOR:
        for index in range(min(node.attr_int("num_split", 1), MOST_NODES)):
            yield reached._replace(ref=Ref(node.name, index), same_shape=False)
    elif node.op.startswith("FakeQuantWithMinMax"):
        note_limits(place, findings)
        yield reached._replace(ref=Ref(node.name))
    elif node.op == "ConcatV2":
        yield reached._replace(ref=Ref(node.name), same_shape=False)
    else:
        note(place, findings)


def _moved(place: ReachedInput, findings: FirstOps) -> Iterator[Reached]:
    """Yield the outputs of an op that keeps the values of the tensor."""
    node, reached = place.node, place.reached
    if node.op in _OTHER_SHAPE:
        note_reshaped(place, findings)
    outputs = node.attr_int("num", 1) if node.op == "Unpack" else 2 if node.op in SWITCHES else 1
    same = reached.same_shape and node.op in _SAME_SHAPE
    for index in range(min(outputs, MOST_NODES)):
        yield reached._replace(ref=Ref(node.name, index), same_shape=same)


def _computed(place: ReachedInput, findings: FirstOps) -> Iterator[Reached]:
    """Yield the result of arithmetic with a constant."""
    node, reached = place.node, place.reached
    findings.divides = findings.divides or (node.op in DIVISIONS and place.slot == 1)
    other = place.constant(1 - place.slot)
    if other is None or other.dtype.kind not in "iuf" or not 0 < other.size <= _FEW:
        note_layer(reached, findings)
        return
    note_broadcast(other.shape, reached, findings)
    scale, offset = _ARITHMETIC[node.op](reached, float(np.mean(other)), place.slot)
    if math.isfinite(scale) and math.isfinite(offset) and scale:
        yield _scaled(reached, Ref(node.name), scale, offset)


def _scaled(reached: Reached, ref: Ref, scale: float, offset: float) -> Reached:
    """Replace the tensor, scale, and offset."""
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


MOVES: Final = 0.01
"""Smallest share of its peak by which an output that responds to the input changes."""
_DATA: Final = "samples of the app are better: 'check: {data: FILE.npz}' in a recipe"

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def movements(runs: Sequence[Sequence[Array]]) -> list[float | None]:
    """Measure how much each output changes between samples, as a share of its peak.

    Returns:
        Shares from 0; for counted values, the share of elements that change. Outputs with changing
        shapes have 1, outputs without elements or numbers 0. None for a single sample, which cannot
        be compared.
    """
    return [_movement(column) for column in zip(*runs, strict=True)]


def standing_still(
    names: Sequence[str], runs: Sequence[Sequence[Array]], fed: Mapping[str, str] = _NOTHING
) -> list[str]:
    """Return warnings about outputs that make a comparison less meaningful, a sentence each."""
    columns = list(zip(*runs, strict=True))
    empty = [n for n, column in zip(names, columns, strict=True) if not sum(a.size for a in column)]
    lost = [
        name
        for name, column in zip(names, columns, strict=True)
        if name not in empty and not _has_values(column)
    ]
    still = [
        f"{name!r} by {share:.2g}"
        for name, share in zip(names, movements(runs), strict=True)
        if share is not None and share < MOVES and name not in {*empty, *lost}
    ]
    warnings = []
    if still:
        warnings.append(
            f"outputs hardly move from sample to sample: {', '.join(still)} of the peak; the "
            f"check proves little of them; {_DATA}"
        )
    if empty:
        listed = ", ".join(map(repr, empty))
        warnings.append(
            f"outputs have no elements: {listed}; the check proves nothing of them; {_DATA}"
        )
    if lost:
        shown = f"fed: {', '.join(f'{name} {text}' for name, text in fed.items())}; " if fed else ""
        listed = ", ".join(map(repr, lost))
        warnings.append(
            f"the source gives nothing but NaN or infinity for {listed}: the samples are unusable; "
            f"{shown}{_DATA}"
        )
    return warnings


def largest_movement(runs: Sequence[Sequence[Array]]) -> float:
    """Return the largest movement of any output; 1 if there is nothing to compare."""
    return max((1.0 if moved is None else moved for moved in movements(runs)), default=1.0)


def _movement(column: Sequence[Array]) -> float | None:
    if len({array.shape for array in column}) > 1:
        return 1.0
    if column[0].size == 0:
        return 0.0
    if len(column) == 1:
        if column[0].ndim == 0 or len(column[0]) < 2:
            return None
        column = list(column[0])
    if is_counted(column[0]):
        first = column[0]
        return max(float(np.mean(first != other)) for other in column[1:])
    wide = np.stack([array.astype(wide_type(array)) for array in column])
    finite = np.isfinite(wide).all(axis=0)
    highest = peak(column)
    if not finite.any() or not highest:
        return 0.0
    values = wide[:, finite]
    return float(np.abs(values - values[:1]).max() / highest)


def _has_values(column: Sequence[Array]) -> bool:
    """Return whether any element is a string or a finite number."""
    return any(a.dtype.kind in "OSU" or bool(np.isfinite(a).any()) for a in column if a.size)


# Number of nodes behind the inputs to inspect, and the variance below which a channel is ignored.
_MOST: Final = 500
_FLAT: Final = 1e-8


class NormSpread(Struct, frozen=True):
    """The spread of the values at a batch normalization's input.

    Args:
        node: the normalization.
        trained: the median of the channels' standard deviations in training.
        found: the median on samples.
    """

    node: str
    trained: float
    found: float


def first_norm_spread(graph: Graph, runs: Sequence[Mapping[str, Array]]) -> NormSpread | None:
    """Return the spread before the first fused batch norm with stored variance, or None."""
    norm = _first_norm(graph, [parse_ref(name).node for run in runs[:1] for name in run])
    variance = None if norm is None else _constant(graph, norm.data_inputs[4])
    if norm is None or variance is None or not variance.size:
        return None
    trained = np.sqrt(np.maximum(variance.astype(np.float64), 0))
    interpreter = Interpreter(graph)
    arrays = [interpreter.run([str(norm.data_inputs[0])], run)[0] for run in runs]
    axis = 1 if norm.attr_str("data_format", "NHWC").startswith("NC") else -1
    lines = [np.moveaxis(x.astype(np.float64), axis, -1).reshape(-1, x.shape[axis]) for x in arrays]
    spread = np.concatenate(lines).std(axis=0)
    counts = trained > _FLAT
    if len(spread) != len(trained) or not counts.any() or not np.isfinite(spread).all():
        return None
    ratio = float(np.median(spread[counts] / trained[counts]))
    middle = float(np.median(trained[counts]))
    return NormSpread(norm.name, middle, ratio * middle)


def _first_norm(graph: Graph, names: Sequence[str]) -> Node | None:
    waiting, seen = list(names), set(names)
    while waiting and len(seen) < _MOST:
        for node in graph.consumers.get(waiting.pop(0), ()):
            if node.op in FUSED_BATCH_NORMS and node.data_inputs[0].node in seen:
                return node
            if node.name not in seen:
                seen.add(node.name)
                waiting.append(node.name)
    return None


def _constant(graph: Graph, ref: Ref) -> Array | None:
    node = graph.get(ref.node)
    while node is not None and node.op == "Identity" and node.data_inputs:
        node = graph.get(node.data_inputs[0].node)
    return node.attr_tensor("value").array() if node is not None and node.op == "Const" else None


# Usual input ranges: unit interval, signed unit interval, bytes.
_USUAL: Final = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
_USUAL_AUDIO: Final = ((-1.0, 1.0), (-32768.0, 32767.0))
# The expected width of the range at layers: from -1 to 1.
_WIDTH: Final = 2.0
# Weight of a power of ten in width, relative to an offset of half the width.
_WIDTH_COUNTS: Final = 0.3
# Above this, none of the usual ranges fits.
_UNFIT: Final = 1.0
_STATE: Final = re.compile(r"(.*[/_])?(hidden|cell|rnn|lstm|gru)?_?states?(_\w+)?\Z", re.IGNORECASE)


class ValueRange(Struct, frozen=True):
    """The range of values to draw, and its reason.

    Args:
        low: the lowest value.
        high: the highest value.
        reason: in words, for the report; empty if unknown.
        is_of_graph: whether constants of the graph determine the range, rather than a name or a
            type.
    """

    low: float
    high: float
    reason: str = ""
    is_of_graph: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        return self.low, self.high

    def __str__(self) -> str:
        reason = self.reason or "the graph does not show the range"
        ends = f"{self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"
        return f"{ends} ({reason})"


def value_ranges(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    """Return the ranges to try, likeliest first; a single one if the range is known."""
    limits = type_limits(fed.dtype)
    if limits is not None:
        return (ValueRange(*limits, f"it is {fed.dtype.short}"),)
    if not fed.dtype.is_floating:
        return _whole_numbers(fed, ops)
    if ops.limits is not None:
        return (ValueRange(*ops.limits, "the graph states it", is_of_graph=True),)
    steered = setting(fed, ops)
    if steered is not None:
        reason = "from its name" if ops.probability is None else "it turns the dropout off"
        return (ValueRange(steered, steered, reason),)
    if _STATE.match(fed.ref.node):
        return (ValueRange(-0.5, 0.5, "it is named as a state"),)
    usual: Sequence[tuple[float, float]] = _USUAL
    if ops.is_audio or is_long(fed.shape or ()):
        usual = _USUAL_AUDIO
    scaled = [layer for layer in ops.layers if layer != (1.0, 0.0)]
    if scaled and len(scaled) == len(ops.layers):
        reason = "the first operations scale it so"
        if not scaled[0][1] and not ops.is_audio:
            # An input that is only multiplied is not centered around zero.
            usual = [ends for ends in usual if ends[0] >= 0] or usual
        low, high = min(usual, key=lambda ends: _unfitness(ends, *scaled[0]))
        if not ops.is_image and _unfitness((low, high), *scaled[0]) > _UNFIT:
            # Custom measurements, normalized by their mean and deviation.
            low, high = _undone(*scaled[0])
        return (ValueRange(low, high, reason, is_of_graph=True),)
    return tuple(ValueRange(low, high) for low, high in usual)


def type_limits(dtype: DType) -> tuple[int, int] | None:
    """Return the range of an 8-bit type, which inputs use in full; None for other types."""
    kind = dtype.numpy
    if kind is None or kind.itemsize != 1 or kind.kind not in "iu":
        return None
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)


def _whole_numbers(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    if ops.rows is not None:
        return (ValueRange(0, ops.rows - 1, "it chooses rows of a table"),)
    if ops.is_image:
        return (ValueRange(0, 255, f"it is an image of {fed.dtype.short}"),)
    return (ValueRange(0, 1),)


def _undone(scale: float, offset: float) -> tuple[float, float]:
    """Return the range that the scale and offset map to -2 to 2."""
    ends = sorted((end - offset) / scale for end in (-_WIDTH, _WIDTH))
    return ends[0], ends[1]


def _unfitness(ends: tuple[float, float], scale: float, offset: float) -> float:
    """Measure how far a scaled range is from being centered around zero with a width of two."""
    low, high = sorted(scale * end + offset for end in ends)
    width = high - low
    off_middle = abs(low + high) / 2 / width
    return off_middle + _WIDTH_COUNTS * abs(math.log10(width / _WIDTH))
