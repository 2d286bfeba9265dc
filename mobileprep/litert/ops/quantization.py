"""What training for eight bits leaves in a graph."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import need_float


@lowering("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs")
def fake_quant(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """FAKE_QUANT, whose range is part of the file."""
    need_float(node, inputs[:1])
    if node.op == "FakeQuantWithMinMaxVars":
        low, high = (float(scope.needed(node, i, "range").reshape(())) for i in (1, 2))
    else:
        low, high = node.attr_float("min", -6.0), node.attr_float("max", 6.0)
    return scope.emit(
        "FAKE_QUANT",
        inputs[:1],
        scope.output_shape(node),
        inputs[0].dtype,
        "FakeQuantOptions",
        min=low,
        max=high,
        num_bits=node.attr_int("num_bits", 8),
        narrow_range=node.attr_bool("narrow_range", False),
    )
