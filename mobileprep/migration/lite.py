"""The way to LiteRT: a trial conversion, and another after what belongs into the app is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.refusals import InexpressibleError, Refusal
from mobileprep.migration.heads import fed_instead, heads, still_needed
from mobileprep.migration.records import Lack, Route, RouteSize
from mobileprep.transforms.base import Context, make_transform

_DROPOUT: Final = "remove_dropout"
_FORMS: Final[tuple[Mode, ...]] = ("float", "float16", "weights")


@dataclass(frozen=True)
class _Trial:
    """What a conversion came to: a model, or what stood in its way."""

    model: ModelRecord | None
    refusals: tuple[Refusal, ...] = ()


def lite_route(graph: Graph, context: Context, whole: int) -> Route:
    """Whether LiteRT runs a graph, as it is or after changes.

    Args:
        graph: a frozen graph.
        context: its inputs and outputs.
        whole: the bytes of the graph between them.

    Raises:
        UnsupportedError: flatbuffers is not installed.
        InvalidGraphError: the graph is malformed.
    """
    route = Route("LiteRT", "as it is", inputs=context.inputs)
    first = _tried(graph, context)
    if first.model is not None:
        return _converted(route, first.model, graph, context, whole)
    changed, fed, transforms = _changed(graph, context, first.refusals)
    second = _tried(changed, fed)
    route = replace(
        route,
        verdict="no" if second.model is None else "after changes",
        lacks=tuple(_lacks(first.refusals)),
        left=tuple(_lacks(second.refusals)),
        inputs=fed.inputs,
        transforms=transforms,
    )
    if second.model is None:
        return route
    return _converted(route, second.model, changed, fed, whole)


def _tried(graph: Graph, context: Context) -> _Trial:
    try:
        return _Trial(_model(graph, context, "float"))
    except InexpressibleError as error:
        return _Trial(None, error.refusals)


def _model(graph: Graph, context: Context, mode: Mode) -> ModelRecord:
    inputs = [CutInput(name) for name in context.inputs]
    return converted(graph, inputs, context.outputs, mode=mode)


def _changed(
    graph: Graph, context: Context, refusals: Sequence[Refusal]
) -> tuple[Graph, Context, tuple[str, ...]]:
    """The graph without dropout, and fed behind what belongs into the app."""
    transforms: tuple[str, ...] = ()
    if any("Random" in refusal.op for refusal in refusals):
        graph = make_transform(_DROPOUT, {}).apply(graph, context).graph
        transforms = (_DROPOUT,)
    names = heads(graph)
    kept = still_needed(graph, context.inputs, names)
    fed = (*kept, *fed_instead(graph, names))
    return graph, Context(tuple(dict.fromkeys(fed)), context.outputs), transforms


def _lacks(refusals: Sequence[Refusal]) -> list[Lack]:
    """Refusals for one reason as one, in the graph's order."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for refusal in refusals:
        key = (refusal.op, refusal.reason, refusal.mend)
        alike.setdefault(key, []).append(refusal.node)
    return [
        Lack(op, nodes[0], len(nodes), reason, mend) for (op, reason, mend), nodes in alike.items()
    ]


def _converted(
    route: Route, model: ModelRecord, graph: Graph, context: Context, whole: int
) -> Route:
    """A route with its operators and the sizes of its files."""
    sizes = []
    for mode in _FORMS:
        stored = model if mode == "float" else _model(graph, context, mode)
        size = len(model_bytes(stored, "the model"))
        sizes.append(RouteSize(mode, size, round(size / max(whole, 1), 4)))
    codes = [op.code for part in model.subgraphs for op in part.operators]
    kinds = {(code.builtin, code.custom) for code in codes}
    return replace(route, operators=len(codes), kinds=len(kinds), sizes=tuple(sizes))
