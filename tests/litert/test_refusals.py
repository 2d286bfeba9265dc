"""Refusals of ops that have a builtin name the builtin."""

from __future__ import annotations

import re

import pytest

from mobileprep.formats.tflite.layout import layout
from mobileprep.graph.opdefs.definitions import RELEASES, op_names
from mobileprep.litert.lower import unconverted
from mobileprep.litert.refusals import builtin_named
from mobileprep.litert.scope import lowered_ops


def _ops_with_a_builtin() -> list[str]:
    """TensorFlow ops named like a builtin, ignoring case and version."""
    builtins = {name.replace("_", "") for name in layout().enums["BuiltinOperator"]}
    matches = []
    for op_name in sorted({name for release in RELEASES for name in op_names(release)}):
        plain = re.sub(r"V\d+$", "", op_name).removesuffix("Op")
        if op_name.upper() in builtins or plain.upper() in builtins:
            matches.append(op_name)
    return matches


@pytest.mark.parametrize("kind", _ops_with_a_builtin())
def test_refusal_names_the_builtin(kind: str) -> None:
    assert builtin_named(kind) is not None
    if kind in lowered_ops():
        return
    reason = unconverted(kind).reason
    assert "no such operator" not in reason
    assert str(builtin_named(kind)) in reason


@pytest.mark.parametrize("kind", ["Erfinv", "Dilation2D", "SparseSegmentSum"])
def test_other_ops_have_no_builtin(kind: str) -> None:
    assert builtin_named(kind) is None
