"""Graphs in float16, bfloat16, and float64 compute in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from tests.litert.graphs import answered, codes, expected, feed, model, op
from tests.litert.one_op import numbers

KINDS = {
    DType.HALF: (np.float16, 2e-3),
    DType.BFLOAT16: (ml_dtypes.bfloat16, 2e-2),
    DType.DOUBLE: (np.float64, 1e-6),
}


def graph(kind: DType, numpy_kind: Any) -> Graph:
    weights = numbers(3, 3, 2, 4, seed=5).astype(numpy_kind)
    strides = {"strides": [1, 1, 1, 1], "padding": "SAME", "T": kind}
    return Graph(
        [
            feed("x", (1, 6, 6, 2), kind),
            constant("w", Tensor.of(weights)),
            constant("b", Tensor.of(numbers(4, seed=6).astype(numpy_kind))),
            op("conv", "Conv2D", ["x", "w"], **strides),
            op("biased", "BiasAdd", ["conv", "b"], T=kind),
            op("y", "Relu", ["biased"], T=kind),
            op("z", "Cast", ["y"], SrcT=kind, DstT=DType.FLOAT),
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_network_of_another_float_type(kind: DType) -> None:
    numpy_kind, tolerance = KINDS[kind]
    source, x = graph(kind, numpy_kind), numbers(1, 6, 6, 2).astype(numpy_kind)
    record = model(source, ["x"], ["y", "z"])
    assert codes(record)[:2] == ["CAST", "CONV_2D"]
    first, last = record.subgraphs[0].inputs[0], record.subgraphs[0].outputs[0]
    names = [record.subgraphs[0].tensors[i].type for i in (first, last)]
    assert len(set(names)) == 1
    if kind is DType.BFLOAT16:
        return  # The Python interpreter does not accept arrays of this type.
    results = answered(model_bytes(record), [x])
    references = expected(source, {"x": x}, ["y", "z"])
    for array, other in zip(results, references, strict=True):
        assert array.dtype == other.dtype
        peak = float(np.abs(other.astype(np.float32)).max())
        np.testing.assert_allclose(
            array.astype(np.float32), other.astype(np.float32), rtol=0, atol=tolerance * peak
        )


def test_replaced_type_is_reported() -> None:
    notes: list[str] = []
    converted(graph(DType.HALF, np.float16), [CutInput("x")], ["y"], tell=notes.append)
    assert notes == ["3 nodes of type float16 compute in float32"]


def test_constant_beyond_float32_is_refused() -> None:
    big = constant("big", Tensor.of(np.array([1e300, 1])))
    product = op("y", "Mul", ["x", "big"], T=DType.DOUBLE)
    source = Graph([feed("x", (2,), DType.DOUBLE), big, product])
    with pytest.raises(UnsupportedError, match="'big' has numbers beyond the range of float32"):
        model(source, ["x"], ["y"])
