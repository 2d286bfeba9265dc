"""The shapes of images that an input gives height and width of."""

from __future__ import annotations

from mobileprep.ops.dims import UNKNOWN, ShapeConflictError, with_rank
from mobileprep.ops.shape_function import ShapeArgs


def given_size(args: ShapeArgs, index: int) -> tuple[int, int]:
    """Height and width, as an input holds them; -1 where they are not known."""
    with_rank(args.shapes[index], 1)
    size = args.integers(index)
    if size is None:
        return UNKNOWN, UNKNOWN
    if len(size) != 2:
        message = f"a size needs height and width, not {list(size)}"
        raise ShapeConflictError(message)
    return size[0], size[1]
