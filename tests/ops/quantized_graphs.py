"""Graphs of a single quantized op, fed by constants of its input types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import constant
from mobileprep.graph.opdefs.definitions import any_op_def, input_types
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import fetches, n


def quantized_graph(op: str, inputs: Sequence[Any], **attrs: Any) -> Graph:
    """Constants x0, x1, ..., and the node "y" with these inputs."""
    definition = any_op_def(op)
    assert definition is not None, op
    node = n("y", op, *(f"x{i}" for i in range(len(inputs))), **attrs)
    kinds = input_types(node, definition)
    pairs = zip(inputs, kinds, strict=True)
    constants = [constant(f"x{i}", Tensor.of(x, kind)) for i, (x, kind) in enumerate(pairs)]
    # Later producers do not know the first version of this op.
    versions = Versions(21 if op == "QuantizeAndDequantize" else 26)
    return Graph([*constants, node], versions=versions)


def run_quantized(op: str, *inputs: Any, **attrs: Any) -> list[np.ndarray]:
    """All outputs of one op."""
    graph = quantized_graph(op, inputs, **attrs)
    return Interpreter(graph).run(fetches(graph), {})
