"""Sample inputs for a graph, made from what its placeholders say of themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array

_SEED: Final = 20160823
_MOST_BYTES: Final = 1 << 28


def sample_feeds(graph: Graph, inputs: Sequence[str], *, batch: int = 1) -> dict[str, Array]:
    """Seeded random arrays for a graph's inputs: floats in [0, 1), integers 0 or 1.

    A truth value of unknown shape is one, and false.

    Args:
        graph: the graph.
        inputs: the tensors to feed.
        batch: what an unknown first dimension becomes.

    Raises:
        UsageError: a shape or a type does not tell enough.
        InvalidGraphError: an input is not in the graph.
    """
    generator = np.random.default_rng(_SEED)
    return {name: _sample(_node(graph, name), batch, generator) for name in inputs}


def _node(graph: Graph, name: str) -> Node:
    node = graph.get(parse_ref(name).node)
    if node is None:
        message = f"the input {name!r} is not in the graph"
        raise InvalidGraphError(message)
    return node


def _sample(node: Node, batch: int, generator: np.random.Generator) -> Array:
    shape = node.attr_shape("shape")
    dtype = node.attrs.get("dtype")
    if shape is None and dtype is not None and dtype.value is DType.BOOL:
        return np.asarray(np.False_)  # a switch, such as between training and inference
    if shape is None or any(d < 0 for d in shape[1:]) or dtype is None:
        message = f"the graph does not tell the whole shape and type of the input {node.name!r}"
        raise UsageError(message, "give the input a shape, such as [1, 224, 224, 3]")
    sizes = tuple(batch if d < 0 else d for d in shape)
    kind = dtype.value.numpy
    if kind is None or dtype.value is DType.STRING:
        message = f"no sample can be made for the input {node.name!r} of type {dtype.value.short}"
        raise UsageError(message, "leave out the check")
    if math.prod(sizes) * kind.itemsize > _MOST_BYTES:
        message = f"a sample for the input {node.name!r} of shape {list(sizes)} is too large"
        raise UsageError(message, "give the input a smaller shape")
    if dtype.value.is_floating:
        return generator.random(sizes).astype(kind)
    return generator.integers(0, 2, sizes).astype(kind)
