"""What a stage is: a function from a job's files and parameters to files in a folder."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mobileprep.errors import InternalError
from mobileprep.fsio import inside, read_bytes, write_bytes
from mobileprep.plan.spec import InputFile
from mobileprep.registry import Registry


@dataclass(frozen=True)
class Job:
    """One run of a stage.

    Args:
        task: the task's name, for messages.
        parameters: what the stage is told.
        files: files from outside, by slot.
        roots: where the recipe's own names of those files lead: a prefix or a folder too.
        inputs: outputs of earlier stages, by slot.
        folder: where outputs go.
        places: where in the recipe parameters stand: ``{"outputs": "recipe.yaml:9:10"}``.
        warn: takes what the user should know before the stage does its work, a sentence a time.
    """

    task: str
    parameters: Mapping[str, Any]
    files: Mapping[str, tuple[InputFile, ...]]
    roots: Mapping[str, Path]
    inputs: Mapping[str, Path]
    folder: Path
    places: Mapping[str, str]
    warn: Callable[[str], None] = lambda _: None

    def output(self, name: str) -> Path:
        """The path of an output."""
        return inside(self.folder, name)

    def write_json(self, name: str, data: object) -> None:
        """Write an output as JSON, keys sorted; numbers have to be finite."""
        text = json.dumps(data, sort_keys=True, indent=1, allow_nan=False) + "\n"
        write_bytes(self.output(name), text.encode())

    def read_json(self, slot: str) -> Any:  # noqa: ANN401 - whatever the earlier stage wrote
        """An earlier stage's JSON output."""
        return json.loads(read_bytes(self.inputs[slot]))

    def place(self, key: str) -> str:
        """Where in the recipe a parameter stands, or the task's name."""
        return self.places.get(key, self.task)


StageFunction = Callable[[Job], None]

_stages: Registry[StageFunction] = Registry("stage")


def stage(name: str) -> Callable[[StageFunction], StageFunction]:
    """A decorator that files a stage under its name, which is also its module's."""
    return _stages.register(name)


def stage_function(name: str) -> StageFunction:
    """The function of a stage; only its own module is imported."""
    importlib.import_module(f"mobileprep.stages.{name}")
    found = _stages.get(name)
    if found is None:
        message = f"the module mobileprep.stages.{name} registers no stage {name!r}"
        raise InternalError(message)
    return found
