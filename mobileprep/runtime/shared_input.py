"""Convolutions of single elements that read the same tensor, done as one product of matrices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.refs import Edge
from mobileprep.ir.tensor import Array
from mobileprep.numerics.convolution import convolve
from mobileprep.numerics.pooling import average
from mobileprep.numerics.tiles import Tile, whole_tile
from mobileprep.numerics.windows import NHWC, make_window
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import Action, Uses, Values
from mobileprep.runtime.convolution_epilogue import FusedConvolution


@dataclass(frozen=True, slots=True)
class _Branch:
    """A convolution of the shared tensor, or of the means of its windows.

    Args:
        actions: the convolution, and before it the pooling if there is one.
        convolution: what the convolution does.
    """

    actions: tuple[Action, ...]
    convolution: FusedConvolution

    @property
    def source(self) -> Edge:
        """The tensor that it reads."""
        return self.actions[0].inputs[0]

    @property
    def output(self) -> Edge:
        """The tensor that it makes."""
        return self.actions[-1].outputs[0][1]

    @property
    def pooled(self) -> bool:
        """Whether there is a pooling."""
        return len(self.actions) > 1

    def with_filters(self, filters: Array) -> _Branch:
        """With the same filters, at another place."""
        convolution = replace(self.convolution, filters=filters)
        *before, last = self.actions
        return _Branch((*before, replace(last, run=convolution)), convolution)

    def finished(self, products: Array) -> Array:
        """Its output, for the convolution of the shared tensor.

        Means and sums of products may change places: fewer channels are pooled so.
        """
        if not self.pooled:
            return products
        pool = self.actions[0].node
        size, strides = (pool.attr_ints(name)[1:3] for name in ("ksize", "strides"))
        window = make_window(pool, products.shape[1:3], size, strides, (1, 1))
        out = average(products, window)
        self.convolution.finish(out, whole_tile(products, window), None)
        return out

    def apart(self, context: RunContext, x: Array) -> Array:
        """Its output, for a shared tensor of any kind."""
        for action in self.actions:
            (x,) = action.run(context, (x,))
        return x


@dataclass(frozen=True, slots=True)
class SharedInputConvolutions:
    """Computes all branches of a float32 NHWC tensor.

    Args:
        branches: those without pooling first.
        filters: of all of them, [1, 1, channels, filters].
        parts: the place of each branch's filters among all.
        shift: the bias of each filter of the branches without pooling.
    """

    branches: tuple[_Branch, ...]
    filters: Array
    parts: tuple[slice, ...]
    shift: Array

    @classmethod
    def of(cls, branches: Sequence[_Branch]) -> SharedInputConvolutions:
        """Branches of which those without pooling have the same activation."""
        ordered = sorted(branches, key=lambda b: b.pooled)
        filters = np.concatenate([b.convolution.filters for b in ordered], axis=-1)
        ends = accumulate((b.convolution.channels for b in ordered), initial=0)
        parts = tuple(slice(start, stop) for start, stop in pairwise(ends))
        # Views, so that the filters are there once.
        kept = tuple(b.with_filters(filters[..., p]) for b, p in zip(ordered, parts, strict=True))
        shifts = [b.convolution.bias for b in kept if not b.pooled]
        return cls(kept, filters, parts, np.concatenate(shifts))

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The output of each branch."""
        (x,) = inputs
        if x.dtype != np.float32 or x.ndim != 4 or x.shape[-1] != self.filters.shape[2]:
            return [branch.apart(context, x) for branch in self.branches]

        first = self.branches[0].convolution

        def finish(values: Array, tile: Tile) -> None:
            own = values[..., : len(self.shift)]
            np.add(own, self.shift, out=own)
            first.activate(own)

        made = convolve(x, self.filters, first.way(x).window, finish)
        return [b.finished(made[..., p]) for b, p in zip(self.branches, self.parts, strict=True)]


def share_inputs(actions: Sequence[Action], wanted: Collection[Edge]) -> list[Action]:
    """The actions, with such convolutions of the same tensor made one action.

    It stands where the first of them stood, when the tensor is there.
    """
    uses = Uses(actions, wanted)
    found: dict[Edge, list[_Branch]] = {}
    for action in actions:
        branch = _branch(action, uses)
        # Outputs are parts of one array, which users should not come to see.
        if branch is not None and branch.output not in wanted:
            found.setdefault(branch.source, []).append(branch)
    replaced: dict[str, Action | None] = {}
    for branches in map(_alike, found.values()):
        if len(branches) > 1:
            names = {a.node.name for b in branches for a in b.actions}
            first = next(a for a in actions if a.node.name in names)
            replaced.update(dict.fromkeys(names))
            replaced[first.node.name] = _combined(branches)
    left = (replaced.get(a.node.name, a) for a in actions)
    return [a for a in left if a is not None]


def _branch(action: Action, uses: Uses) -> _Branch | None:
    """The branch that begins with an action, or None where none does."""
    convolution = _pointwise(action)
    if convolution is not None:
        return _Branch((action,), convolution)
    reader = uses.only_reader(action.outputs[0][1]) if _is_pool(action) else None
    convolution = None if reader is None else _pointwise(reader)
    if reader is None or convolution is None:
        return None
    depth, count = convolution.filters.shape[2:]
    return _Branch((action, reader), convolution) if count <= depth else None


def _pointwise(action: Action) -> FusedConvolution | None:
    run = action.run
    if not isinstance(run, FusedConvolution) or not run.pointwise or len(action.inputs) > 1:
        return None
    return run


def _is_pool(action: Action) -> bool:
    """Whether it takes the mean around each element."""
    node = action.node
    return (
        node.op == "AvgPool"
        and action.pure
        and len(action.outputs) == 1
        and node.attr_str("data_format", NHWC) == NHWC
        and node.attr_str("padding") in ("SAME", "VALID")
        and set(node.attr_ints("strides")) == {1}
        and node.attr_ints("ksize")[::3] == (1, 1)
    )


def _alike(branches: Sequence[_Branch]) -> list[_Branch]:
    """The branches without those whose activation is another than that of the first."""
    plain = [b.convolution.activation for b in branches if not b.pooled]
    return [b for b in branches if plain and (b.pooled or b.convolution.activation == plain[0])]


def _combined(branches: Sequence[_Branch]) -> Action:
    run = SharedInputConvolutions.of(branches)
    return Action(
        run.branches[0].actions[0].node,
        run,
        (run.branches[0].source,),
        tuple((i, branch.output) for i, branch in enumerate(run.branches)),
        tuple(n for b in run.branches for a in b.actions for n in a.covers),
    )
