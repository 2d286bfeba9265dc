"""Bucketize, CTC decoding, and the trees of beam searches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("boundaries", [[], [0.0], [-2.5, 0.0, 1.0, 1.0, 3.0]])
def test_buckets(dtype: type, boundaries: list[float]) -> None:
    x = np.array([[-9, -2, 0, 1], [2, 3, 4, 100]]).astype(dtype)
    assert check("Bucketize", [x], boundaries=boundaries) == ["BUCKETIZE"]


def test_buckets_of_nan_and_infinity() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    check("Bucketize", [x], boundaries=[-1.0, 0.0, 2.0])


@pytest.mark.parametrize("open_sizes", [0, 1, 2])
@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("blank", [-1, 1])
def test_greedy_decoding(blank: int, is_merged: bool, open_sizes: int) -> None:
    lengths = np.int32([12, 7, 1, 9])
    options = {"blank_index": blank, "merge_repeated": is_merged, "open_sizes": open_sizes}
    check("CTCGreedyDecoder", [numbers(12, 4, 3), lengths], outputs=4, **options)


@pytest.mark.parametrize("op", ["GatherTree", "Addons>GatherTree"])
@pytest.mark.parametrize("open_sizes", [0, 1, 2, 3])
@pytest.mark.parametrize("lengths", [[6, 6, 6], [4, 0, 6], [1, 9, 2]])
def test_beam_trees(op: str, lengths: list[int], open_sizes: int) -> None:
    random = np.random.default_rng(0)
    # The end token 2 occurs within the sequences, too.
    ids, parents = (random.integers(0, most, (6, 3, 4), np.int32) for most in (9, 4))
    inputs = [ids, parents, np.int32(lengths), np.int32(2)]
    assert "WHILE" in check(op, inputs, open_sizes=open_sizes)


def test_beam_tree_of_int64() -> None:
    ids, parents = np.int64([[[5, 6]], [[7, 8]]]), np.int64([[[0, 0]], [[1, 0]]])
    check("GatherTree", [ids, parents, np.int32([2]), np.int64(1)])
