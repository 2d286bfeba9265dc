"""Faults of LiteRT's runtime that the fuzzer finds, each with a proof.

A proof is a small case of which the right output is easy to see. A test runs all of them: when a
release of the runtime computes one correctly, its fault has to leave this table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.refs import Ref
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.fuzz.differential.check import Finding
from tests.fuzz.differential.generate import Case
from tests.fuzz.differential.items import Item, graph_of
from tests.fuzz.differential.tolerance import float_tensors
from tests.litert.graphs import const, feed, op

_SIX_DIMENSIONS = ("NumDimensions(lhs_data) <=", "PadKernelMaxDimensionCount")
_REFERENCE = ("wrong: reference", "coarse: reference")


class Fault(Struct, frozen=True):
    """A fault of the runtime.

    Args:
        name: what it does.
        explains: whether a finding may come from it.
        proof: a case that shows it.
    """

    name: str
    explains: Callable[[Case, Finding], bool]
    proof: Callable[[], Case]


def known_fault(case: Case, finding: Finding) -> str | None:
    """The name of the runtime's fault that explains a finding."""
    return next((f.name for f in FAULTS if f.explains(case, finding)), None)


def _proof(items: list[Item], value: np.ndarray, mode: str) -> Case:
    graph, names = graph_of([feed("x", value.shape), *items], ["y"])
    return Case(graph, {"x": value}, tuple(names), mode)


def _sum() -> Case:
    """The sums of the columns are 5, 7, and 9; the reference kernel returns 2, 4, and 9."""
    axis = const("axis", np.array([0], np.int32))
    node = op("y", "Sum", ["x", "axis"], T=DType.FLOAT, Tidx=DType.INT32, keep_dims=False)
    return _proof([axis, node], np.array([[1, 2, 3], [4, 5, 6]], np.float32), "int8")


def _empty_softmax() -> Case:
    """The softmax of no rows has no elements; XNNPACK refuses it, the kernel crashes."""
    return _proof([op("y", "Softmax", ["x"], T=DType.FLOAT)], np.zeros((2, 0), np.float32), "float")


def _select() -> Case:
    """A condition of shape (1,) gives an output of that shape; the kernel returns a scalar."""
    nodes = [
        feed("x", None),
        const("c", np.array([True])),
        const("other", np.array([2], np.float32)),
        op("y", "SelectV2", ["c", "x", "other"], T=DType.FLOAT),
    ]
    graph, names = graph_of(nodes, ["y"])
    return Case(graph, {"x": np.array(1, np.float32)}, tuple(names), "float")


def _unknown_rank() -> Case:
    """The converter merges dimensions of a known number; the kernel takes five."""
    node = op("y", "BatchMatMulV2", ["x", "x"], T=DType.FLOAT, adj_x=False, adj_y=True)
    graph, names = graph_of([feed("x", None), node], ["y"])
    return Case(graph, {"x": np.ones((2, 1, 2, 1, 2, 3), np.float32)}, tuple(names), "float")


def _has_empty(case: Case) -> bool:
    """Whether an input or output has no elements, as far as it is easy to see."""
    found = list(case.feeds.values())
    found += [n.attr_tensor("value").array() for n in case.graph if n.op == "Const"]
    with contextlib.suppress(Exception):
        names = [str(Ref(*t)) for t in float_tensors(case.graph)]
        found += NumpyEngine(case.graph, "fuzz").run(names, case.feeds)
    return any(not value.size for value in found)


FAULTS = (
    Fault(
        "kernels fail on tensors without elements",
        lambda case, finding: (
            (": SIG" in finding.kind or ": RuntimeError" in finding.kind) and _has_empty(case)
        ),
        _empty_softmax,
    ),
    Fault(
        "SELECT_V2 loses dimensions of size 1 if an input has no known shape",
        lambda case, finding: "SELECT_V2" in finding.codes and "shape () instead" in finding.detail,
        _select,
    ),
    Fault(
        "kernels do not prepare six dimensions, and the rank is unknown",
        lambda case, finding: (
            any(check in finding.kind for check in _SIX_DIMENSIONS)
            and any(n.op == "Placeholder" and n.attr_shape("shape") is None for n in case.graph)
        ),
        _unknown_rank,
    ),
    Fault(
        "the reference kernel of SUM in int8 loses summands",
        lambda case, finding: finding.kind in _REFERENCE and "SUM" in finding.codes,
        _sum,
    ),
)
