"""Models of a cascade: a fully convolutional one, and classifiers of its windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mobileprep.formats.arrays import write_arrays
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op, placeholder


def scanner(shape: tuple[int, ...] = (-1, -1, -1, 1)) -> Graph:
    """Two scores for each 4 x 4 window of a gray image, with a stride of 2.

    The second score is the mean of the window. A position takes 2 x 4 x 4 x 2 = 64 operations.
    """
    weights = np.zeros((4, 4, 1, 2), np.float32)
    weights[..., 1] = 1 / 16
    options = {"strides": attr.integers(1, 2, 2, 1), "padding": attr.string("VALID")}
    return Graph(
        [
            placeholder(shape),
            constant("w", Tensor.of(weights)),
            op("map", "Conv2D", "x", "w", **options),
        ]
    )


def classifier(classes: int) -> Graph:
    """Scores of four features. A run takes 2 x 4 operations for each class."""
    weights = np.ones((4, classes), np.float32)
    product = op("y", "MatMul", "x", "w")
    return Graph([placeholder((-1, 4)), constant("w", Tensor.of(weights)), product])


def write_models() -> None:
    """Write ``scan.pb``, ``check.pb``, and ``last.pb``, and two images for the first one.

    Of the four windows of the images, the means are 1, 0.5, 0, and 0.
    """
    write_graph(Path("scan.pb"), scanner())
    write_graph(Path("check.pb"), classifier(2))
    write_graph(Path("last.pb"), classifier(3))
    images = np.zeros((2, 4, 6, 1), np.float32)
    images[0, :, :4] = 1
    write_arrays(Path("images.npz"), {"x": images})
