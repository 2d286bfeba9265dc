"""Constants are prepared once for all runs of a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.regions import fold
from tests.ops.graphs import c, n, p

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def at_offset(values: Array, offset: int) -> memoryview:
    """The bytes of an array at an offset in a buffer."""
    return memoryview(bytes(offset) + values.tobytes())[offset:]


def folded(value: Any) -> Any:
    _, constants = fold([], {("w", 0): value}, [("w", 0)], "graph")
    return constants["w", 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.complex64])
def test_unaligned_constants_are_copied(dtype: type) -> None:
    unaligned: Array = np.frombuffer(at_offset(WEIGHTS.astype(dtype), 1), dtype).reshape(2, 3)
    assert not unaligned.flags.aligned
    result = folded(unaligned)
    assert result.flags.aligned
    assert not result.flags.writeable
    np.testing.assert_array_equal(result, WEIGHTS.astype(dtype))


def test_aligned_constants_are_not_copied() -> None:
    assert folded(WEIGHTS) is WEIGHTS


def test_copies_use_at_most_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    unaligned: Array = np.frombuffer(at_offset(WEIGHTS, 1), np.float32)
    monkeypatch.setattr("mobileprep.runtime.regions.memory_limit", lambda: 8 * unaligned.nbytes)
    values = {(name, 0): unaligned for name in "abc"}
    _, constants = fold([], values, list(values), "graph")
    assert [constants[tensor].flags.aligned for tensor in values] == [True, True, False]


@pytest.mark.parametrize("offset", range(4))
def test_product_with_unaligned_constant(offset: int) -> None:
    constant = c("w", WEIGHTS)
    tensor = constant.attrs["value"].value
    assert isinstance(tensor, Tensor)
    tensor.lying_at(at_offset(WEIGHTS, offset), tensor.digest())
    graph = Graph([p("x"), constant, n("product", "MatMul", "x", "w")])
    x = np.ones((1, 2), np.float32)
    (result,) = Interpreter(graph).run(["product"], {"x": x})
    np.testing.assert_array_equal(result, x @ WEIGHTS)


def test_constants_are_computed_once() -> None:
    graph = Graph([p("x"), c("a", 4.0), n("root", "Sqrt", "a"), n("y", "Mul", "x", "root")])
    names: list[str] = []
    runner = Interpreter(graph, observer=lambda nodes, *rest: names.append(nodes[0].name))
    for _ in range(2):
        runner.run(["y"], {"x": WEIGHTS})
    assert names == ["y", "y"]
