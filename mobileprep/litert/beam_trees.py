"""Express GatherTree, the end of a beam search, as a loop over the steps.

Source: ``gather_tree`` in ``ops/nn/recurrent.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Library
from mobileprep.graph.refs import Ref
from mobileprep.litert.plain_nodes import PlainNodes, added_loop

_INT32: Final = attr.dtype(DType.INT32)
_NO: Final = attr.boolean(value=False)


def followed(work: PlainNodes, library: Library) -> Ref:
    """Return the tokens of each beam: a While from the last step to the first.

    It carries the beam that each beam continues. Behind the length of an entry, this is the beam
    itself, and the token is the end token.
    """
    ids, parents, lengths, end = work.node.data_inputs
    kind = work.kind
    steps, beams = (
        work.gather(work.put("Shape", (ids,), T=attr.dtype(kind), out_type=_INT32), at, DType.INT32)
        for at in (work.constant("which", 0), work.constant("which", 2))
    )
    column = work.put("ExpandDims", (lengths, work.constant("axis", 1)), T=_INT32, Tdim=_INT32)
    zero, one = work.constant("zero", 0), work.constant("one", 1)
    own = work.put("Range", (zero, beams, one), Tidx=_INT32)
    first = work.put("AddV2", (work.put("Mul", (column, zero), T=_INT32), own), T=_INT32)
    last = work.put("Sub", (steps, one), T=_INT32)
    arguments = (last, first, ids, ids, parents, column, end)
    types = (*[DType.INT32] * 2, *[kind] * 3, DType.INT32, kind)

    def step(inner: PlainNodes, args: Sequence[Ref]) -> Sequence[Ref]:
        t, place, result, *kept = args
        all_ids, all_parents, length, end_token = kept
        is_read = inner.put("Less", (t, length), T=_INT32)
        token, parent = (
            inner.gather(inner.gather(values, t, kind), place, kind, axis=1)
            for values in (all_ids, all_parents)
        )
        if kind is not DType.INT32:
            parent = inner.put("Cast", (parent,), SrcT=attr.dtype(kind), DstT=_INT32)
        tokens = inner.put("SelectV2", (is_read, token, end_token), T=attr.dtype(kind))
        places = inner.put("SelectV2", (is_read, parent, place), T=_INT32)
        before = inner.put("Sub", (t, inner.constant("one", 1)), T=_INT32)
        return (before, places, inner.written(result, t, tokens, kind), *kept)

    def goes_on(inner: PlainNodes, args: Sequence[Ref]) -> Ref:
        return inner.put("GreaterEqual", (args[0], inner.constant("zero", 0)), T=_INT32)

    loop = added_loop(work, arguments, types, goes_on, step, library)
    return _ended(work, Ref(loop.name, 2), end)


def _ended(work: PlainNodes, tokens: Ref, end: Ref) -> Ref:
    """Replace the tokens behind the first end token by end tokens."""
    kind = attr.dtype(work.kind)
    is_end = work.put("Equal", (tokens, end), T=kind, incompatible_shape_error=_NO)
    marks = work.put("Cast", (is_end,), SrcT=attr.dtype(DType.BOOL), DstT=_INT32)
    options = {"exclusive": attr.boolean(value=True), "reverse": _NO, "Tidx": _INT32}
    before = work.put("Cumsum", (marks, work.constant("axis", 0)), T=_INT32, **options)
    has_ended = work.put("Greater", (before, work.constant("zero", 0)), T=_INT32)
    return work.put("SelectV2", (has_ended, end, tokens), T=kind)
