"""String hash buckets. Expected values are those of TensorFlow 2.21."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import run
from tests.ops.strings.test_joining import texts

WORDS = texts("", "abc", "abcdef", "abcdefghij", "x" * 20, "y" * 50, "z" * 200)
BUCKETS = 10**6


def test_hash_bucket_fast():
    result = run("StringToHashBucketFast", WORDS, num_buckets=BUCKETS)
    assert result.tolist() == [397263, 161385, 76237, 212091, 857348, 487699, 24092]


def test_hash_bucket_strong():
    result = run("StringToHashBucketStrong", WORDS, num_buckets=BUCKETS, key=(1, -2))
    assert result.tolist() == [341606, 839229, 412354, 344842, 248753, 933069, 291556]
    with pytest.raises(InvalidGraphError, match="two numbers"):
        run("StringToHashBucketStrong", WORDS, num_buckets=BUCKETS, key=(1,))


def test_hash_bucket():
    result = run("StringToHashBucket", WORDS, num_buckets=BUCKETS)
    assert result.tolist() == [283899, 142710, 102479, 659559, 223341, 415913, 826454]


def test_buckets_keep_the_shape():
    square = run("StringToHashBucketFast", WORDS[:6].reshape(2, 3), num_buckets=1)
    assert square.tolist() == [[0, 0, 0], [0, 0, 0]]
    with pytest.raises(InvalidGraphError, match="0 buckets"):
        run("StringToHashBucketFast", WORDS, num_buckets=0)


OP_CASES = [
    case("StringToHashBucket", [(2, -1)], [(2, -1)], num_buckets=5),
    case("StringToHashBucketFast", [(2, -1)], [(2, -1)], num_buckets=5),
    case("StringToHashBucketStrong", [(2, -1)], [(2, -1)], num_buckets=5, key=(1, 2)),
    case("Fingerprint", [(4, 3), ()], [(4, -1)]),
    case("Fingerprint", [None, ()], [(-1, -1)]),
    refused("Fingerprint", [(), ()]),
    case("Fingerprint", [(4,), ()], [(4, -1)]),
]

test_shapes_and_costs = case_tests(OP_CASES)
