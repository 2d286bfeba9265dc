"""Fed tensors: their shapes, and sizes for unknown dimensions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UsageError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import FEEDABLE
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.ops.array.identity import LAST_AMBIGUOUS_PRODUCER
from mobileprep.ops.shape_function import ShapeConflictError, merge
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.runtime.sampling.findings import FirstOps


class FedTensor(Struct, frozen=True):
    """A tensor to feed.

    Args:
        name: as it is fed.
        dtype: its type.
        shape: its sizes, -1 for an unknown one; None for an unknown rank.
    """

    name: str
    dtype: DType
    shape: TensorShape = None

    @property
    def ref(self) -> Ref:
        """The parsed name of the tensor."""
        return parse_ref(self.name)

    @property
    def is_whole(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(size >= 0 for size in self.shape)


def fed_tensors(
    graph: Graph, names: Iterable[str], declared: Mapping[str, TensorShape] | None = None
) -> list[FedTensor]:
    """Look up tensors by name.

    Args:
        declared: shapes from a recipe, by name; they may refine the shapes of the graph.

    Raises:
        InvalidGraphError: a tensor is not in the graph, or a declared shape does not match.
    """
    names = list(names)
    for name in names:
        node = graph.get(parse_ref(name).node)
        if node is None:
            message = f"the input {name!r} is not in the graph"
            raise InvalidGraphError(message, nearest_hint(parse_ref(name).node, graph.by_name))
    shapes = known_shapes(graph, [parse_ref(name) for name in names])
    return [
        FedTensor(name, _dtype(graph, name), _merged(name, shape, (declared or {}).get(name)))
        for name, shape in zip(names, shapes, strict=True)
    ]


def known_shapes(graph: Graph, refs: Sequence[Ref]) -> list[TensorShape]:
    """Return the shapes of tensors; shapes of placeholders need no inference."""
    if all(graph[ref.node].op in FEEDABLE for ref in refs):
        declared_shapes = [graph[ref.node].attr_shape("shape") for ref in refs]
        # Like TensorFlow: old graphs use an empty shape for an unknown one.
        is_old = graph.versions.producer <= LAST_AMBIGUOUS_PRODUCER
        return [None if shape == () and is_old else shape for shape in declared_shapes]
    shapes = infer_shapes(graph, recorded=True)
    return [shape_of(shapes, ref) for ref in refs]


def fixed_batch(graph: Graph, names: Iterable[str]) -> int:
    """Return the fixed batch size of a graph's inputs, or 0 if any size is possible."""
    refs = [parse_ref(name) for name in names]
    for shape in known_shapes(graph, [ref for ref in refs if ref.node in graph]):
        if shape and shape[0] > 0:
            return shape[0]
    return 0


def _dtype(graph: Graph, name: str) -> DType:
    dtype = tensor_dtype(graph, parse_ref(name))
    if dtype is None:
        node = graph[parse_ref(name).node]
        message = (
            f"the dtype of the input {name!r} is unknown, because the op {node.op!r} is unknown"
        )
        raise UsageError(message, "name a tensor of a known op as the input")
    return dtype


def _merged(name: str, shape: TensorShape, declared: TensorShape) -> TensorShape:
    try:
        return merge(shape, declared)
    except ShapeConflictError as error:
        shown = "of unknown rank" if shape is None else str(list(shape))
        message = f"the input {name!r} has the shape {shown} in the graph, "
        message += f"which {list(declared or ())} does not fit"
        raise InvalidGraphError(message, "use the graph's sizes, -1 for any") from error


Sizes = Mapping[str, tuple[int, ...]]

_IMAGES: Final = (224, 128, 96, 64, 256, 32, 299, 28, 321, 160, 192, 16, 513, 8)
_SEQUENCES: Final = (16, 28, 32, 64, 128, 1, 8, 100, 10, 50, 20, 256, 4, 2, 400, 512)
_AUDIO: Final = (16000, 4000, 8000, 16384, 1024, 44100)
# Batch sizes other than one, for graphs that require them.
_BATCHES: Final = (2, 4, 8, 16, 32)
_CHANNELS: Final = 3
# Maximum number of elements of settings.
_FEW: Final = 16
# Fewer values than this are not audio.
_SOUND_FROM: Final = 4000
# Maximum rank to try for an input of unknown rank, starting with 0.
_MOST_AXES: Final = 5
_FEW_CHANNELS: Final = (1, 3, 4)
# Scalars that control a model, by name. Most would break with values between 0 and 1.
_SETTINGS: Final = (
    (re.compile(r"keep_?(prob|rate)|keep\Z", re.IGNORECASE), 1.0),
    (re.compile(r"drop|(^|[/_])rate\Z", re.IGNORECASE), 0.0),
    (re.compile(r"thresh", re.IGNORECASE), 0.6),
    (re.compile(r"min_?size", re.IGNORECASE), 40.0),
    (re.compile(r"factor|scale", re.IGNORECASE), 0.709),
    (re.compile(r"temperature", re.IGNORECASE), 1.0),
)


