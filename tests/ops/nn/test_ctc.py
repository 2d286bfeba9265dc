"""CTC decoders."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import i32, run_all

SHAPES = [
    shapes("CTCGreedyDecoder", [(7, 3, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, -1, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, 3, 5), None], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, 3, 5), (4,)], None),
    shapes("CTCGreedyDecoder", [(7, 3), (3,)], None),
    shapes("CTCGreedyDecoder", [(7, 3, 5), (3, 1)], None),
]

BEAM = "CTCBeamSearchDecoder"
ONE = {"beam_width": 4, "top_paths": 1}
SHAPES += [
    shapes(BEAM, [(7, 3, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)], **ONE),
    shapes(
        BEAM,
        [(7, -1, 5), (3,)],
        [*[(-1, 2)] * 2, *[(-1,)] * 2, *[(2,)] * 2, (3, 2)],
        beam_width=4,
        top_paths=2,
    ),
    shapes(BEAM, [(7, 3, 5), (4,)], None, **ONE),
    shapes(BEAM, [(7, 3), (3,)], None, **ONE),
]

COSTS = [
    cost("CTCGreedyDecoder", [(7, 3, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)], 105),
    # A softmax, then an addition and a comparison for each of 4 beams.
    cost(
        BEAM,
        [(7, 3, 5), (3,)],
        [(-1, 2), (-1,), (2,), (3, 1)],
        105 * (3 + 2 * 4),
        beam_width=4,
        top_paths=1,
    ),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_beam_search_of_two_steps() -> None:
    # Probabilities of a, b, and the blank.
    logits = np.log(np.float32([[[0.2, 0.0, 0.8]], [[0.4, 0.0, 0.6]]]) + 1e-30)
    result = run_all(BEAM, logits, i32([2]), beam_width=4, top_paths=2)
    # "a" has the alignments a-, -a, and aa, and nothing has --.
    indices, indices_2, values, values_2, shape, shape_2, scores = result
    assert (indices.tolist(), values.tolist(), shape.tolist()) == ([[0, 0]], [0], [1, 1])
    assert (indices_2.tolist(), values_2.tolist(), shape_2.tolist()) == ([], [], [1, 0])
    np.testing.assert_allclose(np.exp(scores), [[0.12 + 0.32 + 0.08, 0.48]], rtol=1e-6)
    assert scores.dtype == np.float32


def test_merge_repeated() -> None:
    # a, blank, a with high probability.
    logits = np.float32([[[9, 0]], [[0, 9]], [[9, 0]]])
    for merged, expected in ((False, [0, 0]), (True, [0])):
        _, values, shape, _ = run_all(
            BEAM, logits, i32([3]), beam_width=4, top_paths=1, merge_repeated=merged
        )
        assert (values.tolist(), shape.tolist()) == (expected, [1, len(expected)])


@pytest.mark.parametrize(
    ("lengths", "attrs"),
    [([3, 1], {}), ([9], {}), ([3], {"top_paths": 5}), ([0], {"top_paths": 2})],
)
def test_invalid_decoder_arguments_are_refused(lengths: list[int], attrs: dict[str, int]) -> None:
    with pytest.raises(InvalidGraphError, match=BEAM):
        run_all(BEAM, np.zeros((3, 1, 4), np.float32), i32(lengths), **{**ONE, **attrs})
