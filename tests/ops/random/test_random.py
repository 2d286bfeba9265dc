"""Random number ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, fetches, i32, op_graph

SEEDED = {
    "RandomUniform": 0,
    "RandomUniformInt": 2,
    "RandomStandardNormal": 0,
    "TruncatedNormal": 0,
    "ParameterizedTruncatedNormal": 4,
}
# Number of bounds after the shape and the seed (in V2, with a counter and an algorithm).
STATELESS = {
    "StatelessRandomNormal": 0,
    "StatelessRandomUniform": 0,
    "StatelessTruncatedNormal": 0,
    "StatelessRandomUniformInt": 2,
    "StatelessRandomUniformFullInt": 0,
}
KEY = [(1,), (2,), ()]
EACH = ["RandomGamma", "RandomPoisson", "RandomPoissonV2"]

SHAPES = [
    *(shapes(op, [[2, 3], *[()] * more], [(2, 3)]) for op, more in SEEDED.items()),
    *(shapes(op, [(2,), *[()] * more], [(-1, -1)]) for op, more in SEEDED.items()),
    *(shapes(op, [(-1,), *[()] * more], [None]) for op, more in SEEDED.items()),
    *(shapes(op, [[2, 3], (2,), *[()] * more], [(2, 3)]) for op, more in STATELESS.items()),
    *(shapes(f"{op}V2", [[2, 3], *KEY, *[()] * n], [(2, 3)]) for op, n in STATELESS.items()),
    *(shapes(op, [[2, 3], (4, -1)], [(2, 3, 4, -1)]) for op in EACH),
    *(shapes(op, [[2, 3], None], [None]) for op in EACH),
    *(shapes(op, [(-1,), (4,)], [None]) for op in EACH),
    shapes("RandomShuffle", [(2, -1)], [(2, -1)]),
    shapes("Multinomial", [(4, 9), 6], [(4, 6)]),
    shapes("Multinomial", [(-1, 9), ()], [(-1, -1)]),
    shapes("Multinomial", [(9,), 6], None),
    shapes("StatelessMultinomial", [(4, 9), 6, (2,)], [(4, 6)]),
]

COSTS = [
    *(cost(op, [(2,), (), ()], [(2, 3)], 0) for op in [*SEEDED][:4]),
    cost("RandomShuffle", [(2, 3)], [(2, 3)], 0),
    cost("Multinomial", [(4, 9), ()], [(4, 6)], 0),
]

# The mean of 20,000 numbers deviates by less than 1 % of the spread.
COUNT = 20_000


def draw(op: str, *inputs: Any, seed: int = 3, **attrs: Any) -> np.ndarray:
    arrays = [np.asarray(x) for x in inputs]
    graph = op_graph(op, arrays, **attrs)
    feeds = {f"x{i}": x for i, x in enumerate(arrays)}
    return Interpreter(graph, seed=seed).run(fetches(graph), feeds)[0]


@pytest.mark.parametrize(
    ("op", "mean", "spread", "lowest", "highest"),
    [
        ("RandomUniform", 0.5, 12**-0.5, 0, 1),
        ("RandomStandardNormal", 0, 1, -9, 9),
        ("TruncatedNormal", 0, 0.8796, -2, 2),
    ],
)
def test_distribution(op: str, mean: float, spread: float, lowest: float, highest: float) -> None:
    for kind in (np.float32, np.float64, np.float16):
        out = draw(op, i32(COUNT // 4, 4), dtype=kind)
        assert (out.shape, out.dtype) == ((COUNT // 4, 4), kind)
        wide = out.astype(float)
        assert wide.mean() == pytest.approx(mean, abs=0.03)
        assert wide.std() == pytest.approx(spread, rel=0.03)
        assert lowest <= wide.min() <= wide.max() <= highest


def test_float16_uniform_is_below_one() -> None:
    assert float(draw("RandomUniform", i32([COUNT]), dtype=np.float16).max()) < 1


def test_uniform_integers() -> None:
    out = draw("RandomUniformInt", i32([COUNT]), i32(-2), i32(3), Tout=np.int32)
    assert (sorted(set(out.tolist())), out.dtype) == ([-2, -1, 0, 1, 2], np.int32)
    with pytest.raises(InvalidGraphError, match="no number in"):
        draw("RandomUniformInt", i32([1]), i32(3), i32(3), Tout=np.int32)


def test_multinomial() -> None:
    out = draw("Multinomial", f32([[np.log(0.25), np.log(0.75)]]), i32(COUNT))
    assert out.shape == (1, COUNT)
    assert out.mean() == pytest.approx(0.75, abs=0.02)


def test_shuffle() -> None:
    out = draw("RandomShuffle", np.arange(50))
    assert sorted(out.tolist()) == list(range(50))
    assert out.tolist() != list(range(50))


def test_seed_changes_the_numbers() -> None:
    first, second = (draw("RandomUniform", i32([4]), dtype=np.float32, seed=s) for s in (1, 2))
    assert not np.array_equal(first, second)


def test_huge_shape_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="passes"):
        draw("RandomUniform", i32(2**30, 2**30), dtype=np.float32)


test_shapes_and_costs = case_tests(SHAPES, COSTS)
