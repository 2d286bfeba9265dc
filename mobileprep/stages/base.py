"""What a stage is: a function from what it is asked to do to files in a folder."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mobileprep.errors import InternalError
from mobileprep.fsio import inside, read_bytes, write_bytes
from mobileprep.plan.records import RecordType, record_from
from mobileprep.plan.spec import Section, Stage, Upstream
from mobileprep.registry import Registry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

StageType = TypeVar("StageType", bound=Stage)
StageTypeCo = TypeVar("StageTypeCo", bound=Stage, covariant=True)


@dataclass(frozen=True)
class Job(Generic[StageTypeCo]):
    """One run of a stage.

    Args:
        task: the task's name, for messages.
        asked: what the stage is asked to do.
        inputs: where the outputs of earlier stages lie.
        folder: where outputs go.
        places: where in the recipe parameters stand: ``{"outputs": "recipe.yaml:9:10"}``.
        warn: takes what the user should know before the stage does its work, a sentence a time.
    """

    task: str
    asked: StageTypeCo
    inputs: Mapping[Upstream, Path]
    folder: Path
    places: Mapping[Section, str] = field(default_factory=dict)
    warn: Callable[[str], None] = lambda _: None

    def path(self, upstream: Upstream) -> Path:
        """Where an output of an earlier stage lies."""
        return self.inputs[upstream]

    def output(self, name: str) -> Path:
        """The path of an output."""
        return inside(self.folder, name)

    def write_record(self, name: str, record: DataclassInstance) -> None:
        """Write a record as JSON, keys sorted; numbers have to be finite."""
        data = dataclasses.asdict(record)
        text = json.dumps(data, sort_keys=True, indent=1, allow_nan=False) + "\n"
        write_bytes(self.output(name), text.encode())

    def record(self, kind: type[RecordType], upstream: Upstream) -> RecordType:
        """The record that an earlier stage left."""
        return record_from(kind, json.loads(read_bytes(self.path(upstream))))

    def place(self, section: Section) -> str:
        """Where in the recipe something stands, or the task's name."""
        return self.places.get(section, self.task)


StageFunction = Callable[[Job[Any]], None]

_stages: Registry[StageFunction] = Registry("stage")


def stage(
    kind: type[StageType],
) -> Callable[[Callable[[Job[StageType]], None]], Callable[[Job[StageType]], None]]:
    """A decorator that files the function which does what a kind of stage asks for.

    Its module has the stage's name.
    """
    return _stages.register(kind.stage_name)


def stage_function(name: str) -> StageFunction:
    """The function of a stage; only its own module is imported."""
    importlib.import_module(f"mobileprep.stages.{name}")
    found = _stages.get(name)
    if found is None:
        message = f"the module mobileprep.stages.{name} registers no stage {name!r}"
        raise InternalError(message)
    return found
