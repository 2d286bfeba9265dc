"""A graph with something to do for each transform, and options for it.

Most find it in the busy graph. A transform that does not, or that has options which must be given,
has ``EXAMPLE_NODES`` and ``EXAMPLE_OPTIONS`` in its own test module; if these nodes have inputs and
outputs of their own, also ``EXAMPLE_INPUTS`` and ``EXAMPLE_OUTPUTS``.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, NamedTuple

from mobileprep.graph.graph import Graph
from tests.transforms.busy import INPUTS, OPTIONS, OUTPUTS, busy_graph


class Example(NamedTuple):
    """A graph, the options of a step, and the graph's inputs and outputs."""

    graph: Graph
    options: dict[str, Any]
    inputs: tuple[str, ...] = INPUTS
    outputs: tuple[str, ...] = OUTPUTS


@cache
def example(name: str) -> Example:
    """What a transform can be shown on."""
    module = importlib.import_module(f"tests.transforms.test_{name}")
    graph = busy_graph()
    more = getattr(module, "EXAMPLE_NODES", ())
    options = getattr(module, "EXAMPLE_OPTIONS", OPTIONS.get(name, {}))
    inputs = (*INPUTS, *getattr(module, "EXAMPLE_INPUTS", ()))
    outputs = (*OUTPUTS, *getattr(module, "EXAMPLE_OUTPUTS", ()))
    whole = graph.with_nodes([*graph.nodes, *more]) if more else graph
    return Example(whole, options, inputs, outputs)
