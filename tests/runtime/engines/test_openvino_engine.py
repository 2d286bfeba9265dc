"""OpenVINO engine, if installed."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.agreement import check_agreement
from mobileprep.runtime.engines.choose import open_engine
from tests.transforms.graphs import const, conv, node, normal, placeholder

pytest.importorskip("openvino", reason="OpenVINO is not installed")

GRAPH = Graph(
    [
        placeholder(),
        const("w", normal(3, 3, 3, 8)),
        conv("conv", "x w"),
        node("relu", "Relu", "conv"),
        const("axes", [1, 2], np.int32),
        node("mean", "Mean", "relu axes", Tidx=DType.INT32, keep_dims=False),
        node("out", "Softmax", "mean"),
    ]
)


@pytest.mark.parametrize("shape", [(1, 8, 8, 3), (4, 5, 9, 3)])
def test_agrees_with_the_interpreter(shape: tuple[int, ...]) -> None:
    engine, reference = (open_engine(n, GRAPH, None) for n in ("openvino", "numpy"))
    agreement = check_agreement(engine, reference, ["out", "relu"], {"x": normal(*shape)})
    assert agreement.holds
    assert (agreement.engine, agreement.reference) == ("openvino", "numpy")


def test_results_are_not_shared_between_runs() -> None:
    engine = open_engine("openvino", GRAPH, None)
    [first] = engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    expected = first.copy()
    engine.run(["out"], {"x": normal(1, 8, 8, 3, seed=1)})
    np.testing.assert_array_equal(first, expected)


def test_scalar_feed() -> None:
    graph = Graph([placeholder(), placeholder("y"), node("out", "Mul", "x y")])
    [result] = open_engine("openvino", graph, None).run(
        ["out"], {"x": normal(3), "y": np.array(2, np.float32)}
    )
    np.testing.assert_allclose(result, 2 * normal(3), rtol=1e-6)


def test_unsupported_graph_is_refused() -> None:
    graph = Graph([placeholder(), node("out", "Frobnicate", "x")])
    engine = open_engine("openvino", graph, None)
    with pytest.raises((UnsupportedError, UsageError)):
        engine.run(["out"], {"x": normal(3)})
    text = Graph([placeholder("x", DType.STRING), node("out", "Identity", "x", T=DType.STRING)])
    with pytest.raises(UnsupportedError, match="takes no text"):
        open_engine("openvino", text, None).run(["out"], {"x": np.array([b"a"], object)})


def test_auto_uses_openvino() -> None:
    engine = open_engine("auto", GRAPH, None)
    engine.run(["out"], {"x": normal(1, 8, 8, 3)})
    assert engine.name == "openvino"
