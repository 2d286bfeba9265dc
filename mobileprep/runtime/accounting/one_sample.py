"""What one sample costs, by inferred shapes, or by those of a run where these do not tell all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.errors import MobileprepError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import NEXT_ITERATIONS
from mobileprep.ir.refs import edge, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.runtime.accounting.costs import GraphCosts, executed_costs, inferred_costs
from mobileprep.runtime.accounting.tensor_memory import Recorder, TensorLayout
from mobileprep.runtime.engines.numpy_engine import NumpyEngine
from mobileprep.runtime.planner import in_line, runs_functions
from mobileprep.runtime.sampling.inputs import FedTensor

_MOST_ELEMENTS: Final = 1 << 28
"""Of an input that is only fed to learn shapes."""


def sample_costs(graph: Graph, inputs: Sequence[FedTensor], fetches: Sequence[str]) -> GraphCosts:
    """What one run costs with one sample; with as many as the graph insists on.

    A graph with loops or functions is run, on zeros; where that fails and all sizes are known,
    loops count once, and functions are among ``uncounted``.

    Args:
        graph: the graph.
        inputs: what is fed.
        fetches: the tensors wanted.

    Raises:
        UsageError: the size of an input, or of a tensor on the way, is not known.
        InvalidGraphError: a missing input, or a cycle.
    """
    shapes = {fed.name: _one_sample(fed) for fed in inputs}
    costs = inferred_costs(graph, fetches, shapes)
    if not costs.unknown and not _runs_others(graph, costs):
        return costs
    try:
        feeds = {fed.name: _zeros(fed, shapes[fed.name]) for fed in inputs}
        return run_costs(graph, feeds, fetches)
    except MobileprepError as error:
        if not costs.unknown:
            return costs
        names = ", ".join(repr(name) for name in costs.unknown[:3])
        message = f"the sizes of {len(costs.unknown)} tensors are not known, such as of {names}"
        first = inputs[0].name if inputs else "INPUT"
        hint = (
            f"declare the whole shape of the inputs, such as 'inputs: {{{first}: {{shape: "
            f"[1, 224, 224, 3]}}}}'; a run on zeros does not tell them: {error.message}"
        )
        raise UsageError(message, hint) from error


def run_costs(
    graph: Graph,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    where: str = "graph",
    *,
    seed: int | None = None,
) -> GraphCosts:
    """The costs by the shapes that a run of the interpreter shows.

    Args:
        graph: the graph.
        feeds: arrays by tensor name.
        fetches: the tensors wanted.
        where: what the graph is called, for messages.
        seed: for random numbers that the graph draws.

    Raises:
        UnsupportedError, InvalidGraphError, UsageError: as the interpreter's.
    """
    recorder = Recorder()
    NumpyEngine(graph, where, combine=False, observer=recorder, seed=seed).run(fetches, feeds)
    given = {parse_ref(n): TensorLayout.of(a) for n, a in feeds.items()}
    wanted = [parse_ref(n) for n in fetches]
    # What ran was in line, and so are the constants that it took.
    ran_graph = in_line(graph, wanted, list(given), where)
    layouts = {edge(r): layout for r, layout in given.items()}
    return executed_costs(ran_graph, recorder.ran, layouts, [edge(r) for r in wanted])


def _runs_others(graph: Graph, costs: GraphCosts) -> bool:
    """Whether some of what runs has others run, in functions or once more in a loop."""
    ran = (graph[cost.name] for cost in costs.nodes)
    return any(n.op in NEXT_ITERATIONS or runs_functions(n, graph) for n in ran)


def _one_sample(fed: FedTensor) -> tuple[int, ...]:
    """The shape of an input that holds one sample."""
    shape = fed.shape
    if shape is not None and shape[:1] == (-1,):
        shape = (1, *shape[1:])
    if shape is None or min(shape, default=0) < 0:
        known = "a shape" if fed.shape is None else f"all sizes of {list(fed.shape)}"
        message = f"what one sample costs is not known without {known} of the input {fed.name!r}"
        hint = f"declare it: 'inputs: {{{fed.name}: {{shape: [1, 224, 224, 3]}}}}'"
        raise UsageError(message, hint)
    return shape


def _zeros(fed: FedTensor, shape: tuple[int, ...]) -> Array:
    if math.prod(shape) > _MOST_ELEMENTS:
        message = f"the input {fed.name!r} of shape {list(shape)} is too large to run"
        raise UsageError(message, "give it the size of one sample")
    if fed.dtype is DType.STRING:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, fed.dtype.base.numpy)
