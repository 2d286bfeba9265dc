"""What a stage reads of earlier stages, and the graphs that it leaves, against the store."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mobileprep.core.files import write_bytes
from mobileprep.core.parallel import at_once
from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.formats.parts import Part
from mobileprep.ir.files import check_serialized_size, read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.memmapped import MemmappedModel
from mobileprep.ir.serde import graph_to_pieces, raw_chunks, serialized_size
from mobileprep.ir.stored import (
    file_index,
    graph_from_index,
    graph_index,
    lies_apart,
    tensors_apart,
)
from mobileprep.ir.tensor import Tensor
from mobileprep.pipeline.handover import Handover
from mobileprep.pipeline.output import Output
from mobileprep.pipeline.store import Store
from mobileprep.plan.record_data import misfit
from mobileprep.plan.spec import PUBLISHED, Upstream


class StoreExchange:
    """One run of a stage, see ``stages.base.Exchange``.

    Args:
        task: the task's name.
        store: the store.
        inputs: what earlier stages left.
        handover: the graphs that stages of this run have left.
        folder: the stage's own, for files that have to be put together first.
    """

    def __init__(
        self,
        task: str,
        store: Store,
        inputs: Mapping[Upstream, Output],
        handover: Handover,
        folder: Path,
    ) -> None:
        self._task = task
        self._store = store
        self._inputs = inputs
        self._handover = handover
        self._folder = folder
        self._read: dict[int, tuple[Graph, Output]] = {}
        self.left: dict[str, Output] = {}
        """The graphs that the stage has left, by name."""

    def path(self, upstream: Upstream) -> Path:
        """Where an output lies that is a file."""
        output = self._inputs[upstream]
        if output.index is None and output.text is None:
            return self._store.objects.path(output.sha256)
        path = self._folder / output.sha256
        if not path.exists():
            write_bytes(path, self._store.blocks(output))
        return path

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """An output's bytes, in pieces."""
        return self._store.pieces(self._inputs[upstream])

    def graph(self, upstream: Upstream) -> Graph:
        """A graph that an earlier stage left: as it lies in memory, else from the store."""
        output = self._inputs[upstream]
        graph = self._handover.find(upstream)
        if graph is None:
            try:
                graph = self._stored(upstream, output)
            except CorruptFileError as error:
                raise misfit(upstream) from error
            self._handover.leave(upstream, graph)
        self._read[id(graph)] = graph, output
        return graph

    def offload(self, tensor: Tensor) -> None:
        """Keep a tensor's content in the store already, if that is to be its place.

        Where the store cannot be written, who leaves the graph is told, and not a transform: its
        user may have asked for its failures to be ignored.
        """
        if lies_apart(tensor):
            with contextlib.suppress(MobileprepError):
                self._keep(tensor)

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Leave a graph: below ``files/`` as a file to publish, else for the stages that follow.

        Later stages read a published file from its bytes, not from memory, so that what they
        measure is what ships.
        """
        if name.startswith(PUBLISHED):
            output = self._file(lambda: graph_to_pieces(graph))
            check_serialized_size(output.size, self._task)
            self.left[name] = output
            return output.size
        size = serialized_size(graph)
        known = self._read.get(id(graph))
        output = known[1] if known is not None and _is_graph(known[1]) else self._index(graph)
        self.left[name] = output
        self._handover.leave(Upstream(self._task, name), graph)
        return size

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Leave a memory-mapped model as a file to publish."""
        check_serialized_size(serialized_size(model.graph), self._task)
        output = self.left[name] = self._file(model.pieces)
        return output.size

    def _stored(self, upstream: Upstream, output: Output) -> Graph:
        if not _is_graph(output):
            return read_graph(self.path(upstream))
        objects = self._store.objects
        where = str(objects.path(output.sha256))
        view = objects.view(Part(output.sha256, output.size))
        return graph_from_index(view, objects.view, where)

    def _index(self, graph: Graph) -> Output:
        # The index takes one after another; to hash and write them several at once is faster.
        largest_first = sorted(tensors_apart(graph), key=lambda t: t.nbytes, reverse=True)
        at_once(self._keep, largest_first)
        data = graph_index(graph, self._keep)
        part = self._store.objects.put([data])
        return Output(part.sha256, part.size, part)

    def _file(self, pieces: Callable[[], Iterator[bytes | Tensor]]) -> Output:
        """A file to publish, which is read twice: for its digest, and for its parts."""
        digest, size = hashlib.sha256(), 0
        for chunk in raw_chunks(pieces()):
            digest.update(chunk)
            size += len(chunk)
        index = self._store.objects.put([file_index(pieces(), self._keep)])
        return Output(digest.hexdigest(), size, index)

    def _keep(self, tensor: Tensor) -> Part:
        """Keep a tensor's content; the tensor then lets go of what it has in memory."""
        part = Part(tensor.digest(), tensor.nbytes)
        content = tensor.content if tensor.content is not None else tensor.raw()
        lies = self._store.objects.keep(part, memoryview(content).cast("B"))
        tensor.lying_at(lies, part.sha256)
        return part


def _is_graph(output: Output) -> bool:
    """Whether an output is the index of a graph."""
    return output.index is not None and output.index.sha256 == output.sha256
