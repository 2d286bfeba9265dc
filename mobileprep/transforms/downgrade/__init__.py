"""Make a graph loadable for an older release of TensorFlow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import TF115, check_input_count
from mobileprep.graph.opdefs.release_gaps import (
    GRAPH_VERSIONS,
    ReleaseGap,
    release_gaps,
    spare_attributes,
)
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.downgrade.replacements import (
    IN_FUNCTIONS,
    REPLACEMENTS,
    Facts,
    Refusal,
)

Release = Literal["1.15"]

_MOST_TOLD: Final = 20
_LACKS: Final = {
    "op": "no op {op}",
    "attribute": "no attribute {what} of {op}",
    "value": "no {what} of {op}",
    "kernel": "no CPU kernel of {op} for {what}",
    "removed": "{op} in graphs before {what} alone",
}


@transform("downgrade")
class Downgrade(Transform, frozen=True):
    """Replace newer ops with equivalent older ones, and drop attributes that are not needed.

    The remaining incompatibilities are reported op by op. If there are none, the minimum consumer
    version of the graph is lowered.
    """

    summary = (
        "Replaces ops and attributes that are newer than a release of TensorFlow with equivalent "
        "older ones, and reports what still prevents that release from loading the graph."
    )

    tensorflow: Annotated[Release, Option("The release that shall load the graph.")] = TF115

    def apply(self, graph: Graph, context: Context) -> Result:
        """Downgrade the graph and report the remaining incompatibilities."""
        skipped: Counter[str] = Counter()
        facts = Facts(graph, context.outputs)
        nodes = [self._older(n, facts, skipped, graph.library) for n in graph]
        matched = sum(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
        library, changed = self._older_functions(graph.library)
        done = Graph(nodes, library, graph.versions)
        gaps = list(self._gaps(done))
        done = Graph(nodes, library, self._versions(graph.versions, lowered=not gaps))
        if not matched and not changed and done.versions == graph.versions:
            done = graph
        return Result(done, matched + changed, skipped, tuple(self._warnings(gaps)))

    def _older(self, node: Node, facts: Facts, skipped: Counter[str], library: Library) -> Node:
        """Replace a node with ops and attributes that the release supports, as far as possible."""
        replacement = REPLACEMENTS.get(node.op)
        while replacement is not None and node.op not in library.functions:
            check_input_count(node, "")
            older = replacement(node, facts)
            if isinstance(older, Refusal):
                skipped[f"{node.op}: {older.reason}"] += 1
                break
            node = older
            replacement = REPLACEMENTS.get(node.op)
        spare = spare_attributes(node, self.tensorflow)
        return node.without_attrs(*spare) if spare else node

    def _older_functions(self, library: Library) -> tuple[Library, int]:
        functions: dict[str, Function] = {}
        changed = 0
        for name, function in library.functions.items():
            nodes = tuple(self._older_in_body(n, library) for n in function.nodes)
            count = sum(a is not b for a, b in zip(nodes, function.nodes, strict=True))
            functions[name] = replace(function, nodes=nodes) if count else function
            changed += count
        return (Library(functions, library.gradients) if changed else library), changed

    def _older_in_body(self, node: Node, library: Library) -> Node:
        if node.op in REPLACEMENTS and node.op not in IN_FUNCTIONS:
            spare = spare_attributes(node, self.tensorflow)
            return node.without_attrs(*spare) if spare else node
        return self._older(node, Facts(Graph()), Counter(), library)

    def _gaps(self, graph: Graph) -> Iterable[tuple[str, ReleaseGap, str]]:
        """Yield unsupported features as (op, gap, node name)."""
        producer = min(graph.versions.producer, GRAPH_VERSIONS[self.tensorflow])
        bodies = [f.nodes for f in graph.library.functions.values()]
        for nodes in (graph.nodes, *bodies):
            for node in nodes:
                if node.op not in graph.library.functions:
                    for gap in release_gaps(node, self.tensorflow, producer):
                        yield node.op, gap, node.name

    def _versions(self, versions: Versions, *, lowered: bool) -> Versions:
        newest = GRAPH_VERSIONS[self.tensorflow]
        least = min(versions.min_consumer, newest) if lowered else versions.min_consumer
        return replace(versions, producer=min(versions.producer, newest), min_consumer=least)

    def _warnings(self, gaps: Iterable[tuple[str, ReleaseGap, str]]) -> Iterable[str]:
        places: dict[tuple[str, ReleaseGap], list[str]] = {}
        for op, gap, name in gaps:
            places.setdefault((op, gap), []).append(name)
        for (op, gap), names in sorted(places.items())[:_MOST_TOLD]:
            lack = _LACKS[gap.kind].format(op=op, what=gap.what)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"TensorFlow {self.tensorflow} has {lack} (node {names[0]!r}{more})"
        if len(places) > _MOST_TOLD:
            yield f"and {len(places) - _MOST_TOLD} more that TensorFlow {self.tensorflow} lacks"
