"""Ops that put texts into buckets by their hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.hash64 import hash64_many
from mobileprep.numerics.string_hashes import fingerprint64, siphash
from mobileprep.numerics.texts import texts
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN, add_dims, at_least_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_KEY_NUMBERS = 2


@kernel("StringToHashBucket")
def string_to_hash_bucket(node: Node, x: Array) -> Array:
    """The bucket of each text by TensorFlow's own hash."""
    return _bucket(node, np.array(hash64_many(texts(x)), np.uint64), x)


shape_fn("StringToHashBucket")(unchanged)


flop_rule("StringToHashBucket")(free)


def _bucket(node: Node, hashes: Array, x: Array) -> Array:
    """int64 numbers in [0, num_buckets), in the shape of x."""
    count = node.attr_int("num_buckets")
    if count < 1:
        message = f"there cannot be {count} buckets"
        raise ValueError(message)
    buckets: Array = (hashes % np.uint64(count)).astype(np.int64)
    return buckets.reshape(x.shape)


@kernel("StringToHashBucketFast")
def string_to_hash_bucket_fast(node: Node, x: Array) -> Array:
    """The bucket of each text by its fingerprint."""
    return _bucket(node, fingerprint64(texts(x)), x)


shape_fn("StringToHashBucketFast")(unchanged)


flop_rule("StringToHashBucketFast")(free)


@kernel("StringToHashBucketStrong")
def string_to_hash_bucket_strong(node: Node, x: Array) -> Array:
    """The bucket of each text by a hash with a key."""
    key = node.attr_ints("key")
    if len(key) != _KEY_NUMBERS:
        message = f"a key of two numbers is needed, not of {len(key)}"
        raise ValueError(message)
    first, second = (k % (1 << 64) for k in key)
    return _bucket(node, siphash(texts(x), (first, second)), x)


shape_fn("StringToHashBucketStrong")(unchanged)


flop_rule("StringToHashBucketStrong")(free)


@shape_fn("Fingerprint")
def fingerprint_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Bytes for each row."""
    rows = at_least_rank(args.shapes[0], 1)
    return [(add_dims(0, UNKNOWN if rows is None else rows[0]), UNKNOWN)]
