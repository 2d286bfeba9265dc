"""Bugs of LiteRT that the fuzzer finds, each with a proof.

A proof is a small case whose correct output is easy to see. A test runs all proofs: if a release
of LiteRT fixes a bug, remove it from this table.
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


class KnownBug(Struct, frozen=True):
    """A bug of LiteRT.

    Args:
        name: its effect.
        explains: whether a finding may come from it.
        proof: a case that shows it.
    """

    name: str
    explains: Callable[[Case, Finding], bool]
    proof: Callable[[], Case]


def known_bug(case: Case, finding: Finding) -> str | None:
    """The name of the bug that explains a finding."""
    return next((f.name for f in KNOWN_BUGS if f.explains(case, finding)), None)


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
    """The kernel takes five dimensions, and the converter merges only a known number of them."""
    node = op("y", "BatchMatMulV2", ["x", "x"], T=DType.FLOAT, adj_x=False, adj_y=True)
    graph, names = graph_of([feed("x", None), node], ["y"])
    return Case(graph, {"x": np.ones((2, 1, 2, 1, 2, 3), np.float32)}, tuple(names), "float")


def _has_empty(case: Case) -> bool:
    """Whether an input or output has no elements, as far as it is easy to see."""
    arrays = list(case.feeds.values())
    arrays += [n.attr_tensor("value").array() for n in case.graph if n.op == "Const"]
    with contextlib.suppress(Exception):
        names = [str(Ref(*t)) for t in float_tensors(case.graph)]
        arrays += NumpyEngine(case.graph, "fuzz").run(names, case.feeds)
    return any(not value.size for value in arrays)


KNOWN_BUGS = (
    KnownBug(
        "kernels fail on tensors without elements",
        lambda case, finding: (
            (": SIG" in finding.kind or ": RuntimeError" in finding.kind) and _has_empty(case)
        ),
        _empty_softmax,
    ),
    KnownBug(
        "SELECT_V2 loses dimensions of size 1 if an input has no known shape",
        lambda case, finding: "SELECT_V2" in finding.codes and "shape () instead" in finding.detail,
        _select,
    ),
    KnownBug(
        "kernels do not prepare six dimensions, and the rank is unknown",
        lambda case, finding: (
            any(check in finding.kind for check in _SIX_DIMENSIONS)
            and any(n.op == "Placeholder" and n.attr_shape("shape") is None for n in case.graph)
        ),
        _unknown_rank,
    ),
    KnownBug(
        "the reference kernel of SUM in int8 loses summands",
        lambda case, finding: finding.kind in _REFERENCE and "SUM" in finding.codes,
        _sum,
    ),
)
