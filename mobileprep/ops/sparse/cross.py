"""The op that crosses features: one hash for each combination of the values of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.string_hashes import combined_fingerprints, fingerprint64
from mobileprep.numerics.texts import texts
from mobileprep.ops.arrays import check_allocation, integers
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import places_within
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.ops.sparse.parts import sparse_shape

_INT64 = np.dtype(np.int64)


_LARGEST = np.iinfo(np.int64).max


@kernel("SparseCross")
def sparse_cross(node: Node, *inputs: Array) -> tuple[Array, Array, Array]:
    """The hashed crosses of features, those of the last one fastest, as a sparse matrix.

    Args:
        node: with ``num_buckets`` (0 for all numbers), ``hash_key``, and ``hashed_output``, which
            must be set.
        inputs: the indices of N sparse matrices [batch, any], their values and shapes, and then
            dense matrices [batch, any]; texts or integers.

    Raises:
        UnsupportedError: texts are wanted, not hashes.
    """
    if not node.attr_bool("hashed_output"):
        message = f"node {node.name!r} ({node.op}) joins texts instead of hashing them"
        raise UnsupportedError(message, "use a cross of features with a number of buckets")
    buckets = node.attr_int("num_buckets")
    if buckets < 0:
        message = f"there cannot be {buckets} buckets"
        raise ValueError(message)
    columns, batch = _columns(node, inputs)
    counts = np.array([np.diff(starts) for _, starts in columns], np.int64)
    if math.prod(int(c.max(initial=0)) for c in counts) > _LARGEST:
        message = "a row has more combinations than can be counted"
        raise ValueError(message)
    crosses = counts.prod(axis=0)
    check_allocation((int(crosses.sum(dtype=np.float64)), 2), _INT64)
    rows, within = np.repeat(np.arange(batch), crosses), places_within(crosses)
    hashes = np.full(len(rows), node.attr_int("hash_key") % (1 << 64), np.uint64)
    rest, chosen = within, []
    for (values, starts), count in zip(reversed(columns), counts[::-1], strict=True):
        chosen.append(values[starts[rows] + rest % count[rows]])
        rest = rest // count[rows]
    for values in reversed(chosen):
        hashes = combined_fingerprints(hashes, values)
    values = (hashes % np.uint64(buckets or _LARGEST)).astype(np.int64)
    shape = np.array([batch, crosses.max(initial=0)], np.int64)
    return np.stack([rows, within], axis=1), values, shape


@shape_fn("SparseCross")
def sparse_cross_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A sparse matrix."""
    return [(UNKNOWN, 2), (UNKNOWN,), (2,)]


flop_rule("SparseCross")(free)


def _columns(node: Node, inputs: tuple[Array, ...]) -> tuple[list[tuple[Array, Array]], int]:
    """The numbers of each feature with the splits of its rows, and the number of rows."""
    count = node.attr_int("N")
    indices, values, dims = inputs[:count], inputs[count : 2 * count], inputs[2 * count : 3 * count]
    dense = inputs[3 * count :]
    heights = {integers(d)[0] for d in dims} | {len(x) for x in dense}
    if len(heights) != 1 or any(x.ndim != 2 for x in dense):
        message = "features to cross must be matrices with equally many rows"
        raise ValueError(message)
    batch = heights.pop()
    check_allocation((batch,), _INT64)
    columns = []
    for where, x, shape in zip(indices, values, dims, strict=True):
        if len(sparse_shape(where, shape, x)) != 2 or (np.diff(where[:, 0]) < 0).any():
            message = "a sparse feature to cross is no matrix with rows in order"
            raise ValueError(message)
        columns.append((_numbers(x), np.searchsorted(where[:, 0], np.arange(batch + 1))))
    columns += [(_numbers(x.ravel()), np.arange(batch + 1) * x.shape[1]) for x in dense]
    return columns, batch


def _numbers(values: Array) -> Array:
    if values.dtype.hasobject:
        return fingerprint64(texts(values))
    return values.astype(np.int64).view(np.uint64)
