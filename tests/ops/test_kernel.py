"""Registry of op kernels."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mobileprep.errors import InternalError
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import any_op_def
from mobileprep.ops.kernel import call_kernel, find_kernel, kernel, kernel_names


def test_every_kernel_has_an_op_definition() -> None:
    names = kernel_names()
    assert names == sorted(set(names))
    assert {"Add", "Conv2D", "MatMul", "Softmax"} <= set(names)
    unknown = [name for name in names if any_op_def(name) is None]
    # LiteRT defines them.
    assert unknown == [
        "TFLite_Detection_PostProcess",
        "UnidirectionalSequenceLSTM",
        "UnidirectionalSequenceRNN",
    ]
    assert all(find_kernel(name) is not None for name in names)


def test_unknown_op_has_no_kernel() -> None:
    assert find_kernel("NoSuchOp") is None


def test_duplicate_kernel_is_refused() -> None:
    find_kernel("Add")
    with pytest.raises(InternalError, match="'Add' is registered twice"):
        kernel("Add")(lambda _node, x: x)


def test_kernel_outputs_are_a_tuple() -> None:
    one, two = np.zeros(1), np.zeros(2)
    node = Node("n", "Op")
    assert call_kernel(lambda _n, x: x, node, [one])[0] is one
    outputs = call_kernel(lambda _n, x, y: (y, x), node, [one, two])
    assert outputs[0] is two
    assert outputs[1] is one
    assert call_kernel(lambda _n: (), node, []) == ()


def test_kernel_modules_are_loaded_on_demand() -> None:
    code = (
        "import sys, mobileprep.ops.kernel as k;"
        "names = lambda: (m for m in sys.modules if m.startswith('mobileprep.ops.'));"
        "loaded = lambda: {m for m in names() if m.count('.') > 2};"
        "assert not loaded(), loaded(); assert k.find_kernel('Relu');"
        "assert 'mobileprep.ops.quantized.conv' not in loaded(), loaded();"
        "assert len(loaded()) < 10, loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
