"""Which shapes the original's quantized sums and products can broadcast."""

import itertools

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.node import Node
from mobileprep.ops.quantized.arithmetic import align, always_align

SIZES = (-1, 1, 2, 3)
TRIED = [s for rank in range(4) for s in itertools.product(SIZES, repeat=rank)]
NODE = Node("sum", "QuantizedAdd")


def _aligns(x, y) -> bool:
    try:
        align(NODE, np.zeros(x, np.uint8), np.zeros(y, np.uint8))
    except (UnsupportedError, ValueError):
        return False
    return True


def _filled(shape):
    return itertools.product(*((1, 2, 3) if size < 0 else (size,) for size in shape))


def test_shapes_align_for_sure_where_all_that_broadcast_do():
    """Of sizes that are not known, those count that fit each other at all."""
    for x, y in itertools.product(TRIED, TRIED):
        pairs = []
        for a, b in itertools.product(_filled(x), _filled(y)):
            try:
                np.broadcast_shapes(a, b)
            except ValueError:
                continue
            pairs.append((a, b))
        want = bool(pairs) and all(_aligns(a, b) for a, b in pairs)
        assert always_align(x, y) == want, (x, y)


@pytest.mark.parametrize(("x", "y"), [(None, (1,)), ((1,), None), ((1,) * 9, (1,))])
def test_shapes_of_an_unknown_rank_or_of_many_axes_do_not(x, y):
    assert not always_align(x, y)
