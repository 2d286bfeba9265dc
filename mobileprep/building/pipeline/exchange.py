"""Inputs and graph outputs of stages in the cache."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mobileprep.building.pipeline.execute import Handover
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import PUBLISHED, Upstream, misfit
from mobileprep.core.files import write_bytes
from mobileprep.core.parallel import at_once
from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.formats.parts import Part
from mobileprep.graph.files import (
    MemmappedModel,
    check_serialized_size,
    file_index,
    graph_from_index,
    graph_index,
    lies_apart,
    read_graph,
    tensors_apart,
)
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_pieces, raw_chunks, serialized_size
from mobileprep.graph.tensor import Tensor


class StoreExchange:
    """The exchange for one run of a stage; see `building.stages.base.Exchange`.

    Args:
        task: name of the task.
        store: cache with the outputs.
        inputs: outputs of earlier stages.
        handover: graphs in memory.
        folder: private directory for files that must be assembled first.
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
        """Graphs that the stage wrote, by name."""

    def path(self, upstream: Upstream) -> Path:
        """Return the path of an output as a file; assemble the file first if necessary."""
        output = self._inputs[upstream]
        if output.index is None and output.text is None:
            return self._store.objects.path(output.sha256)
        path = self._folder / output.sha256
        if not path.exists():
            write_bytes(path, self._store.pieces(output))
        return path

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """Return the content of an output in chunks."""
        return self._store.pieces(self._inputs[upstream])

    def graph(self, upstream: Upstream) -> Graph:
        """Return the graph of an earlier stage from memory, or else from the cache."""
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
        """Move a tensor's content to the cache now if it will be stored there separately.

        Errors are ignored here because a transform calls this, and its user may have asked to
        ignore its failures. Writing the graph reports them.
        """
        if lies_apart(tensor):
            with contextlib.suppress(MobileprepError):
                self._keep(tensor)

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Write a graph: below ``files/`` as a file to publish, else for later stages.

        Later stages read a published file from its bytes rather than from memory, so that they
        measure the shipped file.
        """
        if name.startswith(PUBLISHED):
            output = self._file(lambda: graph_to_pieces(graph))
            check_serialized_size(output.size, self._task)
            self.left[name] = output
            return output.size
        size = serialized_size(graph)
        cached = self._read.get(id(graph))
        output = cached[1] if cached is not None and _is_graph(cached[1]) else self._index(graph)
        self.left[name] = output
        self._handover.leave(Upstream(self._task, name), graph)
        return size

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Write a memory-mapped model as a file to publish."""
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
        # ``graph_index`` stores tensors one by one; hashing and writing them in parallel is faster.
        largest_first = sorted(tensors_apart(graph), key=lambda t: t.nbytes, reverse=True)
        at_once(self._keep, largest_first)
        data = graph_index(graph, self._keep)
        part = self._store.objects.put([data])
        return Output(part.sha256, part.size, part)

    def _file(self, pieces: Callable[[], Iterator[bytes | Tensor]]) -> Output:
        """Store a file to publish. It is generated twice: for its digest and for its parts."""
        digest, size = hashlib.sha256(), 0
        for chunk in raw_chunks(pieces()):
            digest.update(chunk)
            size += len(chunk)
        index = self._store.objects.put([file_index(pieces(), self._keep)])
        return Output(digest.hexdigest(), size, index)

    def _keep(self, tensor: Tensor) -> Part:
        """Store a tensor's content, and release the tensor's memory."""
        part = Part(tensor.digest(), tensor.nbytes)
        content = tensor.content if tensor.content is not None else tensor.raw()
        lies = self._store.objects.keep(part, memoryview(content).cast("B"))
        tensor.lying_at(lies, part.sha256)
        return part


def _is_graph(output: Output) -> bool:
    """Return whether an output is the index of a graph."""
    return output.index is not None and output.index.sha256 == output.sha256
