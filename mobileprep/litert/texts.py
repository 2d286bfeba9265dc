"""Where LiteRT takes texts: on their way into lookup tables, and out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError

FINDS: Final = ("LookupTableFind", "LookupTableFindV2")
SIZES: Final = ("LookupTableSize", "LookupTableSizeV2")
_PASSING: Final = frozenset({"Identity", "StopGradient", "Snapshot", "Reshape"})


def is_looked_up(graph: Graph, node: Node) -> bool:
    """Whether a node's texts go to a look-up, as keys or as what missing keys have."""

    def readers(name: str) -> list[str]:
        passed = graph[name].op in _PASSING or name == node.name
        return [reader.name for reader in graph.consumers.get(name, ())] if passed else []

    return any(graph[name].op in FINDS for name in closure([node.name], readers))


def check_texts(node: Node, inputs: Sequence[Value]) -> None:
    """Refuse a node that does with texts what LiteRT does not.

    Raises:
        CannotExpressError: it does.
    """
    kinds = {value.dtype for value in inputs}
    if DType.STRING in kinds and node.op not in (*FINDS, *_PASSING):
        reason = "mobileprep converts no operators on strings except lookups in tables"
        raise CannotExpressError(reason, "do this in the app, and cut the graph there")


def check_tables(node: Node, inputs: Sequence[Value]) -> None:
    """Refuse a node that does with tables what LiteRT does not.

    Raises:
        CannotExpressError: it does.
    """
    kinds = {value.dtype for value in inputs}
    if DType.RESOURCE in kinds and node.op not in (*FINDS, *SIZES, *_PASSING):
        reason = "a table goes where LiteRT takes none"
        raise CannotExpressError(reason, "look up outside of loops and branches")
