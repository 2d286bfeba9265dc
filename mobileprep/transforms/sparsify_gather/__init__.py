"""Replace lookups in mostly zero columns with hash tables of the other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.refs import control
from mobileprep.graph.rewrite import Rule, rewrite_all
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.sparsify_gather.gathers import Gathers, lookup_nodes, table_nodes
from mobileprep.transforms.sparsify_gather.leftovers import Restored, without_leftovers

_READ: Final = op("Identity", op("Const|Variable|VariableV2", label="weights"), label="read")
_PATTERNS: Final = (
    op("Gather", _READ, op("*", label="ids")),
    op("GatherV2", _READ, op("*", label="ids"), op("Const")),
)


@transform("sparsify_gather")
class SparsifyGather(Transform, frozen=True):
    """Replace Gather from a [N, 1] constant or variable with a lookup in a hash table.

    The tables are filled by a NoOp, which must run once before anything else. Nodes that only
    served the replaced weights are removed. Weights that other nodes also need are not replaced;
    the original breaks these nodes.

    Source: ``sparsify_gather`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces look-ups in [N, 1] constants and variables of mostly zeros by hash tables."
    of_graph_transform_tool = True

    group_init_node: Annotated[
        str,
        Option(
            "NoOp that fills the tables, to be run once before anything else. It is created if it"
            " does not exist.",
            min_length=1,
        ),
    ] = "group_deps"
    input_checkpoint: Annotated[
        str,
        Option("The checkpoint with the values of variables, by its prefix.", format="checkpoint"),
    ] = ""

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace the lookups."""
        check_inputs(graph, self.transform_name)
        before = graph
        graph = graph.with_nodes(n.without_attrs("_output_shapes") for n in graph)
        with Restored(graph, self.input_checkpoint) as restored:
            gathers = Gathers(graph, context, restored)
            work = _Tables(gathers)
            for pattern in _PATTERNS:
                rule = Rule(pattern, work.replace, work.check, allow_inconsistencies=True)
                graph = rewrite_all(graph, rule).graph
        if not work.matched and not context.tf115:
            return Result(before, skipped=gathers.skipped)
        graph = self._with_initializers(graph, work.initializers)
        graph = without_leftovers(graph, work.removed, context.protected)
        return Result(graph, work.matched, gathers.skipped)

    def _with_initializers(self, graph: Graph, initializers: Sequence[str]) -> Graph:
        name = self.group_init_node
        waits = tuple(control(n) for n in initializers)
        node = graph.get(name)
        if node is None or node.op != "NoOp":
            return graph.with_nodes([*graph, Node(name, "NoOp", waits)])
        node = replace(node, inputs=node.inputs + waits)
        return graph.with_nodes(node if n.name == name else n for n in graph)


class _Tables:
    """Replacement of lookups by tables; lookups in the same weights share a table."""

    def __init__(self, gathers: Gathers) -> None:
        self._gathers = gathers
        self._remaining = Counter(gathers.weights_of.values())
        self.matched = 0
        self.initializers: list[str] = []
        self.removed: list[str] = []

    def check(self, match: Match) -> str:
        """Return a reason to skip a lookup; the specific reason is already counted."""
        return "" if match.node.name in self._gathers.weights_of else "see above"

    def replace(self, match: Match) -> list[Node]:
        """Return the nodes that replace a lookup."""
        weights, read, ids = match["weights"], match["read"], match["ids"]
        self.matched += 1
        nodes = [ids]
        table, new_nodes = table_nodes(weights, self._gathers.values[weights.name])
        if self._remaining[weights.name] == self._gathers.count[weights.name]:
            nodes += new_nodes
            self.initializers.append(new_nodes[-1].name)
        nodes += lookup_nodes(match.node, table)
        self._remaining[weights.name] -= 1
        if self._remaining[weights.name]:
            nodes += [read, weights]
        else:
            self.removed += [weights.name, read.name]
        names = {n.name for n in nodes} | {weights.name, read.name, match.node.name}
        return nodes + [
            n for n in match.nodes if n.name not in names and n.name in match.used_outside
        ]
