"""TensorFlow and the interpreter agree on repaired and compactly stored graphs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.newest import run_newest
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

pytestmark = pytest.mark.reference

IMAGES = np.abs(normal(4, 8, 8, 3, seed=3)).astype(np.float32)
FACTORS = (2.0 ** (np.arange(16) % 13 - 6)).astype(np.float32)


def network() -> Graph:
    """Convolutions with Relu6 in between and uneven ranges per channel."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 3, 16, seed=1) * FACTORS),
            conv("layer", "x w"),
            const("b", normal(16, seed=2) + 1),
            node("biased", "BiasAdd", "layer b", data_format="NHWC"),
            node("act", "Relu6", "biased"),
            const("d", normal(3, 3, 16, 1, seed=3)),
            conv("deep", "act d", "DepthwiseConv2dNative"),
            const("b2", np.full(16, 4.0)),
            node("biased2", "BiasAdd", "deep b2", data_format="NHWC"),
            node("act2", "Relu6", "biased2"),
            const("w2", normal(1, 1, 16, 9, seed=4)),
            conv("pointwise", "act2 w2"),
            const("shape", [-1, 576], np.int32),
            node("flat", "Reshape", "pointwise shape"),
            const("w3", normal(576, 5, seed=5)),
            node("out", "MatMul", "flat w3"),
        ]
    )


def _run_tensorflow(tf: ModuleType, graph: Graph, *, optimized: bool) -> np.ndarray:
    (output,) = run_newest(tf, graph, ["out"], {"x": IMAGES}, optimize=optimized)
    return output


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("equalize_ranges", {}),
    ("equalize_ranges", {"powers_of_two": True}),
    ("absorb_high_biases", {"data": "images.npz", "deviations": 0.0}),
    ("correct_bias", {"data": "images.npz", "minimum_size": 0}),
    ("clip_weights", {"bits": 4, "minimum_size": 0}),
    ("cast_weights", {"type": "float16", "minimum_size": 100}),
    ("cast_weights", {"type": "bfloat16", "minimum_size": 100}),
    *(
        ("linear_quantize_weights", {"bits": bits, "granularity": granularity, "minimum_size": 1})
        for bits in range(2, 9)
        for granularity in ("channel", "tensor")
    ),
]


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_interpreter_matches_tensorflow(tf, step, optimized, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_arrays(tmp_path / "images.npz", {"x": IMAGES})
    name, options = step
    result = apply(name, network(), **options)
    assert result.matched
    ours = Interpreter(result.graph).run(["out"], {"x": IMAGES})[0]
    theirs = _run_tensorflow(tf, result.graph, optimized=optimized)
    # Sums of hundreds of float32 values, in another order.
    np.testing.assert_allclose(ours, theirs, atol=3e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("optimized", [True, False])
def test_powers_of_two_preserve_outputs_exactly(tf, optimized):
    graph = network()
    after = apply("equalize_ranges", graph, powers_of_two=True).graph
    np.testing.assert_array_equal(
        _run_tensorflow(tf, after, optimized=optimized),
        _run_tensorflow(tf, graph, optimized=optimized),
    )
