"""Sizes for open dimensions, and values that names tell."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import (
    FedTensor,
    is_long,
    is_picture,
    is_single_picture,
    known_sizes,
    setting,
    size_choices,
)


def fed(shape: Any, name: str = "x", dtype: DType = DType.FLOAT) -> FedTensor:
    return FedTensor(name, dtype, shape)


def choices(shape: Any, count: int, dtype: DType = DType.FLOAT, **ops: Any) -> list[Any]:
    """The first shapes that one input is tried with."""
    found = size_choices([fed(shape, dtype=dtype)], [FirstOps(**ops)])
    return [sizes["x"] for sizes in islice(found, count)]


@pytest.mark.parametrize(
    ("shape", "ops", "known"),
    [
        ((-1, -1), {"sizes": {-1: 7}}, [-1, 7]),
        ((-1, 5), {"sizes": {-1: 7}}, [-1, 5]),
        # The first axis counts samples, unless there is no other.
        ((-1, -1), {"sizes": {-2: 7}}, [-1, -1]),
        ((-1,), {"sizes": {-1: 7}}, [7]),
        ((-1,), {"sizes": {-2: 7}}, [-1]),
        ((-1, -1, -1), {"sizes": {-2: 3, -1: 4}}, [-1, 3, 4]),
        # Elements of one sample leave one open size no choice.
        ((-1, -1, 4), {"elements": 20}, [-1, 5, 4]),
        ((-1, -1, 3), {"elements": 20}, [-1, -1, 3]),
        ((-1, -1, -1), {"elements": 20}, [-1, -1, -1]),
        ((-1, -1, 0), {"elements": 20}, [-1, -1, 0]),
        ((2, -1), {"elements": 20}, [2, 20]),
        # Pictures have three channels.
        ((-1, 8, 8, -1), {"is_picture": True}, [-1, 8, 8, 3]),
        ((-1, -1, 8, 8), {"is_picture": True, "channels_first": True}, [-1, 3, 8, 8]),
        ((-1, 8, 8, -1), {}, [-1, 8, 8, -1]),
        ((-1, 8, 8, -1), {"is_picture": True, "sizes": {-1: 1}}, [-1, 8, 8, 1]),
    ],
)
def test_first_layers_ask_for_sizes(shape: Any, ops: dict[str, Any], known: list[int]) -> None:
    assert known_sizes(fed(shape), FirstOps(**ops)) == known


@pytest.mark.parametrize(
    ("tensor", "ops", "rank"),
    [
        (fed(None), {}, 3),
        (fed(None), {"rank": 4}, 4),
        (fed(None), {"sizes": {-1: 7}}, 2),
        (fed(None), {"sizes": {-1: 7, -3: 2}}, 3),
        (fed(None), {"elements": 20}, 2),
        (fed(None), {"rows": 9}, 2),
        (fed(None), {"is_sound": True}, 1),
        (fed(None, dtype=DType.BOOL), {"rank": 4}, 0),
        (fed(None, "keep_prob"), {"rank": 4}, 0),
    ],
)
def test_the_rank_of_what_has_none_is_told(
    tensor: FedTensor, ops: dict[str, Any], rank: int
) -> None:
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
def test_names_tell_settings(name: str, value: float | None) -> None:
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
    ("shape", "long"),
    [
        ((4000,), True),
        ((3999,), False),
        ((1, 16000), True),
        ((16000, 1), True),
        ((-1, 16000), True),
        ((1, 16000, -1), False),
        # A batch of two is no single row, a size of one no axis.
        ((2, 16000), False),
        ((1, 1), False),
        ((), False),
    ],
)
def test_sounds_are_one_long_row(shape: tuple[int, ...], long: bool) -> None:
    assert is_long(shape) is long


@pytest.mark.parametrize(
    ("shape", "ops", "single"),
    [
        ((20, 30, 3), {}, True),
        ((20, 30, 1), {}, True),
        ((5, 5, 4), {}, True),
        ((-1, -1, 3), {}, True),
        ((20, 30, 2), {}, False),
        ((4, 30, 3), {}, False),
        ((30, 4, 3), {}, False),
        ((4, 30, 3), {"is_picture": True}, True),
        ((-1, 30, 3), {}, False),
        ((30, -1, 3), {}, False),
        ((20, 30, 3), {"is_sound": True}, False),
        ((20, 30), {}, False),
        ((1, 20, 30, 3), {}, False),
    ],
)
def test_single_pictures(shape: tuple[int, ...], ops: dict[str, Any], single: bool) -> None:
    assert is_single_picture(shape, FirstOps(**ops)) is single


@pytest.mark.parametrize(
    ("shape", "ops", "picture"),
    [
        ((-1, 8, 8, 3), {}, True),
        ((-1, 8, 8, 5), {}, False),
        ((-1, 8, 8, 5), {"is_picture": True}, True),
        ((8, 8, 3), {}, True),
        ((8, 8), {"is_picture": True}, False),
        ((1, 2, 8, 8, 3), {"is_picture": True}, False),
    ],
)
def test_pictures(shape: tuple[int, ...], ops: dict[str, Any], picture: bool) -> None:
    assert is_picture(shape, FirstOps(**ops)) is picture


def test_pictures_are_tried_with_their_usual_sides_first() -> None:
    found = choices((-1, -1, -1, 3), 3)
    assert found == [(1, 224, 224, 3), (1, 128, 128, 3), (1, 96, 96, 3)]


def test_sequences_are_tried_with_their_usual_lengths_first() -> None:
    assert choices((-1, -1, 7), 3) == [(1, 16, 7), (1, 28, 7), (1, 32, 7)]


def test_sounds_are_tried_with_their_usual_lengths_first() -> None:
    assert choices((-1,), 2, is_sound=True) == [(16000,), (4000,)]
    assert choices((-1, -1), 2, is_sound=True) == [(1, 16000), (1, 4000)]


def test_known_shapes_are_the_only_choice() -> None:
    assert choices((2, 3), 9) == [(2, 3)]


def test_more_samples_are_tried_after_all_sizes() -> None:
    assert choices((-1, 7), 9) == [(n, 7) for n in (1, 2, 4, 8, 16, 32)]
    found = choices((-1, -1, 7), 99)
    # Sixteen lengths of one sample, then the first two of each larger batch.
    assert found[15] == (1, 512, 7)
    assert found[16:20] == [(2, 16, 7), (2, 28, 7), (4, 16, 7), (4, 28, 7)]


def test_an_axis_alone_counts_samples_first() -> None:
    found = choices((-1,), 9)
    assert found == [(1,), (2,), (4,), (8,), (16,), (32,), (28,), (64,), (128,)]


def test_open_sizes_are_the_same_in_all_inputs() -> None:
    both = [fed((-1, -1), "a"), fed((-1, -1, 7), "b")]
    first = next(iter(size_choices(both, [FirstOps(), FirstOps()])))
    assert first == {"a": (1, 16), "b": (1, 16, 7)}


def test_unknown_ranks_are_tried_from_none_on() -> None:
    found = choices(None, 200)
    assert found[0] == ()
    assert {len(shape) for shape in found} == {0, 1, 2, 3, 4}
    assert [len(shape) for shape in found] == sorted(len(shape) for shape in found)


def test_pictures_are_tried_with_the_sizes_of_usual_models() -> None:
    """ImageNet's first; also Inception's, DeepLab's, CIFAR's, MNIST's and scikit-learn's digits."""
    found = choices((-1, -1, -1, 3), 20)
    assert found[0] == (1, 224, 224, 3)
    sides = {shape[1] for shape in found if shape[0] == 1}
    assert sides >= {224, 299, 321, 513, 32, 28, 8}
    assert all(shape[1] == shape[2] for shape in found)


def test_a_size_of_none_is_known() -> None:
    assert choices((-1, 0, -1), 1) == [(1, 0, 16)]
