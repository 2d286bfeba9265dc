"""The safe transforms in a fixed order, again and again until nothing changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, make_transform, transform

ORDER: Final = (
    "strip_unused_nodes",
    "remove_dropout",
    "remove_no_ops",
    "fold_constants",
    "fuse_batch_norms",
    "merge_scale_and_bias",
    "merge_duplicate_nodes",
    "share_constants",
)
"""Each leaves what the model computes as it is, to the last bits of a float, and each may make
room for the next: folding shows batch norms, and fusing them leaves duplicates."""

# Every round that changes something removes or merges nodes; this many was never seen needed.
_MOST_ROUNDS: Final = 10


@transform("optimize")
@dataclass(frozen=True)
class Optimize(Transform):
    """Runs ``ORDER`` until a whole round leaves the graph as it was."""

    def apply(self, graph: Graph, context: Context) -> Result:
        """Optimize.

        Raises:
            TransformError: a step cannot do its work on this graph.
        """
        # The steps are ours, not the original's, also where the whole is asked for by its flags.
        own = Context(context.inputs, context.outputs)
        matched, skipped = 0, Counter[str]()
        for _ in range(_MOST_ROUNDS):
            before, skipped = graph, Counter()
            for name in ORDER:
                done = make_transform(name, {}).apply(graph, own)
                graph = done.graph
                matched += done.matched if done.graph is not before else 0
                skipped.update({f"{name}: {reason}": n for reason, n in done.skipped.items()})
            if graph.by_name == before.by_name:
                return Result(before, matched, skipped)
        return Result(graph, matched, skipped)
