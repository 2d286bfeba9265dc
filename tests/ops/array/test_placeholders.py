"""Constants and placeholders."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph, Versions
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import OpCase, case, unlike
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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()


def test_a_default_holds_where_nothing_is_fed() -> None:
    graph = Graph([c("a", 1.0), n("y", "PlaceholderWithDefault", "a", dtype=np.float32)])
    assert Interpreter(graph).run(["y"], {})[0].tolist() == 1
    assert Interpreter(graph).run(["y"], {"y": f32(5)})[0].tolist() == 5


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (22, ())])
def test_old_graphs_leave_a_placeholders_shape_empty(
    producer: int, shape: tuple[int, ...] | None
) -> None:
    """As the shape function of ``Placeholder`` in TensorFlow's array_ops.cc has it."""
    empty = n("x", "Placeholder", dtype=np.float32, shape=attr.shape(()))
    known = n("y", "Placeholder", dtype=np.float32, shape=attr.shape((2,)))
    found = infer_shapes(Graph([empty, known], versions=Versions(producer)))
    assert (found["x"][0], found["y"][0]) == (shape, (2,))


def test_a_variables_empty_shape_tells_nothing() -> None:
    shapes = {"": (), "2": (2,)}
    nodes = [
        n(f"v{name}", "Variable", dtype=np.float32, shape=attr.shape(shape))
        for name, shape in shapes.items()
    ]
    found = infer_shapes(Graph(nodes, versions=Versions(1000)))
    assert (found["v"][0], found["v2"][0]) == (None, (2,))
