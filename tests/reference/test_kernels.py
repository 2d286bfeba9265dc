"""Every op kernel against TensorFlow's own, over types, attributes, broadcasting and odd shapes."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import fetches, op_graph
from tests.reference.cases import arrays, elementwise, networks, products, reductions
from tests.reference.cases.base import Case

pytestmark = pytest.mark.reference

_FAMILIES = (elementwise, reductions, products, arrays, networks)
CASES = [case for family in _FAMILIES for case in family.cases()]

_NO_KERNEL = ("No OpKernel", "has constraint on attr", "does not support", "not supported")
# What a type's own rounding leaves to the order of a sum.
_COARSE = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-9, "complex128": 1e-9}


def run_tensorflow(tf: ModuleType, graph: Graph, names: list[str], feeds: dict) -> list:
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(graph_to_bytes(graph))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(definition, name="")
        config = tf.compat.v1.ConfigProto(
            graph_options={"rewrite_options": {"disable_meta_optimizer": True}}
        )
        with tf.compat.v1.Session(graph=imported, config=config) as session:
            wanted = [n if ":" in n else f"{n}:0" for n in names]
            return session.run(wanted, {f"{k}:0": v for k, v in feeds.items()})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_gives_what_tensorflow_gives(case: Case, tf: ModuleType) -> None:
    graph = op_graph(case.op, case.inputs, **case.attrs)
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs)}
    names = fetches(graph)
    ours: list | MobileprepError
    try:
        ours = Interpreter(graph).run(names, feeds)
    except MobileprepError as error:
        ours = error
    try:
        theirs = run_tensorflow(tf, graph, names, feeds)
    except (tf.errors.OpError, ValueError) as error:
        if any(hint in str(error) for hint in _NO_KERNEL):
            pytest.skip("TensorFlow has no such kernel on the CPU")
        assert isinstance(ours, MobileprepError), f"TensorFlow refuses this: {error}"
        return
    assert not isinstance(ours, MobileprepError), ours
    # Statistics that only a gradient needs are left open by TensorFlow.
    compared = 1 if case.op.startswith("FusedBatchNorm") else len(ours)
    for mine, reference in zip(ours[:compared], theirs[:compared], strict=True):
        compare(mine, np.asarray(reference), case.tolerance)


def compare(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert isinstance(ours, np.ndarray)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    if ours.dtype.kind in "iub" or ours.dtype == object:
        np.testing.assert_array_equal(ours, theirs)
        return
    bound = _COARSE.get(ours.dtype.name, tolerance)
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    finite = theirs[np.isfinite(theirs)]
    # What cancels in a sum has the rounding of what was summed.
    noise = 0.1 * bound * float(np.abs(finite).max(initial=0))
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=bound, atol=noise)
