"""Replace constant expressions with their values.

Source: ``FoldConstants`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.reachability import SWITCHES, reachable, without_dangling
from mobileprep.graph.refs import FreshNames, Ref, control
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs, check_tensors
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.constant_folding import (
    Folding,
    FoldingRules,
    execution,
    find_folding,
)
from mobileprep.transforms.rewriting.constants import lazy_shapes
from mobileprep.transforms.tf115 import (
    Tf115Values,
    check_feeds,
    fetch_order,
    folded_graph,
    imported_nodes,
)

MAX_CONSTANT_BYTES: Final = 10 * 1024 * 1024
_MOST_NAMED: Final = 3


@transform("fold_constants")
class FoldConstants(Transform, frozen=True):
    """Evaluate nodes with constant inputs, and drop nodes that the outputs no longer need."""

    summary = "Evaluates nodes that do not depend on an input, and replaces them with constants."
    of_graph_transform_tool = True

    clear_output_shapes: Annotated[
        bool,
        Option(
            "Remove `_output_shapes` attributes first: in old graphs they are often out of date."
        ),
    ] = True
    exclude_op: Annotated[
        tuple[str, ...],
        Option("Op that is not folded; repeat it for several."),
    ] = ()
    exclude_node: Annotated[
        tuple[str, ...],
        Option("Node that is not folded; repeat it for several."),
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
        rules = self._rules(graph, tf115=True)
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

    def _rules(self, graph: Graph, *, tf115: bool = False) -> FoldingRules:
        most = self.max_constant_size_in_bytes
        return FoldingRules(
            graph.library,
            frozenset(self.exclude_op),
            frozenset(self.exclude_node),
            # 1.15 compares it as an unsigned number, so a negative value means no limit.
            most % (1 << 64) if tf115 else most,
            tf115,
        )

    def _shapes(self, graph: Graph, values: type[StaticValues]) -> Callable[[Ref], TensorShape]:
        recorded = not self.clear_output_shapes
        return lazy_shapes(lambda: infer_shapes(graph, values=values, recorded=recorded))


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


def folded_in_place(graph: Graph, folding: Folding) -> Graph:
    """Return the folded graph, or the graph itself if nothing changes.

    A node with one output becomes a constant of the same name, so output names are preserved. A
    tensor that equals an existing constant is redirected to it instead of being duplicated, except
    if it is a graph output. A node with several outputs gets a separate constant for each. Nodes
    that the outputs do not need are removed, except inputs.
    """
    nodes = list(_Places(graph, folding).nodes())
    by_name = {n.name: n for n in nodes}
    roots = [*(r.node for r in folding.run.fetched), *folding.run.inputs]
    needed = reachable(by_name, roots)
    nodes = without_dangling((n for n in nodes if n.name in needed), needed)
    if len(nodes) == len(graph) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return graph.with_nodes(nodes)


class _Places:
    """Locations of the values of folded tensors."""

    def __init__(self, graph: Graph, folding: Folding) -> None:
        self._graph = graph
        self._folding = folding
        self._sources: dict[Ref, Ref] = {}
        self._in_place: dict[str, Node] = {}
        self._beside: dict[str, list[Node]] = {}
        self._names = FreshNames(graph.by_name)
        constants = self._constants()
        fed = {r.node for r in folding.run.fed}
        for ref, value in sorted(folding.values.items(), key=lambda item: str(item[0])):
            same = constants.get(id(value))
            if same is not None:
                self._share(ref, same)
            elif ref.node not in fed:
                self._place(ref, value)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes after folding, including those that are no longer needed."""
        for node in self._graph:
            yield self._in_place.get(node.name) or self._rewired(node)
            yield from self._beside.get(node.name, ())

    def _constants(self) -> Mapping[int, str]:
        """Return the names of Const nodes by the identity of their values."""
        names: dict[int, str] = {}
        for name in self._folding.constant.order:
            node = self._folding.run.nodes[name]
            if node.op == "Const":
                names.setdefault(id(node.attr_tensor("value")), name)
        return names

    def _share(self, ref: Ref, same: str) -> None:
        # A constant with different control inputs, as in a branch that may not run, is not equal.
        controls = self._folding.constant.controls
        if controls[ref.node] == controls[same]:
            self._sources[ref] = Ref(same)

    def _place(self, ref: Ref, value: Tensor) -> None:
        node = self._graph[ref.node]
        controls = self._folding.constant.controls[ref.node]
        awaited = tuple(control(name) for name in sorted({r.node for r in controls}))
        if output_count(node, self._graph.library) == 1:
            self._in_place[node.name] = constant(node.name, value, node.device, awaited)
            return
        name = self._names.name(f"{node.name}_{ref.index}")
        self._sources[ref] = Ref(name)
        beside = self._beside.setdefault(node.name, [])
        beside.append(constant(name, value, node.device, awaited))

    def _rewired(self, node: Node) -> Node:
        fed = self._folding.run.fed
        if not any(r in self._sources for r in node.inputs):
            return node
        inputs = (r if r in fed else self._sources.get(r, r) for r in node.inputs)
        return replace(node, inputs=tuple(inputs))
