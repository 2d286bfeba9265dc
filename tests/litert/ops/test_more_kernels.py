"""Ops that become operators of other names: crops, normalizations, scatter updates."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from tests.litert.graphs import answered, codes, const, feed, model, op
from tests.litert.one_op import check, check_graph, integers, numbers

BOXES = np.array(
    [[0, 0, 1, 1], [0.1, 0.2, 0.7, 1.0], [-0.2, 0.5, 1.3, 0.4], [0.3, 1, 1, 0.3]], np.float32
)
OWNERS = np.array([0, 1, 1, 0], np.int32)


@pytest.mark.parametrize("size", [[3, 4], [1, 1], [1, 5], [24, 24]])
@pytest.mark.parametrize("fill", [0.0, 2.5])
def test_crop_and_resize(size: list[int], fill: float) -> None:
    inputs = [numbers(2, 7, 9, 3), BOXES, OWNERS, np.array(size, np.int32)]
    ran = check("CropAndResize", inputs, constant=[3], extrapolation_value=fill, tolerance=1e-5)
    assert "GATHER" in ran


def test_crop_and_resize_of_any_number_of_boxes() -> None:
    graph = Graph(
        [
            feed("image", (1, 8, 8, 2)),
            feed("boxes", (-1, 4)),
            feed("owners", (-1,), DType.INT32),
            const("size", [4, 4]),
            op("y", "CropAndResize", ["image", "boxes", "owners", "size"]),
        ]
    )
    for count in (1, 4):
        feeds = {"image": numbers(1, 8, 8, 2), "boxes": BOXES[:count], "owners": OWNERS[:count] * 0}
        check_graph(graph, feeds, tolerance=1e-5)


@pytest.mark.parametrize("size", [[3, 4], [1, 1], [1, 5], [9, 24]])
@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_crop_and_resize_to_a_computed_size(method: str, size: list[int]) -> None:
    inputs = [numbers(2, 7, 9, 3), BOXES, OWNERS, np.array(size, np.int32)]
    options = {"method": method, "extrapolation_value": 0.5, "tolerance": 1e-5}
    check("CropAndResize", inputs, **options)
    check("CropAndResize", inputs, constant=[3], open_sizes=3, **options)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize(("seq", "batch"), [(1, 0), (0, 1)])
def test_reverse_sequence(kind: type, seq: int, batch: int) -> None:
    values = integers(4, 4, 3).astype(kind)
    lengths = np.array([1, 4, 2, 0], np.int32)
    ran = check(
        "ReverseSequence", [values, lengths], seq_dim=seq, batch_dim=batch, Tlen=DType.INT32
    )
    assert ran == ["REVERSE_SEQUENCE"]


def test_complex_outputs_are_refused() -> None:
    nodes = [feed("x", (2, 16)), const("length", [16]), op("y", "RFFT", ["x", "length"])]
    with pytest.raises(UnsupportedError, match="complex outputs"):
        model(Graph(nodes), ["x"], ["y"])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("constant", [(), (1, 2, 3, 4)])
def test_fused_batch_norm(training: bool, constant: tuple[int, ...]) -> None:
    moments = [] if training else [numbers(5), np.abs(numbers(5, seed=9))]
    empty = [np.zeros(0, np.float32)] * (2 - len(moments))
    inputs = [numbers(2, 6, 6, 5), numbers(5, seed=7), numbers(5, seed=8), *moments, *empty]
    source = constant if not training else (3, 4)
    check("FusedBatchNorm", inputs, constant=source, is_training=training, tolerance=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", [np.float32, np.int32, np.bool_])
def test_tensor_scatter_update(rows: int, kind: type) -> None:
    places = np.array([[2], [0], [3]], np.int32)[:rows]
    inputs = [
        integers(4, 2, 3).astype(kind),
        places,
        integers(rows, 2, 3, low=20, high=40).astype(kind),
    ]
    ran = check("TensorScatterUpdate", inputs)
    assert ("DYNAMIC_UPDATE_SLICE" in ran) == (rows == 1)


@pytest.mark.parametrize("constant", [(1,), (1, 2)])
def test_last_of_repeated_scatter_indices_is_used(constant: tuple[int, ...]) -> None:
    """SCATTER_ND would add them up."""
    places = np.array([[2], [0], [2]], np.int32)
    check("TensorScatterUpdate", [numbers(4, 3), places, numbers(3, 3, seed=4)], constant=constant)
    again = [numbers(4, 3), places[[0, 2]], numbers(2, 3, seed=4)]
    check("TensorScatterUpdate", again, constant=constant)


def test_random_uniform_range() -> None:
    nodes = [const("shape", [100]), feed("x", (100,))]
    nodes += [op("r", "RandomUniform", ["shape"], dtype=DType.FLOAT), op("y", "Add", ["r", "x"])]
    record = model(Graph(nodes), ["x"], ["y"])
    assert codes(record) == ["RANDOM_UNIFORM", "ADD"]
    (result,) = answered(model_bytes(record), [np.zeros(100, np.float32)])
    assert result.min() >= 0
    assert result.max() < 1
    assert result.std() > 0.2
