"""Convert a graph to the bytes of a float .tflite file for LiteRT's interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.selection import needed_nodes


def tflite_in_memory(
    graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str
) -> bytes:
    """Convert the part of a graph between feeds and fetches; see ``agreement.Convert``.

    Raises:
        UnsupportedError: LiteRT cannot express an op, or the graph has quantized ops.
    """
    # Slow to import, and few runs use LiteRT.
    from mobileprep.formats.tflite.writer import model_bytes
    from mobileprep.litert.convert import converted
    from mobileprep.litert.prepare import CutInput

    _check_no_quantized_ops(graph, feeds, fetches, where)
    inputs = [CutInput(name, array.shape) for name, array in feeds.items()]
    return bytes(model_bytes(converted(graph, inputs, fetches, where=where), where))


def _check_no_quantized_ops(
    graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str
) -> None:
    """Reject quantized ops, which would become float ops with different results."""
    from mobileprep.litert.dequantize import QUANTIZED
    from mobileprep.litert.refusals import Refusal, refused

    fed = {edge(parse_ref(name)) for name in feeds}
    nodes = needed_nodes(graph, [parse_ref(name) for name in fetches], fed, where)
    reason = "a float .tflite file does not compute what quantized ops compute"
    hint = "run the graph with another engine"
    quantized = [node for node in nodes if node.op in QUANTIZED]
    if quantized:
        raise refused([Refusal(n.name, n.op, reason, hint) for n in quantized], where)
