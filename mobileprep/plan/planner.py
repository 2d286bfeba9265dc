"""From a recipe to a plan: which stages there are, what each is told, and what it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from mobileprep.plan.app import app_classes, integration_spec
from mobileprep.plan.calibrating import calibrate_spec, calibration_members
from mobileprep.plan.checks import Frozen, check_spec, frozen_by, samples_spec
from mobileprep.plan.compressor import LEVEL, compressor
from mobileprep.plan.damage import damage_spec
from mobileprep.plan.fingerprints import canonical
from mobileprep.plan.regular_expressions import regex_engine, step_regex_engine
from mobileprep.plan.running_stages import (
    CalibrateStage,
    CheckStage,
    DamageStage,
    SamplesStage,
    ValidateStage,
)
from mobileprep.plan.sources import (
    checkpoint_files,
    data_files,
    folder_files,
    meta_graph_files,
    single_file,
)
from mobileprep.plan.spec import (
    Files,
    Plan,
    PlannedRecords,
    StageFile,
    StageSpec,
    TargetPlan,
    Upstream,
    places,
)
from mobileprep.plan.stages import (
    GRAPH,
    PUBLISHED,
    BudgetStage,
    CompressStage,
    FreezeStage,
    PackageStage,
    TransformStage,
)
from mobileprep.plan.step_files import named_files, plugin_file
from mobileprep.plan.target_settings import target_settings
from mobileprep.plan.validation import evaluate_spec, validate_spec
from mobileprep.recipe.model import Recipe, Step, Target
from mobileprep.recipe.settings import Budget, Source


def plan_recipes(recipes: Iterable[Recipe], wanted: frozenset[str] = frozenset()) -> Plan:
    """The plan of some recipes.

    Args:
        recipes: the recipes.
        wanted: the names of the targets to build; empty for all.

    Raises:
        CorruptFileError: a file that a recipe names is not there.
    """
    known = _Known()
    targets = [
        _TargetPlanner(recipe, target, known).plan()
        for recipe in recipes
        for target in recipe.targets
        if not wanted or target.name in wanted or target.folder in wanted
    ]
    return Plan(tuple(known.stages), tuple(targets))


class _Known:
    """The stages planned so far; one that two targets both need is planned once."""

    def __init__(self) -> None:
        self.stages: list[StageSpec] = []
        self._tasks: dict[str, str] = {}
        self._names: set[str] = set()

    def add(self, recipe: Recipe, target: Target, spec: StageSpec) -> str:
        """Add a stage unless an equal one is planned; its task's name."""
        stage = spec.stage
        key = canonical(
            [
                spec.kind,
                stage.parameters,
                {s: [str(f.path) for f in files.members] for s, files in stage.files.items()},
                {slot: [up.task, up.output] for slot, up in stage.upstream.items()},
            ]
        )
        if key in self._tasks:
            return self._tasks[key]
        name = f"{recipe.name}/{spec.task}"
        if name in self._names:
            name = f"{recipe.name}/{target.folder}/{spec.task}"
        self._names.add(name)
        self._tasks[key] = name
        self.stages.append(dataclasses.replace(spec, task=name))
        return name


