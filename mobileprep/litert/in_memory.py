"""A graph as the bytes of a float .tflite file, for LiteRT's interpreter to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array


def tflite_in_memory(
    graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str
) -> bytes:
    """Convert the part of a graph between feeds and fetches; see ``agreement.Convert``."""
    # Slow to import, and few runs use LiteRT.
    from mobileprep.formats.tflite.writer import model_bytes
    from mobileprep.litert.convert import converted
    from mobileprep.litert.prepare import CutInput

    inputs = [CutInput(name, array.shape) for name, array in feeds.items()]
    return bytes(model_bytes(converted(graph, inputs, fetches, where=where), where))
