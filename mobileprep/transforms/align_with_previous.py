"""Round weights to those of an earlier model, so that an update is a small download."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from mobileprep.core.declare import Option
from mobileprep.core.files import map_file
from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.checker import is_tflite
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.records import NARROW, LiteTensor, ModelRecord, unpacked
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.constants import Replacements, convert_floats

_LEAST_SIZE: Final = 16
# Elements that decide which constant of the previous model a constant corresponds to.
_SAMPLE: Final = 4096
_MIN_SHARE: Final = 0.5
"""Minimum share of sampled elements that must be within the tolerance."""
# A range may lose this many steps at each end, far less than clip_weights usually removes.
_MAX_CLIPPED: Final = 4.0
# Ops that convert stored weights to floats.
_DECODING: Final = frozenset(
    {"Dequantize", "Cast", "Mul", "Sub", "Reshape", "RightShift", "BitwiseAnd"}
)
_DEEPEST: Final = 8
_LITE_TYPES: Final = {
    "FLOAT32": "<f4",
    "FLOAT16": "<f2",
    "INT8": "i1",
    "UINT8": "u1",
}


class PreviousConstant(Struct, frozen=True):
    """A float constant of the previous model.

    Args:
        values: the values after dequantization, float32.
        step: distance between two values, which can be broadcast to ``values``; zero if unknown.
    """

    values: Array
    step: Array


@transform("align_with_previous")
class AlignWithPrevious(Transform, frozen=True):
    """Replace elements of float32 constants by those of an earlier, already quantized model.

    An element is replaced if it differs by at most ``tolerance`` steps. The step is the scale of
    a quantized constant, or the range of a rounded one divided by ``steps``. Other constants of
    the earlier model are not used: every change of a float counts. Constants correspond if they
    have the same shape and most elements are within the tolerance, whatever their names.

    The ends of a constant's range are kept if they moved by less than four steps, so that a later
    quantize_weights or a conversion to LiteRT uses the previous scale, and unchanged weights get
    the same integers. After round_weights, unchanged weights get the previous values.
    """

    summary = (
        "Rounds weights to those of an earlier model where they are within half a quantization "
        "step, so that an update is a small download."
    )

    previous: Annotated[
        str,
        Option("The installed model: frozen, text, memory-mapped, or `.tflite`.", format="path"),
    ]
    tolerance: Annotated[
        float,
        Option(
            "Largest difference from the previous value, in steps. Up to 0.5, the error is that of "
            "rounding; 1 also drops changes by half a step, and can undo what training changed.",
            minimum=0,
            maximum=16,
        ),
    ] = 0.5
    steps: Annotated[
        int | None,
        Option(
            "Number of steps of constants that round_weights rounded, its `num_steps`. Without it,"
            " only quantized constants are used.",
            minimum=1,
        ),
    ] = None

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace elements of constants with at least 16 elements."""
        by_size: dict[int, list[PreviousConstant]] = defaultdict(list)
        for constant in previous_constants(Path(self.previous)):
            if constant.step.all() or self.steps is not None:
                by_size[constant.values.size].append(constant)
        replacements = Replacements(graph, context.tf115)
        return convert_floats(
            graph,
            self.transform_name,
            lambda _, value: self._aligned(value, by_size, context),
            lambda node, aligned: [replacements.make(node, node.name, aligned)],
        )

    def _aligned(
        self, value: Tensor, by_size: Mapping[int, Sequence[PreviousConstant]], context: Context
    ) -> Tensor | str:
        """Return the aligned constant, or the reason to keep it."""
        if value.size < _LEAST_SIZE:
            return f"fewer than {_LEAST_SIZE} elements"
        values = value.array()
        old = self._counterpart(values, by_size.get(value.size, ()))
        if old is None:
            return "the previous model has no similar constant"
        aligned = self._snapped(values, old)
        if np.array_equal(aligned, values):
            return "it equals the previous one"
        result = Tensor.of(aligned, DType.FLOAT)
        context.offload(result)
        return result

    def _counterpart(
        self, values: Array, constants: Sequence[PreviousConstant]
    ) -> PreviousConstant | None:
        """Return the most similar constant of the previous model, in the layout of ``values``."""
        stride = max(values.size // _SAMPLE, 1)
        sample = values.reshape(-1)[::stride]
        best, best_share = None, 0.0
        for constant in constants:
            for old in _layouts(constant, values.shape):
                step = np.broadcast_to(self._step(old), values.shape).reshape(-1)[::stride]
                near = np.abs(sample - old.values.reshape(-1)[::stride]) <= self.tolerance * step
                share = float(near.mean())
                if share > best_share:
                    best, best_share = old, share
        return best if best_share >= _MIN_SHARE else None

    def _step(self, old: PreviousConstant) -> Array:
        if self.steps is None or old.step.all():
            return old.step
        span = old.values.max() - old.values.min()
        return np.asarray(span / np.float32(self.steps), np.float32)

    def _snapped(self, values: Array, old: PreviousConstant) -> Array:
        """Return the values, with those of ``old`` where they are near."""
        step = self._step(old)
        axes = tuple(i for i in range(values.ndim) if step.ndim == 0 or step.shape[i] == 1)
        low = old.values.min(axis=axes, keepdims=True)
        high = old.values.max(axis=axes, keepdims=True)
        is_end = (old.values == low) | (old.values == high)
        difference = np.abs(values - old.values)
        allowed = np.where(is_end, max(self.tolerance, _MAX_CLIPPED), self.tolerance) * step
        snapped = np.where(difference <= allowed, old.values, values)
        clipped = np.clip(snapped, low, high)
        is_close = np.abs(snapped - clipped) <= _MAX_CLIPPED * step
        return np.where(is_close, clipped, snapped).astype(np.float32)


def previous_constants(path: Path) -> Iterator[PreviousConstant]:
    """Yield the float constants of a model file, dequantized.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    data = map_file(path)
    if is_tflite(data):
        yield from _of_tflite(read_model(data, str(path)))
        return
    graph = read_graph(path)
    decoded = _Decoded(graph)
    for node in graph:
        constant = decoded.constant(node)
        if constant is not None:
            yield constant


class _Decoded:
    """The constants of a graph, with the values that its nodes dequantize them to."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def constant(self, node: Node) -> PreviousConstant | None:
        """Return the constant that a node outputs; None if it is not a float constant."""
        if node.op == "Const" and node.attr_dtype("dtype") is DType.FLOAT:
            return _constant(node.attr_tensor("value").array(), np.zeros((), np.float32))
        is_scaled = node.op == "Mul" and self._is_centred(self._input(node, 0))
        value = self._value(node, 0) if node.op == "Dequantize" or is_scaled else None
        if value is None or value.dtype is not DType.FLOAT:
            return None
        ends = [self._value(self._input(node, at), 0) for at in ((1,) if is_scaled else (1, 2))]
        numbers = [end.array() for end in ends if end is not None]
        # A product with the scales of linear_quantize_weights, or a range of 8 bits.
        step = numbers[0] if is_scaled else (numbers[1] - numbers[0]) / np.float32(255)
        return _constant(value.array(), np.abs(step))

    def _input(self, node: Node, at: int) -> Node | None:
        return self._graph.get(node.data_inputs[at].node) if at < len(node.data_inputs) else None

    def _is_centred(self, node: Node | None) -> bool:
        """Return whether a node subtracts the zero point from integers."""
        cast = self._input(node, 0) if node is not None and node.op == "Sub" else None
        return cast is not None and cast.op == "Cast" and not cast.attr_dtype("SrcT").is_floating

    def _value(self, node: Node | None, depth: int) -> Tensor | None:
        """Return the value of a constant, or of a conversion of constants."""
        if node is None or depth > _DEEPEST:
            return None
        if node.op == "Const":
            return node.attr_tensor("value")
        if node.op not in _DECODING:
            return None
        inputs = [self._value(self._graph.get(ref.node), depth + 1) for ref in node.data_inputs]
        tensors = [tensor for tensor in inputs if tensor is not None]
        if len(tensors) != len(inputs) or not _is_bounded(node, tensors):
            return None
        try:
            return evaluate_node(node, tensors)[0]
        except (InvalidGraphError, UnsupportedError):
            return None  # such as a Dequantize of another tool


def _is_bounded(node: Node, inputs: Sequence[Tensor]) -> bool:
    """Return whether a result is not much larger than its inputs, as for a hostile broadcast."""
    if node.op not in ("Mul", "Sub", "RightShift", "BitwiseAnd"):
        return True
    try:
        size = math.prod(np.broadcast_shapes(*(tensor.shape for tensor in inputs)))
    except ValueError:
        return False
    return size <= 8 * max(tensor.size for tensor in inputs)


def _constant(values: Array, step: Array) -> PreviousConstant | None:
    """Return a constant, or None if it is small, not finite, or has steps of another shape."""
    if values.size < _LEAST_SIZE or not np.isfinite(values).all() or step.ndim > values.ndim:
        return None
    # As many dimensions as the values, so that both can be transposed.
    aligned = step.reshape((1,) * (values.ndim - step.ndim) + step.shape) if step.ndim else step
    if any(
        size not in (1, whole) for size, whole in zip(aligned.shape, values.shape, strict=False)
    ):
        return None
    return PreviousConstant(values.astype(np.float32, copy=False), aligned)


def _of_tflite(model: ModelRecord) -> Iterator[PreviousConstant]:
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        data = model.buffers[tensor.buffer]
        if not len(data):
            continue
        if tensor.type in NARROW:
            elements: Array = unpacked(data, NARROW[tensor.type], tensor.shape)
        elif tensor.type in _LITE_TYPES:
            elements = np.frombuffer(data, _LITE_TYPES[tensor.type]).reshape(tensor.shape)
        else:
            continue
        constant = _constant(*_dequantized(tensor, elements))
        if constant is not None:
            yield constant


def _dequantized(tensor: LiteTensor, stored: Array) -> tuple[Array, Array]:
    """Return the values of a tensor, and its scales, which can be broadcast to them."""
    details = tensor.quantization
    if details is None or stored.dtype.kind == "f":
        return stored, np.zeros((), np.float32)
    if details.block_size:
        scales = np.repeat(details.scales, details.block_size, axis=1).reshape(stored.shape)
        return stored * scales, scales
    shape = [1] * stored.ndim
    if details.scales.size > 1:
        shape[details.axis] = details.scales.size
    scales, points = details.scales.reshape(shape), details.zero_points.reshape(shape)
    return (stored - points) * scales, scales


def _layouts(constant: PreviousConstant, shape: tuple[int, ...]) -> Iterator[PreviousConstant]:
    """Yield a constant in the layouts in which LiteRT stores weights of a shape in TensorFlow."""
    old = constant.values.shape
    if old == shape:
        yield constant
    if len(shape) == 2 and old == shape[::-1]:
        yield _moved(constant, (1, 0))
    if len(shape) == 4 and old == (shape[3], *shape[:3]):
        yield _moved(constant, (1, 2, 3, 0))
    if len(shape) == 4 and old == (1, *shape[:2], shape[2] * shape[3]):
        step = constant.step
        step = step.reshape(1, 1, *shape[2:]) if step.size > 1 else step.reshape(())
        yield PreviousConstant(constant.values.reshape(shape), step)


def _moved(constant: PreviousConstant, order: tuple[int, ...]) -> PreviousConstant:
    step = constant.step.transpose(order) if constant.step.ndim else constant.step
    return PreviousConstant(constant.values.transpose(order), step)
