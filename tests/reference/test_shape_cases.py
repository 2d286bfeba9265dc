"""The cases of shapes that were worked out by hand, against TensorFlow's shape functions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.serde import graph_to_bytes
from mobileprep.opdefs.definitions import op_def
from mobileprep.ops.dims import common, merge
from tests.ops import cases
from tests.ops.cases import NODE, ShapeCase

pytestmark = pytest.mark.reference

# Of these the newest release knows more than 1.15, whose answers ``fold_constants`` gives.
LEARNED_SINCE = {"Conv2DBackpropInput"}


def _cases() -> Iterator[ShapeCase]:
    """The table ``SHAPES`` of each module of tests."""
    for path in sorted(Path(cases.__file__).parent.glob("*/test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.parent.name}.{path.stem}")
        yield from getattr(module, "SHAPES", ())


@pytest.mark.parametrize("case", list(_cases()), ids=str)
def test_shapes_worked_out_by_hand_are_tensorflows(tf: ModuleType, case: ShapeCase) -> None:
    if op_def(case.op) is None:
        pytest.skip(f"the newest TensorFlow has no {case.op}")
    theirs = _tensorflows(tf, case)
    if case.op in LEARNED_SINCE and theirs is not None:
        assert case.outputs is not None
        theirs = [common((a, merge(a, b))) for a, b in zip(case.outputs, theirs, strict=True)]
    assert theirs == (None if case.outputs is None else list(case.outputs))


def _tensorflows(tf: ModuleType, case: ShapeCase) -> list[TensorShape] | None:
    """The shapes that TensorFlow infers, or None where it refuses the node."""
    proto = tf.compat.v1.GraphDef.FromString(graph_to_bytes(case.graph()))
    with tf.Graph().as_default() as imported:
        try:
            tf.import_graph_def(proto, name="")
        except ValueError:
            return None
        found = [t.shape for t in imported.get_operation_by_name(NODE).outputs]
    return [None if s.rank is None else tuple(-1 if d is None else d for d in s) for s in found]
