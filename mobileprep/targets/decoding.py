"""Cut a CTC decoder off the end of a graph, so that the code of an app decodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import dependents, nodes_of, without_newly_unused
from mobileprep.graph.refs import parse_ref
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.targets.integration.ctc import Decoding

GREEDY: Final = "CTCGreedyDecoder"
BEAM_SEARCH: Final = "CTCBeamSearchDecoder"
# Ops between a decoder and the outputs, which only change how sequences are stored.
_FORMS: Final = frozenset(
    {"Identity", "StopGradient", "Cast", "SparseToDense", "Neg"}
    | {"Pack", "Unpack", "ExpandDims", "Squeeze"}
)


class Tail(Struct, frozen=True):
    """A decoder at the end of a graph.

    Args:
        decoding: its meaning.
        node: its name.
        outputs: the outputs without it: logits, lengths, and those that do not depend on it.
    """

    decoding: Decoding
    node: str
    outputs: tuple[str, ...]


class NoTailError(Exception):
    """The reason why a graph has no decoder to cut, one sentence."""


def find_tail(graph: Graph, outputs: Sequence[str]) -> Tail:
    """Return the decoder of a graph.

    Raises:
        NoTailError: the graph has none or several decoders, or computes more than another form of
            the sequences from its results.
    """
    decoders = [node for node in graph if node.op in (GREEDY, BEAM_SEARCH)]
    if len(decoders) != 1:
        message = f"the graph has {len(decoders) or 'no'} CTC decoders, not one"
        raise NoTailError(message)
    (node,) = decoders
    decoded = dependents(graph, [node.name], through_control=False)
    ends = [name for name in outputs if parse_ref(name).node in decoded]
    if not ends:
        message = f"no output needs {node.name!r}"
        raise NoTailError(message)
    for name in sorted(decoded - {node.name}):
        if graph[name].op not in _FORMS:
            message = f"{name!r} ({graph[name].op}) computes more from the decoded sequences"
            raise NoTailError(message)
    decoding = _decoding(graph, node)
    kept = (name for name in outputs if name not in ends)
    named = filter(None, (decoding.logits, decoding.lengths, *kept))
    return Tail(decoding, node.name, tuple(dict.fromkeys(named)))


def _decoding(graph: Graph, node: Node) -> Decoding:
    if len(node.data_inputs) != 2:
        message = f"{node.name!r} has {len(node.data_inputs)} inputs, not logits and lengths"
        raise NoTailError(message)
    logits, lengths = (source_behind(graph, ref) for ref in node.data_inputs)
    if tensor_dtype(graph, logits) not in (None, DType.FLOAT):
        message = f"the logits of {node.name!r} are not float32"
        raise NoTailError(message)
    fixed = StaticValues(graph.by_name, lambda _ref: None).value(lengths)
    is_computed = fixed is None and graph[lengths.node].op not in PLACEHOLDERS
    is_greedy = node.op == GREEDY
    return Decoding(
        logits=str(logits),
        method="greedy" if is_greedy else "beam search",
        merge_repeated=node.attr_bool("merge_repeated", not is_greedy),
        blank=node.attr_int("blank_index", -1) if is_greedy else -1,
        beam_width=1 if is_greedy else node.attr_int("beam_width"),
        top_paths=1 if is_greedy else node.attr_int("top_paths"),
        lengths=str(lengths) if is_computed else "",
        fixed_lengths=() if fixed is None else tuple(int(size) for size in fixed.reshape(-1)),
    )


def without_tail(graph: Graph, tail: Tail, retained: Sequence[str]) -> Graph:
    """Remove the decoder, the nodes that depend on it, and those that only it needs.

    Args:
        retained: names of nodes to keep besides the new outputs.
    """
    decoded = dependents(graph, [tail.node])
    kept = [_without_controls(node, decoded) for node in graph if node.name not in decoded]
    return without_newly_unused(graph, graph.with_nodes(kept), nodes_of((*tail.outputs, *retained)))


def _without_controls(node: Node, removed: set[str]) -> Node:
    inputs = tuple(ref for ref in node.inputs if ref.node not in removed)
    return node if inputs == node.inputs else node.with_inputs(inputs)
