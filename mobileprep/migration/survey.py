"""A graph's ways to all runtimes."""

from __future__ import annotations

from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.serde import serialized_size
from mobileprep.migration.heads import advice
from mobileprep.migration.lite import lite_route
from mobileprep.migration.mobile import mobile_route, stripped
from mobileprep.migration.records import Migration
from mobileprep.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.transforms.base import Context


def surveyed(
    graph: Graph,
    context: Context,
    platform: str,
    release: str = DEFAULT_RELEASE,
    *,
    is_part: bool = False,
) -> Migration:
    """Whether a graph runs on each runtime, and what to change where it does not.

    Args:
        graph: a frozen graph.
        context: its inputs and outputs.
        platform: a name of ``packaging.targets.PLATFORMS``.
        release: the TensorFlow release of the app.
        is_part: whether only the part between inputs and outputs is meant, rather than the graph as
            the app loads it.

    Raises:
        UnsupportedError: an unknown platform; or flatbuffers is not installed.
        UsageError: a name is not in the graph, or a placeholder that is needed is no input.
        TransformError: an output is not there.
        InvalidGraphError: the graph is malformed.
    """
    given, outputs = (
        tuple(str(parse_ref(name)) for name in names) for names in (context.inputs, context.outputs)
    )
    ends = stripped(graph, Context(given, outputs))
    inputs = tuple(name for name in given if parse_ref(name).node in ends)
    whole = serialized_size(ends)
    fed = Context(inputs, outputs)
    if is_part:
        graph = ends
    return Migration(
        inputs,
        outputs,
        len(ends.nodes),
        whole,
        (
            mobile_route(graph, fed, platform, selective=False, release=release),
            mobile_route(graph, fed, platform, selective=True, release=release),
            lite_route(graph, fed, whole),
        ),
        tuple(advice(ends)),
    )
