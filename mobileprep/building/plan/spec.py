"""What a plan consists of: stages, their inputs and outputs, and the targets that they serve."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
    "outputs",
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
    "budget",
]
"""What of a recipe a stage's messages name the place of."""


def file_slot(parameter: str, index: int | None) -> str:
    """The slot of a transform stage for a file that a parameter names."""
    return f"parameter {parameter}" if index is None else f"parameter {parameter} {index + 1}"


class StageFile(Struct, frozen=True):
    """A file from outside the build.

    Args:
        name: the same on every machine, relative and with ``/``; part of the fingerprint.
        path: where it lies on this machine; not part of the fingerprint.
        written: as the recipe has it, where the name is another.
    """

    name: str
    path: Path
    written: str = ""

    @property
    def shown(self) -> str:
        """What messages and locks call it: as the recipe has it."""
        return self.written or self.name


class Files(Struct, frozen=True):
    """What a recipe names by one name: a file, a folder, or the files of a checkpoint.

    Args:
        name: the same on every machine; part of the fingerprint.
        root: where that leads on this machine; of a checkpoint, its prefix.
        members: the files, each of which is part of the fingerprint.
        is_checkpoint: whether the root may be a state file, which names a checkpoint in turn.
    """

    name: str
    root: Path
    members: tuple[StageFile, ...]
    is_checkpoint: bool = False


class Upstream(Struct, frozen=True):
    """One output of an earlier stage."""

    task: str
    output: str


class Stage(Struct, frozen=True, kw_only=True, dict=True):
    """What one stage is asked to do; each kind of stage is a subclass in `building/plan/stages.py`.

    A field that is ``Files``, an ``Upstream`` or a mapping of ``Files`` is an input, and its name
    is the slot's; of a tuple of ``Upstream`` each is one, and its number follows the name. Every
    other field is a parameter. A fingerprint covers all of them.
    """

    stage_name: ClassVar[str]
    """The stage's, and its module's below ``stages/``."""
    stage_version: ClassVar[int]
    """Raised by one whenever the stage's outputs change for the same inputs."""
    RECORD: ClassVar[str] = ""
    """The output that is its record."""
    reported: ClassVar[type[Struct] | None] = None
    """The class of the record if the report reads it."""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The names of the files that it always leaves; more may lie below ``files/``."""
        return ()

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """What it is told, as JSON can hold it; of files, the names that the recipe has."""
        return {
            name: _parameter(value)
            for name, value in self._fields()
            if not isinstance(value, Upstream) and not _is_upstreams(value)
        }

    @cached_property
    def files(self) -> dict[str, Files]:
        """What it reads from outside the build, by slot."""
        found: dict[str, Files] = {}
        for name, value in self._fields():
            if isinstance(value, Files):
                found[name] = value
            elif isinstance(value, Mapping):
                found |= {slot: item for slot, item in value.items() if isinstance(item, Files)}
        return found

    @cached_property
    def upstream(self) -> dict[str, Upstream]:
        """What it reads of earlier stages, by slot."""
        found: dict[str, Upstream] = {}
        for name, value in self._fields():
            if isinstance(value, Upstream):
                found[name] = value
            elif _is_upstreams(value):
                found |= {f"{name} {at}": item for at, item in enumerate(value, start=1)}
        return found

    def _fields(self) -> Iterator[tuple[str, Any]]:
        return iter(structs.asdict(self).items())


def _is_upstreams(value: object) -> bool:
    """Whether a field holds outputs of several stages; an empty tuple may, and tells nothing."""
    return isinstance(value, tuple) and any(isinstance(item, Upstream) for item in value)


def _parameter(value: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Files):
        return value.name
    if isinstance(value, Mapping):
        return {key: _parameter(item) for key, item in value.items()}
    return digestible(value)


class StageSpec(Struct, frozen=True):
    """One stage of a plan.

    Args:
        task: its name, unique in the plan: ``digits/03-fold_constants``.
        stage: what it is asked to do.
        places: where in the recipe its parameters stand, for messages; not fingerprinted.
    """

    task: str
    stage: Stage
    places: Mapping[Section, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Which stage it is, by name."""
        return self.stage.stage_name

    @property
    def needs(self) -> list[str]:
        """The tasks that run before it, sorted."""
        return sorted({up.task for up in self.stage.upstream.values()})

    @property
    def input_files(self) -> tuple[StageFile, ...]:
        """All that it reads from outside the build."""
        return tuple(file for files in self.stage.files.values() for file in files.members)


