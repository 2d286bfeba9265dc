"""Store float constants in half precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Annotated, Final, Literal

import numpy as np

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.batch_norms import variances
from mobileprep.transforms.rewriting.clipping import float_value

_TYPES: Final = {"float16": DType.HALF, "bfloat16": DType.BFLOAT16}
_TOO_SMALL: Final = "fewer elements than minimum_size"
_TOO_LARGE: Final = "it holds numbers beyond the type's largest"
_VARIANCE: Final = "a variance, where small values weigh the most"


@transform("cast_weights")
class CastWeights(Transform, frozen=True):
    """Replace each float32 constant with a float16 or bfloat16 constant and a Cast.

    The Cast keeps the name of the constant. Elements are rounded to nearest, ties to even.
    Infinities and NaN are preserved.
    """

    summary = (
        "Stores large float constants as float16 or bfloat16, in half the bytes, which Cast makes "
        "floats of again at run time."
    )

    type: Annotated[
        Literal["float16", "bfloat16"],
        Option(
            "float16: 11 significant bits, up to 65504. bfloat16: 8 significant bits, as large and "
            "as small as float32."
        ),
    ] = "float16"
    minimum_size: Annotated[
        int, Option("Constants with fewer elements stay as they are.", minimum=0)
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        kept_float = variances(graph)
        names = FreshNames(graph.by_name)
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        for node in graph:
            value = float_value(node, self.transform_name)
            if value is None:
                nodes.append(node)
                continue
            narrow = self._narrow(node, value, kept_float)
            if isinstance(narrow, str):
                skipped[narrow] += 1
                nodes.append(node)
                continue
            stored = names.name(f"{node.name}_{self.type}")
            types = {"SrcT": attr.dtype(narrow.dtype), "DstT": attr.dtype(DType.FLOAT)}
            nodes.append(constant(stored, narrow, node.device, node.inputs))
            nodes.append(Node(node.name, "Cast", (Ref(stored),), node.device, types))
        matched = len(nodes) - len(graph)
        return Result(graph.with_nodes(nodes) if matched else graph, matched, skipped)

    def _narrow(self, node: Node, value: Tensor, kept_float: Container[str]) -> Tensor | str:
        """Return the constant in the narrower type, or the reason to keep it."""
        if value.size < max(self.minimum_size, 1):
            return _TOO_SMALL
        if node.name in kept_float:
            return _VARIANCE
        dtype = _TYPES[self.type]
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = value.array().astype(dtype.numpy)
        if (np.isinf(narrow.astype(np.float32)) & np.isfinite(value.array())).any():
            return _TOO_LARGE
        return Tensor.packed(narrow, dtype)
