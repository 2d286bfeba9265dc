"""Buckets of texts by their hashes; the values are those of TensorFlow 2.21."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import OpCase, case, refused
from tests.ops.graphs import run
from tests.ops.strings.test_joining import texts

WORDS = texts("", "abc", "abcdef", "abcdefghij", "x" * 20, "y" * 50, "z" * 200)
BUCKETS = 10**6


def test_fingerprints_of_every_length_class():
    found = run("StringToHashBucketFast", WORDS, num_buckets=BUCKETS)
    assert found.tolist() == [397263, 161385, 76237, 212091, 857348, 487699, 24092]


def test_hashes_with_a_key():
    found = run("StringToHashBucketStrong", WORDS, num_buckets=BUCKETS, key=(1, -2))
    assert found.tolist() == [341606, 839229, 412354, 344842, 248753, 933069, 291556]
    with pytest.raises(InvalidGraphError, match="two numbers"):
        run("StringToHashBucketStrong", WORDS, num_buckets=BUCKETS, key=(1,))


def test_the_older_hash():
    found = run("StringToHashBucket", WORDS, num_buckets=BUCKETS)
    assert found.tolist() == [283899, 142710, 102479, 659559, 223341, 415913, 826454]


def test_buckets_have_the_shape_of_the_texts():
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


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