def places(target: Target, *sections: Section) -> dict[Section, str]:
    """Where sections of a target stand in its recipe."""
    return {section: target.place((section,)) for section in sections}


class TargetPlan(Struct, frozen=True):
    """What one target's folder will hold, and where each part comes from.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        tasks: the tasks that must have run, in order; their outputs below ``files/`` make up
            the folder.
        records: the outputs that the report reads.
        sources: the files from outside that the target depends on.
        settings: the target's settings as the manifest states them.
        page: what the report page tells of its graphs; None where there is no page.
    """

    recipe: str
    target: str
    tasks: tuple[str, ...]
    records: tuple[PlannedRecord, ...]
    sources: tuple[StageFile, ...]
    settings: Mapping[str, Any]
    page: PlannedPage | None = None

    def upstreams(self, kind: type[Struct]) -> list[Upstream]:
        """The outputs that hold the records of a class, in the order of the plan."""
        return [upstream for reported, upstream in self.records if reported is kind]

    @property
    def folder(self) -> str:
        """The folder below the output folder, with ``/``."""
        return f"{self.recipe}/{self.target}"


class PlannedRecord(NamedTuple):
    """A record that the report reads, and the class that it is decoded to."""

    kind: type[Struct]
    upstream: Upstream


class Records:
    """The records of one target's stages, by class."""

    def __init__(self, records: Iterable[Struct]) -> None:
        self._records = tuple(records)

    def all(self, kind: type[RecordType]) -> tuple[RecordType, ...]:
        """All records of a class, in the order of the plan."""
        return tuple(record for record in self._records if isinstance(record, kind))

    def first(self, kind: type[RecordType]) -> RecordType | None:
        """The first record of a class; None if no stage of that kind ran."""
        return next(iter(self.all(kind)), None)

    def one(self, kind: type[RecordType]) -> RecordType:
        """The record of a stage that every target has."""
        (record,) = self.all(kind)
        return record


class PlannedPage(Struct, frozen=True):
    """Where what the report page tells of a target's graphs will lie.

    Args:
        source: the nodes of the frozen source.
        shipped: the nodes of the graph after all transforms.
        graphs: what is told of the source as a whole, then of the graph after each transform.
        steps: the names of the transforms.
    """

    source: Upstream
    shipped: Upstream
    graphs: tuple[Upstream, ...]
    steps: tuple[str, ...]

    def __iter__(self) -> Iterator[Upstream]:
        """All of it."""
        yield from (self.source, self.shipped, *self.graphs)


class Plan(Struct, frozen=True):
    """All stages, each after those that it needs, and the targets that they serve."""

    stages: tuple[StageSpec, ...]
    targets: tuple[TargetPlan, ...]

    def stage(self, task: str) -> StageSpec:
        """The stage of that task name."""
        return next(s for s in self.stages if s.task == task)


# JSON has integers beyond all floats, which reports could not print.
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{300}")


class CacheEntryError(CorruptFileError):
    """A cached output that is missing, damaged, or not an output of its stage."""

    tasks: tuple[str, ...] = ()
    """The stages whose cache entries have to go."""


def cache_entry_error(problem: str, *upstream: Upstream) -> CacheEntryError:
    """The error for cached outputs of which a reader finds that they have a problem."""
    hint = "build again: the stage that makes it runs again"
    first = upstream[0]
    error = CacheEntryError(f"the stored {first.output} {problem}", hint, first.task)
    error.tasks = tuple(up.task for up in upstream)
    return error


def misfit(*upstream: Upstream) -> CacheEntryError:
    """The error for outputs that make no sense."""
    return cache_entry_error("makes no sense", *upstream)


def read_record(kind: type[RecordType], data: bytes, upstream: Upstream) -> RecordType:
    """Decode a stage's record, whose bytes may come from anywhere.

    Raises:
        CacheEntryError: the bytes are not such a record.
    """
    if _HUGE_NUMBER.search(data):
        raise misfit(upstream)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, *NONSENSE) as error:
        raise misfit(upstream) from error
