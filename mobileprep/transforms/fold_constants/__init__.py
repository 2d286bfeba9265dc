"""Replace constant expressions with their values.

Source: ``FoldConstants`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Final

from mobileprep.core.declare import Option
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.control_flow import SWITCHES
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.graph.verify import check_inputs, check_tensors
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.fold_constants.in_place import folded_in_place
from mobileprep.transforms.rewriting.constant_folding.rules import FoldingRules, Kernels, execution
from mobileprep.transforms.rewriting.constant_folding.search import Folding, find_folding
from mobileprep.transforms.tf115.folding import check_feeds, fetch_order, folded_graph, tf115_kernel
from mobileprep.transforms.tf115.importing import Tf115Values, imported_nodes

MAX_CONSTANT_BYTES: Final = 10 * 1024 * 1024
_MOST_NAMED: Final = 3


@transform("fold_constants")
class FoldConstants(Transform, frozen=True):
    """Evaluate nodes with constant inputs, and drop nodes that the outputs no longer need."""

    summary = "Replaces what always gives the same value by a constant of that value."
    of_graph_transform_tool = True

    clear_output_shapes: Annotated[
        bool,
        Option(
            "Remove `_output_shapes` attributes first: in old graphs they are often out of date."
        ),
    ] = True
    exclude_op: Annotated[
        tuple[str, ...],
        Option("An op whose nodes are not folded. Repeated for several."),
    ] = ()
    exclude_node: Annotated[
        tuple[str, ...],
        Option("A node that is not folded. Repeated for several."),
    ] = ()
    max_constant_size_in_bytes: Annotated[
        int,
        Option(
            "Larger results are not folded.",
            minimum=-9223372036854775808,
            maximum=9223372036854775807,
        ),
    ] = MAX_CONSTANT_BYTES

    def apply(self, graph: Graph, context: Context) -> Result:
        """Fold all constant expressions within the size limit."""
        if not context.outputs:
            message = "no outputs are named"
            raise refuse(self.transform_name, message, "name the outputs of the graph")
        check_inputs(graph, self.transform_name)
        check_tensors(graph, context.inputs, "input", "")
        check_tensors(graph, context.outputs, "output", "")
        fold = self._as_tf115 if context.tf115 else self._in_place
        return fold(graph, context)

    def _as_tf115(self, graph: Graph, context: Context) -> Result:
        run = execution(imported_nodes(graph), context.inputs, context.outputs)
        check_feeds(run)
        shape_of = self._shapes(graph, Tf115Values)
        rules = self._rules(graph, tf115=tf115_kernel)
        folding = find_folding(run, fetch_order(run), rules, shape_of)
        nodes = folded_graph(graph, folding, context.serials)
        folded = graph.with_nodes(nodes)
        return Result(folded, len(folding.values), folding.skipped, _warnings(folding))

    def _in_place(self, graph: Graph, context: Context) -> Result:
        graph = without_idle_controls(graph, context.protected)
        run = execution(graph, context.inputs, context.outputs)
        sinks = [ref.node for ref in run.fetched]
        shape_of = _but_of_branches(graph, self._shapes(graph, StaticValues))
        folding = find_folding(run, sinks, self._rules(graph), shape_of)
        folded = folded_in_place(graph, folding)
        return Result(folded, len(folding.values), folding.skipped, _warnings(folding))

    def _rules(self, graph: Graph, *, tf115: Kernels | None = None) -> FoldingRules:
        most = self.max_constant_size_in_bytes
        return FoldingRules(
            graph.library,
            frozenset(self.exclude_op),
            frozenset(self.exclude_node),
            # 1.15 compares it as an unsigned number, so a negative value means no limit.
            most if tf115 is None else most % (1 << 64),
            tf115,
        )

    def _shapes(self, graph: Graph, values: type[StaticValues]) -> Callable[[Ref], TensorShape]:
        @cache
        def inferred() -> Mapping[str, tuple[TensorShape, ...]]:
            return infer_shapes(graph, values=values, recorded=not self.clear_output_shapes)

        return lambda ref: shape_of(inferred(), ref)


def _warnings(folding: Folding) -> tuple[str, ...]:
    """Return warnings about constant nodes that would cost too much memory or time to fold."""
    nodes = [folding.run.nodes[name] for name in folding.costly]
    if not nodes:
        return ()
    named = ", ".join(f"{n.name!r} ({n.op})" for n in nodes[:_MOST_NAMED])
    more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    message = (
        f"constant, and left to each run for the memory or time they would take: {named}{more}"
    )
    return (f"{message}; make them smaller, or compute them where the model is exported",)


def _but_of_branches(
    graph: Graph, shape_of: Callable[[Ref], TensorShape]
) -> Callable[[Ref], TensorShape]:
    """Return a shape function that does not know the shapes of Switch outputs.

    A constant for such a shape could only depend on the Switch itself, which runs for either
    branch, so consumers of the constant would also run for either branch.
    """

    def known_shape(ref: Ref) -> TensorShape:
        node = graph.get(ref.node)
        return None if node is not None and node.op in SWITCHES else shape_of(ref)

    return known_shape
