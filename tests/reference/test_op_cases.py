"""The cases of shape functions match TensorFlow's shape inference."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.graph.opdefs.definitions import input_types, op_def
from tests.ops.cases import NODE, REFUSED, OpCase
from tests.reference.test_shapes import contradicts, tensorflows_shapes

pytestmark = pytest.mark.reference

OPS = Path(__file__).parents[1] / "ops"


def _cases() -> list[OpCase]:
    modules = sorted(".".join(p.relative_to(OPS).with_suffix("").parts) for p in OPS.glob("*/*.py"))
    return [
        case
        for module in modules
        for table in ("OP_CASES", "SHAPES")
        for case in getattr(importlib.import_module(f"tests.ops.{module}"), table, ())
    ]


def _is_importable(case: OpCase) -> bool:
    """Whether TensorFlow can import the op alone; ops on references need variables."""
    definition = op_def(case.op)
    if definition is None or definition.deprecated_at:
        return False
    return not any(t.is_ref for t in input_types(case.graph()[NODE], definition))


@pytest.mark.parametrize("case", [c for c in _cases() if _is_importable(c)], ids=str)
def test_shapes_match_tensorflow(tf: ModuleType, case: OpCase) -> None:
    try:
        theirs: object = tensorflows_shapes(tf, case.graph())[NODE]
    except (ValueError, tf.errors.OpError):
        theirs = REFUSED
    if not case.unlike:
        assert case.outputs == theirs
    elif REFUSED not in (case.outputs, theirs):
        assert not any(map(contradicts, case.outputs, theirs)), theirs
