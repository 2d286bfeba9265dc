"""The op that joins neighbouring words of ragged rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.texts import as_texts, texts
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import checked_splits, splits_of
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_REFERENCE = np.dtype(object)


@kernel("StringNGrams")
def string_ngrams(node: Node, words: Array, splits: Array) -> tuple[Array, Array]:
    """All runs of so many words of each row, joined.

    Args:
        node: with ``ngram_widths``, ``separator``, ``left_pad`` and ``right_pad``, ``pad_width``
            (-1 for one less than each width) and ``preserve_short_sequences`` (a row too short for
            any run counts as one).
        words: [words], the rows one after another.
        splits: [rows + 1], where they begin and end.

    Returns:
        The runs of all rows, those of one width after those of the one before; and their splits.
    """
    widths, most = node.attr_ints("ngram_widths"), node.attr_int("pad_width")
    if min(widths, default=0) < 1:
        message = f"runs of {list(widths)} words"
        raise ValueError(message)
    separator = node.attr_str("separator").encode()
    left, right = (node.attr_str(name).encode() for name in ("left_pad", "right_pad"))
    whole = node.attr_bool("preserve_short_sequences")
    bounds = checked_splits(splits, len(words)).tolist() if splits.size else [0]
    # Each run takes memory for its words, and each width makes padding of its own.
    check_allocation((len(words) + len(bounds) * sum(widths), sum(widths)), _REFERENCE)
    every, counts = texts(words), []
    found: list[bytes] = []
    for start, end in pairwise(bounds):
        runs = []
        row = every[start:end]
        for width in widths:
            pad = width - 1 if most < 0 else min(most, width - 1)
            padded = [left] * pad + row + [right] * pad
            runs += [padded[i : i + width] for i in range(len(padded) - width + 1)]
        if whole and row and not runs:
            pad = max(most, 0)
            runs = [[left] * pad + row + [right] * pad]
        found += map(separator.join, runs)
        counts.append(len(runs))
    kind = node.attr_dtype("Tsplits", DType.INT64).numpy
    ends = splits_of(np.array(counts, np.int64)).astype(kind)
    return as_texts(found, (len(found),)), ends if splits.size else splits


@shape_fn("StringNGrams")
def string_ngrams_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The runs, and splits for as many rows as before."""
    with_rank(args.shapes[0], 1)
    return [(UNKNOWN,), with_rank(args.shapes[1], 1)]


flop_rule("StringNGrams")(free)
