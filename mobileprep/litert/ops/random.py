"""Random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32
from mobileprep.litert.types import need_float

_MOST_INTEGERS: Final = 1 << 24


@lowering("RandomUniform")
def random_uniform(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RANDOM_UNIFORM: other numbers than TensorFlow draws, of the same distribution."""
    kind = node.attr_dtype("dtype")
    if kind is not DType.FLOAT:
        reason = f"LiteRT draws float32, not {kind.short}"
        raise CannotExpressError(reason, "leave dropout out: remove_dropout, or choose_inference")
    return _drawn(scope, node, "RANDOM_UNIFORM", inputs[0])


@lowering("RandomStandardNormal")
def random_normal(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RANDOM_STANDARD_NORMAL: other numbers than TensorFlow draws, of the same distribution."""
    kind = node.attr_dtype("dtype")
    if kind is not DType.FLOAT:
        reason = f"LiteRT draws float32, not {kind.short}"
        raise CannotExpressError(reason, "draw float32, and cast it")
    return _drawn(scope, node, "RANDOM_STANDARD_NORMAL", inputs[0])


@lowering("RandomUniformInt")
def random_integers(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RANDOM_UNIFORM scaled to a range of at most 2**24 integers, and cut off."""
    low, high = (int(scope.needed(node, i, "range").reshape(())) for i in (1, 2))
    if not max(abs(low), abs(high)) <= _MOST_INTEGERS:
        reason = f"it draws from {low} to {high}, and LiteRT draws float32, exact up to 2**24"
        raise CannotExpressError(reason, "draw from a smaller range, or feed the numbers")
    work = Arithmetic(scope)
    drawn = work.mul(_drawn(scope, node, "RANDOM_UNIFORM", inputs[0]), high - low)
    # A product that is rounded up to the range would be an integer too many.
    whole = work.minimum(work.one("FLOOR", drawn), high - low - 1)
    return work.cast(work.add(whole, low), node.attr_dtype("Tout", inputs[1].dtype))


@lowering("Multinomial")
def multinomial(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MULTINOMIAL: other classes than TensorFlow draws, of the same distribution."""
    need_float(node, inputs[:1])
    kind, shape = node.attr_dtype("output_dtype", DType.INT64), scope.output_shape(node)
    values = [inputs[0], as_int32(scope, node, 1, inputs[1])]
    return scope.emit("MULTINOMIAL", values, shape, kind, "RandomOptions", **_seeds(node))


def _drawn(scope: Scope, node: Node, code: str, sizes: Value) -> Value:
    given, shape = [as_int32(scope, node, 0, sizes)], scope.output_shape(node)
    return scope.emit(code, given, shape, DType.FLOAT, "RandomOptions", **_seeds(node))


def _seeds(node: Node) -> dict[str, int]:
    return {name: node.attr_int(name, 0) for name in ("seed", "seed2")}
