"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import need


@lowering("RandomUniform")
def random_uniform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RANDOM_UNIFORM: other numbers than TensorFlow draws, of the same distribution."""
    kind = node.attr_dtype("dtype")
    if kind is not DType.FLOAT:
        reason = f"LiteRT draws float32, not {kind.short}"
        raise CannotExpressError(reason, "leave dropout out: remove_dropout, or choose_inference")
    need(node, inputs, {DType.INT32})
    seeds = {name: node.attr_int(name, 0) for name in ("seed", "seed2")}
    shape = scope.output_shape(node)
    return scope.emit("RANDOM_UNIFORM", inputs, shape, kind, "RandomOptions", **seeds)
