"""The nodes stage: what the report page tells of a target's graphs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Final

from mobileprep.formats.range_file import ranges_from_bytes
from mobileprep.fsio import write_bytes
from mobileprep.inspection.node_table import node_table, too_large
from mobileprep.inspection.step_changes import StepChanges, step_changes
from mobileprep.inspection.weights import weight_spreads
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_to_pieces, raw_chunks, serialized_size
from mobileprep.ir.tensor import Tensor
from mobileprep.plan.stages import NodesStage
from mobileprep.stages.base import Job, stage
from mobileprep.stages.compress import FRAME, compressed_size

_AT_ONCE: Final = 4 << 20
# Of large constants so much is compressed of each so much: weights differ little along them, and
# to compress all of every step's would take longer than the steps.
_SAMPLE: Final = 64 << 10
_SAMPLED: Final = 512 << 10


@stage(NodesStage)
def run(job: Job[NodesStage]) -> None:
    """Leaves ``nodes.json``."""
    asked = job.asked
    graphs = [job.graph(upstream) for upstream in asked.graphs]
    feeds = {fed.name: fed.shape for fed in asked.inputs if fed.shape is not None}
    sizes = _Sizes(asked.level)
    data = {
        "graphs": [
            {
                **dataclasses.asdict(node_table(graph, feeds)),
                "weights": [dataclasses.asdict(spread) for spread in weight_spreads(graph)],
            }
            for graph in (graphs[0], graphs[-1])
        ],
        "steps": [
            {"name": name, **dataclasses.asdict(_changes(before, after))}
            for name, before, after in zip(asked.steps, graphs, graphs[1:], strict=False)
        ],
        "compressed": [sizes.compressed(graph) for graph in graphs],
        "ranges": list(_ranges(job)),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    write_bytes(job.output(asked.LEFT), text.encode())


def _changes(before: Graph, after: Graph) -> StepChanges:
    if too_large(before) or too_large(after):
        return StepChanges((), (), 0)
    return step_changes(before, after)


def _ranges(job: Job[NodesStage]) -> Iterator[list[Any]]:
    """The values that tensors took when they were measured: name, least and greatest."""
    for upstream in job.asked.ranges:
        found = ranges_from_bytes(b"".join(job.data(upstream)), upstream.task)
        for name, values in found.tensors.items():
            yield [name, values.low, values.high]


class _Sizes:
    """Compressed sizes of graphs that have most of their constants in common."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._known: dict[str, int] = {}

    def compressed(self, graph: Graph) -> int:
        """The bytes of a graph's file under deflate.

        Of large graphs each large constant is compressed on its own, once for all graphs, and
        of it an eighth, in runs at equal distances.
        """
        pieces = list(graph_to_pieces(graph))
        if serialized_size(graph) <= _AT_ONCE:
            return compressed_size(raw_chunks(pieces), self._level)
        rest = [piece for piece in pieces if not isinstance(piece, Tensor)]
        tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
        return compressed_size(rest, self._level) + sum(map(self._tensor, tensors))

    def _tensor(self, tensor: Tensor) -> int:
        digest = tensor.digest()
        if digest not in self._known:
            raw = memoryview(tensor.raw())
            runs = [raw[at : at + _SAMPLE] for at in range(0, len(raw), _SAMPLED)]
            looked_at = sum(map(len, runs))
            size = compressed_size(runs, self._level) - FRAME
            self._known[digest] = size * len(raw) // max(looked_at, 1)
        return self._known[digest]
