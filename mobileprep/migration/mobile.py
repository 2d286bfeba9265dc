"""The way to TensorFlow Mobile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import TransformError
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import serialized_size
from mobileprep.migration.heads import fed_instead, still_needed
from mobileprep.migration.records import Lack, Route, RouteSize
from mobileprep.opdefs.definitions import DEFAULT_RELEASE, TF115
from mobileprep.packaging.kernel_code import kernel_bytes
from mobileprep.packaging.selective_registration import ops_and_kernels
from mobileprep.packaging.target_check import TargetGap, target_gaps
from mobileprep.transforms.base import Context, make_transform

_STRIP: Final = "strip_unused_nodes"
# What each of the forms is made by.
_FORMS: Final[Mapping[str, tuple[str, Mapping[str, object]] | None]] = {
    "float": None,
    "float16": ("cast_weights", {"type": "float16"}),
    "weights": ("quantize_weights", {}),
}


def stripped(graph: Graph, context: Context) -> Graph:
    """What a graph's outputs need, from its inputs on.

    Raises:
        TransformError: an output is not there, or several outputs of a fed node are used.
    """
    return make_transform(_STRIP, {}).apply(graph, context).graph


def mobile_route(
    graph: Graph,
    context: Context,
    platform: str,
    *,
    selective: bool,
    release: str = DEFAULT_RELEASE,
) -> Route:
    """Find out whether TensorFlow Mobile loads and runs a graph, as it is or after changes.

    Args:
        graph: as the app would load it.
        context: its inputs and outputs.
        platform: a name of ``packaging.targets.PLATFORMS``.
        selective: whether the app builds with the registration header and its build files.
        release: the TensorFlow release.

    Raises:
        UnsupportedError: an unknown platform.
    """
    gaps = target_gaps(graph, release, platform, selective=selective)
    route = Route(
        f"TensorFlow Mobile {release}{', selective' if selective else ''}",
        "as it is",
        inputs=context.inputs,
    )
    if not gaps:
        return _loaded(route, graph, context, release)
    changed, fed, transforms = _changed(graph, context, gaps, release)
    left = target_gaps(changed, release, platform, selective=selective)
    route = replace(
        route,
        verdict="no" if left else "after changes",
        lacks=tuple(_lacks(gaps)),
        left=tuple(_lacks(left)),
        inputs=fed.inputs,
        transforms=transforms,
    )
    return route if left else _loaded(route, changed, fed, release)


def _changed(
    graph: Graph, context: Context, gaps: Sequence[TargetGap], release: str
) -> tuple[Graph, Context, tuple[str, ...]]:
    """The graph without what the outputs need not, and decoders of pictures, then downgraded."""
    pictures = {gap.op for gap in gaps if gap.cause == "image library"}
    decoders = {node.name for node in graph if node.op in pictures}
    if decoders:
        kept = still_needed(graph, context.inputs, decoders)
        context = Context((*kept, *fed_instead(graph, decoders)), context.outputs)
    done = stripped(graph, context)
    is_newer = any(gap.cause.startswith("newer") for gap in gaps)
    if release != TF115 or not is_newer:
        return done, context, (_STRIP,)
    older = make_transform("downgrade", {}).apply(done, context).graph
    return older, context, (_STRIP, "downgrade")


def _lacks(gaps: Sequence[TargetGap]) -> Iterator[Lack]:
    for gap in gaps:
        yield Lack(gap.op, gap.node, gap.count, gap.message, gap.mend)


def _loaded(route: Route, graph: Graph, context: Context, release: str) -> Route:
    """A route with its sizes, and what the runtime has to have."""
    listed = ops_and_kernels([graph], release, functions=True, warn=lambda _: None)
    kernels = {pair for pair in listed if pair.kernel is not None}
    whole = serialized_size(graph)
    return replace(
        route,
        operators=len(graph.nodes),
        kinds=len(kernels),
        code_bytes=kernel_bytes(kernels, release),
        sizes=tuple(_sizes(graph, context, whole)),
    )


def _sizes(graph: Graph, context: Context, whole: int) -> Iterator[RouteSize]:
    for form, step in _FORMS.items():
        # A form that a graph cannot have is left out.
        with contextlib.suppress(TransformError):
            stored = graph
            if step is not None:
                stored = make_transform(step[0], dict(step[1])).apply(graph, context).graph
            size = serialized_size(stored)
            yield RouteSize(form, size, round(size / max(whole, 1), 4))
