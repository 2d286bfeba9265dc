"""Fourier transforms, with complex numbers as pairs of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from tests.litert.graphs import const, feed, model, op
from tests.litert.one_op import check_graph, numbers

REAL = {"Tout": DType.FLOAT}
PARTS = [
    op("real", "Real", ["spectrum"], **REAL),
    op("imaginary", "Imag", ["spectrum"], **REAL),
    op("size", "ComplexAbs", ["spectrum"], **REAL),
]
NAMES = ["real", "imaginary", "size"]


def check(nodes: Sequence[Node], feeds: dict[str, Array], outputs: Sequence[str]) -> None:
    graph = Graph([*(feed(name, array.shape) for name, array in feeds.items()), *nodes])
    check_graph(graph, feeds, outputs, 1e-5)


@pytest.mark.parametrize("shape", [(16,), (2, 16), (2, 3, 15)])
@pytest.mark.parametrize("length", [15, 14, 12, 1])
def test_rfft(shape: tuple[int, ...], length: int) -> None:
    nodes = [const("length", [length]), op("spectrum", "RFFT", ["x", "length"]), *PARTS]
    check(nodes, {"x": numbers(*shape)}, NAMES)


@pytest.mark.parametrize("shape", [(7, 6), (2, 3, 5, 8)])
@pytest.mark.parametrize("lengths", [(5, 6), (4, 5), (4, 3), (1, 6)])
def test_rfft_2d(shape: tuple[int, ...], lengths: tuple[int, int]) -> None:
    nodes = [const("length", [*lengths]), op("spectrum", "RFFT2D", ["x", "length"]), *PARTS]
    check(nodes, {"x": numbers(*shape)}, NAMES)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "FFT2D", "IFFT2D"])
def test_fft(kind: str) -> None:
    nodes = [op("complex", "Complex", ["x", "y"]), op("spectrum", kind, ["complex"]), *PARTS]
    check(nodes, {"x": numbers(2, 5, 6), "y": numbers(2, 5, 6, seed=8)}, NAMES)


@pytest.mark.parametrize("length", [10, 9, 7, 6])
def test_irfft(length: int) -> None:
    nodes = [
        op("complex", "Complex", ["x", "y"]),
        const("length", [length]),
        op("signal", "IRFFT", ["complex", "length"]),
    ]
    check(nodes, {"x": numbers(2, 6), "y": numbers(2, 6, seed=8)}, ["signal"])


@pytest.mark.parametrize("lengths", [(5, 10), (4, 9), (3, 7)])
def test_irfft_2d(lengths: tuple[int, int]) -> None:
    nodes = [
        op("complex", "Complex", ["x", "y"]),
        const("length", [*lengths]),
        op("signal", "IRFFT2D", ["complex", "length"]),
    ]
    check(nodes, {"x": numbers(2, 5, 6), "y": numbers(2, 5, 6, seed=8)}, ["signal"])


def test_angles_and_conjugates() -> None:
    nodes = [
        op("complex", "Complex", ["x", "y"]),
        op("other", "Conj", ["complex"]),
        op("angle", "Angle", ["other"], **REAL),
    ]
    check(nodes, {"x": numbers(2, 6), "y": numbers(2, 6, seed=8)}, ["angle"])


def test_other_consumers_of_complex_numbers_are_named() -> None:
    nodes = [feed("x", (2, 16)), const("length", [16]), op("spectrum", "RFFT", ["x", "length"])]
    graph = Graph([*nodes, op("y", "Cos", ["spectrum"], T=DType.COMPLEX64)])
    with pytest.raises(UnsupportedError, match="RFFT 'spectrum': Cos 'y' reads its complex"):
        model(graph, ["x"], ["y"])


def test_too_many_samples_are_refused() -> None:
    nodes = [feed("x", (2, 5000)), const("length", [5000]), op("spectrum", "RFFT", ["x", "length"])]
    with pytest.raises(UnsupportedError, match="5000 samples to a length of 5000"):
        model(Graph([*nodes, *PARTS]), ["x"], NAMES)
