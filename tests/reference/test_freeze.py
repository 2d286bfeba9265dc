"""Freezing compared with TensorFlow: the frozen graph gives what the model gave."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.freeze.freezing import freeze
from mobileprep.freeze.options import FreezeOptions, FreezeResult
from mobileprep.freeze.source import load_source
from mobileprep.freeze.follow import VARIABLE_OPS
from mobileprep.ops.functions.kinds import FUNCTIONAL
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_to_bytes
from tests.reference.saved_models import ZOO, Saved

pytestmark = pytest.mark.reference

TOLERANCE = 1e-5


def run(tf: ModuleType, result: FreezeResult, feeds: dict[str, Any]) -> list[Any]:
    """What TensorFlow gives for a frozen graph, its tables filled first."""
    definition = tf.compat.v1.GraphDef.FromString(graph_to_bytes(result.graph))
    paths = {a.tensor: np.array(str(a.path).encode(), dtype=object) for a in result.assets}
    with tf.Graph().as_default():
        tf.import_graph_def(definition, name="")
        with tf.compat.v1.Session() as session:
            for name in result.init_ops:
                session.run(name, paths)
            outputs = [name if ":" in name else f"{name}:0" for name in result.outputs]
            return session.run(outputs, feeds)


def assert_close(got: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
        else:
            np.testing.assert_array_equal(ours, theirs)


def frozen(saved: Saved, **options: Any) -> FreezeResult:
    chosen = {"outputs": saved.outputs, **saved.options, **options}
    return freeze(load_source(**saved.source), FreezeOptions(**chosen))


def ops(graph: Graph) -> set[str]:
    inside = {n.op for f in graph.library.functions.values() for n in f.nodes}
    return {n.op for n in graph} | inside


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("control_flow", ["keep", "lower"])
def test_outputs_are_those_of_the_model(
    name: str, control_flow: str, tf: ModuleType, tmp_path: Path
) -> None:
    saved = ZOO[name](tf, tmp_path)
    result = frozen(saved, control_flow=control_flow)
    assert not ops(result.graph) & VARIABLE_OPS
    if control_flow == "lower":
        assert not ops(result.graph) & FUNCTIONAL.keys()
    assert_close(run(tf, result, saved.feeds), saved.expected)
