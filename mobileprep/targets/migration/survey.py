"""Migration of a graph to all runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.errors import TransformError, UsageError
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.freezing.loading import ModelOptions, computed_ends, load_model
from mobileprep.graph.files import check_holds_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.graph.reachability import placeholders
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.refusals import InexpressibleError, Refusal
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets
from mobileprep.targets.migration.heads import (
    advice,
    fed_instead,
    heads,
    mobile_route,
    still_needed,
    stripped,
)
from mobileprep.targets.migration.records import Lack, Migration, Route, RouteSize
from mobileprep.transforms.base import Context, make_transform


def surveyed(
    graph: Graph,
    context: Context,
    platform: str,
    release: str = DEFAULT_RELEASE,
    *,
    is_part: bool = False,
) -> Migration:
    """Determine whether each runtime can run a graph, and the required changes.

    Args:
        is_part: whether to try only the part between inputs and outputs, instead of the graph as
            the app loads it.
    """
    named, outputs = (
        tuple(str(parse_ref(name)) for name in names) for names in (context.inputs, context.outputs)
    )
    ends = stripped(graph, Context(named, outputs))
    inputs = tuple(name for name in named if parse_ref(name).node in ends)
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


_DROPOUT: Final = "remove_dropout"
_FORMS: Final[tuple[Mode, ...]] = ("float", "float16", "weights")


class _Trial(Struct, frozen=True):
    """Result of a conversion: a model, or the reasons for its failure."""

    model: ModelRecord | None
    refusals: tuple[Refusal, ...] = ()


def lite_route(graph: Graph, context: Context, whole: int) -> Route:
    """Determine whether LiteRT can run a graph, without or with changes.

    Args:
        whole: size of the pruned graph in bytes.
    """
    route = Route("LiteRT", "as it is", inputs=context.inputs)
    first = _try_convert(graph, context)
    if first.model is not None:
        return _add_sizes(route, first.model, graph, context, whole)
    changed, fed, transforms = _change(graph, context, first.refusals)
    second = _try_convert(changed, fed)
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
    return _add_sizes(route, second.model, changed, fed, whole)


def _try_convert(graph: Graph, context: Context) -> _Trial:
    try:
        return _Trial(_model(graph, context, "float"))
    except InexpressibleError as error:
        return _Trial(None, error.refusals)


def _model(graph: Graph, context: Context, mode: Mode) -> ModelRecord:
    inputs = [CutInput(name) for name in context.inputs]
    return converted(graph, inputs, context.outputs, mode=mode)


def _change(
    graph: Graph, context: Context, refusals: Sequence[Refusal]
) -> tuple[Graph, Context, tuple[str, ...]]:
    """Remove dropout, and replace the parts that belong in the app with inputs."""
    transforms: tuple[str, ...] = ()
    if any("Random" in refusal.op for refusal in refusals):
        graph = make_transform(_DROPOUT, {}).apply(graph, context).graph
        transforms = (_DROPOUT,)
    names = heads(graph)
    inputs = still_needed(graph, context.inputs, names)
    fed = (*inputs, *fed_instead(graph, names))
    return graph, Context(tuple(dict.fromkeys(fed)), context.outputs), transforms


def _lacks(refusals: Sequence[Refusal]) -> list[Lack]:
    """Combine refusals with the same op, reason, and fix, in graph order."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for refusal in refusals:
        key = (refusal.op, refusal.reason, refusal.mend)
        groups.setdefault(key, []).append(refusal.node)
    return [
        Lack(op, nodes[0], len(nodes), reason, hint) for (op, reason, hint), nodes in groups.items()
    ]


def _add_sizes(
    route: Route, model: ModelRecord, graph: Graph, context: Context, whole: int
) -> Route:
    """Add the operators and the file sizes to a route."""
    sizes = []
    for mode in _FORMS:
        stored = model if mode == "float" else _model(graph, context, mode)
        size = len(model_bytes(stored, "the model"))
        sizes.append(RouteSize(mode, size, round(size / max(whole, 1), 4)))
    codes = [op.code for part in model.subgraphs for op in part.operators]
    kinds = {(code.builtin, code.custom) for code in codes}
    return replace(route, operators=len(codes), kinds=len(kinds), sizes=tuple(sizes))


class MigrationResult(Migration, frozen=True):
    """Migration of a model to all runtimes.

    Args:
        graph: path of the model.
        platform: platform of TensorFlow Mobile.
    """

    graph: str
    platform: str


def migrate(
    path: FilePath,
    platform: str = "android",
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tensorflow: str = DEFAULT_RELEASE,
    warn: Warn | None = None,
) -> MigrationResult:
    """Determine which runtimes can run a model.

    TensorFlow Mobile is checked against tables of its ops, and LiteRT by converting the model.

    Args:
        path: the path of any model that ``freeze`` accepts.
        platform: the platform that TensorFlow Mobile is built for, such as ``android``.
        inputs: input tensors, at which the model is cut off; by default the placeholders that
            have consumers.
        outputs: output tensors; by default the outputs of the signature, or the tensors without
            consumers.
        tensorflow: the release of TensorFlow Mobile, such as ``1.15``.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: a name is not in the graph, or the file is a ``.tflite`` file already.
        CorruptFileError: the file is missing or damaged.
        InvalidGraphError: the graph is malformed.
        UnsupportedError: the model cannot be frozen, or the release is unknown.
    """
    path, inputs, outputs = Path(path), names_of(inputs), names_of(outputs)
    model = load_model(path, ModelOptions(outputs), warn or as_warning)
    check_holds_nodes(model.graph, str(path))
    if is_tflite_graph(model.graph):
        message = "the file is for LiteRT already"
        raise UsageError(message, "see 'mobileprep summarize'", str(path))
    graph = with_found_assets(model.graph, folders_near(model.path))
    fetched = model.tensors(outputs) or model.outputs or computed_ends(graph)
    fed = tuple(map(model.tensor, inputs)) or tuple(placeholders(graph))
    try:
        result = surveyed(graph, Context(fed, fetched), platform, tensorflow, is_part=bool(inputs))
    except TransformError as error:
        raise UsageError(error.message, error.hint, str(path)) from error
    return MigrationResult(**asdict(result), graph=str(path), platform=platform)
