"""Ranges of random values."""

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
    result = value_ranges(FedTensor(name, dtype, shape), FirstOps(**ops))
    return [(r.low, r.high) for r in result]


def test_8_bit_types_use_their_full_range() -> None:
    assert ranges(dtype=DType.UINT8, rows=5) == [(0, 255)]
    assert ranges(dtype=DType.INT8) == [(-128, 127)]
    assert type_limits(DType.INT32) is None
    assert type_limits(DType.STRING) is None
    assert type_limits(DType.BOOL) is None


def test_integers() -> None:
    assert ranges(dtype=DType.INT32, rows=5) == [(0, 4)]
    assert ranges(dtype=DType.INT32, is_image=True) == [(0, 255)]
    assert ranges(dtype=DType.INT64) == [(0, 1)]


def test_limits_override_names_and_layers() -> None:
    result = ranges("keep_prob", shape=(), limits=(-3.0, 4.0), layers=[(2.0, 1.0)])
    assert result == [(-3, 4)]


def test_names_override_layers() -> None:
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
def test_states_are_detected_by_name(name: str, is_state: bool) -> None:
    assert (ranges(name) == [(-0.5, 0.5)]) is is_state


def test_unknown_ranges_are_the_usual_ones() -> None:
    usual = [(0, 1), (-1, 1), (0, 255)]
    assert ranges() == usual
    assert ranges(layers=[(1.0, 0.0)]) == usual
    assert ranges(shape=None) == usual
    # Layers that disagree on the scale are ignored.
    assert ranges(layers=[(2.0, -1.0), (1.0, 0.0)]) == usual


def test_audio_ranges() -> None:
    usual = [(-1, 1), (-32768, 32767)]
    assert ranges(is_audio=True) == usual
    assert ranges(shape=(1, 16000)) == usual
    assert ranges(is_audio=True, layers=[(1 / 32768, 0.0)]) == [(-32768, 32767)]
    assert ranges(is_audio=True, layers=[(1.5, 0.0)]) == [(-1, 1)]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ((2.0, -1.0), (0, 1)),
        ((1.0, 0.0001), (-1, 1)),
        ((1 / 127.5, -1.0), (0, 255)),
        ((-1 / 127.5, 1.0), (0, 255)),
        # A scale without an offset does not center the values.
        ((2.0, 0.0), (0, 1)),
        ((1 / 255, 0.0), (0, 255)),
    ],
)
def test_usual_range_closest_to_the_scale_is_used(
    layer: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert ranges(layers=[layer], is_image=True) == [expected]


def test_unusual_ranges_are_computed_from_the_scale() -> None:
    # (x - 1000) / 10 is between -2 and 2 for x between 980 and 1020.
    assert ranges(layers=[(0.1, -100.0)]) == [(980, 1020)]
    assert ranges(layers=[(-0.1, 100.0)]) == [(980, 1020)]
    assert ranges(layers=[(0.1, -100.0)], is_image=True) == [(0, 255)]


def test_range_as_text() -> None:
    assert str(ValueRange(0, 1)) == "0 to 1 (the graph does not show the range)"
    assert str(ValueRange(0.5, 0.5, "its name tells")) == "0.5 (its name tells)"
    assert str(ValueRange(-1 / 3, 255, "so")) == "-0.3333 to 255 (so)"
