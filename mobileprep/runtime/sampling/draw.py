"""Draws samples for a graph that the graph can run, in the ranges that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from mobileprep.errors import InvalidGraphError, LoopLimitError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import first_ops
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.movement import MOVES, largest_movement
from mobileprep.runtime.sampling.ranges import ValueRange, value_ranges
from mobileprep.runtime.sampling.sizes import Sizes, size_choices
from mobileprep.runtime.sampling.values import data_hint, sample

_SEED: Final = 20160823
_MOST_CHOICES: Final = 60
# After so many choices with which loops run once, no longer sequence is expected to fit.
_MOST_SHORT: Final = 24
# The input that holds an array's length.
_LENGTHS: Final = {"TensorArrayV3": 0, "TensorArrayV2": 0, "TensorListReserve": 1}

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Array]]


@dataclass(frozen=True)
class Samples:
    """Feeds, one after another, and the outputs of the source for each.

    Args:
        feeds: arrays by input, for each run.
        outputs: the fetched tensors of each run.
        inputs: what is fed, in words, by input.
        has_short_loop: whether the model's loops ran over one element alone, though an input could
            be longer.
    """

    feeds: tuple[Feeds, ...]
    outputs: tuple[list[Array], ...]
    inputs: Mapping[str, str]
    has_short_loop: bool = False


def draw_samples(graph: Graph, inputs: Sequence[FedTensor], count: int, run: Run) -> Samples:
    """Seeded samples that a graph can run; the same for the same graph.

    Open dimensions get the first sizes with which the graph runs. Where nothing in the graph
    tells the range of an input, the first usual one is taken to which the outputs answer.

    Args:
        graph: the graph.
        inputs: what to feed.
        count: how many samples, each of them a run.
        run: runs the graph.

    Raises:
        UsageError: the graph runs with no sizes that were tried, or nothing can be drawn for
            the type of an input.
        LoopLimitError: its loops do not end within their bound.
    """
    drawing = _Drawing(graph, inputs)
    count = count if inputs else 1
    sizes, is_short = _runnable_sizes(graph, drawing, run)
    best: Samples | None = None
    most = -1.0
    for trial in range(drawing.trials):
        found = drawing.samples(sizes, trial, count, run)
        moved = largest_movement(found.outputs)
        if best is None or moved > most:
            best, most = found, moved
        if most >= MOVES:
            break
    assert best is not None
    return replace(best, has_short_loop=is_short)


def _runnable_sizes(graph: Graph, drawing: _Drawing, run: Run) -> tuple[Sizes, bool]:
    """The first sizes with which the graph runs, and whether its loops then run only once.

    A loop that runs once shows little of what it does: longer sequences are looked for first.
    """
    lengths = loop_lengths(graph)
    first: InvalidGraphError | UsageError | None = None
    short: Sizes | None = None
    runs_of_one = 0
    tried: list[Sizes] = []
    for sizes in islice(size_choices(drawing.inputs, drawing.ops), _MOST_CHOICES):
        feeds = drawing.feeds(sizes, 0, 0)
        try:
            run(feeds)
        except LoopLimitError:
            raise  # after a time that no other choice should take again
        except (InvalidGraphError, UsageError) as error:
            first = first or error
            tried.append(sizes)
            continue
        if all(fed.is_whole for fed in drawing.inputs) or _longest_loop(graph, lengths, feeds) != 1:
            return sizes, False
        short = short or sizes
        runs_of_one += 1
        if runs_of_one == _MOST_SHORT:
            break
    if short is not None:
        return short, True
    raise _no_sizes(drawing, tried, first)


def loop_lengths(graph: Graph) -> list[str]:
    """The tensors that hold the lengths of the arrays over which the graph's loops run."""
    slots = ((_LENGTHS[n.op], n) for n in graph if n.op in _LENGTHS)
    return [str(n.data_inputs[slot]) for slot, n in slots if slot < len(n.data_inputs)]


def _longest_loop(graph: Graph, lengths: Sequence[str], feeds: Feeds) -> int | None:
    """The length of the longest array that a loop runs over; None where that is not known."""
    if not lengths:
        return None
    try:
        found = Interpreter(graph).run(lengths, feeds)
    except (InvalidGraphError, UnsupportedError, UsageError):
        return None  # such as of a loop within a loop
    return max(int(np.max(array, initial=0)) for array in found)


