"""Ragged tensor ops on row splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.graphs import f32, i32, run, run_all
from tests.ops.strings.test_joining import texts

SPLITS = np.array([0, 2, 2, 3], np.int64)
VALUES = f32(1, 2, 3)


def padded(shape: Any, *parts: np.ndarray, kinds: tuple[str, ...] = ("ROW_SPLITS",)) -> list:
    attrs = {
        "row_partition_types": kinds,
        "num_row_partition_tensors": len(kinds),
        "Tindex": DType.INT64,
    }
    return run("RaggedTensorToTensor", i32(shape), VALUES, f32(-1), *parts, **attrs).tolist()


def test_ragged_to_dense_pads_or_truncates():
    assert padded(-1, SPLITS) == [[1, 2], [-1, -1], [3, -1]]
    assert padded([2, 1], SPLITS) == [[1], [-1]]
    assert padded([-1, 3], SPLITS)[0] == [1, 2, -1]
    rows = (np.array(3), np.array([0, 0, 2]))
    assert padded(-1, *rows, kinds=("FIRST_DIM_SIZE", "VALUE_ROWIDS")) == padded(-1, SPLITS)


@pytest.mark.parametrize("splits", [[0, 2, 1, 3], [1, 2, 2, 3], [0, 2, 2, 4], [0, 2, 2, 2]])
def test_invalid_splits_are_refused(splits):
    with pytest.raises(InvalidGraphError, match="ascend"):
        padded(-1, np.array(splits, np.int64))


def test_gather_rows():
    ranks = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1}
    splits, values = run_all("RaggedGather", SPLITS, VALUES, i32(2, 0, 2), **ranks)
    assert (splits.tolist(), values.tolist()) == ([0, 1, 3, 4], [3, 1, 2, 3])
    with pytest.raises(InvalidGraphError, match="index 3"):
        run_all("RaggedGather", SPLITS, VALUES, i32([3]), **ranks)


def test_bincount_by_row():
    inputs = (SPLITS, i32(1, 1, 0), i32(2), f32([]))
    assert run("RaggedBincount", *inputs).tolist() == [[0, 2], [0, 0], [1, 0]]
    assert run("RaggedBincount", *inputs, binary_output=True).tolist() == [[0, 1], [0, 0], [1, 0]]
    indices = np.array([[0, 0], [0, 1], [2, 0]], np.int64)
    sparse = (indices, i32(1, 1, 0), np.array([3, 2], np.int64), i32(2), f32([]))
    assert run("SparseBincount", *sparse).tolist() == [[0, 2], [0, 0], [1, 0]]


def test_unicode_decode_and_transcode():
    strings = texts("aé", "")
    splits, numbers = run_all("UnicodeDecode", strings, input_encoding="UTF-8")
    assert (splits.tolist(), numbers.tolist()) == ([0, 2, 2], [97, 233])
    coding = {"input_encoding": "UTF-8", "output_encoding": "UTF-16-BE"}
    assert run("UnicodeTranscode", strings, **coding).tolist() == [b"\0a\0\xe9", b""]
    broken = texts("x")
    broken[0] = b"a\xff"
    assert run("UnicodeTranscode", broken, **coding).tolist() == [b"\0a\xff\xfd"]
    assert run("UnicodeTranscode", broken, **coding, errors="ignore").tolist() == [b"\0a"]
    with pytest.raises(InvalidGraphError, match="is not valid utf-8"):
        run("UnicodeTranscode", broken, **coding, errors="strict")
