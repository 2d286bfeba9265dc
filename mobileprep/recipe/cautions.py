"""What a recipe's chains alone tell will go wrong, before a graph is read.

The cases are those that the original tool's documentation warns of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mobileprep.recipe.model import Recipe, Step

_FOLDS: Final = frozenset(
    {"fold_batch_norms", "fold_old_batch_norms", "fuse_batch_norms", "optimize"}
)
_QUANTIZES: Final = ("quantize_nodes", "quantize_weights")


def recipe_cautions(recipe: Recipe) -> tuple[str, ...]:
    """What the user should know of the chains of a recipe's targets, each once, with its place."""
    told = (caution for target in recipe.targets for caution in _of_chain(target.transforms))
    return tuple(dict.fromkeys(told))


def _of_chain(steps: Iterable[Step]) -> Iterator[str]:
    earlier: set[str] = set()
    for step in steps:
        if step.note:
            yield f"{step.place}: {step.note}"
        before = next((name for name in _QUANTIZES if name in earlier), None)
        if step.name in _FOLDS and before is not None:
            yield (
                f"{step.place}: {step.name} after {before}: quantized layers take no batch "
                f"norm in; put it before {before}"
            )
        if step.name == "quantize_weights" and step.name in earlier:
            yield (
                f"{step.place}: quantize_weights a second time: weights that are stored in 8 bits "
                "stay so; leave one of the two out"
            )
        earlier.add(step.name)
