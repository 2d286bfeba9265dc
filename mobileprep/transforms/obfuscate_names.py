"""Replace node names with short meaningless ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import colocated
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@transform("obfuscate_names")
class ObfuscateNames(Transform, frozen=True):
    """Number nodes in stored order, in base 62; inputs and outputs keep their names.

    Source: ``obfuscate_names`` of TensorFlow 1.15's graph transforms, which does not recognize an
    input or output that is named with its index, and does not update colocation constraints, so the
    graph fails to load.
    """

    summary = (
        "Gives nodes short names that say nothing. Inputs and outputs of the graph keep their "
        "names."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        check_inputs(graph, self.transform_name)
        protected = context.protected
        short = _short_names(protected)
        names = {n.name: n.name if n.name in protected else next(short) for n in graph}
        nodes = [
            colocated(
                replace(
                    n,
                    name=names[n.name],
                    inputs=tuple([r.renamed(names[r.node]) for r in n.inputs]),
                ),
                names.get,
            )
            for n in graph
        ]
        return Result(graph.with_nodes(nodes), sum(old != new for old, new in names.items()))


def _short_names(used_names: Collection[str]) -> Iterator[str]:
    return (name for name in map(_base_62, count()) if name not in used_names)


def _base_62(number: int) -> str:
    number, last = divmod(number, len(_DIGITS))
    text = _DIGITS[last]
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text
