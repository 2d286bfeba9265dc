"""What a stage is: a function from what it is asked to do to files in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field, structs

from mobileprep.building.plan.spec import RecordType, Section, Stage, Upstream, read_record
from mobileprep.core.files import inside, write_bytes
from mobileprep.core.loading import Registry, import_on_demand
from mobileprep.errors import InternalError

if TYPE_CHECKING:
    from mobileprep.graph.files import MemmappedModel
    from mobileprep.graph.graph import Graph
    from mobileprep.graph.tensor import Tensor

StageType = TypeVar("StageType", bound=Stage)
StageTypeCo = TypeVar("StageTypeCo", bound=Stage, covariant=True)


class Exchange(Protocol):
    """How a stage reads what earlier stages left, and leaves graphs."""

    def path(self, upstream: Upstream) -> Path:
        """Where an output lies that is a file."""

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """An output's bytes, in pieces."""

    def graph(self, upstream: Upstream) -> Graph:
        """A graph that an earlier stage left, in whatever form."""

    def offload(self, tensor: Tensor) -> None:
        """Write a large tensor of a graph that is to be left, and let go of the memory it takes."""

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Leave a graph in binary form; its length in bytes."""

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Leave a memory-mapped model as a file to publish; its length in bytes."""


class Job(Struct, Generic[StageTypeCo], frozen=True):
    """One run of a stage.

    Args:
        task: the task's name, for messages.
        asked: what the stage is asked to do.
        exchange: how it gets what earlier stages left, and leaves graphs.
        folder: where the files go that it leaves.
        places: where in the recipe parameters stand: ``{"outputs": "recipe.yaml:9:10"}``.
        warn: takes what the user should know before the stage does its work, a sentence a time.
        progress: takes how many samples the stage has run, and how many there are.
    """

    task: str
    asked: StageTypeCo
    exchange: Exchange
    folder: Path
    places: Mapping[Section, str] = field(default_factory=dict)
    warn: Callable[[str], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _total: None

    def path(self, upstream: Upstream) -> Path:
        """Where an output of an earlier stage lies that is a file."""
        return self.exchange.path(upstream)

    def data(self, upstream: Upstream) -> Iterator[bytes | memoryview]:
        """An output's bytes, in pieces."""
        return self.exchange.data(upstream)

    def graph(self, upstream: Upstream) -> Graph:
        """A graph that an earlier stage left."""
        return self.exchange.graph(upstream)

    def offload(self, tensor: Tensor) -> None:
        """Write a large tensor of a graph that is to be left, and let go of the memory it takes."""
        self.exchange.offload(tensor)

    def leave_graph(self, name: str, graph: Graph) -> int:
        """Leave a graph in binary form; its length in bytes."""
        return self.exchange.leave_graph(name, graph)

    def leave_memmapped(self, name: str, model: MemmappedModel) -> int:
        """Leave a memory-mapped model as a file to publish; its length in bytes."""
        return self.exchange.leave_memmapped(name, model)

    def output(self, name: str) -> Path:
        """The path of an output that is a file."""
        return inside(self.folder, name)

    def write_record(self, name: str, record: Struct) -> None:
        """Write a record as JSON, keys sorted; numbers have to be finite."""
        text = json.dumps(record, default=structs.asdict, sort_keys=True, indent=1, allow_nan=False)
        write_bytes(self.output(name), f"{text}\n".encode())

    def record(self, kind: type[RecordType], upstream: Upstream) -> RecordType:
        """The record that an earlier stage left."""
        return read_record(kind, b"".join(self.data(upstream)), upstream)

    def place(self, section: Section) -> str:
        """Where in the recipe something stands, or the task's name."""
        return self.places.get(section, self.task)


StageFunction = Callable[[Job[Any]], None]

_stages: Registry[StageFunction] = Registry("stage")


def stage(
    kind: type[StageType],
) -> Callable[[Callable[[Job[StageType]], None]], Callable[[Job[StageType]], None]]:
    """Register the function that runs a kind of stage, in the module `run` beside its class."""
    return _stages.register(kind.stage_name)


def stage_function(kind: type[Stage]) -> StageFunction:
    """The function that runs a kind of stage; only its own module is imported."""
    module = f"{kind.__module__.rpartition('.')[0]}.run"
    import_on_demand(module)
    function = _stages.get(kind.stage_name)
    if function is None:
        message = f"the module {module} registers no stage {kind.stage_name!r}"
        raise InternalError(message)
    return function
