"""Convert control flow v1 loops and conditionals to While and If nodes with functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from mobileprep.core.declare import Option
from mobileprep.graph.control_flow import GATES, conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import dependents, ends, nodes_of, reachable
from mobileprep.graph.refs import Ref, edge, parse_ref
from mobileprep.graph.verify import check_graph, check_tensors
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.raise_control_flow.array_nodes import OPS
from mobileprep.transforms.raise_control_flow.arrays import without_arrays
from mobileprep.transforms.raise_control_flow.conditionals import assembled, raise_conditionals
from mobileprep.transforms.raise_control_flow.loops import raise_loops
from mobileprep.transforms.raise_control_flow.region import Functions, Raising, cannot_raise

_ARRAY: Final = "TensorArrayV3"
ARRAY_OPS: Final = OPS | {_ARRAY}
"""Ops on arrays, which raising replaces."""
_STACKS: Final = frozenset({"Stack", "StackV2"})


@transform("raise_control_flow")
class RaiseControlFlow(Transform, frozen=True):
    """Replace Enter, Merge, Switch, and Exit with While and If, and library functions.

    This is the inverse of TensorFlow's lowering. Constants that a loop or branch reads are copied
    into its functions; other tensors that it reads become inputs. TensorArrays become tensors that
    loops carry.
    """

    summary = (
        "Converts the loops and conditionals of TensorFlow 1 to While and If nodes "
        "that run functions, as in TensorFlow 2 and LiteRT."
    )

    unroll: Annotated[
        int,
        Option(
            "Unroll loops with a constant number of iterations, up to this many.",
            minimum=0,
            maximum=10000,
        ),
    ] = 0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Convert the control flow that the outputs need, and remove all other control flow."""
        check_graph(graph, self.transform_name)
        check_tensors(graph, context.outputs, "output", self.transform_name)
        if not any(node.op in GATES or node.op == _ARRAY for node in graph):
            return Result(graph)
        outputs = [parse_ref(name) for name in context.outputs or ends(graph)]
        live = _live(graph, outputs)
        _refuse_stacks(graph, live)
        arrays = [node.name for node in graph if node.op == _ARRAY]
        beside = graph.by_name.keys() - live - dependents(graph, arrays) - conditional_nodes(graph)
        ready = without_arrays(graph, live)
        fetched, fed = frozenset(map(edge, outputs)), nodes_of(context.inputs)
        work = Raising(ready, _live(ready, outputs), fetched, fed)
        functions = Functions(work)
        region = raise_loops(work, functions, self.transform_name, self.unroll)
        raise_conditionals(work, functions, region, [work.resolved(ref) for ref in outputs])
        done = assembled(work, functions, outputs, beside, context.inputs)
        return Result(done, work.raised + len(live.intersection(arrays)))


def _refuse_stacks(graph: Graph, live: frozenset[str]) -> None:
    """Raise an error for loop gradients, whose stacks are ordered only by control inputs."""
    for node in graph:
        if node.op in _STACKS and node.name in live:
            raise cannot_raise(node, "keeps the turns of a loop for its gradient")


def _live(graph: Graph, outputs: Sequence[Ref]) -> frozenset[str]:
    """Return the names of nodes whose tensors the outputs need."""
    return frozenset(reachable(graph, (r.node for r in outputs), through_control=False))
