"""Plan the stages of recipes: their parameters, inputs, and order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import structs

from mobileprep.building.plan.engines import engine_choice, litert_choice, model_of
from mobileprep.building.plan.portable import distinct_sources, outside_files, portable_recipe
from mobileprep.building.plan.spec import (
    PAGE,
    PUBLISHED,
    Plan,
    PlannedPage,
    PlannedRecord,
    Stage,
    StageSpec,
    TargetPlan,
    Upstream,
)
from mobileprep.building.stages.budget.spec import BudgetStage, budget_spec
from mobileprep.building.stages.calibrate.spec import CalibrateStage, calibrate_spec
from mobileprep.building.stages.check.spec import (
    CheckStage,
    DefaultCheckStage,
    SamplesStage,
    check_spec,
    default_check_spec,
    default_samples_spec,
    needs_default_check,
    package_check_spec,
    samples_spec,
)
from mobileprep.building.stages.damage.spec import DamageStage, damage_spec
from mobileprep.building.stages.evaluate.spec import SOURCE_LABEL, EvaluateStage, evaluate_spec
from mobileprep.building.stages.freeze.spec import (
    GRAPH,
    FreezeStage,
    Frozen,
    freeze_spec,
    frozen_by,
)
from mobileprep.building.stages.integration.spec import IntegrationStage, integration_spec
from mobileprep.building.stages.migration.spec import MigrationStage, migration_spec
from mobileprep.building.stages.package.spec import (
    ENDINGS,
    CompressStage,
    EncryptStage,
    PackageStage,
    compress_spec,
    encrypt_spec,
    encrypted_file,
    package_spec,
)
from mobileprep.building.stages.page.spec import NodesStage
from mobileprep.building.stages.search.spec import (
    ChoiceStage,
    RankStage,
    SearchPlanner,
    TrialStage,
    VerdictStage,
)
from mobileprep.building.stages.transform.spec import TransformStage, transform_spec
from mobileprep.building.stages.validate.spec import ValidateStage, validate_spec
from mobileprep.core.files import canonical
from mobileprep.recipe.model import Recipe, Step, Target, digestible
from mobileprep.recipe.settings import Budget


def plan_recipes(recipes: Iterable[Recipe], requested: frozenset[str] = frozenset()) -> Plan:
    """Plan the stages of recipes."""
    known_stages = KnownStages()
    targets = [
        _TargetPlanner(recipe, target, known_stages).plan()
        for recipe in map(portable_recipe, recipes)
        for target in recipe.chosen(requested)
    ]
    return Plan(tuple(known_stages.stages), tuple(targets))


class _TargetPlanner:
    """Planner of one target, from its source to its output directory."""

    def __init__(self, recipe: Recipe, target: Target, stages: KnownStages) -> None:
        self._recipe = recipe
        self._target = target
        self._stages = stages
        self._calibrations: list[str] = []
        self._searches: list[str] = []

    def plan(self) -> TargetPlan:
        """Plan the target and add its stages to the known ones."""
        target = self._target
        freeze = self._add(freeze_spec(target))
        samples, steps, checks = self._chain(frozen_by(freeze))
        damage_of = damage_spec(target, frozen_by(freeze), steps)
        damage = [] if damage_of is None else [self._add(damage_of)]
        last = [freeze, *steps][-1]
        ranges = self._ranges_of_file(frozen_by(freeze), last)
        file = self._model_file()
        package = self._add(
            package_spec(target, file, frozen_by(freeze), Upstream(last, GRAPH), ranges)
        )
        shipped = self._shipped(package)
        code = self._code(frozen_by(freeze), last)
        compress = self._add(compress_spec(target, Upstream(last, GRAPH), shipped))
        budget = self._budget(frozen_by(freeze), last, package, compress)
        migration = self._migration(frozen_by(freeze), steps)
        package_check = self._check(frozen_by(freeze), last, shipped, samples, checks)
        validation = self._validate(frozen_by(freeze), last, shipped)
        default_check = self._default_check(frozen_by(freeze), steps, package)
        source_nodes, nodes = self._nodes(frozen_by(freeze), last)
        tasks = (
            *(freeze, *samples, *self._calibrations, *self._searches, *steps, *checks),
            *(*damage, package, *{shipped.task} - {package}, *code, compress, *budget),
            *(*package_check, *migration, *validation, *default_check),
            *(source_nodes, *{nodes} - {source_nodes}),
        )
        return TargetPlan(
            self._recipe.name,
            target.folder,
            tasks,
            self._stages.records(tasks),
            distinct_sources(outside_files(target)),
            target_settings(target),
            PlannedPage(
                Upstream(source_nodes, NodesStage.LEFT),
                Upstream(nodes, NodesStage.LEFT),
                tuple(Upstream(task, PAGE) for task in (freeze, *steps)),
                tuple(step.name for step in target.transforms),
            ),
        )

    def _add(self, spec: StageSpec) -> str:
        return self._stages.add(self._recipe, self._target, spec)

    def _chain(self, frozen: Frozen) -> tuple[list[str], list[str], list[str]]:
        """Add the tasks of the transforms.

        Returns:
            The task that creates the samples of a check, if the recipe has one; the tasks of the
            transforms; and the tasks that check them.
        """
        target, check = self._target, self._target.check
        steps: list[str] = []
        checks: list[str] = []
        samples: list[str] = []
        if check is not None:
            samples = [self._add(samples_spec(target, check, frozen))]
        graph = frozen.graph
        for number, step in enumerate(target.transforms, start=1):
            label = f"{number:02d}-{step.name}"
            ranges = self._ranges(label, step, graph, frozen)
            if step.trials:
                steps.append(self._search(number, label, graph, ranges, frozen))
            else:
                spec = transform_spec(target, number, graph, ranges, frozen.interface)
                steps.append(self._add(spec))
            graph = Upstream(steps[-1], GRAPH)
            if check is not None:
                spec = check_spec(target, check, label, step, graph, frozen, samples[0])
                checks.append(self._add(spec))
        return samples, steps, checks

    def _ranges(self, label: str, step: Step, graph: Upstream, frozen: Frozen) -> Upstream | None:
        """Add the calibration before a step. Return its ranges, or None if the step takes none."""
        target = self._target
        if not step.takes_ranges or target.calibration is None:
            return None
        spec = calibrate_spec(target, target.calibration, f"{label}-calibrate", graph, frozen)
        self._calibrations.append(self._add(spec))
        return Upstream(self._calibrations[-1], CalibrateStage.RANGES)

    def _search(
        self, number: int, label: str, graph: Upstream, ranges: Upstream | None, frozen: Frozen
    ) -> str:
        """Add the tasks of a step that searches for the best layers to quantize."""
        target, validation = self._target, self._target.validation
        assert validation is not None
        assert ranges is not None
        arguments = (target, validation, label, number, graph, ranges, frozen)
        return SearchPlanner(*arguments, self._add, self._searches).plan()

    def _ranges_of_file(self, frozen: Frozen, last: str) -> Upstream | None:
        """Add the calibration for an integer .tflite file, and return its ranges."""
        target = self._target
        if not target.ranges_of_file or target.calibration is None:
            return None
        label, graph = f"{len(target.transforms) + 1:02d}-tflite-calibrate", Upstream(last, GRAPH)
        spec = calibrate_spec(target, target.calibration, label, graph, frozen, for_litert=True)
        self._calibrations.append(self._add(spec))
        return Upstream(self._calibrations[-1], CalibrateStage.RANGES)

    def _code(self, frozen: Frozen, last: str) -> list[str]:
        """Return the task that generates code for the app, if the recipe asks for it."""
        target, integration = self._target, self._target.integration
        if integration is None:
            return []
        graph, file = Upstream(last, GRAPH), self._model_file()
        spec = integration_spec(target, integration, file, graph, frozen.interface)
        return [self._add(spec)]

    def _model(self, package: str) -> Upstream:
        """Return the unencrypted model file of the package stage."""
        file = self._model_file()
        return Upstream(package, file if self._target.protect.key else f"{PUBLISHED}{file}")

    def _shipped(self, package: str) -> Upstream:
        """Return the model file that the target publishes."""
        target, model = self._target, self._model(package)
        if target.protect.key is None:
            return model
        file = encrypted_file(target, self._model_file())
        task = self._add(encrypt_spec(target, target.protect.key, file, model))
        return Upstream(task, f"{PUBLISHED}{file}")

    def _nodes(self, frozen: Frozen, last: str) -> tuple[str, str]:
        """Return the tasks that describe the nodes of the source and of the final graph."""
        inputs, ranges = self._target.inputs, self._calibrations
        source = NodesStage(inputs=inputs, graph=frozen.graph)
        shipped = NodesStage(
            inputs=inputs,
            graph=Upstream(last, GRAPH),
            ranges=tuple(Upstream(task, CalibrateStage.RANGES) for task in ranges),
        )
        label = f"{self._target.folder}/nodes"
        return self._add(StageSpec("nodes-source", source)), self._add(StageSpec(label, shipped))

    def _budget(self, frozen: Frozen, last: str, package: str, compress: str) -> list[str]:
        """Return the task that compares the model with the budget and the device, if any."""
        target = self._target
        if target.budget == Budget() and target.device is None:
            return []
        graph = Upstream(last, GRAPH)
        return [self._add(budget_spec(target, frozen, graph, package, compress))]

    def _migration(self, frozen: Frozen, steps: list[str]) -> list[str]:
        """Return the task that reports which runtimes can run the graph, if requested."""
        spec = migration_spec(self._target, frozen, steps)
        return [] if spec is None else [self._add(spec)]

    def _default_check(self, frozen: Frozen, steps: list[str], package: str) -> list[str]:
        """Return the default quantization check, unless the recipe configures its own."""
        target = self._target
        if not needs_default_check(target):
            return []
        samples = self._add(default_samples_spec(target, frozen))
        spec = default_check_spec(target, frozen, steps, self._model(package), samples)
        return [samples, self._add(spec)]

    def _model_file(self) -> str:
        name = self._target.model or self._recipe.name
        return f"{name}.{ENDINGS.get(self._target.artifact, 'pb')}"

    def _check(
        self, frozen: Frozen, last: str, shipped: Upstream, samples: list[str], checks: list[str]
    ) -> list[str]:
        """Return the task that checks the packaged model, if the recipe has a check."""
        target, check = self._target, self._target.check
        if check is None:
            return []
        model = model_of(target, "check", Upstream(last, GRAPH), shipped)
        spec = package_check_spec(target, check, model, frozen, samples[0], checks)
        return [self._add(spec)]

    def _validate(self, frozen: Frozen, last: str, shipped: Upstream) -> list[str]:
        """Return the validation tasks, if the recipe has a validation."""
        target, validation = self._target, self._target.validation
        if validation is None:
            return []
        model = model_of(target, "validation", Upstream(last, GRAPH), shipped)
        before = self._add(evaluate_spec(target, validation, SOURCE_LABEL, frozen))
        label = f"{target.folder}/evaluate"
        after = self._add(evaluate_spec(target, validation, label, frozen, model))
        spec = validate_spec(target, validation, before, after, self._calibrations)
        return [before, after, self._add(spec)]


class KnownStages:
    """Stages planned so far. A stage that several targets share is planned once."""

    def __init__(self) -> None:
        self.stages: list[StageSpec] = []
        self._tasks: dict[str, str] = {}
        self._names: set[str] = set()

    def records(self, tasks: Iterable[str]) -> tuple[PlannedRecord, ...]:
        """Return the records of tasks that the report reads."""
        by_task = {spec.task: spec.stage for spec in self.stages}
        return tuple(
            PlannedRecord(stage.reported, Upstream(task, stage.RECORD))
            for task, stage in ((task, by_task[task]) for task in tasks)
            if stage.reported is not None
        )

    def add(self, recipe: Recipe, target: Target, spec: StageSpec) -> str:
        """Add a stage unless an equal one exists, and return its task name."""
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
        self.stages.append(structs.replace(spec, task=name))
        return name


def target_settings(target: Target) -> Mapping[str, Any]:
    """Return the target's settings that affect its outputs, as JSON-serializable data."""
    return {
        "source": {k: v for k, v in digestible(target.source).items() if k != "pins"},
        "platform": target.platform,
        "abis": list(target.abis),
        "artifact": target.artifact,
        **({"flex": True} if target.flex else {}),
        **({"min_runtime": target.min_runtime} if target.min_runtime else {}),
        # For other artifacts, the transforms below quantize.
        **({"quantize": digestible(target.quantize)} if target.artifact == "tflite" else {}),
        "registration": list(target.registration),
        **({"allow": list(target.allow)} if target.allow else {}),
        **({"ops": digestible(target.ops)} if target.ops else {}),
        "integration": digestible(target.integration),
        "protect": digestible(target.protect),
        "inputs": [digestible(i) for i in target.inputs],
        "outputs": list(target.outputs),
        "freeze": digestible(target.freeze),
        "engine": target.engine,
        "engine_versions": _engine_versions(target) if _runs_graphs(target) else {},
        "check": digestible(target.check),
        "calibration": digestible(target.calibration),
        "validation": digestible(target.validation),
        "budget": digestible(target.budget),
        "device": digestible(target.device),
        "transforms": [
            {"name": s.name, "options": _options(s), "ignore_errors": s.ignore_errors}
            | ({"trials": s.trials} if s.trials else {})
            for s in target.transforms
        ],
    }


def _engine_versions(target: Target) -> Mapping[str, str]:
    lite = litert_choice(target, "check") or litert_choice(target, "validation")
    return {**engine_choice(target).versions, **({} if lite is None else lite.versions)}


def _runs_graphs(target: Target) -> bool:
    """Return whether a target's report depends on the installed engines."""
    return target.check is not None or target.validation is not None


def _options(step: Step) -> Mapping[str, Any]:
    """Return a step's options as JSON-serializable data."""
    return {key: digestible(value) for key, value in step.options.items()}


STAGES: Final[tuple[type[Stage], ...]] = (
    FreezeStage,
    TransformStage,
    SamplesStage,
    CheckStage,
    DefaultCheckStage,
    CalibrateStage,
    DamageStage,
    PackageStage,
    EncryptStage,
    IntegrationStage,
    MigrationStage,
    CompressStage,
    BudgetStage,
    NodesStage,
    EvaluateStage,
    ValidateStage,
    RankStage,
    TrialStage,
    VerdictStage,
    ChoiceStage,
)
"""All stage classes."""
