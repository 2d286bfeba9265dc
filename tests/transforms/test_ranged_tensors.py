"""Which tensors a calibration has to measure for eight-bit layers."""

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.transforms.quantize_nodes.layers import ranged_tensors
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

GRAPH = Graph(
    [
        placeholder(),
        const("w", normal(3, 3, 4, 6)),
        conv("first", "x w"),
        node("relu", "Relu", "first"),
        const("axis", 3, np.int32),
        node("joined", "ConcatV2", "relu relu axis", N=2),
        const("w2", normal(1, 1, 12, 5)),
        conv("second", "joined w2"),
        node("parts", "Split", "axis second", num_split=5),
        const("w3", normal(1, 1, 1, 2)),
        conv("third", "parts:1 w3"),
        node("out", "Tanh", "third"),
    ]
)


def test_inputs_of_layers_and_their_sources_are_ranged():
    assert ranged_tensors(GRAPH) == (
        ("x", 0), ("first", 0), ("relu", 0), ("joined", 0), ("parts", 1),
    )  # fmt: skip


def test_no_layer_that_stays_float_counts():
    assert ranged_tensors(GRAPH, rules=("mode=float nodes=first",)) == ranged_tensors(GRAPH)[1:]
    assert ranged_tensors(GRAPH, ignored=("Conv2D",)) == ()


def test_they_are_all_that_the_transform_needs(tmp_path):
    names = [f"{n}:{i}" if i else n for n, i in ranged_tensors(GRAPH)]
    text = "".join(f"  {name!r}: {{min: -1.0, max: 1.0}}\n" for name in names)
    file = tmp_path / "ranges.yaml"
    file.write_text(f"version: 1\ntensors:\n{text}")
    assert not apply("quantize_nodes", GRAPH, range_file=str(file)).warnings