def size_choices(inputs: Sequence[FedTensor], ops: Sequence[FirstOps]) -> Iterator[Sizes]:
    """Yield complete shapes for inputs, by name.

    Unknown dimensions have the same size in all inputs, except first dimensions, which count
    samples. Sizes that the first layers require are used unchanged.
    """
    names = [fed.name for fed in inputs]
    seen = set()
    for rank in range(_MOST_AXES):
        shapes = [
            known_sizes(fed, findings, rank) for fed, findings in zip(inputs, ops, strict=True)
        ]
        for whole in _wholes(shapes, ops):
            if whole not in seen:
                seen.add(whole)
                yield dict(zip(names, whole, strict=True))


def known_sizes(fed: FedTensor, ops: FirstOps, rank: int = 0) -> list[int]:
    """Return a shape with the sizes that the first layers require; -1 for sizes still unknown.

    Args:
        rank: the rank to use if it is unknown.
    """
    shape = list(_ranked(fed, ops, rank))
    for axis, size in ops.sizes.items():
        if -axis <= len(shape) and shape[axis] < 0 and (axis > -len(shape) or len(shape) == 1):
            shape[axis] = size
    open_axes = [axis for axis in range(1, len(shape)) if shape[axis] < 0]
    if ops.elements is not None and len(open_axes) == 1:
        others = math.prod(size for size in shape[1:] if size >= 0)
        if others and ops.elements % others == 0:
            shape[open_axes[0]] = ops.elements // others
    if is_image(shape, ops):
        channels = -3 if ops.channels_first else -1
        if shape[channels] < 0:
            shape[channels] = _CHANNELS
    return shape


def setting(fed: FedTensor, ops: FirstOps) -> float | None:
    """Return the value of an input that only controls the model, such as a dropout probability.

    The graph takes precedence over the name if it shows how the input is used.
    """
    if not fed.dtype.is_floating or (fed.shape is not None and math.prod(fed.shape) > _FEW):
        return None
    if ops.probability is not None:
        return ops.probability
    value = next((value for name, value in _SETTINGS if name.search(fed.ref.node)), None)
    return 1.0 if value == 0 and ops.divides else value


def is_long(shape: Sequence[int]) -> bool:
    """Return whether a shape is a single row with so many values that it must be audio."""
    long = [size for size in shape if size > 1]
    return len(long) == 1 and long[0] >= _SOUND_FROM and -1 not in shape[1:]


def is_image(shape: Sequence[int], ops: FirstOps) -> bool:
    """Return whether a shape is that of images, with or without an axis of samples."""
    if len(shape) == 4:
        return ops.is_image or shape[-1] in _FEW_CHANNELS
    return len(shape) == 3 and is_single_image(shape, ops)


def is_single_image(shape: Sequence[int], ops: FirstOps) -> bool:
    """Return whether a shape is that of one image without an axis of samples."""
    return (
        len(shape) == 3
        and shape[2] in _FEW_CHANNELS
        and (ops.is_image or all(size < 0 or size > 4 for size in shape[:2]))
        and not ops.is_audio
        and (shape[0] < 0) == (shape[1] < 0)
    )


def _wholes(
    shapes: Sequence[list[int]], ops: Sequence[FirstOps]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the shapes with their unknown sizes filled in."""
    sizes = _candidates(shapes, ops)
    for batch in (1, *_BATCHES):
        for size in sizes if batch == 1 else sizes[:2]:
            pairs = zip(shapes, ops, strict=True)
            yield tuple(_filled(shape, batch, size, findings) for shape, findings in pairs)
    if [-1] not in shapes:
        return
    for size in (*sizes, *_AUDIO):
        # A single axis may also be the time axis of one sample.
        pairs = zip(shapes, ops, strict=True)
        yield tuple(
            (size,) if s == [-1] else _filled(s, 1, min(size, sizes[0]), findings)
            for s, findings in pairs
        )


def _ranked(fed: FedTensor, ops: FirstOps, untold: int) -> tuple[int, ...]:
    if fed.shape is not None:
        return fed.shape
    if fed.dtype is DType.BOOL or setting(fed, ops) is not None:
        return ()  # a switch, such as between training and inference
    rank = ops.rank
    if rank is None and ops.sizes:
        rank = max(2, -min(ops.sizes))
    if rank is None and ops.elements is not None:
        rank = 2
    if rank is None and (ops.rows is not None or ops.is_audio):
        rank = 2 if ops.rows is not None else 1
    return (-1,) * (untold if rank is None else rank)


def _candidates(shapes: Sequence[Sequence[int]], ops: Sequence[FirstOps]) -> tuple[int, ...]:
    pairs = list(zip(shapes, ops, strict=True))
    if any(is_image(shape, findings) and min(shape) < 0 for shape, findings in pairs):
        return _IMAGES
    if any(findings.is_audio and min(shape, default=0) < 0 for shape, findings in pairs):
        return (*_AUDIO, *_SEQUENCES)
    return _SEQUENCES


def _filled(shape: Sequence[int], batch: int, size: int, ops: FirstOps) -> tuple[int, ...]:
    counts = len(shape) > 1 or not ops.is_audio
    first = size if is_single_image(shape, ops) or not counts else batch
    return tuple(dim if dim >= 0 else (size if axis else first) for axis, dim in enumerate(shape))
