"""Convert control flow v1 loops and conditionals to While and If nodes with functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import (
    GATES,
    conditional_nodes,
    dependents,
    drop_unused_functions,
    ends,
    nodes_of,
    reachable,
)
from mobileprep.graph.refs import Ref, edge, parse_ref
from mobileprep.graph.verify import check_graph, check_tensors
from mobileprep.runtime.functions.inline import inline_calls
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.raise_control_flow.array_nodes import ARRAY_OPS, NEW_ARRAYS, is_list_op
from mobileprep.transforms.raise_control_flow.arrays import without_arrays
from mobileprep.transforms.raise_control_flow.conditionals import assembled, raise_conditionals
from mobileprep.transforms.raise_control_flow.loops import raise_loops
from mobileprep.transforms.raise_control_flow.region import Functions, Raising, cannot_raise

RAISED_OPS: Final = GATES | ARRAY_OPS
"""Ops of control flow v1, TensorArrays, and TensorLists, which raising replaces."""
_STACKS: Final = frozenset({"Stack", "StackV2"})


@transform("raise_control_flow")
class RaiseControlFlow(Transform, frozen=True):
    """Replace Enter, Merge, Switch, and Exit with While and If, and library functions.

    This is the inverse of TensorFlow's lowering. Constants that a loop or branch reads are copied
    into its functions; other tensors that it reads become inputs. TensorArrays and TensorLists
    become tensors that loops carry; for this, functional loops with TensorLists are lowered first.
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
        if not needs_raising(graph):
            return Result(graph)
        if has_lists(graph):
            roots = context.protected
            graph = drop_unused_functions(
                inline_calls(graph, roots, self.transform_name, lower_control_flow=True)
            )
        outputs = [parse_ref(name) for name in context.outputs or ends(graph)]
        live = _live(graph, outputs)
        _refuse_stacks(graph, live)
        arrays = [node.name for node in graph if node.op in NEW_ARRAYS]
        beside = graph.by_name.keys() - live - dependents(graph, arrays) - conditional_nodes(graph)
        ready = without_arrays(graph, live)
        fetched, fed = frozenset(map(edge, outputs)), nodes_of(context.inputs)
        work = Raising(ready, _live(ready, outputs), fetched, fed)
        functions = Functions(work)
        region = raise_loops(work, functions, self.transform_name, self.unroll)
        raise_conditionals(work, functions, region, [work.resolved(ref) for ref in outputs])
        done = assembled(work, functions, outputs, beside, context.inputs)
        return Result(done, work.raised + len(live.intersection(arrays)))


def needs_raising(graph: Graph) -> bool:
    """Return whether a graph has control flow v1, TensorArrays, or TensorLists."""
    return any(node.op in RAISED_OPS for node in graph) or has_lists(graph)


def has_lists(graph: Graph) -> bool:
    """Return whether a graph or a function that it calls uses TensorLists."""
    functions = drop_unused_functions(graph).library.functions
    parts = (graph.nodes, *(function.nodes for function in functions.values()))
    return any(is_list_op(node.op) for nodes in parts for node in nodes)


def _refuse_stacks(graph: Graph, live: frozenset[str]) -> None:
    """Raise an error for loop gradients, whose stacks are ordered only by control inputs."""
    for node in graph:
        if node.op in _STACKS and node.name in live:
            raise cannot_raise(node, "keeps the turns of a loop for its gradient")


def _live(graph: Graph, outputs: Sequence[Ref]) -> frozenset[str]:
    """Return the names of nodes whose tensors the outputs need."""
    return frozenset(reachable(graph, (r.node for r in outputs), through_control=False))
