"""Replace function calls with the bodies of the functions."""

from __future__ import annotations

from typing import Annotated, Final

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.runtime.functions.inline import CALLS, inline_calls
from mobileprep.transforms.base import Context, Result, Transform, transform

_CALLS: Final = frozenset({"PartitionedCall"})


@transform("inline_partitionedcall")
class InlinePartitionedCall(Transform, frozen=True):
    """Replace each PartitionedCall with the nodes of the function, named "call/node".

    The functions are kept in the library. Calls inside functions are replaced too. Source:
    ``inline_partitionedcall`` of the graph transforms of TensorFlow 2.4, which loses attributes
    bound by calls, control dependencies on and of calls, results that are arguments, and fetched
    calls, and confuses outputs of ops with several.
    """

    summary = "Replaces PartitionedCall with the body of the called function."

    all_calls: Annotated[
        bool,
        Option(
            "Also inline StatefulPartitionedCall, and nodes whose op is the name of a function."
        ),
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        ops = {*CALLS, *graph.library.functions} if self.all_calls else _CALLS
        calls = sum(n.op in ops for n in graph)
        if not calls:
            return Result(graph)
        return Result(inline_calls(graph, context.protected, self.transform_name, ops=ops), calls)
