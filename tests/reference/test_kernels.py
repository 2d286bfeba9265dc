"""Op kernels match TensorFlow's, over dtypes, attributes, broadcasting, and odd shapes."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from mobileprep.errors import MobileprepError
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import fetches, op_graph
from tests.reference.cases import (
    arrays,
    elementwise,
    features,
    images,
    networks,
    products,
    reductions,
    texts,
)
from tests.reference.cases.base import Case
from tests.reference.newest import run_newest

pytestmark = pytest.mark.reference

_FAMILIES = (elementwise, reductions, products, arrays, networks, features, images, texts)
CASES = [case for family in _FAMILIES for case in family.cases()]

_NO_KERNEL = ("No OpKernel", "has constraint on attr", "does not support", "not supported")
# Tolerances for dtypes whose rounding depends on the order of a sum.
_COARSE = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-9, "complex128": 1e-9}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_match_tensorflow(case: Case, tf: ModuleType) -> None:
    graph = op_graph(case.op, case.inputs, **case.attrs)
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs)}
    names = fetches(graph)
    ours: list | MobileprepError
    try:
        ours = Interpreter(graph).run(names, feeds)
    except MobileprepError as error:
        ours = error
    try:
        theirs = run_newest(tf, graph, names, feeds, optimize=False)
    except (tf.errors.OpError, ValueError) as error:
        if any(hint in str(error) for hint in _NO_KERNEL):
            pytest.skip("TensorFlow has no CPU kernel for this case")
        assert isinstance(ours, MobileprepError), f"TensorFlow fails: {error}"
        return
    assert not isinstance(ours, MobileprepError), ours
    # TensorFlow does not define statistics that only gradients need.
    compared = 1 if case.op.startswith("FusedBatchNorm") else len(ours)
    for mine, reference in zip(ours[:compared], theirs[:compared], strict=True):
        compare(mine, reference, case.tolerance)


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
    # A sum that cancels keeps the rounding errors of its terms.
    noise = 0.1 * bound * float(np.abs(finite).max(initial=0))
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=bound, atol=noise)
