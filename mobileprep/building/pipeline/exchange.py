"""What a stage reads of earlier stages, and the graphs that it leaves, against the store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.building.pipeline.execute import Handover
from mobileprep.building.pipeline.output import Output, workspace_name
from mobileprep.building.pipeline.remote.base import Kind, Remote
from mobileprep.building.pipeline.remote.guarded import (
    Offered,
    Wanted,
    fetch_many,
    has_many,
    send_many,
)
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

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class StoreExchange:
    """One run of a stage, see `building.stages.base.Exchange`.

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
        """Graphs that the stage wrote, by name."""

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


class Sharing:
    """A remote store beside a local one.

    Args:
        remote: the remote store.
        folder: the local store's; what is on its way lies below ``tmp`` there.
    """

    def __init__(self, remote: Remote, folder: Path) -> None:
        self._remote = remote
        self._folder = folder
        self._sender: ThreadPoolExecutor | None = None
        self._sent: list[Future[object]] = []
        self._lock = threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong so far."""
        return self._remote.warnings

    @contextlib.contextmanager
    def record(self, key: str, limit: int) -> Iterator[Path | None]:
        """A record's bytes in a file that goes at the end of the context; None where there is none.

        What it says is for the caller to check. One of more bytes than ``limit`` is none.
        """
        with self._fetched([("ac", key, limit)]) as (file,):
            yield file

    @contextlib.contextmanager
    def objects(self, parts: Iterable[Part]) -> Iterator[list[Path | None]]:
        """Objects in files that go at the end of the context, unless they were moved.

        Their bytes are those of their digests.
        """
        with self._fetched([("cas", part.sha256, part.size) for part in parts]) as files:
            yield files

    def has(self, parts: Iterable[Part]) -> list[bool]:
        """Which of some objects the remote store says that it has, in their order."""
        return has_many(self._remote, [("cas", part.sha256, part.size) for part in parts])

    def send(self, key: str, record: Path, objects: Iterable[tuple[str, Path]]) -> None:
        """Send what a stage has left, in the background: its objects, then its record."""
        offered = [Offered("cas", sha256, path) for sha256, path in objects]
        offered.append(Offered("ac", key, record))
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        with self._lock:
            if self._sender is None:
                self._sender = ThreadPoolExecutor(1, thread_name_prefix="mobileprep-share")
            self._sent.append(self._sender.submit(send_many, self._remote, offered))

    def finish(self) -> None:
        """Wait until all is sent."""
        with self._lock:
            sent, self._sent = self._sent, []
        for one in sent:
            one.result()
        self._stop_sender()

    def stop(self) -> None:
        """Wait for nothing more, and break off what is on its way."""
        self._stop_sender()
        self._remote.stop()

    def _stop_sender(self) -> None:
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def _fetched(self, entries: list[tuple[Kind, str, int]]) -> Iterator[list[Path | None]]:
        folder = self._folder / "tmp"
        wanted = [
            Wanted(kind, key, folder / workspace_name(), limit) for kind, key, limit in entries
        ]
        try:
            # A store that cannot be written has nothing of the remote one, and says so itself.
            found = [False] * len(wanted)
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                found = fetch_many(self._remote, wanted)
            yield [w.target if ok else None for w, ok in zip(wanted, found, strict=True)]
        finally:
            for one in wanted:
                with contextlib.suppress(OSError):
                    os.unlink(one.target)  # noqa: PTH108 - it may have been moved
