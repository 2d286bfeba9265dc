"""Machine-independent file names that replace absolute paths.

Names relative to a recipe are already the same on every machine. An absolute path, for example
from a variable, is not: it would end up in the fingerprints, records, and manifests that machines
share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from msgspec import Struct, structs

from mobileprep.building.plan.sources import (
    data_files,
    file_or_folder,
    graph_files,
    single_file,
    source_checkpoint,
)
from mobileprep.building.plan.spec import StageFile
from mobileprep.building.stages.calibrate.spec import calibration_members
from mobileprep.building.stages.package.spec import app_classes
from mobileprep.building.stages.transform.spec import named_files, plugin_file
from mobileprep.errors import MobileprepError
from mobileprep.recipe.model import ParameterValue, Recipe, Step, Target
from mobileprep.recipe.settings import Data, InputFile, Source

_ABOVE: Final = "*"


def is_absolute(name: str) -> bool:
    """Return whether a name is an absolute path on any platform."""
    return PurePosixPath(name).is_absolute() or PureWindowsPath(name).is_absolute()


def portable_recipe(recipe: Recipe) -> Recipe:
    """Replace the absolute file names in a recipe with machine-independent names.

    Names keep only the last component of an absolute path: ``*/graph.pb``. If several have the
    same last component, the second becomes ``*2/graph.pb``, in the order of the whole recipe. A
    recipe without absolute paths is returned unchanged, so part of a renamed recipe keeps the
    names of the whole.
    """
    if not any(is_absolute(file.name) for file in input_files(recipe.targets)):
        return recipe
    return structs.replace(recipe, targets=_Names().renamed(recipe.targets))


def input_files(value: object) -> Iterator[InputFile]:
    """Yield every file that a part of a recipe names, at any depth."""
    if isinstance(value, InputFile):
        yield value
    elif isinstance(value, Struct):
        for item in structs.asdict(value).values():
            yield from input_files(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from input_files(item)
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from input_files(item)


def distinct_sources(files: Iterable[StageFile]) -> tuple[StageFile, ...]:
    """Rename files of different inputs that have the same name.

    This affects the files of checkpoints and MetaGraphs, which the recipe does not name.
    """
    owners: dict[str, Path] = {}

    def named(file: StageFile) -> StageFile:
        name = file.name
        numbers = count(2)
        while owners.setdefault(name, file.path) != file.path:
            name = f"{file.name} #{next(numbers)}"
        return file if name == file.name else StageFile(name, file.path, file.shown)

    return tuple(map(named, files))


class _Names:
    """Names assigned to the absolute paths of a recipe so far."""

    def __init__(self) -> None:
        self._names: dict[Path, str] = {}
        self._taken: set[str] = set()

    def renamed(self, value: Any) -> Any:  # noqa: ANN401 - any part of a recipe
        """Return a part of a recipe with machine-independent names."""
        if isinstance(value, InputFile):
            return self._file(value)
        if isinstance(value, Step):
            return self._step(value)
        if isinstance(value, Data):
            return self._data(value)
        if type(value) is tuple:  # recipe trees are tuples of struct types
            return tuple(map(self.renamed, value))
        return self._fields(value) if isinstance(value, Struct) else value

    def _fields(self, value: Any) -> Any:  # noqa: ANN401 - a struct
        fields = structs.asdict(value)
        return structs.replace(value, **{name: self.renamed(v) for name, v in fields.items()})

    def _file(self, file: InputFile) -> InputFile:
        if not is_absolute(file.name):
            return file
        return structs.replace(file, name=self._name(file), written=file.name)

    def _name(self, file: InputFile) -> str:
        cached = self._names.get(file.path)
        if cached is not None:
            return cached
        last = PureWindowsPath(file.name).name
        numbered = (f"{_ABOVE}{'' if n == 1 else n}/{last}" for n in count(1))
        name = self._names[file.path] = next(name for name in numbered if name not in self._taken)
        self._taken.add(name)
        return name

    def _data(self, data: Data) -> Data:
        """Rename the label file in the data's reading options to match its list of files."""
        renamed: Data = self._fields(data)
        if renamed.labels is None or not renamed.labels.written:
            return renamed
        reading = structs.replace(data.reading, labels=renamed.labels.name)
        return structs.replace(renamed, reading=reading)

    def _step(self, step: Step) -> Step:
        """Rename the files in the step's parameters to match its list of files."""
        plugin, files = self.renamed(step.plugin), self.renamed(step.files)
        named = {(f.parameter, f.index): f.file.name for f in files if f.file.written}
        params = tuple((key, _parameter(key, value, named)) for key, value in step.params)
        return structs.replace(step, plugin=plugin, files=files, params=params)


def _parameter(
    key: str, value: ParameterValue, named: Mapping[tuple[str, int | None], str]
) -> ParameterValue:
    if isinstance(value, tuple):
        return tuple(named.get((key, at), item) for at, item in enumerate(value))
    return named.get((key, None), value)


def outside_files(target: Target) -> Iterator[StageFile]:
    """Yield the external files that a target depends on."""
    yield from _source_files(target.source)
    for validation in target.validations:
        yield from data_files(validation.data).members
        for file in validation.functions:
            yield from single_file(file).members
    yield from calibration_members(target)
    for file in filter(None, (target.device_file, target.measurement_file)):
        yield from single_file(file).members
    if target.check is not None and target.check.data is not None:
        yield from data_files(target.check.data).members
    labels = None if target.integration is None else target.integration.labels
    for names in filter(None, (labels, app_classes(target))):
        yield from single_file(names).members
    for file in (file for op in target.ops for file in op.sources):
        yield from single_file(file).members
    if target.download is not None:
        yield from single_file(target.download.previous).members
    for step in target.transforms:
        plugin = plugin_file(step)
        yield from () if plugin is None else plugin.members
        for files in named_files(step).values():
            yield from files.members


def _source_files(source: Source) -> Iterator[StageFile]:
    yield from graph_files(source).members
    checkpoint = source_checkpoint(source)
    if checkpoint is not None:
        yield from checkpoint.members
    if source.saver is not None:
        yield from single_file(source.saver).members
    if source.assets is not None:
        yield from file_or_folder(source.assets).members


def plannable(
    recipes: Iterable[Recipe],
    targets: Collection[str],
    plan: Callable[[Sequence[Recipe]], object],
) -> tuple[list[Recipe], list[MobileprepError]]:
    """Return the recipes with only the targets that can be planned, and the others' errors."""
    plannable_recipes: list[Recipe] = []
    faults: dict[str, MobileprepError] = {}
    for recipe in recipes:
        planned = []
        for target in recipe.chosen(targets):
            try:
                plan([structs.replace(recipe, targets=(target,))])
                planned.append(target)
            except MobileprepError as error:
                faults.setdefault(str(error), error)
        if planned:
            plannable_recipes.append(structs.replace(recipe, targets=tuple(planned)))
    return plannable_recipes, list(faults.values())
