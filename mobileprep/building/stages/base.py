"""Stage interface: a function that runs a job and writes its outputs to a directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from msgspec import Struct, field, structs

from mobileprep.building.plan.spec import RecordType, Section, Stage, Upstream, read_record
from mobileprep.core.files import inside, write_bytes
from mobileprep.core.loading import import_on_demand
from mobileprep.errors import InternalError

if TYPE_CHECKING:
    from mobileprep.graph.files import MemmappedModel
    from mobileprep.graph.graph import Graph
    from mobileprep.graph.tensor import Tensor

StageTypeCo = TypeVar("StageTypeCo", bound=Stage, covariant=True)


class Exchange(Protocol):
    """Access to the outputs of earlier stages, and storage for graphs."""

    def path(self, upstream: Upstream) -> Path:
        """Return the path of a file output."""

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """Yield the bytes of an output in chunks."""

    def graph(self, upstream: Upstream) -> Graph:
        """Load a graph that an earlier stage wrote, in any format."""

    def offload(self, tensor: Tensor) -> None:
        """Write a large tensor of an output graph to disk, and release its memory."""

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Write a graph in binary form, and return its size in bytes."""

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Publish a memory-mapped model, and return its size in bytes."""


class Job(Struct, Generic[StageTypeCo], frozen=True):
    """A run of a stage.

    Args:
        task: task name for messages.
        asked: parameters and inputs of the stage.
        exchange: access to the outputs of earlier stages, and storage for graphs.
        folder: output directory.
        places: locations of parameters in the recipe: ``{"outputs": "recipe.yaml:9:10"}``.
        warn: callback for a warning of one sentence, before the stage does its work.
        progress: callback for the number of finished samples and the total.
    """

    task: str
    asked: StageTypeCo
    exchange: Exchange
    folder: Path
    places: Mapping[Section, str] = field(default_factory=dict)
    warn: Callable[[str], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _total: None

    def path(self, upstream: Upstream) -> Path:
        """Return the path of a file output of an earlier stage."""
        return self.exchange.path(upstream)

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """Yield the bytes of an output in chunks."""
        return self.exchange.data(upstream)

    def graph(self, upstream: Upstream) -> Graph:
        """Load a graph that an earlier stage wrote."""
        return self.exchange.graph(upstream)

    def offload(self, tensor: Tensor) -> None:
        """Write a large tensor of an output graph to disk, and release its memory."""
        self.exchange.offload(tensor)

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Write a graph in binary form, and return its size in bytes."""
        return self.exchange.leave_graph(name, graph)

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Publish a memory-mapped model, and return its size in bytes."""
        return self.exchange.leave_memmapped(name, model)

    def output(self, name: str) -> Path:
        """Return the path of a file output."""
        return inside(self.folder, name)

    def write_record(self, name: str, record: Struct) -> None:
        """Write a record as JSON with sorted keys. Numbers must be finite."""
        text = json.dumps(record, default=structs.asdict, sort_keys=True, indent=1, allow_nan=False)
        write_bytes(self.output(name), f"{text}\n".encode())

    def record(self, kind: type[RecordType], upstream: Upstream) -> RecordType:
        """Read a record that an earlier stage wrote."""
        return read_record(kind, b"".join(self.data(upstream)), upstream)

    def place(self, section: Section) -> str:
        """Return the location of a section in the recipe, or the task's name."""
        return self.places.get(section, self.task)


StageFunction = Callable[[Job[Any]], None]


def stage_function(kind: type[Stage]) -> StageFunction:
    """Return the function that runs a kind of stage. Imports only its own module.

    It is ``run_`` with the stage's name, or ``run``, in the module ``run`` next to the class.
    """
    module = import_on_demand(f"{kind.__module__.rpartition('.')[0]}.run")
    function = getattr(module, f"run_{kind.stage_name}", None) or getattr(module, "run", None)
    if function is None:
        message = f"{module.__name__} has no function for the stage {kind.stage_name!r}"
        raise InternalError(message)
    return cast(StageFunction, function)
