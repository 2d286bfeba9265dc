"""Structure of a plan: stages, their inputs and outputs, and targets."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field, structs

from mobileprep.core.files import NONSENSE
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.model import Target, digestible

RecordType = TypeVar("RecordType", bound=Struct)

PUBLISHED: Final = "files/"
"""Directory in a stage's outputs that is published to the target."""


PAGE: Final = "page.json"
"""Facts about a graph for the report page, next to the graph that a stage writes."""


Section: TypeAlias = Literal[
    "source",
    "freeze",
    "inputs",
    "measurement",
    "outputs",
    "preprocessing",
    "decoding",
    "transforms",
    "check",
    "data",
    "max_difference",
    "engine",
    "calibration",
    "validation",
    "platform",
    "abis",
    "artifact",
    "quantize",
    "registration",
    "ops",
    "integration",
    "protect",
    "download",
    "budget",
    "pipeline",
]
"""Recipe section that a stage's messages refer to."""


def file_slot(parameter: str, index: int | None) -> str:
    """Return the slot of a transform stage for a file parameter."""
    return f"parameter {parameter}" if index is None else f"parameter {parameter} {index + 1}"


class StageFile(Struct, frozen=True):
    """A file from outside the build.

    Args:
        name: machine-independent relative path with ``/``; part of the fingerprint.
        path: path on this machine; not part of the fingerprint.
        written: path in the recipe if it differs from ``name``.
    """

    name: str
    path: Path
    written: str = ""

    @property
    def shown(self) -> str:
        """Path for messages and lock files, as written in the recipe."""
        return self.written or self.name


class Files(Struct, frozen=True):
    """A named input of a recipe: a file, a directory, or the files of a checkpoint.

    Args:
        name: machine-independent name; part of the fingerprint.
        root: path on this machine; the prefix of a checkpoint.
        members: the files, each of which is part of the fingerprint.
        is_checkpoint: whether the root may be a state file, which in turn names a checkpoint.
    """

    name: str
    root: Path
    members: tuple[StageFile, ...]
    is_checkpoint: bool = False


class Upstream(Struct, frozen=True):
    """An output of an earlier stage."""

    task: str
    output: str


class Stage(Struct, frozen=True, kw_only=True, dict=True):
    """Parameters and inputs of a stage. Each kind of stage is a subclass.

    A field of type ``Files`` or ``Upstream`` is an input, and its name is the slot. A mapping of
    ``Files`` is several inputs, with its keys as slots. A tuple of ``Upstream`` is several inputs,
    numbered after the field name. All other fields are parameters. The fingerprint covers all
    fields.
    """

    stage_name: ClassVar[str]
    """Name of the stage and of its module below ``stages/``."""
    stage_version: ClassVar[int]
    """Incremented whenever the stage's outputs change for the same inputs."""
    RECORD: ClassVar[str] = ""
    """Name of the output file that contains the stage's record."""
    reported: ClassVar[type[Struct] | None] = None
    """Class of the record if the report reads it."""

    @property
    def output_files(self) -> tuple[str, ...]:
        """Names of the files that the stage always writes. It may write more below ``files/``."""
        return (self.RECORD,) if self.RECORD else ()

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters as JSON-serializable data. Files are represented by their names."""
        return {
            name: _parameter(value)
            for name, value in self._fields()
            if not isinstance(value, Upstream) and not _is_upstreams(value)
        }

    @cached_property
    def files(self) -> dict[str, Files]:
        """Inputs from outside the build, by slot."""
        files: dict[str, Files] = {}
        for name, value in self._fields():
            if isinstance(value, Files):
                files[name] = value
            elif isinstance(value, Mapping):
                files |= {slot: item for slot, item in value.items() if isinstance(item, Files)}
        return files

    @cached_property
    def upstream(self) -> dict[str, Upstream]:
        """Inputs from earlier stages, by slot."""
        upstream: dict[str, Upstream] = {}
        for name, value in self._fields():
            if isinstance(value, Upstream):
                upstream[name] = value
            elif _is_upstreams(value):
                upstream |= {f"{name} {at}": item for at, item in enumerate(value, start=1)}
        return upstream

    def _fields(self) -> Iterator[tuple[str, Any]]:
        return iter(structs.asdict(self).items())


def _is_upstreams(value: object) -> bool:
    """Return whether a field is a nonempty tuple of stage outputs."""
    return isinstance(value, tuple) and any(isinstance(item, Upstream) for item in value)


def _parameter(value: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Files):
        return value.name
    if isinstance(value, Mapping):
        return {key: _parameter(item) for key, item in value.items()}
    return digestible(value)


class StageSpec(Struct, frozen=True):
    """A stage of a plan.

    Args:
        task: name, unique in the plan: ``digits/03-fold_constants``.
        stage: parameters and inputs.
        places: locations of its parameters in the recipe for messages; not in the fingerprint.
    """

    task: str
    stage: Stage
    places: Mapping[Section, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Name of the stage."""
        return self.stage.stage_name

    @property
    def needs(self) -> list[str]:
        """Tasks that must run first, sorted."""
        return sorted({up.task for up in self.stage.upstream.values()})

    @property
    def input_files(self) -> tuple[StageFile, ...]:
        """All inputs from outside the build."""
        return tuple(file for files in self.stage.files.values() for file in files.members)


