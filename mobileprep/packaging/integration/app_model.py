"""What generated code has to know of a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from mobileprep.errors import InvalidGraphError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.opdefs.signatures import tensor_dtype
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.runtime.sampling.inputs import fed_tensors

Artifact: TypeAlias = Literal["frozen", "text", "memmapped", "tflite"]
Channels: TypeAlias = Literal["rgb", "bgr", "grayscale"]
_MOST_ELEMENTS: Final = (1 << 31) - 1


@dataclass(frozen=True)
class AppTensor:
    """A tensor that the app feeds or fetches.

    Args:
        name: as the graph has it, ``node`` or ``node:1``.
        dtype: its type.
        shape: its sizes, -1 where one is open; None where the rank is.
        integers: the type of its quantized integers in a .tflite file; None if the file has values
            of ``dtype``. Scale and zero point are read from the file at run time.
    """

    name: str
    dtype: DType
    shape: TensorShape = None
    integers: DType | None = None

    @property
    def count(self) -> int | None:
        """How many elements it has; None where that is open, or more than an array takes."""
        return _product(self.shape)

    @property
    def row(self) -> int | None:
        """How many elements each index of an open first dimension has; None in other cases."""
        if not self.shape or self.shape[0] >= 0:
            return None
        return _product(self.shape[1:]) or None


@dataclass(frozen=True)
class Pictures:
    """How a picture becomes values of an input: ``(value - mean) / std``, by channel.

    Args:
        input: the name of the input.
        channels: in the network's order.
        mean: a number for each channel.
        std: the same.
    """

    input: str
    channels: Channels
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class AppModel:
    """A model as an app takes it.

    Args:
        file: the name of the model file.
        artifact: its form.
        encrypted: whether it is encrypted.
        inputs: what is fed.
        outputs: what is fetched.
        init_ops: nodes to run once after loading.
        pictures: how pictures become values of an input, where the recipe says so.
        labels: the name of the file that lists the classes, or None.
        threads: the number of threads that compute an op; None leaves it to the runtime.
        package: the package or namespace, with dots.
        class_name: the class.
    """

    file: str
    artifact: Artifact
    encrypted: bool = False
    inputs: tuple[AppTensor, ...]
    outputs: tuple[AppTensor, ...]
    init_ops: tuple[str, ...] = ()
    pictures: Pictures | None = None
    labels: str | None = None
    threads: int | None = None
    package: str
    class_name: str


def app_tensors(
    graph: Graph,
    inputs: Iterable[str],
    outputs: Iterable[str],
    declared: Mapping[str, TensorShape],
) -> tuple[tuple[AppTensor, ...], tuple[AppTensor, ...]]:
    """The tensors that an app feeds, and those that it fetches, with their types and shapes.

    Args:
        graph: the graph that ships.
        inputs: names.
        outputs: names.
        declared: the shapes of inputs that a recipe gives, by name.

    Raises:
        InvalidGraphError: a name is not in the graph, or a shape contradicts the graph's.
        UsageError: the type of an input is not known.
    """
    fed = tuple(
        AppTensor(tensor.name, tensor.dtype, tensor.shape)
        for tensor in fed_tensors(graph, inputs, declared)
    )
    shapes = infer_shapes(graph, {t.name: t.shape for t in fed}, recorded=True)
    fetched = []
    for name in outputs:
        ref = parse_ref(name)
        if ref.node not in graph:
            message = f"the output {name!r} is not in the graph"
            raise InvalidGraphError(message, nearest_hint(ref.node, graph.by_name))
        dtype = tensor_dtype(graph, ref)
        if dtype is None:
            message = f"the type of the output {name!r} is not known"
            raise InvalidGraphError(message, "name a tensor of a known op as the output")
        fetched.append(AppTensor(name, dtype, shape_of(shapes, ref)))
    return fed, tuple(fetched)


def _product(shape: TensorShape) -> int | None:
    if shape is None or any(size < 0 for size in shape):
        return None
    count = math.prod(shape)
    return count if count <= _MOST_ELEMENTS else None
