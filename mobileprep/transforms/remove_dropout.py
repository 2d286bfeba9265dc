"""Removes dropout, which is for training alone."""

from __future__ import annotations

from typing import Final

from mobileprep.graph.bypass import Bypass
from mobileprep.graph.dropout import masked, unscaled
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import execution_order
from mobileprep.transforms.base import Context, Result, Transform, transform

_OTHER_SCALE: Final = "kept values are not scaled up by the share of dropped ones"


@transform("remove_dropout")
class RemoveDropout(Transform, frozen=True):
    """A tensor goes through as it is where dropout set some elements to zero and scaled the rest.

    Known are the forms that ``tf.nn.dropout`` has had: the scaled tensor times
    ``Floor(rate + uniform)`` or times ``Cast(uniform >= rate)``, and ``Select`` between it and
    zero. The scale must be one divided by the share that is kept, be they constants or the same
    placeholder. What only served the dropout is removed.
    """

    summary = "Removes dropout, which is for training alone."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the dropouts."""
        bypass = Bypass(graph, context.protected)
        for node in execution_order(graph):
            found = masked(graph, node)
            if found is None:
                continue
            scaled, rate = found
            source = unscaled(graph, scaled, rate)
            if source is None:
                bypass.leave(_OTHER_SCALE)
            else:
                bypass.take_out(node, source)
        return Result.of(bypass.result(with_unused=False), graph, context)