class _TargetPlanner:
    """Plans one target, from its source to its folder."""

    def __init__(self, recipe: Recipe, target: Target, known: _Known) -> None:
        self._recipe = recipe
        self._target = target
        self._known = known
        self._calibrations: list[str] = []

    def plan(self) -> TargetPlan:
        """The target's plan; its stages are known afterwards."""
        target = self._target
        freeze = self._add(_freeze_spec(target))
        samples, steps, checks = self._chain(frozen_by(freeze))
        damage_of = damage_spec(target, frozen_by(freeze), steps)
        damage = [] if damage_of is None else [self._add(damage_of)]
        package = self._add(self._package_spec(frozen_by(freeze), [freeze, *steps][-1]))
        code = self._code(frozen_by(freeze), [freeze, *steps][-1])
        sizes = self._sizes(package)
        validation = self._validate(frozen_by(freeze), package)
        records = PlannedRecords(
            Upstream(freeze, FreezeStage.RECORD),
            Upstream(package, PackageStage.RECORD),
            Upstream(sizes[0], CompressStage.RECORD),
            tuple(Upstream(task, TransformStage.RECORD) for task in steps),
            tuple(Upstream(task, CheckStage.RECORD) for task in checks),
            Upstream(samples[0], SamplesStage.RECORD) if samples else None,
            Upstream(validation[-1], ValidateStage.RECORD) if validation else None,
            tuple(Upstream(task, CalibrateStage.RECORD) for task in self._calibrations),
            Upstream(damage[0], DamageStage.RECORD) if damage else None,
        )
        return TargetPlan(
            self._recipe.name,
            target.folder,
            (
                *(freeze, *samples, *steps, *self._calibrations, *checks, *damage),
                *(package, *code, *sizes, *validation),
            ),
            records,
            tuple(_outside(target)),
            target_settings(target),
        )

    def _add(self, spec: StageSpec) -> str:
        return self._known.add(self._recipe, self._target, spec)

    def _chain(self, frozen: Frozen) -> tuple[list[str], list[str], list[str]]:
        """The tasks of the transforms.

        Returns:
            where a check is asked for, the task that makes its samples; the transforms' tasks;
            and those that check each of them.
        """
        target, check = self._target, self._target.check
        steps: list[str] = []
        checks: list[str] = []
        samples: list[str] = []
        if check is not None and target.transforms:
            samples = [self._add(samples_spec(target, check, frozen))]
        graph = frozen.graph
        for number, step in enumerate(target.transforms, start=1):
            label = f"{number:02d}-{step.name}"
            ranges = self._ranges(label, step, graph, frozen)
            spec = _transform_spec(target, number, graph, ranges, frozen.interface)
            steps.append(self._add(spec))
            graph = Upstream(steps[-1], GRAPH)
            if check is not None:
                spec = check_spec(target, check, label, step, graph, frozen, samples[0])
                checks.append(self._add(spec))
        return samples, steps, checks

    def _ranges(self, label: str, step: Step, graph: Upstream, frozen: Frozen) -> Upstream | None:
        """What the calibration before a step leaves for it; None for steps that take none."""
        target = self._target
        if not step.takes_ranges or target.calibration is None:
            return None
        spec = calibrate_spec(target, target.calibration, f"{label}-calibrate", graph, frozen)
        self._calibrations.append(self._add(spec))
        return Upstream(self._calibrations[-1], CalibrateStage.RANGES)

    def _package_spec(self, frozen: Frozen, last: str) -> StageSpec:
        target = self._target
        stage = PackageStage(
            file=self._model_file(),
            artifact=target.artifact,
            platform=target.platform,
            abis=target.abis,
            registration=target.registration,
            graph=Upstream(last, GRAPH),
            interface=frozen.interface,
        )
        where = places(target, "registration", "artifact", "transforms")
        return StageSpec(f"{target.folder}/package", stage, where)

    def _code(self, frozen: Frozen, last: str) -> list[str]:
        """The task that writes code for the app; none where none is asked for."""
        target, integration = self._target, self._target.integration
        if integration is None:
            return []
        graph, file = Upstream(last, GRAPH), self._model_file()
        spec = integration_spec(target, integration, file, graph, frozen.interface)
        return [self._add(spec)]

    def _sizes(self, package: str) -> list[str]:
        """The task that measures the compressed model, and the one that holds it to limits."""
        target = self._target
        model = Upstream(package, f"{PUBLISHED}{self._model_file()}")
        stage = CompressStage(compressor=compressor(), level=LEVEL, model=model)
        compress = self._add(StageSpec(f"{target.folder}/compress", stage))
        if target.budget == Budget():
            return [compress]
        limits = BudgetStage(
            budget=target.budget,
            package=Upstream(package, PackageStage.RECORD),
            compressed=Upstream(compress, CompressStage.RECORD),
        )
        where = places(target, "budget")
        return [compress, self._add(StageSpec(f"{target.folder}/budget", limits, where))]

    def _model_file(self) -> str:
        name = self._target.model or self._recipe.name
        return f"{name}.{'pbtxt' if self._target.artifact == 'text' else 'pb'}"

    def _validate(self, frozen: Frozen, package: str) -> list[str]:
        """The tasks of the validation; none where none is asked for."""
        target, validation = self._target, self._target.validation
        if validation is None:
            return []
        shipped = Upstream(package, f"{PUBLISHED}{self._model_file()}")
        artifact = dataclasses.replace(frozen, graph=shipped)
        before = self._add(evaluate_spec(target, validation, "evaluate-source", frozen))
        after = self._add(evaluate_spec(target, validation, f"{target.folder}/evaluate", artifact))
        return [before, after, self._add(validate_spec(target, validation, before, after))]


def _freeze_spec(target: Target) -> StageSpec:
    source = target.source
    stage = FreezeStage(
        kind=source.kind,
        graph=_graph_files(source),
        checkpoint=checkpoint_files(source.checkpoint) if source.checkpoint else None,
        saver=single_file(source.saver) if source.saver else None,
        tags=source.tags,
        signature=source.signature,
        freeze=target.freeze,
        inputs=target.inputs,
        outputs=target.outputs,
        # What is frozen already has no variables, and so no initializers.
        regular_expressions="" if source.kind == "frozen" else regex_engine(),
    )
    return StageSpec("freeze", stage, places(target, "source", "freeze", "inputs", "outputs"))


def _transform_spec(
    target: Target, number: int, graph: Upstream, ranges: Upstream | None, interface: Upstream
) -> StageSpec:
    """The stage of a target's step, counted from 1."""
    step = target.transforms[number - 1]
    stage = TransformStage(
        transform=step.name,
        options=step.options,
        ignore_errors=step.ignore_errors,
        earlier=tuple(s.name for s in target.transforms[: number - 1]),
        plugin=plugin_file(step),
        named=named_files(step),
        graph=graph,
        ranges=ranges,
        interface=interface,
        regular_expressions=step_regex_engine(step),
    )
    where = {**places(target, "inputs", "outputs"), "transforms": step.place}
    return StageSpec(f"{number:02d}-{step.name}", stage, where)


def _graph_files(source: Source) -> Files:
    if source.kind == "saved_model":
        return folder_files(source.file)
    if source.kind == "meta_graph":
        return meta_graph_files(source.file)
    return single_file(source.file)


def _outside(target: Target) -> Iterator[StageFile]:
    """The files from outside that a target depends on."""
    source = target.source
    yield from _graph_files(source).members
    if source.checkpoint is not None:
        yield from checkpoint_files(source.checkpoint).members
    if source.saver is not None:
        yield from single_file(source.saver).members
    if target.validation is not None:
        yield from data_files(target.validation.data).members
        for file in target.validation.functions:
            yield from single_file(file).members
    yield from calibration_members(target)
    if target.check is not None and target.check.data is not None:
        yield from data_files(target.check.data).members
    classes = app_classes(target)
    if classes is not None:
        yield from single_file(classes).members
    for step in target.transforms:
        plugin = plugin_file(step)
        yield from () if plugin is None else plugin.members
        for files in named_files(step).values():
            yield from files.members
