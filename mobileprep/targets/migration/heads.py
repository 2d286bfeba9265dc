"""Find parts of a graph that belong in the app, such as decoders, and inputs to replace them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.dropout import masked
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FEEDABLE, PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, TF115, tensor_dtype
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.verify import execution_order
from mobileprep.runtime.sampling.inputs import known_shapes
from mobileprep.targets.migration.records import Advice, Kind, Lack, Route, RouteSize
from mobileprep.targets.selective_registration import kernel_bytes, ops_and_kernels
from mobileprep.targets.target_check import TargetGap, target_gaps
from mobileprep.transforms.base import Context, make_transform

_KINDS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("audio", re.compile(r"DecodeWav|EncodeWav")),
    (
        "images",
        re.compile(r"(Decode|Encode)(AndCrop)?(Jpeg|Png|Gif|Bmp|Image)\w*|ExtractJpegShape"),
    ),
    ("queues", re.compile(r"\w*(Queue|Reader|Iterator|Dataset|Barrier)\w*|ReadFile|Batch|Unbatch")),
    ("strings", re.compile(r"(Parse|String|Regex|Decode|Lookup|HashTable|AsString|Substr)\w*")),
    ("variables", re.compile(r"Variable(V2)?|VarHandleOp|ReadVariableOp|AutoReloadVariable")),
)
_TEXTS: Final[dict[Kind, str]] = {
    "images": "decode images in the app, and feed the pixels",
    "audio": "read audio in the app, and feed the samples",
    "strings": "parse strings and records in the app, and feed numbers",
    "queues": "feed the batch itself: queues and readers are for training",
    "variables": "freeze the graph with its checkpoint",
}
_DROPOUT: Final = "remove_dropout takes dropout off, which is for training alone"
_SHAPES: Final = (
    "set the input's shape, with --input_shapes of mobileprep tflite or under inputs in a recipe,"
    " so that sizes become constants"
)
_FED: Final = frozenset({"images", "audio", "strings", "queues"})
_NO_NUMBERS: Final = frozenset({DType.STRING, DType.RESOURCE, DType.VARIANT})


def kind_of_head(op: str) -> Kind | None:
    """Return the kind of an op that belongs in the app or in training; None for any other."""
    return next((kind for kind, ops in _KINDS if ops.fullmatch(op)), None)


def advice(graph: Graph) -> Iterator[Advice]:
    """Yield the parts of a graph to remove or to replace with inputs, one for each kind."""
    named: dict[Kind, list[Node]] = {}
    for node in graph:
        kind = kind_of_head(node.op)
        if kind is not None:
            named.setdefault(kind, []).append(node)
    for kind, nodes in named.items():
        fed = fed_instead(graph, {n.name for n in nodes}) if kind in _FED else ()
        yield Advice(kind, nodes[0].op, nodes[0].name, len(nodes), _TEXTS[kind], fed)
    dropped = [node for node in graph if masked(graph, node) is not None]
    if dropped:
        yield Advice("dropout", dropped[0].op, dropped[0].name, len(dropped), _DROPOUT)
    numbers = (n for n in graph if n.op in FEEDABLE and n.attr_dtype("dtype") not in _NO_NUMBERS)
    placed = [Ref(node.name) for node in numbers]
    shapes = zip(placed, known_shapes(graph, placed), strict=True)
    shapeless = [graph[ref.node] for ref, shape in shapes if shape is None]
    if shapeless:
        yield Advice("shapes", shapeless[0].op, shapeless[0].name, len(shapeless), _SHAPES)


def heads(graph: Graph) -> frozenset[str]:
    """Return the nodes that belong in the app."""
    return frozenset(node.name for node in graph if kind_of_head(node.op) in _FED)


def fed_instead(graph: Graph, names: Collection[str]) -> tuple[str, ...]:
    """Return the numeric tensors to feed instead of some nodes and all string ops."""
    before = _with_texts(graph, names)
    fed = dict.fromkeys(
        str(ref)
        for node in graph
        if node.name not in before
        for ref in node.data_inputs
        if ref.node in before and tensor_dtype(graph, ref) not in _NO_NUMBERS
    )
    return tuple(fed)


def still_needed(graph: Graph, inputs: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """Return the inputs that are still read if some nodes are removed."""
    before = _with_texts(graph, names)
    readers = {ref.node for node in graph if node.name not in before for ref in node.data_inputs}
    return tuple(n for n in inputs if parse_ref(n).node in readers - before)


def _with_texts(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Return the nodes, string placeholders, and all nodes that read strings from either."""
    before: set[str] = set(names)
    for node in execution_order(graph, ""):
        is_text = node.op in PLACEHOLDERS and node.attr_dtype("dtype") in _NO_NUMBERS
        refs = (r for r in node.data_inputs if r.node in before)
        if is_text or any(tensor_dtype(graph, ref) in _NO_NUMBERS for ref in refs):
            before.add(node.name)
    return frozenset(before)


