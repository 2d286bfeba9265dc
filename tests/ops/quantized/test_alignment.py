"""Broadcasting in the original's quantized sums and products."""

import itertools

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.node import Node
from mobileprep.ops.quantized.arithmetic import align, always_align

SIZES = (-1, 1, 2, 3)
ALL_SHAPES = [s for rank in range(4) for s in itertools.product(SIZES, repeat=rank)]
NODE = Node("sum", "QuantizedAdd")


def _aligns(x, y) -> bool:
    try:
        align(NODE, np.zeros(x, np.uint8), np.zeros(y, np.uint8))
    except (UnsupportedError, ValueError):
        return False
    return True


def _known_shapes(shape):
    return itertools.product(*((1, 2, 3) if size < 0 else (size,) for size in shape))


def test_always_align_if_all_known_shapes_align():
    """An unknown size covers all sizes that broadcast."""
    for x, y in itertools.product(ALL_SHAPES, ALL_SHAPES):
        pairs = []
        for a, b in itertools.product(_known_shapes(x), _known_shapes(y)):
            try:
                np.broadcast_shapes(a, b)
            except ValueError:
                continue
            pairs.append((a, b))
        expected = bool(pairs) and all(_aligns(a, b) for a, b in pairs)
        assert always_align(x, y) == expected, (x, y)


@pytest.mark.parametrize(("x", "y"), [(None, (1,)), ((1,), None), ((1,) * 9, (1,))])
def test_unknown_or_large_rank_does_not_always_align(x, y):
    assert not always_align(x, y)
