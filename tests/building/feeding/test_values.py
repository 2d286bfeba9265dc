"""Values that stand on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.runtime.feeding.feeds import random_values, text_value, value_in, written
from mobileprep.runtime.feeding.files import TensorInfo


def info(dtype: DType | None = DType.FLOAT, shape: tuple[int, ...] | None = None) -> TensorInfo:
    return TensorInfo("x", dtype, shape)


def test_lists_become_arrays_of_their_shape() -> None:
    found = written(info(), "[[1, 2.5, 3], [4, 5, 6]]")
    assert found is not None
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 2.5, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[1, 2], [3]]", "the lists for 'x' differ in length at depth 2"),
        ("[[1, 2], 3]", "the lists for 'x' differ in length at depth 2"),
        ("[[[1], [2]], [[3], [4, 5]]]", "the lists for 'x' differ in length at depth 3"),
        ("[" * 33 + "1" + "]" * 33, "the list is nested too deeply"),
        ('["a"]', "'x' takes float32, not a"),
    ],
)
def test_ragged_lists_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        written(info(), text)
    assert told in str(error.value)


def test_thirty_two_axes_are_not_too_many() -> None:
    found = written(info(), "[" * 32 + "1" + "]" * 32)
    assert found is not None
    assert found.shape == (1,) * 32


@pytest.mark.parametrize("text", ["photo.jpg", "[a", "random", ""])
def test_other_strings_are_refused(text: str) -> None:
    assert written(info(), text) is None


@pytest.mark.parametrize(
    ("dtype", "text", "told"),
    [
        (DType.UINT8, "256", "'x' takes uint8, not 256"),
        (DType.INT32, "1.5", "'x' takes int32, not 1.5"),
        (DType.INT32, "1,2,3,4.5", "'x' takes int32, not 1, 2, 3, 4.5"),
        (DType.INT32, "1,2,3,4,5.5", "'x' takes int32, not 1, 2, 3, 4, ..."),
    ],
)
def test_numbers_that_the_type_cannot_hold_are_refused(dtype: DType, text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        written(info(dtype), text)
    assert told in str(error.value)


def test_whole_numbers_keep_all_their_digits() -> None:
    # Two to the power of 53, and one: no float64 has it.
    assert written(info(DType.INT64), "9007199254740993") == 9007199254740993


def test_one_text_fills_the_shape() -> None:
    assert text_value(info(DType.STRING, (2, 1)), "cat").tolist() == [[b"cat"], [b"cat"]]


def test_random_numbers_have_the_tensor_s_shape_unknown_sizes_as_one() -> None:
    assert random_values(info(DType.FLOAT, (-1, 3)), "", 1).shape == (1, 3)
    assert random_values(info(DType.FLOAT, None), "2,3", 1).shape == (2, 3)


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [(DType.FLOAT, 0, 1), (DType.INT32, 0, 9), (DType.BOOL, 0, 1), (DType.UINT8, 0, 9)],
)
def test_random_numbers_reach_over_their_range(dtype: DType, least: int, most: int) -> None:
    found = random_values(info(dtype), "1000", 7)
    assert found.dtype == dtype.numpy
    assert np.rint(found.astype(np.float64).min()) == least
    assert np.rint(found.astype(np.float64).max()) == most
    np.testing.assert_array_equal(found, random_values(info(dtype), "1000", 7))
    assert not np.array_equal(found, random_values(info(dtype), "1000", 8))


def test_random_strings_and_unknown_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match="'x' holds string"):
        random_values(info(DType.STRING), "2", 1)
    with pytest.raises(UsageError, match="the shape of 'x' is not known"):
        random_values(info(), "", 1)


def test_a_file_holds_a_value_as_the_command_line_does(tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\xef\xbb\xbf 1, 2\r\n")
    assert value_in(info(), str(file)).tolist() == [1, 2]
    file.write_bytes(b"a line\r\n")
    assert value_in(info(DType.STRING, ()), str(file)).item() == b"a line"
    with pytest.raises(UsageError, match="holds no value for 'x'"):
        value_in(info(), str(file))
    with pytest.raises(CorruptFileError):
        value_in(info(), str(tmp_path / "absent"))


def test_random_values_have_the_tensor_s_sizes_and_1_for_those_not_known() -> None:
    assert random_values(info(shape=(-1, 2)), "", 0).shape == (1, 2)
    assert random_values(info(shape=()), "", 0).shape == ()
