"""Measure the ranges of tensors for quantization, and store them in range files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.pipeline.eviction import store_bound
from mobileprep.building.pipeline.execute import Advance, Executor, Listener, ignore
from mobileprep.building.pipeline.execute import Warn as TaskWarn
from mobileprep.building.pipeline.runner import build as run_stages
from mobileprep.building.pipeline.state import State
from mobileprep.building.plan.portable import portable_recipe
from mobileprep.building.plan.spec import Plan, Upstream
from mobileprep.building.stages.calibrate.spec import CalibrateStage, CalibrationRecord
from mobileprep.building.targets import plan_state
from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.core.files import write_text
from mobileprep.core.limits import shared_memory
from mobileprep.errors import RecipeError, UsageError
from mobileprep.formats.range_file import (
    RangeFile,
    TensorRange,
    range_file_text,
    ranges_from_bytes,
    read_range_file,
)
from mobileprep.recipe.load import check_names, load_recipe
from mobileprep.recipe.model import Recipe, Target


class RangeGroup(Struct, frozen=True):
    """Targets whose ranges are stored in the same file.

    Args:
        path: the range file; None if the recipe names none.
        name: the file as named in the recipe.
        members: the targets with their recipes.
    """

    path: Path | None
    name: str | None
    members: tuple[tuple[Recipe, Target], ...]

    @property
    def folders(self) -> tuple[str, ...]:
        """The targets' directories, relative to the output directory."""
        return tuple(f"{recipe.name}/{target.folder}" for recipe, target in self.members)


def range_groups(recipes: Sequence[Recipe], requested: frozenset[str]) -> list[RangeGroup]:
    """Group the targets that use observed ranges by range file.

    Args:
        recipes: the recipes.
        requested: names or directories of targets, or empty for all; targets that share a range
            file with one of them are included.
    """
    named: dict[str, list[tuple[Recipe, Target]]] = {}
    for recipe in recipes:
        for target in recipe.targets:
            if target.calibration is not None and target.takes_ranges:
                file = target.calibration.range_file
                own = f"{recipe.name}/{target.folder}"
                key = own if file is None else os.path.realpath(file.path)
                named.setdefault(key, []).append((recipe, target))
    chosen = [
        members
        for members in named.values()
        if not requested or any({t.name, t.folder} & requested for _, t in members)
    ]
    if not chosen:
        hint = "write 'quantize: {mode: nodes, ranges: observed}' and a calibration"
        message = f"no target {' or '.join(sorted(requested))} takes observed ranges".replace(
            "  ", " "
        )
        raise UsageError(message, hint)
    return [_group(members) for members in chosen]


def _group(members: Sequence[tuple[Recipe, Target]]) -> RangeGroup:
    calibration = members[0][1].calibration
    file = None if calibration is None else calibration.range_file
    for _, target in members:
        if target.calibration is not None and target.calibration.data is None:
            message = "the calibration names no samples to measure ranges on"
            place = target.place(("calibration",))
            raise RecipeError(message, "add 'data: samples.npz'", place)
    if file is None:
        return RangeGroup(None, None, tuple(members))
    return RangeGroup(file.path, file.shown, tuple(members))


def joined_ranges(group: RangeGroup, files: Mapping[str, RangeFile]) -> RangeFile:
    """Merge the ranges of several targets into one file."""
    joined = files[group.folders[0]]
    for folder, (_, target) in zip(group.folders[1:], group.members[1:], strict=True):
        more = files[folder]
        same = (more.method, more.samples, more.data) == (
            *(joined.method, joined.samples),
            joined.data,
        )
        other = [n for n, r in more.tensors.items() if joined.tensors.get(n, r) != r]
        if not same or other:
            why = f"{other[0]!r} has another range" if other else "they are measured otherwise"
            message = f"{folder} and {group.folders[0]} cannot share {group.name}: {why}"
            hint = "name a range file in the target's own calibration"
            raise RecipeError(message, hint, target.place(("calibration", "range_file")))
        tensors = {**joined.tensors, **more.tensors}
        unseen = tuple(sorted({*joined.unseen, *more.unseen}))
        joined = replace(joined, tensors=tensors, unseen=unseen)
    return joined


class Moved(Struct, frozen=True):
    """A tensor whose range differs from the range file.

    Args:
        tensor: name of the tensor.
        before: minimum and maximum in the file; None for a new tensor.
        after: measured minimum and maximum; None for a removed tensor.
        share: the larger change of the two ends as a fraction of the previous width; None without a
            previous width.
    """

    tensor: str
    before: tuple[float, float] | None
    after: tuple[float, float] | None
    share: float | None


class CalibrationResult(Struct, frozen=True):
    """The measured ranges of some targets.

    Args:
        range_file: the range file; None if the recipe names none.
        targets: directories of the targets, relative to the output directory.
        method: calibration method.
        samples: number of samples.
        tensors: number of tensors with a range.
        unseen: tensors that no sample reached.
        moved: differences from the range file.
        is_changed: whether the file has changed, or would change.
    """

    range_file: str | None
    targets: tuple[str, ...]
    method: str
    samples: int
    tensors: int
    unseen: tuple[str, ...]
    moved: tuple[Moved, ...]
    is_changed: bool


