"""What the report page tells of a graph as a whole, left by the stage that leaves the graph.

So it is found out once for all targets, and while the graph is in memory: it comes before the graph
is left, which lies in files then, whose pages count as memory anew once they are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from mobileprep.building.stages.compress import FRAME, compressed_size
from mobileprep.core.files import write_bytes
from mobileprep.core.parallel import at_once
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_pieces, pieces_size, raw_chunks
from mobileprep.graph.tensor import Tensor
from mobileprep.inspection.node_table import StepChanges, left_out, step_changes

_AT_ONCE: Final = 4 << 20
# Of large constants so much is compressed of each so much: weights differ little along them, and
# to compress all of every step's would take longer than the steps.
_SAMPLE: Final = 64 << 10
_SAMPLED: Final = 512 << 10
# The compressed sizes of large constants by digest: graphs have most in common.
_sizes: dict[str, int] = {}
_MOST_SIZES: Final = 10_000


def write_graph_page(path: Path, graph: Graph, before: Graph | None = None) -> None:
    """Write a graph's compressed size and the nodes that a step changed, for the report page."""
    found: dict[str, Callable[[], Any]] = {"compressed": lambda: compressed_graph(graph)}
    if before is not None:
        found["step"] = lambda: _changes(before, graph)
    data = dict(zip(found, at_once(lambda find: find(), list(found.values())), strict=True))
    text = json.dumps(data, default=structs.asdict, separators=(",", ":"), allow_nan=False)
    write_bytes(path, text.encode())


def compressed_graph(graph: Graph) -> int:
    """The bytes of a graph's file under deflate.

    Of large graphs each large constant is compressed on its own, once for all graphs, and of it an
    eighth, in runs at equal distances.
    """
    pieces = list(graph_to_pieces(graph))
    if pieces_size(pieces) <= _AT_ONCE:
        return compressed_size(raw_chunks(pieces))
    rest = [piece for piece in pieces if not isinstance(piece, Tensor)]
    tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
    sizes = at_once(_compressed_tensor, tensors)
    return compressed_size(rest) + sum(sizes)


def _changes(before: Graph, after: Graph) -> StepChanges:
    if left_out(before) or left_out(after):
        return StepChanges((), (), 0)
    return step_changes(before, after)


def _compressed_tensor(tensor: Tensor) -> int:
    key = tensor.digest()
    if key not in _sizes:
        raw = memoryview(tensor.raw())
        runs = [raw[at : at + _SAMPLE] for at in range(0, len(raw), _SAMPLED)]
        looked_at = sum(map(len, runs))
        size = compressed_size(runs) - FRAME
        if len(_sizes) >= _MOST_SIZES:
            _sizes.clear()
        _sizes[key] = size * len(raw) // max(looked_at, 1)
    return _sizes[key]
