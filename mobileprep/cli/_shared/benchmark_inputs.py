"""Inputs of ``benchmark``: layers, shapes, types, and values from its flags."""

from __future__ import annotations

from msgspec import Struct

from mobileprep.cli.verb import comma_list
from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.inspection.benchmark_runs import default_layers, filled, usual_shape
from mobileprep.runtime.feeding.files import tensor_info


class InputFlags(Struct, frozen=True):
    """Values of the flags for inputs; empty if not set.

    Args:
        layers: names of the input layers, such as ``a,b``.
        shapes: one shape per layer, such as ``1,224,224,3:1,20``.
        types: one dtype per layer, such as ``float,int32``.
        values: first elements of each input, such as ``1,2,3:4``; the rest are zeros.
    """

    layers: str = ""
    shapes: str = ""
    types: str = ""
    values: str = ""


def make_feeds(graph: Graph, flags: InputFlags) -> dict[str, Array]:
    """Create an array for each input layer: zeros, or the given values.

    Without flags, every placeholder is fed. Shapes and types default to those of the placeholders,
    with size 1 for unknown dimensions.

    Raises:
        UsageError: a flag is invalid or has a different number of entries than there are layers.
    """
    layers = comma_list(flags.layers) or default_layers(graph)
    shapes = [_shape(text) for text in flags.shapes.split(":")] if flags.shapes else []
    types = [_dtype(text) for text in comma_list(flags.types)]
    for entries, flag in ((shapes, "input_layer_shape"), (types, "input_layer_type")):
        if entries and len(entries) != len(layers):
            message = f"there are {len(layers)} input layers and {len(entries)} in --{flag}"
            raise UsageError(message, "give as many, such as --input_layer_shape=1,224,224,3:1,20")
    values = [_values(text) for text in flags.values.split(":")] if flags.values else []
    feeds = {}
    for index, name in enumerate(layers):
        info = tensor_info(graph, name)
        shape = shapes[index] if shapes else usual_shape(info)
        dtype = types[index] if types else info.dtype or DType.FLOAT
        feeds[name] = filled(name, shape, dtype, values[index] if index < len(values) else ())
    return feeds


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.split(",") if d)
    except ValueError as error:
        message = f"{text!r} is not a shape"
        raise UsageError(message, "write sizes with commas: 1,224,224,3") from error
    if any(d < 0 for d in shape):
        message = f"the shape {text!r} has an unknown size"
        raise UsageError(message, "replace each -1 with the size to benchmark with")
    return shape


def _dtype(text: str) -> DType:
    dtype = dtype_from_text(text)
    if dtype is None or (dtype.numpy is None and dtype is not DType.STRING):
        message = f"{text!r} is not a dtype that can be fed"
        raise UsageError(message, "write float, int32, uint8, bool or string")
    return dtype


def _values(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in text.split(",") if v)
    except ValueError as error:
        message = f"{text!r} is not a list of numbers"
        raise UsageError(message, "write numbers with commas, input layers with colons") from error