def calibrate(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
    *,
    targets: Sequence[str] = (),
    check: bool = False,
    warn: Warn | None = None,
) -> tuple[CalibrationResult, ...]:
    """Measure the ranges for quantization, and write the range files of recipes.

    Measurements of the same graph and data are cached.

    Args:
        recipes: recipes, or paths of recipe files.
        targets: names of targets; by default all that use observed ranges. Targets that share a
            range file with one of them are included.
        check: do not write range files.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        A result for each range file, and for each target without one.

    Raises:
        UsageError: no target uses observed ranges, or a target does not exist.
        RecipeError: a recipe is invalid or names no data, or targets with different ranges share a
            range file.
        CorruptFileError: a file is missing or damaged, or an existing range file is invalid.
        AccuracyError: the data does not match the model, or makes a tensor NaN or infinite.
        MobileprepError: an earlier stage failed.
        ArtifactError: a range file cannot be written.
    """
    listed = [recipes] if isinstance(recipes, Recipe | str | os.PathLike) else recipes
    loaded = [r if isinstance(r, Recipe) else load_recipe(r) for r in listed]
    report_warning = warn or as_warning
    return run_calibrations(
        plan_calibrations(loaded, names_of(targets)),
        check=check,
        warn=lambda task, text: report_warning(f"{task}: {text}"),
    )


class CalibrationPlan(Struct, frozen=True):
    """A plan of calibrations.

    Args:
        state: freshness of all stages up to the calibrations.
        ends: task that produces the ranges of a target, by the target's directory.
        groups: targets by range file.
        memory: memory limits of the recipes.
    """

    state: State
    ends: Mapping[str, str]
    groups: tuple[RangeGroup, ...]
    memory: tuple[int | None, ...] = ()


def plan_calibrations(recipes: Sequence[Recipe], targets: Sequence[str]) -> CalibrationPlan:
    """Plan the measurements of ``calibrate``; see there for arguments and errors."""
    check_names(recipes)
    # Before filtering targets, because file names depend on all files that a recipe names.
    recipes = [portable_recipe(recipe) for recipe in recipes]
    groups = range_groups(recipes, frozenset(targets))
    requested = {id(target) for group in groups for _, target in group.members}
    bare = []
    for recipe in recipes:
        chosen = tuple(_without_file(t) for t in recipe.targets if id(t) in requested)
        if chosen:
            bare.append(replace(recipe, targets=chosen))
    whole = plan_state(bare)
    ends = {t.folder: t.upstreams(CalibrationRecord)[-1].task for t in whole.plan.targets}
    return CalibrationPlan(
        State(Plan(tuple(whole.plan.until(ends.values())), ()), whole.store),
        ends,
        tuple(groups),
        tuple(recipe.memory for recipe in bare),
    )


def run_calibrations(
    plan: CalibrationPlan,
    *,
    check: bool = False,
    listen: Listener = ignore,
    warn: TaskWarn,
    advance: Advance = ignore,
) -> tuple[CalibrationResult, ...]:
    """Run the planned measurements and write the range files."""
    ranges = _measured(plan, Executor(plan.state, listen=listen, warn=warn, advance=advance))
    return tuple(_save_ranges(group, ranges, check=check) for group in plan.groups)


def _measured(plan: CalibrationPlan, executor: Executor) -> Mapping[str, RangeFile]:
    """Return the ranges of each target by its directory."""
    state = plan.state
    bound = store_bound(os.environ)
    outputs = {folder: Upstream(task, CalibrateStage.RANGES) for folder, task in plan.ends.items()}

    def work() -> dict[str, bytes]:
        run_stages(executor)
        return {folder: executor.read(up) for folder, up in outputs.items()}

    state.check_outputs(outputs.values())
    try:
        with shared_memory(1, plan.memory):
            pieces = executor.attempt(work)
    finally:
        state.store.files.save()
        state.store.finish(bound)
    return {folder: ranges_from_bytes(data, folder) for folder, data in pieces.items()}


def _without_file(target: Target) -> Target:
    assert target.calibration is not None
    return replace(target, calibration=replace(target.calibration, range_file=None))


def _save_ranges(
    group: RangeGroup, files: Mapping[str, RangeFile], *, check: bool
) -> CalibrationResult:
    ranges = joined_ranges(group, files)
    text = range_file_text(ranges)
    before, is_changed = RangeFile(), False
    if group.path is not None:
        # Files other than range files are not overwritten, because the name may be a typo.
        is_there = group.path.exists()
        before = read_range_file(group.path) if is_there else before
        is_changed = not is_there or group.path.read_bytes() != text.encode()
        if is_changed and not check:
            write_text(group.path, text)
    return CalibrationResult(
        group.name,
        group.folders,
        ranges.method,
        ranges.samples,
        len(ranges.tensors),
        ranges.unseen,
        tuple(_moved(before, ranges)) if group.path is not None else (),
        is_changed,
    )


def _moved(before: RangeFile, after: RangeFile) -> Iterator[Moved]:
    for tensor in sorted({*before.tensors, *after.tensors}):
        old, new = before.tensors.get(tensor), after.tensors.get(tensor)
        if old is None or new is None:
            yield Moved(tensor, _ends(old), _ends(new), None)
        elif _ends(old) != _ends(new):
            further = max(abs(new.low - old.low), abs(new.high - old.high))
            width = old.high - old.low
            yield Moved(tensor, _ends(old), _ends(new), further / width if width else None)


def _ends(ends: TensorRange | None) -> tuple[float, float] | None:
    return None if ends is None else (ends.low, ends.high)
