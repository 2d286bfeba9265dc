"""Choice of unknown sizes and scalar settings."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import (
    FedTensor,
    is_image,
    is_long,
    is_single_image,
    known_sizes,
    setting,
    size_choices,
)


def fed(shape: Any, name: str = "x", dtype: DType = DType.FLOAT) -> FedTensor:
    return FedTensor(name, dtype, shape)


def choices(shape: Any, count: int, dtype: DType = DType.FLOAT, **ops: Any) -> list[Any]:
    """The first shapes to try for one input."""
    result = size_choices([fed(shape, dtype=dtype)], [FirstOps(**ops)])
    return [sizes["x"] for sizes in islice(result, count)]


@pytest.mark.parametrize(
    ("shape", "ops", "expected"),
    [
        ((-1, -1), {"sizes": {-1: 7}}, [-1, 7]),
        ((-1, 5), {"sizes": {-1: 7}}, [-1, 5]),
        # The first axis is the batch, if there is another axis.
        ((-1, -1), {"sizes": {-2: 7}}, [-1, -1]),
        ((-1,), {"sizes": {-1: 7}}, [7]),
        ((-1,), {"sizes": {-2: 7}}, [-1]),
        ((-1, -1, -1), {"sizes": {-2: 3, -1: 4}}, [-1, 3, 4]),
        # The element count of a sample determines one unknown size.
        ((-1, -1, 4), {"elements": 20}, [-1, 5, 4]),
        ((-1, -1, 3), {"elements": 20}, [-1, -1, 3]),
        ((-1, -1, -1), {"elements": 20}, [-1, -1, -1]),
        ((-1, -1, 0), {"elements": 20}, [-1, -1, 0]),
        ((2, -1), {"elements": 20}, [2, 20]),
        # Images have three channels.
        ((-1, 8, 8, -1), {"is_image": True}, [-1, 8, 8, 3]),
        ((-1, -1, 8, 8), {"is_image": True, "channels_first": True}, [-1, 3, 8, 8]),
        ((-1, 8, 8, -1), {}, [-1, 8, 8, -1]),
        ((-1, 8, 8, -1), {"is_image": True, "sizes": {-1: 1}}, [-1, 8, 8, 1]),
    ],
)
def test_sizes_from_first_layers(shape: Any, ops: dict[str, Any], expected: list[int]) -> None:
    assert known_sizes(fed(shape), FirstOps(**ops)) == expected


@pytest.mark.parametrize(
    ("tensor", "ops", "rank"),
    [
        (fed(None), {}, 3),
        (fed(None), {"rank": 4}, 4),
        (fed(None), {"sizes": {-1: 7}}, 2),
        (fed(None), {"sizes": {-1: 7, -3: 2}}, 3),
        (fed(None), {"elements": 20}, 2),
        (fed(None), {"rows": 9}, 2),
        (fed(None), {"is_audio": True}, 1),
        (fed(None, dtype=DType.BOOL), {"rank": 4}, 0),
        (fed(None, "keep_prob"), {"rank": 4}, 0),
    ],
)
def test_rank_of_unknown_shape(tensor: FedTensor, ops: dict[str, Any], rank: int) -> None:
    assert len(known_sizes(tensor, FirstOps(**ops), rank=3)) == rank


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep_prob", 1.0),
        ("net/keep", 1.0),
        ("dropout", 0.0),
        ("learning/rate", 0.0),
        ("score_threshold", 0.6),
        ("min_size", 40.0),
        ("scale", 0.709),
        ("temperature", 1.0),
        ("x", None),
        ("separate", None),
    ],
)
def test_settings_by_name(name: str, value: float | None) -> None:
    assert setting(fed((), name), FirstOps()) == value


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (fed((), "keep_prob", DType.INT32), None),
        (fed((16,), "keep_prob"), 1.0),
        (fed((17,), "keep_prob"), None),
        (fed(None, "keep_prob"), 1.0),
        (fed((-1,), "keep_prob"), 1.0),
    ],
)
def test_settings_are_few_floats(tensor: FedTensor, value: float | None) -> None:
    assert setting(tensor, FirstOps()) == value


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4000,), True),
        ((3999,), False),
        ((1, 16000), True),
        ((16000, 1), True),
        ((-1, 16000), True),
        ((1, 16000, -1), False),
        # A batch of two is not a row, and a size of one is not an axis.
        ((2, 16000), False),
        ((1, 1), False),
        ((), False),
    ],
)
def test_long_rows_are_audio(shape: tuple[int, ...], expected: bool) -> None:
    assert is_long(shape) is expected


@pytest.mark.parametrize(
    ("shape", "ops", "expected"),
    [
        ((20, 30, 3), {}, True),
        ((20, 30, 1), {}, True),
        ((5, 5, 4), {}, True),
        ((-1, -1, 3), {}, True),
        ((20, 30, 2), {}, False),
        ((4, 30, 3), {}, False),
        ((30, 4, 3), {}, False),
        ((4, 30, 3), {"is_image": True}, True),
        ((-1, 30, 3), {}, False),
        ((30, -1, 3), {}, False),
        ((20, 30, 3), {"is_audio": True}, False),
        ((20, 30), {}, False),
        ((1, 20, 30, 3), {}, False),
    ],
)
def test_single_images(shape: tuple[int, ...], ops: dict[str, Any], expected: bool) -> None:
    assert is_single_image(shape, FirstOps(**ops)) is expected


@pytest.mark.parametrize(
    ("shape", "ops", "expected"),
    [
        ((-1, 8, 8, 3), {}, True),
        ((-1, 8, 8, 5), {}, False),
        ((-1, 8, 8, 5), {"is_image": True}, True),
        ((8, 8, 3), {}, True),
        ((8, 8), {"is_image": True}, False),
        ((1, 2, 8, 8, 3), {"is_image": True}, False),
    ],
)
def test_images(shape: tuple[int, ...], ops: dict[str, Any], expected: bool) -> None:
    assert is_image(shape, FirstOps(**ops)) is expected


def test_usual_image_sizes_are_first() -> None:
    result = choices((-1, -1, -1, 3), 3)
    assert result == [(1, 224, 224, 3), (1, 128, 128, 3), (1, 96, 96, 3)]


def test_usual_sequence_lengths_are_first() -> None:
    assert choices((-1, -1, 7), 3) == [(1, 16, 7), (1, 28, 7), (1, 32, 7)]


def test_usual_audio_lengths_are_first() -> None:
    assert choices((-1,), 2, is_audio=True) == [(16000,), (4000,)]
    assert choices((-1, -1), 2, is_audio=True) == [(1, 16000), (1, 4000)]


def test_known_shape_is_the_only_choice() -> None:
    assert choices((2, 3), 9) == [(2, 3)]


def test_larger_batches_are_tried_last() -> None:
    assert choices((-1, 7), 9) == [(n, 7) for n in (1, 2, 4, 8, 16, 32)]
    result = choices((-1, -1, 7), 99)
    # Sixteen lengths for one sample, then two for each larger batch.
    assert result[15] == (1, 512, 7)
    assert result[16:20] == [(2, 16, 7), (2, 28, 7), (4, 16, 7), (4, 28, 7)]


def test_single_axis_is_a_batch_first() -> None:
    result = choices((-1,), 9)
    assert result == [(1,), (2,), (4,), (8,), (16,), (32,), (28,), (64,), (128,)]


def test_unknown_sizes_are_equal_in_all_inputs() -> None:
    both = [fed((-1, -1), "a"), fed((-1, -1, 7), "b")]
    first = next(iter(size_choices(both, [FirstOps(), FirstOps()])))
    assert first == {"a": (1, 16), "b": (1, 16, 7)}


def test_unknown_ranks_start_at_zero() -> None:
    result = choices(None, 200)
    assert result[0] == ()
    assert {len(shape) for shape in result} == {0, 1, 2, 3, 4}
    assert [len(shape) for shape in result] == sorted(len(shape) for shape in result)


def test_image_sizes_of_common_models_are_tried() -> None:
    """ImageNet first; also Inception, DeepLab, CIFAR, MNIST, and scikit-learn's digits."""
    result = choices((-1, -1, -1, 3), 20)
    assert result[0] == (1, 224, 224, 3)
    sides = {shape[1] for shape in result if shape[0] == 1}
    assert sides >= {224, 299, 321, 513, 32, 28, 8}
    assert all(shape[1] == shape[2] for shape in result)


def test_size_of_zero_is_known() -> None:
    assert choices((-1, 0, -1), 1) == [(1, 0, 16)]
