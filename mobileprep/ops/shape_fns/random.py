"""Shapes of random numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN, concatenate, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn(
    *("ParameterizedTruncatedNormal", "RandomStandardNormal", "RandomUniform", "RandomUniformInt"),
    *("StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomUniform"),
    *("StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2"),
    *("StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatelessRandomUniformV2"),
    *("StatelessTruncatedNormal", "StatelessTruncatedNormalV2", "TruncatedNormal"),
)
def drawn(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    return [args.as_shape(0)]


@shape_fn("RandomGamma", "RandomPoisson", "RandomPoissonV2")
def drawn_each(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds, for each parameter."""
    return [concatenate(args.as_shape(0), args.shapes[1])]


@shape_fn("Multinomial", "StatelessMultinomial")
def multinomial(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many draws as are asked for from each row."""
    draws = args.scalar(1)
    return [(with_rank(args.shapes[0], 2)[0], UNKNOWN if draws is None else draws)]
