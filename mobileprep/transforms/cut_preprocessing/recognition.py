"""Recognize the decoder of images or audio, and the ops that prepare it for the network."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.data.options import Preprocessing
from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.numerics.image_files import central_crop
from mobileprep.ops.numerics.resizing import Sampling, resize_bilinear, resize_nearest
from mobileprep.runtime.interpreter import Interpreter

IMAGE_DECODERS: Final = frozenset({"DecodeJpeg", "DecodePng", "DecodeBmp"})
SOUND_DECODER: Final = "DecodeWav"

_MOVES: Final = frozenset({"Identity", "StopGradient", "Snapshot", "ExpandDims", "Squeeze", "Cast"})
_RESIZES: Final = {"ResizeBilinear": "bilinear", "ResizeNearestNeighbor": "nearest"}
_SCALES: Final = frozenset({"Mul", "Add", "AddV2", "Sub", "RealDiv", "Div", "BiasAdd"})
_RANDOM: Final = ("Random", "SampleDistorted", "AdjustHue", "AdjustSat", "AdjustContrast")
# Image sizes on which the box of a crop must be that of tf.image.central_crop.
_SIZES: Final = ((100, 200), (333, 517), (64, 65), (7, 9))
_MOST_STEPS: Final = 100


class Front(Struct, frozen=True):
    """The first ops of a graph that belong in the app.

    Args:
        preprocessing: their meaning.
        last: the tensor that the new input replaces.
        dtype: its dtype.
        shape: its shape, with -1 for unknown sizes.
        cut: names of the recognized nodes.
    """

    preprocessing: Preprocessing
    last: Ref
    dtype: DType
    shape: TensorShape
    cut: tuple[str, ...]


class NoFrontError(Exception):
    """The reason why a graph has no front to cut, one sentence."""


def find_front(graph: Graph) -> Front:
    """Return the decoder of a graph and the recognized ops after it.

    Raises:
        NoFrontError: the graph has none or several decoders, reads decoded images in several
            places, or distorts them at random.
    """
    decoders = [n for n in graph if n.op in IMAGE_DECODERS or n.op == SOUND_DECODER]
    if len(decoders) != 1:
        message = f"the graph has {len(decoders) or 'no'} decoders of images or audio, not one"
        raise NoFrontError(message)
    (decoder,) = decoders
    contents = graph.get(decoder.data_inputs[0].node) if decoder.data_inputs else None
    if contents is None or contents.op not in ("Placeholder", "PlaceholderWithDefault", "Const"):
        message = f"{decoder.name!r} does not decode an input of the graph"
        raise NoFrontError(message)
    if decoder.op == SOUND_DECODER:
        return _sound(graph, decoder)
    return _Walk(graph, decoder).front()


def _sound(graph: Graph, decoder: Node) -> Front:
    samples, channels = (
        decoder.attr_int(name, -1) for name in ("desired_samples", "desired_channels")
    )
    reads_rate = any(
        ref.node == decoder.name and ref.index == 1
        for node in graph.consumers.get(decoder.name, ())
        for ref in node.data_inputs
    )
    return Front(
        Preprocessing(
            decoder.name,
            decoder.name,
            desired_samples=samples if samples > 0 else None,
            desired_channels=channels if channels > 0 else None,
            rate=f"{decoder.name}_sample_rate" if reads_rate else "",
            is_audio=True,
        ),
        Ref(decoder.name),
        DType.FLOAT,
        (max(samples, -1), channels if channels > 0 else -1),
        (decoder.name,),
    )


class _Walk:
    """Follow a decoded image through ops with a single consumer."""

    def __init__(self, graph: Graph, decoder: Node) -> None:
        self._graph = graph
        self._decoder = Ref(decoder.name)
        self._values = StaticValues(graph.by_name, lambda _ref: None)
        channels = decoder.attr_int("channels", 0)
        self._count = channels if channels in (1, 3) else 0
        self._ref = self._decoder
        self._shape: tuple[int, ...] = (-1, -1, self._count or -1)
        self._dtype = decoder.attr_dtype("dtype") if decoder.op == "DecodePng" else DType.UINT8
        self._cut = [decoder.name]
        # The value of a channel: pixel * scale + offset.
        self._scale = np.ones(max(self._count, 1), np.float64)
        self._offset = np.zeros(max(self._count, 1), np.float64)
        self._found = Preprocessing(
            str(self._decoder), "", channels="grayscale" if channels == 1 else "rgb"
        )

    def front(self) -> Front:
        if not self._count:
            message = f"{self._decoder.node!r} does not set 'channels' to 1 or 3"
            raise NoFrontError(message)
        if self._dtype is not DType.UINT8:
            message = f"{self._decoder.node!r} decodes {self._dtype.short}, not uint8"
            raise NoFrontError(message)
        for _ in range(_MOST_STEPS):
            node = self._next()
            if node is None or not self._step(node):
                break
            self._cut.append(node.name)
            self._ref = Ref(node.name)
        std, mean = 1 / self._scale, -self._offset / self._scale
        preprocessing = replace(
            self._found,
            input=str(self._ref),
            mean=_short(mean),
            std=_short(std),
        )
        return Front(preprocessing, self._ref, self._dtype, self._shape, tuple(self._cut))

    def _next(self) -> Node | None:
        """Return the only node that reads the pixels; nodes that read their shape are ignored."""
        readers = [
            node
            for node in self._graph.consumers.get(self._ref.node, ())
            if node.op != "Shape" and self._ref in node.data_inputs
        ]
        random = [n for n in readers if n.op.startswith(_RANDOM)]
        if random:
            message = f"{random[0].name!r} ({random[0].op}) distorts images at random, for training"
            raise NoFrontError(message)
        if len(readers) > 1:
            if self._ref == self._decoder:
                names = ", ".join(repr(node.name) for node in readers[:3])
                message = f"several nodes read the decoded image: {names}"
                raise NoFrontError(message)
            return None
        return readers[0] if readers and readers[0].data_inputs.count(self._ref) == 1 else None

    def _step(self, node: Node) -> bool:
        """Record the meaning of an op; return whether it is recognized."""
        if node.op in _MOVES:
            return self._move(node)
        if node.op in _RESIZES:
            return self._resize(node)
        if node.op in _SCALES:
            return self._affine(node)
        if node.op == "Slice":
            return self._crop(node)
        if node.op in ("ReverseV2", "StridedSlice"):
            return self._reverse(node)
        return False

    def _constant(self, node: Node, slot: int) -> Array | None:
        """Return the elements of an input if they are constant and there are any."""
        if slot >= len(node.data_inputs):
            return None
        value = self._values.value(node.data_inputs[slot])
        return value if value is not None and value.size else None

    def _move(self, node: Node) -> bool:
        if node.op == "Cast":
            target = node.attr_dtype("DstT")
            if target is not DType.FLOAT:
                return False
            self._dtype = target
        elif node.op == "ExpandDims":
            axis = self._constant(node, 1)
            if axis is None or len(self._shape) != 3 or int(axis.reshape(-1)[0]) not in (0, -4):
                return False
            self._shape = (1, *self._shape)
        elif node.op == "Squeeze":
            axes = node.attr_ints("squeeze_dims")
            if len(self._shape) != 4 or tuple(axes) not in ((0,), (-4,)):
                return False
            self._shape = self._shape[1:]
        return True

    def _resize(self, node: Node) -> bool:
        size = self._constant(node, 1)
        sampling = Sampling.of(node)
        if (
            size is None
            or size.shape != (2,)
            or self._found.resize is not None
            or node.data_inputs[0] != self._ref
            or (sampling.align_corners and sampling.half_pixel)
        ):
            return False
        height, width = (int(side) for side in size)
        if not 0 < min(height, width) <= max(height, width) <= 16384:
            return False
        self._found = replace(
            self._found,
            resize=(height, width),
            interpolation=_RESIZES[node.op],
            align_corners=sampling.align_corners,
            half_pixel_centers=sampling.half_pixel,
        )
        self._shape = (1, height, width, self._count)
        if node.op == "ResizeBilinear":
            self._dtype = DType.FLOAT
        return True

    def _affine(self, node: Node) -> bool:
        slot = node.data_inputs.index(self._ref)
        other = self._constant(node, 1 - slot)
        if other is None or self._dtype is not DType.FLOAT:
            return False
        if other.size not in (1, self._count) or other.shape[:-1].count(1) != max(
            other.ndim - 1, 0
        ):
            return False
        value = np.broadcast_to(other.reshape(-1).astype(np.float64), (self._count,))
        if node.op == "Mul":
            scale, offset = self._scale * value, self._offset * value
        elif node.op in ("RealDiv", "Div"):
            if slot == 1 or not value.all():
                return False
            scale, offset = self._scale / value, self._offset / value
        elif node.op == "Sub" and slot == 1:
            scale, offset = -self._scale, value - self._offset
        else:
            scale = self._scale
            offset = self._offset + (-value if node.op == "Sub" else value)
        if not (np.isfinite(scale).all() and np.isfinite(offset).all() and scale.all()):
            return False
        self._scale, self._offset = scale, offset
        return True

    def _crop(self, node: Node) -> bool:
        """Recognize ``tf.image.central_crop`` by the boxes that the graph computes."""
        preprocessing = self._found
        if (
            preprocessing.central_crop is not None
            or preprocessing.resize is not None
            or len(self._shape) != 3
        ):
            return False
        if len(node.data_inputs) != 3 or node.data_inputs[0] != self._ref:
            return False
        for share in self._shares(node):
            if all(self._is_central(node, share, size) for size in _SIZES):
                self._found = replace(preprocessing, central_crop=share)
                return True
        return False

    def _shares(self, node: Node) -> list[float]:
        """Return the constants behind the box that may be the share to keep."""
        waiting = [ref.node for ref in node.data_inputs[1:]]
        seen: dict[str, None] = {}
        while waiting and len(seen) < _MOST_STEPS:
            name = waiting.pop()
            if name in seen or name in self._cut:
                continue
            seen[name] = None
            waiting += [ref.node for ref in self._graph[name].data_inputs]
        constants = [
            self._graph[name].attr_tensor("value").array()
            for name in seen
            if self._graph[name].op == "Const"
        ]
        numbers = [
            float(c.reshape(-1)[0]) for c in constants if c.size == 1 and c.dtype.kind == "f"
        ]
        return [round(number, 6) for number in numbers if 0 < number <= 1]

    def _is_central(self, node: Node, share: float, size: tuple[int, int]) -> bool:
        pixels = np.zeros((*size, self._count), np.uint8)
        fetches = [str(ref) for ref in node.data_inputs[1:3]]
        try:
            begin, extent = Interpreter(self._graph).run(fetches, {str(self._decoder): pixels})
        except (MobileprepError, ValueError):
            return False
        expected = central_crop(pixels, share).shape
        first = [(side - length) // 2 for side, length in zip(size, expected[:2], strict=True)]
        full = [
            side - start if length < 0 else length
            for side, start, length in zip(
                pixels.shape, begin.tolist(), extent.tolist(), strict=True
            )
        ]
        return begin.tolist() == [*first, 0] and full == list(expected)

    def _reverse(self, node: Node) -> bool:
        if self._count != 3 or node.data_inputs[0] != self._ref:
            return False
        rank = len(self._shape)
        if node.op == "ReverseV2":
            axes = self._constant(node, 1)
            if axes is None or [int(axis) % rank for axis in axes] != [rank - 1]:
                return False
        elif not self._reverses_last(node, rank):
            return False
        order = {"rgb": "bgr", "bgr": "rgb"}
        self._found = replace(self._found, channels=order[self._found.channels])
        self._scale, self._offset = self._scale[::-1], self._offset[::-1]
        return True

    def _reverses_last(self, node: Node, rank: int) -> bool:
        """Return whether a StridedSlice is ``x[..., ::-1]``."""
        strides = self._constant(node, 3)
        if strides is None or node.attr_int("shrink_axis_mask", 0):
            return False
        if node.attr_int("new_axis_mask", 0):
            return False
        ellipsis, count = node.attr_int("ellipsis_mask", 0), len(strides)
        if ellipsis not in (0, 1) or (count != (2 if ellipsis else rank)):
            return False
        if strides.tolist() != [1] * (count - 1) + [-1]:
            return False
        masks = node.attr_int("begin_mask", 0) & node.attr_int("end_mask", 0) | ellipsis
        return masks == (1 << count) - 1


def _short(values: Array) -> tuple[float, ...]:
    """Return one number if all are equal, else one for each channel."""
    numbers = [float(np.float32(value)) + 0.0 for value in values]
    return (numbers[0],) if len(set(numbers)) == 1 else tuple(numbers)


def prepared(preprocessing: Preprocessing, pixels: Array) -> Array:
    """Convert decoded pixels as the generated code does.

    Args:
        pixels: uint8 [height, width, channels], RGB or gray.

    Returns:
        float32 [height, width, channels].
    """
    if preprocessing.central_crop is not None:
        pixels = central_crop(pixels, preprocessing.central_crop)
    images = pixels[np.newaxis]
    if preprocessing.resize is not None:
        sampling = Sampling(preprocessing.align_corners, preprocessing.half_pixel_centers)
        resize = resize_bilinear if preprocessing.interpolation == "bilinear" else resize_nearest
        images = resize(images, preprocessing.resize, sampling)
    if preprocessing.channels == "bgr":
        images = images[..., ::-1]
    mean, std = np.array(preprocessing.mean, np.float32), np.array(preprocessing.std, np.float32)
    values: Array = (images[0].astype(np.float32) - mean) / std
    return values
