"""What of a graph belongs into the app: decoders, texts and queues, and what to feed instead."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.dropout import masked
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FEEDABLE, PLACEHOLDERS
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.verify import execution_order
from mobileprep.migration.records import Advice, Kind
from mobileprep.opdefs.signatures import tensor_dtype
from mobileprep.runtime.sampling.inputs import known_shapes

_KINDS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("sounds", re.compile(r"DecodeWav|EncodeWav")),
    (
        "pictures",
        re.compile(r"(Decode|Encode)(AndCrop)?(Jpeg|Png|Gif|Bmp|Image)\w*|ExtractJpegShape"),
    ),
    ("queues", re.compile(r"\w*(Queue|Reader|Iterator|Dataset|Barrier)\w*|ReadFile|Batch|Unbatch")),
    ("texts", re.compile(r"(Parse|String|Regex|Decode|Lookup|HashTable|AsString|Substr)\w*")),
    ("variables", re.compile(r"Variable(V2)?|VarHandleOp|ReadVariableOp|AutoReloadVariable")),
)
_TEXTS: Final[dict[Kind, str]] = {
    "pictures": "decode pictures in the app, and feed the pixels",
    "sounds": "read sounds in the app, and feed the samples",
    "texts": "take texts and records apart in the app, and feed numbers",
    "queues": "feed the batch itself: queues and readers are for training",
    "variables": "freeze the graph with its checkpoint",
}
_DROPOUT: Final = "remove_dropout takes dropout off, which is for training alone"
_SHAPES: Final = (
    "give the input's shape, by --input_shapes of mobileprep tflite or under inputs in a recipe: "
    "what follows from sizes becomes constants"
)
_FED: Final = frozenset({"pictures", "sounds", "texts", "queues"})
_NO_NUMBERS: Final = frozenset({DType.STRING, DType.RESOURCE, DType.VARIANT})


def kind_of_head(op: str) -> Kind | None:
    """What an op is about that belongs into the app or to training; None for any other."""
    return next((kind for kind, ops in _KINDS if ops.fullmatch(op)), None)


def advice(graph: Graph) -> Iterator[Advice]:
    """What of a graph to cut off or to feed instead, a piece for each kind.

    Args:
        graph: a frozen graph, cut between inputs and outputs.
    """
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
    """The nodes that belong into the app."""
    return frozenset(node.name for node in graph if kind_of_head(node.op) in _FED)


def fed_instead(graph: Graph, names: Collection[str]) -> tuple[str, ...]:
    """The tensors of numbers to feed so that some nodes, and all texts, need not run.

    Args:
        graph: the graph.
        names: nodes that are not to run.
    """
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
    """Those of some inputs that are not before the nodes named, and are read."""
    before = _with_texts(graph, names)
    readers = {ref.node for node in graph if node.name not in before for ref in node.data_inputs}
    return tuple(n for n in inputs if parse_ref(n).node in readers - before)


def _with_texts(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Nodes, placeholders of texts, and all that take texts from either."""
    before: set[str] = set(names)
    for node in execution_order(graph, ""):
        is_text = node.op in PLACEHOLDERS and node.attr_dtype("dtype") in _NO_NUMBERS
        taken = (r for r in node.data_inputs if r.node in before)
        if is_text or any(tensor_dtype(graph, ref) in _NO_NUMBERS for ref in taken):
            before.add(node.name)
    return frozenset(before)
