"""reconstruct_weights with a scale for each block."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.litert.weights import quantized_weights
from mobileprep.transforms.quantize_nodes import WeightSettings
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run
from tests.transforms.test_reconstruct_weights import OTHERS, data, weights

__all__ = ["data"]


def pointwise(size: int = 1) -> Graph:
    """Return a convolution of 64 channels behind another, which 4 bits give blocks of 32."""
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 64, seed=1)),
            conv("layer", "x w"),
            node("act", "Relu", "layer"),
            const("v", normal(size, size, 64, 8, seed=2) * np.repeat([1, 20], 32)[:, None]),
            conv("out", "act v"),
        ]
    )


@pytest.mark.parametrize("size", [1, 3])
def test_blocks_are_on_the_steps_that_litert_stores(data, size):
    result = apply("reconstruct_weights", pointwise(size), data=data, bits=4, block_size=32)
    values = weights(result.graph, "v").reshape(-1, 8).T
    # Larger filters have no blocks, but a scale for each channel.
    settings = WeightSettings(4, block_size=32 if size == 1 else 0)
    levels, details = quantized_weights(np.ascontiguousarray(values), 0, settings)
    width = 32 if size == 1 else values.shape[1]
    restored = levels * np.repeat(details.scales.reshape(8, -1), width, axis=1)
    np.testing.assert_allclose(restored, values, rtol=0 if size == 1 else 1e-6)
    by_block = np.abs(levels).reshape(8, -1, width).max(axis=2)
    np.testing.assert_array_equal(by_block, 7)


def test_blocks_change_outputs_less(data):
    def error(**options) -> float:
        graph = apply("reconstruct_weights", pointwise(), data=data, bits=4, **options).graph
        return float(np.square(run(graph, OTHERS, "out") - run(pointwise(), OTHERS, "out")).mean())

    assert error(block_size=32) < error()
