"""String tensors."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics.texts import as_texts, each_text, one_text, texts


def test_strings_keep_order_and_trailing_zeros() -> None:
    array = as_texts([b"a\0", b"", b"ccc", b"d"], (2, 2))
    assert array[1, 0] == b"ccc"
    assert texts(array) == [b"a\0", b"", b"ccc", b"d"]


def test_each_text() -> None:
    result = each_text(bytes.upper, as_texts([b"a", b"b"], (1, 2)))
    assert result.tolist() == [[b"A", b"B"]]


def test_one_text() -> None:
    assert one_text(as_texts([b"a"], ())) == b"a"
    assert one_text(as_texts([b"a"], (1, 1))) == b"a"


@pytest.mark.parametrize("count", [0, 2])
def test_one_text_needs_one_element(count: int) -> None:
    with pytest.raises(ValueError, match=f"one text is needed, not {count}"):
        one_text(as_texts([b"a"] * count, (count,)))


def test_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="strings are needed, not int32"):
        texts(np.int32([1]))
