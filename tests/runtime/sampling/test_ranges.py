"""Ranges of drawn values."""

from __future__ import annotations

from typing import Any

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import ValueRange, type_limits, value_ranges
from mobileprep.runtime.sampling.inputs import FedTensor


def ranges(
    name: str = "x", dtype: DType = DType.FLOAT, shape: Any = (1, 8), **ops: Any
) -> list[tuple[float, float]]:
    found = value_ranges(FedTensor(name, dtype, shape), FirstOps(**ops))
    return [(r.low, r.high) for r in found]


def test_types_of_eight_bits_are_used_whole() -> None:
    assert ranges(dtype=DType.UINT8, rows=5) == [(0, 255)]
    assert ranges(dtype=DType.INT8) == [(-128, 127)]
    assert type_limits(DType.INT32) is None
    assert type_limits(DType.STRING) is None
    assert type_limits(DType.BOOL) is None


def test_whole_numbers() -> None:
    assert ranges(dtype=DType.INT32, rows=5) == [(0, 4)]
    assert ranges(dtype=DType.INT32, is_picture=True) == [(0, 255)]
    assert ranges(dtype=DType.INT64) == [(0, 1)]


def test_what_the_graph_states_goes_before_names_and_layers() -> None:
    found = ranges("keep_prob", shape=(), limits=(-3.0, 4.0), layers=[(2.0, 1.0)])
    assert found == [(-3, 4)]


def test_names_go_before_layers() -> None:
    assert ranges("keep_prob", shape=(), layers=[(2.0, 1.0)]) == [(1, 1)]
    assert ranges("rnn_state", layers=[(2.0, 1.0)]) == [(-0.5, 0.5)]


@pytest.mark.parametrize(
    ("name", "is_state"),
    [
        ("state", True),
        ("states", True),
        ("net/hidden_state", True),
        ("lstm_state_c", True),
        ("LSTM_State", True),
        ("statement", False),
        ("estate", False),
    ],
)
def test_states_are_known_by_name(name: str, is_state: bool) -> None:
    assert (ranges(name) == [(-0.5, 0.5)]) is is_state


def test_where_nothing_tells_the_usual_ranges_are_tried() -> None:
    usual = [(0, 1), (-1, 1), (0, 255)]
    assert ranges() == usual
    assert ranges(layers=[(1.0, 0.0)]) == usual
    assert ranges(shape=None) == usual
    # Layers that disagree on whether it is scaled tell nothing.
    assert ranges(layers=[(2.0, -1.0), (1.0, 0.0)]) == usual


def test_sounds_have_ranges_of_their_own() -> None:
    usual = [(-1, 1), (-32768, 32767)]
    assert ranges(is_sound=True) == usual
    assert ranges(shape=(1, 16000)) == usual
    assert ranges(is_sound=True, layers=[(1 / 32768, 0.0)]) == [(-32768, 32767)]
    assert ranges(is_sound=True, layers=[(1.5, 0.0)]) == [(-1, 1)]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ((2.0, -1.0), (0, 1)),
        ((1.0, 0.0001), (-1, 1)),
        ((1 / 127.5, -1.0), (0, 255)),
        ((-1 / 127.5, 1.0), (0, 255)),
        # What is multiplied alone was not meant to lie around zero.
        ((2.0, 0.0), (0, 1)),
        ((1 / 255, 0.0), (0, 255)),
    ],
)
def test_the_usual_range_that_is_scaled_best_is_taken(
    layer: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert ranges(layers=[layer], is_picture=True) == [expected]


def test_measurements_of_their_own_kind_are_undone() -> None:
    # (x - 1000) / 10 is from -2 to 2 where x is from 980 to 1020.
    assert ranges(layers=[(0.1, -100.0)]) == [(980, 1020)]
    assert ranges(layers=[(-0.1, 100.0)]) == [(980, 1020)]
    assert ranges(layers=[(0.1, -100.0)], is_picture=True) == [(0, 255)]


def test_a_range_in_words() -> None:
    assert str(ValueRange(0, 1)) == "0 to 1 (the graph does not show the range)"
    assert str(ValueRange(0.5, 0.5, "its name tells")) == "0.5 (its name tells)"
    assert str(ValueRange(-1 / 3, 255, "so")) == "-0.3333 to 255 (so)"
