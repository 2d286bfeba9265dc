"""Values of a graph's tensors for random images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import ends, placeholders
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context

_SIZES: Final = (64, 97)
_OPEN: Final = (1, -1, -1, 3)


class Images:
    """Values of a graph's tensors for random images, of two sizes where the size is open."""

    def __init__(self, graph: Graph, context: Context) -> None:
        names = context.inputs or tuple(placeholders(graph))
        self.inputs = [parse_ref(name) for name in names]
        self.outputs = [parse_ref(name) for name in context.outputs or ends(graph)]
        self._graph = graph
        self._interpreter = Interpreter(graph)
        self._values: dict[tuple[str, int], Array] = {}

    def feeds(self, number: int) -> dict[str, Array]:
        """The inputs: an image."""
        random = np.random.default_rng(number)
        feeds = {}
        for ref in self.inputs:
            node = self._graph[ref.node]
            shape = (
                (node.attr_shape("shape") or (1, -1, -1, 3))
                if "shape" in node.attrs
                else (1, -1, -1, 3)
            )
            kind = node.attr_dtype("dtype", DType.UINT8)
            sizes = [s if s > 0 else _SIZES[number] if i else 1 for i, s in enumerate(shape)]
            if len(sizes) == 4 and shape[3] < 1:
                sizes[3] = 3
            values = random.integers(0, 256, sizes)
            feeds[str(ref)] = values.astype(kind.numpy)
        return feeds

    def values(self, names: Sequence[str], number: int = 0) -> list[Array]:
        """The values of tensors outside of loops."""
        missing = [n for n in dict.fromkeys(names) if (n, number) not in self._values]
        if missing:
            found = self._interpreter.run(missing, self.feeds(number))
            self._values.update(zip(((n, number) for n in missing), found, strict=True))
        return [self._values[name, number] for name in names]

    def constant(self, ref: Ref) -> Array | None:
        """The value of a tensor if it does not depend on the image."""
        first, second = (self.values([str(ref)], number)[0] for number in (0, 1))
        return first if np.array_equal(first, second) else None
