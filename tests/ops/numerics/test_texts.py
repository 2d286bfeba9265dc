"""Tensors of texts."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.texts import as_texts, each_text, one_text, texts


def test_texts_keep_their_order_and_zeros() -> None:
    array = as_texts([b"a\0", b"", b"ccc", b"d"], (2, 2))
    assert array[1, 0] == b"ccc"
    assert texts(array) == [b"a\0", b"", b"ccc", b"d"]


def test_a_function_is_applied_to_each() -> None:
    found = each_text(bytes.upper, as_texts([b"a", b"b"], (1, 2)))
    assert found.tolist() == [[b"A", b"B"]]


def test_one_text_of_any_shape() -> None:
    assert one_text(as_texts([b"a"], ())) == b"a"
    assert one_text(as_texts([b"a"], (1, 1))) == b"a"


@pytest.mark.parametrize("count", [0, 2])
def test_no_text_and_two_are_not_one(count: int) -> None:
    with pytest.raises(ValueError, match=f"one text is needed, not {count}"):
        one_text(as_texts([b"a"] * count, (count,)))


def test_numbers_are_no_texts() -> None:
    with pytest.raises(ValueError, match="strings are needed, not int32"):
        texts(np.int32([1]))
