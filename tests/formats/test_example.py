"""Serialized examples."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tf_record import read_example, read_feature
from mobileprep.formats.wire import delimited
from tests.ops.examples import example, floats_of, integers_of, texts_of


def values(feature: bytes) -> list:
    parsed = read_feature(memoryview(feature))
    assert parsed is not None
    return list(parsed.values)


def test_last_feature_of_a_duplicate_name_wins():
    features = read_example(example(a=b"", b=integers_of(1)) + example(b=integers_of(2)))
    assert sorted(features) == [b"a", b"b"]
    assert values(bytes(features[b"b"])) == [2]
    assert read_feature(features[b"a"]) is None


@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_unpacked_numbers_are_read(packed):
    numbers = [0, 1, 127, 128, -1, 2**63 - 1, -(2**63), 300]
    assert values(integers_of(*numbers, packed=packed)) == numbers
    assert values(floats_of(1.5, -0.25, packed=packed)) == [1.5, -0.25]


def test_string_and_empty_features():
    feature = read_feature(memoryview(texts_of(b"", b"\xff")))
    assert feature is not None
    assert (feature.dtype, feature.values) == (DType.STRING, [b"", b"\xff"])
    assert values(texts_of()) == []
    assert values(integers_of()) == []


def test_unknown_fields_are_skipped():
    data = delimited(7, b"x") + example(a=floats_of(1)) + b"\x10\x05"
    assert list(read_example(data)) == [b"a"]


def test_truncated_examples_are_refused():
    data = example(a=floats_of(1, 2), b=integers_of(5, 300), c=texts_of(b"x"))
    for stop in range(1, len(data)):
        with pytest.raises(CorruptFileError):
            read_example(data[:stop])


@pytest.mark.parametrize(
    "feature",
    [
        delimited(4, b""),
        delimited(3, delimited(1, b"\x80")),
        delimited(3, delimited(1, b"\xff" * 11 + b"\x01")),
        delimited(2, delimited(1, b"abc")),
        delimited(2, delimited(3, b"")),
        delimited(1, delimited(2, b"")),
        b"\x0a\xff\xff\xff\xff\x0f",
    ],
)
def test_damaged_features_are_refused(feature):
    with pytest.raises(CorruptFileError):
        read_feature(memoryview(feature))


def test_random_bytes_raise_only_our_error():
    rng = np.random.default_rng(0)
    for _ in range(300):
        noise = rng.integers(0, 256, 30, dtype=np.uint8).tobytes()
        for read in (read_example, lambda data: read_feature(memoryview(data))):
            try:
                read(noise)
            except CorruptFileError:
                continue
