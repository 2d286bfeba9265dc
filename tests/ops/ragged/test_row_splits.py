"""Ragged tensors made, chosen from, counted, and turned into others."""

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


def test_rows_are_padded_or_cut():
    assert padded(-1, SPLITS) == [[1, 2], [-1, -1], [3, -1]]
    assert padded([2, 1], SPLITS) == [[1], [-1]]
    assert padded([-1, 3], SPLITS)[0] == [1, 2, -1]
    rows = (np.array(3), np.array([0, 0, 2]))
    assert padded(-1, *rows, kinds=("FIRST_DIM_SIZE", "VALUE_ROWIDS")) == padded(-1, SPLITS)


@pytest.mark.parametrize("splits", [[0, 2, 1, 3], [1, 2, 2, 3], [0, 2, 2, 4], [0, 2, 2, 2]])
def test_splits_that_do_not_cover_the_values_are_refused(splits):
    with pytest.raises(InvalidGraphError, match="ascend"):
        padded(-1, np.array(splits, np.int64))


def test_elements_get_indices():
    indices, values, shape = run_all("RaggedTensorToSparse", SPLITS, VALUES, RAGGED_RANK=1)
    assert indices.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert (values.tolist(), shape.tolist()) == ([1, 2, 3], [3, 2])


def test_rows_are_chosen():
    ranks = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1}
    splits, values = run_all("RaggedGather", SPLITS, VALUES, i32(2, 0, 2), **ranks)
    assert (splits.tolist(), values.tolist()) == ([0, 1, 3, 4], [3, 1, 2, 3])
    with pytest.raises(InvalidGraphError, match="index 3"):
        run_all("RaggedGather", SPLITS, VALUES, i32([3]), **ranks)


def test_sequences():
    splits, values = run_all("RaggedRange", i32(0, 5), i32(3, 5), i32(2))
    assert (splits.tolist(), values.tolist()) == ([0, 2, 2], [0, 2])
    with pytest.raises(InvalidGraphError, match="a step is 0"):
        run_all("RaggedRange", i32(0), i32(3), i32(0))
    with pytest.raises(InvalidGraphError, match="passes"):
        run_all("RaggedRange", i32(0), i32(2**31 - 1), i32(1))


def test_numbers_are_counted_by_row():
    inputs = (SPLITS, i32(1, 1, 0), i32(2), f32([]))
    assert run("RaggedBincount", *inputs).tolist() == [[0, 2], [0, 0], [1, 0]]
    assert run("RaggedBincount", *inputs, binary_output=True).tolist() == [[0, 1], [0, 0], [1, 0]]
    indices = np.array([[0, 0], [0, 1], [2, 0]], np.int64)
    sparse = (indices, i32(1, 1, 0), np.array([3, 2], np.int64), i32(2), f32([]))
    assert run("SparseBincount", *sparse).tolist() == [[0, 2], [0, 0], [1, 0]]


def test_neighbouring_words_are_joined():
    attrs = {
        "separator": "-",
        "ngram_widths": (1, 2),
        "left_pad": "<",
        "right_pad": ">",
        "pad_width": 0,
        "preserve_short_sequences": False,
    }
    runs, splits = run_all("StringNGrams", texts("a", "b", "c"), SPLITS, **attrs)
    assert (runs.tolist(), splits.tolist()) == ([b"a", b"b", b"a-b", b"c"], [0, 3, 3, 4])
    wide = {**attrs, "ngram_widths": (2,), "pad_width": -1}
    assert run("StringNGrams", texts("a"), SPLITS[[0, 1]] // 2, **wide).tolist() == [b"<-a", b"a->"]


def test_texts_become_characters_and_other_encodings():
    words = texts("aé", "")
    splits, numbers = run_all("UnicodeDecode", words, input_encoding="UTF-8")
    assert (splits.tolist(), numbers.tolist()) == ([0, 2, 2], [97, 233])
    coding = {"input_encoding": "UTF-8", "output_encoding": "UTF-16-BE"}
    assert run("UnicodeTranscode", words, **coding).tolist() == [b"\0a\0\xe9", b""]
    broken = texts("x")
    broken[0] = b"a\xff"
    assert run("UnicodeTranscode", broken, **coding).tolist() == [b"\0a\xff\xfd"]
    assert run("UnicodeTranscode", broken, **coding, errors="ignore").tolist() == [b"\0a"]
    with pytest.raises(InvalidGraphError, match="is not valid utf-8"):
        run("UnicodeTranscode", broken, **coding, errors="strict")
