"""Reasons for refusing ops do not deny that LiteRT has an operator."""

from __future__ import annotations

import re

import pytest

from mobileprep.formats.tflite.layout import layout
from mobileprep.graph.opdefs.definitions import RELEASES, op_names
from mobileprep.litert.lower import unconverted
from mobileprep.litert.refusals import builtin_named
from mobileprep.litert.scope import lowered_ops


def _ops_with_a_builtin() -> list[str]:
    """All TensorFlow ops whose name is that of a builtin, whatever its case and version."""
    builtins = {name.replace("_", "") for name in layout().enums["BuiltinOperator"]}
    found = []
    for op_name in sorted({name for release in RELEASES for name in op_names(release)}):
        plain = re.sub(r"V\d+$", "", op_name).removesuffix("Op")
        if op_name.upper() in builtins or plain.upper() in builtins:
            found.append(op_name)
    return found


@pytest.mark.parametrize("kind", _ops_with_a_builtin())
def test_no_refusal_denies_a_builtin(kind: str) -> None:
    assert builtin_named(kind) is not None
    if kind in lowered_ops():
        return
    reason = unconverted(kind).reason
    assert "no such operator" not in reason
    assert str(builtin_named(kind)) in reason


@pytest.mark.parametrize("kind", ["Erfinv", "Dilation2D", "SparseSegmentSum"])
def test_other_ops_have_no_builtin(kind: str) -> None:
    assert builtin_named(kind) is None
