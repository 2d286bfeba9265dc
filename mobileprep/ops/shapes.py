"""Infers the shapes of a graph's tensors, as far as they follow from the graph alone.

Source: ``ShapeRefiner`` of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.ir.verify import execution_order
from mobileprep.ops.dims import ShapeConflictError, merge
from mobileprep.ops.shape_fn import find_shape_fn
from mobileprep.ops.signature import output_count
from mobileprep.ops.static_values import StaticValues

Shapes = tuple[TensorShape, ...]

# Through these a handle stays what it was.
_PASS_HANDLES = frozenset({"Enter", "Exit", "Identity", "NextIteration", "Switch", "Merge"})


def infer_shapes(
    graph: Graph, feeds: Mapping[str, TensorShape] | None = None
) -> Mapping[str, Shapes]:
    """The shape of each output of each node.

    A shape is None where its rank is not known, and has -1 for each size that is not. Where
    inputs do not fit each other, and for ops that nobody knows, nothing is known.

    Args:
        graph: the graph.
        feeds: shapes of tensors that are fed, by their names; they replace what the graph says.

    Raises:
        InvalidGraphError: the graph lacks an input of a node, or nodes feed each other in a circle.
    """
    given = {parse_ref(name): shape for name, shape in (feeds or {}).items()}
    return _Inference(graph, given).run()
