"""Cost rules that ops of many families share."""

from __future__ import annotations

from mobileprep.ops.cost import FlopRule, Sizes, UnknownCostError


def per_output(factor: float) -> FlopRule:
    """The rule of ops that take so many operations for each element of their output."""
    if not factor:
        # Nothing is nothing, whatever the shape.
        return free

    def rule(sizes: Sizes) -> float:
        return factor * sizes.made()

    return rule


def per_input(factor: float) -> FlopRule:
    """The rule of ops that take so many operations for each element of their first input."""

    def rule(sizes: Sizes) -> float:
        return factor * sizes.taken()

    return rule


def free(sizes: Sizes) -> float:
    """Nothing is computed."""
    return 0


def depends_on_values(sizes: Sizes) -> float:
    """What is computed depends on values, which shapes do not tell."""
    raise UnknownCostError