def places(target: Target, *sections: Section) -> dict[Section, str]:
    """Return the locations of a target's sections in its recipe."""
    return {section: target.place((section,)) for section in sections}


class TargetPlan(Struct, frozen=True):
    """Contents of a target's output directory, and the stages that write them.

    Args:
        recipe: recipe name.
        target: target name.
        tasks: required tasks, in order; the target publishes their outputs below ``files/``.
        records: outputs that the report reads.
        sources: external files that the target depends on.
        settings: the target's settings for the manifest.
        page: outputs for the report page, or None without a page.
    """

    recipe: str
    target: str
    tasks: tuple[str, ...]
    records: tuple[PlannedRecord, ...]
    sources: tuple[StageFile, ...]
    settings: Mapping[str, Any]
    page: PlannedPage | None = None

    def upstreams(self, kind: type[Struct]) -> list[Upstream]:
        """Return the outputs that contain records of a class, in plan order."""
        return [upstream for reported, upstream in self.records if reported is kind]

    @property
    def folder(self) -> str:
        """Path relative to the output directory, with ``/``."""
        return f"{self.recipe}/{self.target}"


class PlannedRecord(NamedTuple):
    """A record that the report reads, and its class."""

    kind: type[Struct]
    upstream: Upstream


class Records:
    """Records of a target's stages, by class."""

    def __init__(self, records: Iterable[Struct]) -> None:
        self._records = tuple(records)

    def all(self, kind: type[RecordType]) -> tuple[RecordType, ...]:
        """Return all records of a class, in plan order."""
        return tuple(record for record in self._records if isinstance(record, kind))

    def first(self, kind: type[RecordType]) -> RecordType | None:
        """Return the first record of a class, or None if no stage wrote one."""
        return next(iter(self.all(kind)), None)

    def one(self, kind: type[RecordType]) -> RecordType:
        """Return the record of a stage that every target has."""
        (record,) = self.all(kind)
        return record


class PlannedPage(Struct, frozen=True):
    """Outputs that the report page of a target reads.

    Args:
        source: nodes of the frozen source.
        shipped: nodes of the graph after all transforms.
        graphs: facts about the source graph, then about the graph after each transform.
        steps: names of the transforms.
    """

    source: Upstream
    shipped: Upstream
    graphs: tuple[Upstream, ...]
    steps: tuple[str, ...]

    def __iter__(self) -> Iterator[Upstream]:
        """Yield all outputs."""
        yield from (self.source, self.shipped, *self.graphs)


class Plan(Struct, frozen=True):
    """All stages, in an order that respects their dependencies, and the targets."""

    stages: tuple[StageSpec, ...]
    targets: tuple[TargetPlan, ...]

    def stage(self, task: str) -> StageSpec:
        """Return the stage of a task."""
        return next(s for s in self.stages if s.task == task)

    def until(self, tasks: Iterable[str], done: Container[str] = ()) -> list[StageSpec]:
        """Return the stages of tasks and all stages before them, except what only ``done`` needs.

        ``done`` are tasks to leave out.
        """
        needed = set(tasks)
        stages = []
        for spec in reversed(self.stages):
            if spec.task in needed and spec.task not in done:
                needed.update(spec.needs)
                stages.append(spec)
        return stages[::-1]


# JSON integers may exceed the range of a float, and reports could not print them.
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{300}")


class CacheEntryError(CorruptFileError):
    """A cached output that is missing, damaged, or not an output of its stage."""

    tasks: tuple[str, ...] = ()
    """Stages whose cache entries must be removed."""


def cache_entry_error(problem: str, *upstream: Upstream) -> CacheEntryError:
    """Create the error for invalid cached outputs."""
    hint = "build again: the stage that makes it runs again"
    first = upstream[0]
    error = CacheEntryError(f"the stored {first.output} {problem}", hint, first.task)
    error.tasks = tuple(up.task for up in upstream)
    return error


def misfit(*upstream: Upstream) -> CacheEntryError:
    """Create the error for outputs that make no sense."""
    return cache_entry_error("makes no sense", *upstream)


def read_record(kind: type[RecordType], data: bytes, upstream: Upstream) -> RecordType:
    """Decode a stage's record from untrusted bytes.

    Raises:
        CacheEntryError: the bytes are not a valid record.
    """
    if _HUGE_NUMBER.search(data):
        raise misfit(upstream)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, *NONSENSE) as error:
        raise misfit(upstream) from error
