"""What is fed and fetched where a benchmark is not told: zeros, and the graph's ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.api.feeding.tensors import TensorInfo, tensor_info
from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.ends import ends, placeholders
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import MAX_AXES

# The defaults of the original benchmark_model.
_LAYER, _SHAPE, _OUTPUT = "input:0", (1, 224, 224, 3), "output:0"
_MOST_BYTES = 1 << 32


def zero_feeds(graph: Graph) -> dict[str, Array]:
    """Zeros for each placeholder; unknown sizes are 1.

    Raises:
        UsageError: the shape of one is not known.
    """
    known = [tensor_info(graph, name) for name in default_layers(graph)]
    return {t.name: filled(t.name, usual_shape(t), t.dtype or DType.FLOAT, ()) for t in known}


def output_layers(graph: Graph) -> tuple[str, ...]:
    """The layers to compute where none are named: the original's default, or the graph's ends.

    Raises:
        UsageError: the graph has none.
    """
    found = [_OUTPUT] if parse_ref(_OUTPUT).node in graph else ends(graph)
    if not found:
        message = "no layers are named that the graph is to compute"
        raise UsageError(message, "give --output_layer=a,b")
    return tuple(found)


def default_layers(graph: Graph) -> Sequence[str]:
    """The placeholders, or the layer that the original feeds by default."""
    found = placeholders(graph)
    return found or ([_LAYER] if parse_ref(_LAYER).node in graph else [])


def usual_shape(known: TensorInfo) -> tuple[int, ...]:
    """The shape of a tensor, unknown sizes as 1.

    Raises:
        UsageError: it is not known.
    """
    if known.shape is not None:
        return tuple(max(d, 1) for d in known.shape)
    if parse_ref(known.name) == parse_ref(_LAYER):
        return _SHAPE
    message = f"the shape of {known.name!r} is not known"
    hint = "feed it; --input_layer_shape takes shapes such as 1,224,224,3, colons between layers"
    raise UsageError(message, hint)


def filled(name: str, shape: tuple[int, ...], dtype: DType, values: Sequence[float]) -> Array:
    """The given values, then zeros; empty texts where the type is that of texts.

    Args:
        name: the tensor's, for messages.
        shape: the array's.
        dtype: its type.
        values: its first elements.

    Raises:
        UsageError: there are more values than the shape holds, or it is too large.
    """
    kind = dtype.numpy
    size = math.prod(shape)
    if len(shape) > MAX_AXES:
        message = f"{name!r} has {len(shape)} axes, and numpy's arrays have at most {MAX_AXES}"
        raise UsageError(message, "benchmark a graph whose inputs have fewer")
    if size * 8 > _MOST_BYTES or len(values) > size:
        message = f"{len(values)} values for {name!r} of shape {list(shape)}"
        raise UsageError(message, "give a shape that fits the values, and the machine")
    if kind is None:
        if values:
            message = f"{name!r} takes text, for which values cannot be given"
            raise UsageError(message, "leave --input_layer_values empty for it")
        return np.full(shape, b"", dtype=object)
    flat = np.zeros(size, dtype=kind)
    flat[: len(values)] = np.array(values).astype(kind)
    return flat.reshape(shape)
