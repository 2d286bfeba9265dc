"""GatherTree, compared with the loop that defines it."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.tensor import Array
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import i32, run_all

TREE = "GatherTree"
SHAPES = [
    shapes(TREE, [(7, 3, 5), (7, 3, 5), (3,), ()], [(7, 3, 5)]),
    shapes(TREE, [(-1, 3, 5), (7, -1, 5), (3,), ()], [(7, 3, 5)]),
    shapes(TREE, [(7, 3), (7, 3), (3,), ()], None),
]
COSTS = [
    cost(op, [(7, 3, 5), (7, 3, 5), (3,), ()], [(7, 3, 5)], 105)
    for op in (TREE, "Addons>GatherTree")
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def by_definition(ids: Array, parents: Array, lengths: Array, end: int) -> Array:
    """The loops of the original kernel."""
    result = np.full_like(ids, end)
    steps, batch, beams = ids.shape
    for entry, beam in np.ndindex(batch, beams):
        length = min(steps, int(lengths[entry]))
        place = beam
        for step in reversed(range(length)):
            result[step, entry, beam] = ids[step, entry, place]
            place = parents[step, entry, place]
        has_ended = False
        for step in range(length):
            if has_ended:
                result[step, entry, beam] = end
            has_ended |= bool(result[step, entry, beam] == end)
    return result


def tree(seed: int) -> tuple[Array, Array, Array, Array]:
    random = np.random.default_rng(seed)
    size = (6, 3, 4)
    ids, parents = (random.integers(0, most, size, np.int32) for most in (9, 4))
    return ids, parents, i32([6, 0, 4] if seed % 2 else [9, 6, 1]), i32(2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("op", [TREE, "Addons>GatherTree"])
def test_gather_tree(op: str, seed: int) -> None:
    inputs = tree(seed)
    (result,) = run_all(op, *inputs)
    np.testing.assert_array_equal(result, by_definition(*inputs[:3], end=2))


def test_invalid_trees_are_refused() -> None:
    ids, parents, lengths, end = tree(0)
    for wrong in ((ids, parents + 4, lengths, end), (ids, parents[1:], lengths, end)):
        with pytest.raises(InvalidGraphError, match=TREE):
            run_all(TREE, *wrong)
