"""Shapes of ops that arrange ragged tensors, and parse examples into them."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("SparseReorder")
def sparse_reorder(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shapes of the indices and of the values."""
    return [args.shapes[0], args.shapes[1]]


@shape_fn("RaggedRange", "UnicodeDecode")
def splits_and_values(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two vectors."""
    return [(UNKNOWN,), (UNKNOWN,)]


@shape_fn("RaggedTensorToSparse")
def ragged_to_sparse(args: ShapeArgs) -> Sequence[TensorShape]:
    """Indices, values, and a shape of as many axes as the splits and the values have."""
    values = args.shapes[-1]
    rank = UNKNOWN if values is None else len(args.shapes) - 1 + len(values)
    return [(UNKNOWN, rank), (UNKNOWN,), (rank,)]


@shape_fn("ParseExampleV2")
def parse_example_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """Sparse and dense tensors, with an axis for the examples unless it is one; ragged ones."""
    serialized = args.shapes[0]
    if serialized is None:
        return [None] * args.count()
    count, rank = args.node.attr_int("num_sparse"), len(serialized) + 1
    ragged = 2 * len(args.node.attr_dtypes("ragged_value_types"))
    shapes = args.node.attr_shapes("dense_shapes")
    return [
        *[(UNKNOWN, rank)] * count,
        *[(UNKNOWN,)] * count,
        *[(rank,)] * count,
        *(None if shape is None else (*serialized, *shape) for shape in shapes),
        *[(UNKNOWN,)] * ragged,
    ]
