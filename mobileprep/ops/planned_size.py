"""How many bytes a node will give, worked out before it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.definitions import any_op_def
from mobileprep.opdefs.signatures import output_types
from mobileprep.ops.shape_inference import infer_shapes

_NAME: Final = "node"
# What holds a shape or an axis has fewer elements.
_MOST_ELEMENTS: Final = 1 << 12
_POINTER: Final = 8
# Their results share the memory of what they are given.
_VIEWS: Final = frozenset(
    ("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "Slice", "Split")
)


def planned_bytes(node: Node, inputs: Sequence[Any]) -> int | None:
    """The bytes of a node's outputs for inputs that are there; None where their shapes do not tell.

    Args:
        node: the node.
        inputs: its tensors, or what else a run holds in their place.
    """
    if node.op in _VIEWS:
        return 0
    feeding = list(_feeding(inputs))
    refs = tuple(Ref(f.name) for f in feeding)
    asked = Node(_NAME, node.op, refs, attrs=node.attrs)
    definition = any_op_def(node.op)
    if definition is None:
        return None
    try:
        shapes = infer_shapes(Graph([*feeding, asked]))[_NAME]
        types = output_types(asked, definition)
    except InvalidGraphError:
        return None
    if len(types) != len(shapes) or any(s is None or min(s, default=0) < 0 for s in shapes):
        return None
    sizes = (t.base.numpy.itemsize if t.base.numpy is not None else _POINTER for t in types)
    return sum(math.prod(s or ()) * size for s, size in zip(shapes, sizes, strict=True))


def _feeding(inputs: Sequence[Any]) -> Iterator[Node]:
    """A node for each input: a constant where its elements may matter."""
    for index, given in enumerate(inputs):
        name = f"{_NAME}_{index}"
        if not isinstance(given, np.ndarray):
            yield Node(name, "NoOp")
        elif given.size <= _MOST_ELEMENTS and given.dtype != object:
            yield constant(name, Tensor.of(given))
        else:
            kind = attr.dtype(dtype_from_numpy(given.dtype) or DType.FLOAT)
            shape = attr.shape(given.shape)
            yield Node(name, "Placeholder", attrs={"dtype": kind, "shape": shape})