def _no_sizes(
    drawing: _Drawing, tried: Sequence[Sizes], error: InvalidGraphError | UsageError | None
) -> UsageError:
    reason = "" if error is None else f": {error.message}"
    is_open = [fed for fed in drawing.inputs if not fed.is_whole]
    if not is_open or len(tried) == 1:
        names = ", ".join(repr(fed.name) for fed in drawing.inputs)
        given = f"on samples drawn for {names}" if names else "without inputs"
        message = f"the source does not run {given}{reason}"
        return UsageError(message, data_hint(drawing.inputs[0].name) if names else "")
    names = " and ".join(f"{fed.name!r} {_shown(fed)}" for fed in is_open)
    message = f"the source runs with none of {len(tried)} choices of sizes for the input {names}"
    hint = f"give the input its shape, such as [1, 224, 224, 3]; or {data_hint(is_open[0].name)}"
    return UsageError(f"{message}; with the first of them{reason}", hint)


def _shown(fed: FedTensor) -> str:
    return "of unknown rank" if fed.shape is None else str(list(fed.shape))


class _Drawing:
    """What is known of a graph's inputs, and the samples made of it."""

    def __init__(self, graph: Graph, inputs: Sequence[FedTensor]) -> None:
        self.inputs = inputs
        self.ops: list[FirstOps] = [first_ops(graph, fed.ref) for fed in inputs]
        self.ranges = [_ranges(f, o) for f, o in zip(inputs, self.ops, strict=True)]
        self.trials = max((len(ranges) for ranges in self.ranges), default=1)
        self._defaults = [_default(graph, fed) for fed in inputs]

    def samples(self, sizes: Sizes, trial: int, count: int, run: Run) -> Samples:
        """The samples of one choice of ranges, and what the graph gives for them."""
        feeds = tuple(self.feeds(sizes, trial, number) for number in range(count))
        told = {
            fed.name: f"{fed.dtype.short} {list(feeds[0][fed.name].shape)}{self._told(at, trial)}"
            for at, fed in enumerate(self.inputs)
        }
        return Samples(feeds, tuple(run(given) for given in feeds), told)

    def feeds(self, sizes: Sizes, trial: int, number: int) -> Feeds:
        """One sample: an array for each input."""
        longest = self._longest(sizes)
        made = {}
        for at, (fed, ops) in enumerate(zip(self.inputs, self.ops, strict=True)):
            default = self._defaults[at]
            if default is not None:
                made[fed.name] = default
                continue
            generator = np.random.default_rng([_SEED, at, number])
            limits = self._range(at, trial)
            made[fed.name] = sample(fed, sizes[fed.name], ops, limits, generator, longest)
        return made

    def _range(self, at: int, trial: int) -> ValueRange:
        ranges = self.ranges[at]
        return ranges[min(trial, len(ranges) - 1)]

    def _told(self, at: int, trial: int) -> str:
        if self._defaults[at] is not None:
            return ", its default"
        dtype = self.inputs[at].dtype
        if dtype in (DType.BOOL, DType.STRING):
            return ""
        return f", {self._range(at, trial)}"

    def _longest(self, sizes: Sizes) -> int:
        """What an input that is a length is given: the size of what may be a sequence."""
        longest = 1
        for fed in self.inputs:
            if len(sizes[fed.name]) > 1:
                longest = max(longest, sizes[fed.name][1])
        return longest


def _ranges(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    if fed.dtype in (DType.BOOL, DType.STRING):
        return (ValueRange(0, 1),)
    return value_ranges(fed, ops)


def _default(graph: Graph, fed: FedTensor) -> Array | None:
    """What a setting, such as a rate of dropout, is when nobody feeds it."""
    node = graph[fed.ref.node]
    if node.op != "PlaceholderWithDefault" or not node.data_inputs:
        return None
    before = graph.get(node.data_inputs[0].node)
    if before is None or before.op != "Const":
        return None
    value = before.attr_tensor("value")
    return value.array() if value.size == 1 and not value.shape else None
