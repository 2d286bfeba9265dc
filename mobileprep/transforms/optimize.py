"""Apply the safe transforms in a fixed order until nothing changes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mobileprep.errors import TransformError
from mobileprep.graph.graph import Graph
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
"""Each step preserves the results of the model, except for float rounding, and can enable the next:
folding exposes batch norms, and fusing them creates duplicates.
"""

# Every round that changes something removes or merges nodes; no known graph needs this many.
_MOST_ROUNDS: Final = 10


@transform("optimize")
class Optimize(Transform, frozen=True):
    """Apply ``ORDER`` until a whole round does not change the graph."""

    summary = (
        "For one word: strip_unused_nodes, remove_dropout, remove_no_ops, fold_constants, "
        "fuse_batch_norms, merge_scale_and_bias, merge_duplicate_nodes and share_constants, in "
        "this order, until nothing changes."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Optimize the graph.

        A transform that cannot process this graph is skipped with a warning, except the first.

        Raises:
            TransformError: the first transform cannot process the graph.
        """
        # The steps never reproduce 1.15, even if ``context.tf115`` is set.
        own = Context(context.inputs, context.outputs)
        matched, skipped = 0, Counter[str]()
        warnings: dict[str, None] = {}
        for _ in range(_MOST_ROUNDS):
            before, skipped = graph, Counter()
            for name in ORDER:
                done = _tried(name, graph, own)
                matched += done.matched if done.graph is not graph else 0
                graph = done.graph
                skipped.update({f"{name}: {reason}": n for reason, n in done.skipped.items()})
                warnings.update(dict.fromkeys(done.warnings))
            if graph.by_name == before.by_name:
                graph = before
                break
        return Result(graph, matched, skipped, tuple(warnings))


def _tried(name: str, graph: Graph, context: Context) -> Result:
    """Return the result of a transform, or the unchanged graph with a warning if it fails."""
    try:
        return make_transform(name, {}).apply(graph, context)
    except TransformError as error:
        if name == ORDER[0]:
            raise
        return Result(graph, warnings=(f"left out {error}",))
