"""Remove dropout, which is only needed for training."""

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
    """Bypass ops that set some elements to zero and scale the others.

    All forms of ``tf.nn.dropout`` are supported: the scaled tensor times ``Floor(rate + uniform)``
    or times ``Cast(uniform >= rate)``, and ``Select`` between it and zero. The scale must be one
    divided by the share of kept elements, where both are constants or the same placeholder. Nodes
    that only served the dropout are removed.
    """

    summary = "Removes dropout, which is for training alone."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove all supported dropouts."""
        bypass = Bypass(graph, context.protected)
        for node in execution_order(graph):
            dropout = masked(graph, node)
            if dropout is None:
                continue
            scaled, rate = dropout
            source = unscaled(graph, scaled, rate)
            if source is None:
                bypass.leave(_OTHER_SCALE)
            else:
                bypass.take_out(node, source)
        return Result.of(bypass.result(with_unused=False), graph, context)
