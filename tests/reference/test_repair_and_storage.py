"""Repaired and compactly stored graphs load in TensorFlow, and compute there what they do here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, make_transform
from tests.transforms.graphs import const, conv, node, normal, placeholder

pytestmark = pytest.mark.reference

IMAGES = np.abs(normal(4, 8, 8, 3, seed=3)).astype(np.float32)
FACTORS = (2.0 ** (np.arange(16) % 13 - 6)).astype(np.float32)


def network() -> Graph:
    """Convolution, depthwise and pointwise, Relu6 between, with channels of uneven ranges."""
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


def _by_tensorflow(tf: Any, graph: Graph, *, optimized: bool) -> np.ndarray:
    parsed = tf.compat.v1.GraphDef.FromString(graph_to_bytes(graph))
    rewriting = {} if optimized else {"disable_meta_optimizer": True}
    config = tf.compat.v1.ConfigProto(graph_options={"rewrite_options": rewriting})
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(parsed, name="")
        with tf.compat.v1.Session(graph=loaded, config=config) as session:
            found: np.ndarray = session.run("out:0", {"x:0": IMAGES})
    return found


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
def test_tensorflow_computes_what_we_do(tf, step, optimized, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_arrays(tmp_path / "images.npz", {"x": IMAGES})
    name, options = step
    result = make_transform(name, options).apply(network(), Context(("x",), ("out",)))
    assert result.matched
    ours = Interpreter(result.graph).run(["out"], {"x": IMAGES})[0]
    theirs = _by_tensorflow(tf, result.graph, optimized=optimized)
    # Sums of some hundred float32, in another order.
    np.testing.assert_allclose(ours, theirs, atol=3e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("optimized", [True, False])
def test_powers_of_two_change_no_bit_in_tensorflow(tf, optimized):
    graph = network()
    step = make_transform("equalize_ranges", {"powers_of_two": True})
    after = step.apply(graph, Context(("x",), ("out",))).graph
    np.testing.assert_array_equal(
        _by_tensorflow(tf, after, optimized=optimized),
        _by_tensorflow(tf, graph, optimized=optimized),
    )
