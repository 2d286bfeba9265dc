"""Beam search: the sequences of a tree of beams."""

from __future__ import annotations

import numpy as np

from mobileprep.core.limits import STEP, spend
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import kernel, per_input
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, merge, shape_fn, with_rank

GATHER_TREES = ("Addons>GatherTree", "GatherTree")
"""The op of ``tf.contrib.seq2seq`` and that of TensorFlow Addons, which are equal."""


@kernel(*GATHER_TREES, flops=per_input(1))
def gather_tree(_node: Node, ids: Array, parents: Array, lengths: Array, end: Array) -> Array:
    """Follow the parents of each beam from its last step to its first.

    Args:
        ids: the token that each beam added in each step, ``[steps, batch, beams]``.
        parents: the beam of the step before that each beam continues, of the same shape.
        lengths: number of steps of each batch entry.
        end: token for the steps after the first ``end`` and after the length.

    Source: ``beam_search_ops.cc`` of ``tf.contrib.seq2seq``.
    """
    steps, batch, beams = ids.shape
    if parents.shape != ids.shape or lengths.shape != (batch,) or end.shape != ():
        sizes = f"{list(parents.shape)} and lengths of {list(lengths.shape)}"
        message = f"parents of {sizes} for ids of {list(ids.shape)}"
        raise ValueError(message)
    spend(steps * STEP)
    entry = np.arange(batch)[:, np.newaxis]
    place = np.broadcast_to(np.arange(beams), (batch, beams))
    result = np.full_like(ids, end)
    for step in range(steps - 1, -1, -1):
        is_read = (lengths > step)[:, np.newaxis]
        result[step] = np.where(is_read, ids[step, entry, place], end)
        place = np.where(is_read, parents[step, entry, place], place)
        if step and ((place < 0) | (place >= beams)).any():
            message = f"a parent in step {step} is not one of {beams} beams"
            raise ValueError(message)
    is_end = result == end
    result[np.cumsum(is_end, axis=0) > is_end] = end
    return result


@shape_fn(*GATHER_TREES)
def gather_tree_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the tokens."""
    return [merge(with_rank(args.shapes[0], 3), with_rank(args.shapes[1], 3))]