_STRIP: Final = "strip_unused_nodes"
# Transform that creates each form.
_FORMS: Final[Mapping[str, tuple[str, Mapping[str, object]] | None]] = {
    "float": None,
    "float16": ("cast_weights", {"type": "float16"}),
    "weights": ("quantize_weights", {}),
}


def stripped(graph: Graph, context: Context) -> Graph:
    """Prune a graph to the nodes between its inputs and outputs."""
    return make_transform(_STRIP, {}).apply(graph, context).graph


def mobile_route(
    graph: Graph,
    context: Context,
    platform: str,
    *,
    selective: bool,
    release: str = DEFAULT_RELEASE,
) -> Route:
    """Determine whether TensorFlow Mobile can run a graph, without or with changes."""
    gaps = target_gaps(graph, release, platform, selective=selective)
    route = Route(
        f"TensorFlow Mobile {release}{', selective' if selective else ''}",
        "as it is",
        inputs=context.inputs,
    )
    if not gaps:
        return _add_sizes(route, graph, context, release)
    changed, fed, transforms = _change(graph, context, gaps, release)
    remaining = target_gaps(changed, release, platform, selective=selective)
    route = replace(
        route,
        verdict="no" if remaining else "after changes",
        lacks=tuple(_lacks(gaps)),
        left=tuple(_lacks(remaining)),
        inputs=fed.inputs,
        transforms=transforms,
    )
    return route if remaining else _add_sizes(route, changed, fed, release)


def _change(
    graph: Graph, context: Context, gaps: Sequence[TargetGap], release: str
) -> tuple[Graph, Context, tuple[str, ...]]:
    """Prune the graph, remove image decoders, and downgrade it if necessary."""
    images = {gap.op for gap in gaps if gap.cause == "image library"}
    decoders = {node.name for node in graph if node.op in images}
    if decoders:
        inputs = still_needed(graph, context.inputs, decoders)
        context = Context((*inputs, *fed_instead(graph, decoders)), context.outputs)
    done = stripped(graph, context)
    is_newer = any(gap.cause.startswith("newer") for gap in gaps)
    if release != TF115 or not is_newer:
        return done, context, (_STRIP,)
    older = make_transform("downgrade", {}).apply(done, context).graph
    return older, context, (_STRIP, "downgrade")


def _lacks(gaps: Sequence[TargetGap]) -> Iterator[Lack]:
    for gap in gaps:
        yield Lack(gap.op, gap.node, gap.count, gap.message, gap.mend)


def _add_sizes(route: Route, graph: Graph, context: Context, release: str) -> Route:
    """Add the sizes and the required kernels to a route."""
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
        # Skip forms that the graph cannot have.
        with contextlib.suppress(TransformError):
            stored = graph
            if step is not None:
                stored = make_transform(step[0], dict(step[1])).apply(graph, context).graph
            size = serialized_size(stored)
            yield RouteSize(form, size, round(size / max(whole, 1), 4))
