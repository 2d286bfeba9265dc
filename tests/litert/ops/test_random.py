"""Random ops: other values than in TensorFlow, from the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from tests.litert.graphs import answered, codes, const, feed, model, op


def drawn(kind: str, *inputs: Any, **attrs: Any) -> tuple[Array, list[str]]:
    names = [f"c{i}" for i in range(len(inputs))]
    nodes = [const(name, value) for name, value in zip(names, inputs, strict=True)]
    graph = Graph([*nodes, op("y", kind, names, seed=7, seed2=9, **attrs)])
    record = model(graph, [], ["y"])
    return answered(model_bytes(record), [])[0], codes(record)


@pytest.mark.parametrize("shape", [np.int32([40, 50]), np.int64([40, 50])])
def test_random_normal(shape: Array) -> None:
    draws, ran = drawn("RandomStandardNormal", shape, dtype=DType.FLOAT)
    assert ran == ["RANDOM_STANDARD_NORMAL"]
    assert draws.shape == (40, 50)
    assert abs(draws.mean()) < 0.1
    assert abs(draws.std() - 1) < 0.1


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_random_integers(dtype: type) -> None:
    ends = [np.array(end, dtype) for end in (-2, 5)]
    kind = {np.int32: DType.INT32, np.int64: DType.INT64}[dtype]
    draws, _ = drawn("RandomUniformInt", np.int32([2000]), *ends, Tout=kind)
    assert draws.dtype == dtype
    assert sorted(set(draws.tolist())) == list(range(-2, 5))


def test_random_integers_beyond_float32_are_refused() -> None:
    ends = [np.int32(0), np.int32(1 << 25)]
    with pytest.raises(UnsupportedError, match="exact up to"):
        drawn("RandomUniformInt", np.int32([20]), *ends, Tout=DType.INT32)


def test_multinomial() -> None:
    logits = np.log(np.float32([[0.5, 0.5, 1e-9], [1e-9, 1e-9, 1]]))
    graph = Graph(
        [
            feed("x", (2, 3)),
            const("n", np.int32(200)),
            op("y", "Multinomial", ["x", "n"], seed=1, seed2=2, output_dtype=DType.INT64),
        ]
    )
    record = model(graph, ["x"], ["y"])
    (result,) = answered(model_bytes(record), [logits])
    assert codes(record) == ["MULTINOMIAL"]
    assert result.shape == (2, 200)
    assert [sorted(set(row)) for row in result.tolist()] == [[0, 1], [2]]
