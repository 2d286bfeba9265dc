"""What the user is told before a step runs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.transforms.chains.chain import cautions
from tests.transforms.graphs import const, node, placeholder

PLAIN = Graph([placeholder(), node("out", "Relu", "x")])
LOOP = Graph([*PLAIN.nodes, node("switch", "Switch", "x x")])
NORMED = Graph([*PLAIN.nodes, node("norm", "FusedBatchNormV3", "x")])
QUANTIZED = Graph(
    [*PLAIN.nodes, const("c", [1], np.uint8), node("back", "Dequantize", "c", T=None)]
)


@pytest.mark.parametrize(
    ("graph", "earlier", "name", "options", "told"),
    [
        (LOOP, [], "remove_nodes", {"op": ("Identity",)}, "control flow"),
        (NORMED, [], "quantize_nodes", {}, "before the batch norms are folded"),
        (PLAIN, ["quantize_weights"], "quantize_weights", {}, "a second time"),
        (QUANTIZED, [], "quantize_weights", {}, "a second time"),
    ],
)
def test_known_trap_is_a_warning(graph, earlier, name, options, told) -> None:
    (caution,) = cautions(graph, earlier, name, options)
    assert caution.startswith(name)
    assert told in caution


@pytest.mark.parametrize(
    ("graph", "earlier", "name", "options"),
    [
        (PLAIN, [], "remove_nodes", {"op": ("Identity",)}),
        (LOOP, [], "remove_nodes", {"op": ("CheckNumerics",)}),
        (NORMED, ["fold_old_batch_norms"], "quantize_nodes", {}),
        (PLAIN, ["round_weights"], "quantize_weights", {}),
    ],
)
def test_no_warning_without_a_reason(graph, earlier, name, options) -> None:
    assert cautions(graph, earlier, name, options) == ()
