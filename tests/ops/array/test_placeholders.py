"""Constants and placeholders."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph, Versions
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, unlike
from tests.ops.graphs import c, f32, n

OP_CASES = [
    case("PlaceholderWithDefault", [(2, 3)], [(-1, 3)], shape=(-1, 3)),
    case("Const", [], [(2, 3)], value=np.zeros((2, 3), np.float32), dtype=DType.FLOAT),
    unlike(case("HostConst", [], [()], value=np.float32(1), dtype=DType.FLOAT)),
    case("Placeholder", [], [(2, -1)], shape=(2, -1)),
    case("Placeholder", [], [()], shape=()),
    case("PlaceholderV2", [], [None], shape=None),
    case("ImmutableConst", [], [(4, 5)], shape=(4, 5), memory_region_name="x"),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_placeholder_default_is_used_without_a_feed() -> None:
    graph = Graph([c("a", 1.0), n("y", "PlaceholderWithDefault", "a", dtype=np.float32)])
    assert Interpreter(graph).run(["y"], {})[0].tolist() == 1
    assert Interpreter(graph).run(["y"], {"y": f32(5)})[0].tolist() == 5


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (22, ())])
def test_empty_placeholder_shape_is_unknown_in_old_graphs(
    producer: int, shape: tuple[int, ...] | None
) -> None:
    """As in the shape function of ``Placeholder`` in TensorFlow's array_ops.cc."""
    empty = n("x", "Placeholder", dtype=np.float32, shape=attr.shape(()))
    shaped = n("y", "Placeholder", dtype=np.float32, shape=attr.shape((2,)))
    inferred = infer_shapes(Graph([empty, shaped], versions=Versions(producer)))
    assert (inferred["x"][0], inferred["y"][0]) == (shape, (2,))


def test_empty_variable_shape_is_unknown() -> None:
    shapes = {"": (), "2": (2,)}
    nodes = [
        n(f"v{name}", "Variable", dtype=np.float32, shape=attr.shape(shape))
        for name, shape in shapes.items()
    ]
    inferred = infer_shapes(Graph(nodes, versions=Versions(1000)))
    assert (inferred["v"][0], inferred["v2"][0]) == (None, (2,))
