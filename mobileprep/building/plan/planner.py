"""Plan the stages of recipes: their parameters, inputs, and order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import structs

from mobileprep.building.plan.engines import engine_choice, litert_choice, model_of
from mobileprep.building.plan.portable import distinct_sources, outside_files, portable_recipe
from mobileprep.building.plan.spec import (
    PAGE,
    PUBLISHED,
    Plan,
    PlannedPage,
    PlannedRecord,
    StageSpec,
    TargetPlan,
    Upstream,
)
from mobileprep.building.stages.budget.spec import budget_spec
from mobileprep.building.stages.calibrate.spec import CalibrateStage, calibrate_spec
from mobileprep.building.stages.candidate.spec import candidate_spec
from mobileprep.building.stages.check.spec import (
    check_spec,
    default_check_spec,
    default_samples_spec,
    needs_default_check,
    package_check_spec,
    samples_spec,
)
from mobileprep.building.stages.cut.spec import CutStage, cut_spec, stated_spec
from mobileprep.building.stages.damage.spec import damage_spec
from mobileprep.building.stages.decoder.spec import CutDecoderStage, cut_decoder_spec
from mobileprep.building.stages.download.spec import download_spec
from mobileprep.building.stages.evaluate.spec import SOURCE_LABEL, evaluate_spec, labeled
from mobileprep.building.stages.exceptions.spec import ExceptionPlanner
from mobileprep.building.stages.freeze.spec import (
    GRAPH,
    INTERFACE,
    Frozen,
    freeze_spec,
    frozen_by,
)
from mobileprep.building.stages.gaps.spec import gaps_spec
from mobileprep.building.stages.integration.spec import integration_spec
from mobileprep.building.stages.layers.spec import layers_spec
from mobileprep.building.stages.migration.spec import migration_spec
from mobileprep.building.stages.package.spec import (
    ENDINGS,
    compress_spec,
    encrypt_spec,
    encrypted_file,
    package_spec,
)
from mobileprep.building.stages.page.spec import NodesStage
from mobileprep.building.stages.pipeline.spec import (
    PlannedModel,
    pass_rate_members,
    pass_rate_specs,
    pipeline_spec,
)
from mobileprep.building.stages.search.spec import (
    SearchPlanner,
)
from mobileprep.building.stages.transform.spec import transform_spec
from mobileprep.building.stages.validate.spec import validate_spec
from mobileprep.core.files import canonical
from mobileprep.recipe.model import Recipe, Target, digestible
from mobileprep.recipe.pipeline import pipeline_targets
from mobileprep.recipe.settings import Budget
from mobileprep.recipe.tree import Plain
from mobileprep.recipe.validation_settings import NamedValidation
from mobileprep.targets.measurements import Measurement
from mobileprep.targets.targets import Device


def plan_recipes(recipes: Iterable[Recipe], requested: frozenset[str] = frozenset()) -> Plan:
    """Plan the stages of recipes."""
    known_stages = KnownStages()
    targets: list[TargetPlan] = []
    for recipe in map(portable_recipe, recipes):
        chosen = {target.folder for target in recipe.chosen(requested)}
        needed = _with_partners(recipe, chosen)
        planners = [_TargetPlanner(recipe, t, known_stages) for t in needed]
        planned = {planner.target.folder: planner.plan() for planner in planners}
        models = {planner.target.folder: planner.model for planner in planners}
        planned |= _with_pipelines(recipe, known_stages, planned, models)
        targets += (plan for folder, plan in planned.items() if folder in chosen)
    plan = Plan(tuple(known_stages.stages), tuple(targets))
    stages = plan.until(task for target in targets for task in target.tasks)
    return structs.replace(plan, stages=tuple(stages))


def _with_partners(recipe: Recipe, chosen: Collection[str]) -> Iterator[Target]:
    """Yield the chosen targets, and those of the other models in their pipelines."""
    needed = set(chosen)
    for targets in pipeline_targets(recipe.targets):
        folders = {target.folder for target in targets}
        needed |= folders if folders & needed else set()
    yield from (target for target in recipe.targets if target.folder in needed)


def _with_pipelines(
    recipe: Recipe,
    stages: KnownStages,
    planned: Mapping[str, TargetPlan],
    models: Mapping[str, PlannedModel],
) -> Iterator[tuple[str, TargetPlan]]:
    """Yield the targets of pipelines again, by directory, with the stages of their pipeline.

    All targets need them, so that none is published if the pipeline exceeds a limit. The report of
    the last step's target describes the pipeline.
    """
    for targets in pipeline_targets([model.target for model in models.values()]):
        last, pipeline = targets[-1], targets[-1].pipeline
        assert pipeline is not None
        used = [models[target.folder] for target in targets]
        specs = pass_rate_specs(pipeline, used)
        rates = [stages.add(recipe, last, spec) for spec in specs]
        tasks = (*rates, stages.add(recipe, last, pipeline_spec(pipeline, used, rates)))
        for folder in dict.fromkeys(target.folder for target in targets):
            plan = planned[folder]
            plan = structs.replace(plan, tasks=(*plan.tasks, *tasks))
            if folder == last.folder:
                data = pass_rate_members(pipeline)
                plan = structs.replace(
                    plan,
                    records=stages.records(plan.tasks),
                    sources=distinct_sources((*plan.sources, *data)),
                    settings={**plan.settings, "pipeline": digestible(pipeline)},
                )
            yield folder, plan


class _TargetPlanner:
    """Planner of one target, from its source to its output directory."""

    def __init__(self, recipe: Recipe, target: Target, stages: KnownStages) -> None:
        self._recipe = recipe
        self.target = target
        self._stages = stages
        self._calibrations: list[str] = []
        self._searches: list[str] = []

    def plan(self) -> TargetPlan:
        """Plan the target and add its stages to the known ones."""
        target = self.target
        freeze = self._add(freeze_spec(target))
        frozen = frozen_by(freeze)
        cut = self._add_all(cut_spec(target, frozen))
        if cut:
            assets = frozen.assets
            frozen = Frozen(Upstream(cut[0], GRAPH), Upstream(cut[0], INTERFACE), assets)
        decoder = self._add_all(cut_decoder_spec(target, frozen))
        if decoder:
            frozen = Frozen(
                Upstream(decoder[0], GRAPH), Upstream(decoder[0], INTERFACE), frozen.assets
            )
        samples, steps, checks = self._chain(frozen)
        damage = self._add_all(damage_spec(target, frozen, steps))
        graph = Upstream([freeze, *cut, *decoder, *steps][-1], GRAPH)
        file = f"{target.model or self._recipe.name}.{ENDINGS.get(target.artifact, 'pb')}"
        label = f"{len(target.transforms) + 1:02d}-tflite-calibrate"
        used = target.ranges_of_file
        ranges = self._ranges(label, graph, frozen, is_used=used, for_litert=True)
        damage += self._add_all(layers_spec(target, frozen, steps, self._add))
        exceptions = self._exceptions(file, graph, ranges, frozen)
        package = self._add(package_spec(target, file, frozen, graph, ranges, exceptions))
        self.model = PlannedModel(target, frozen, graph, package)
        model = Upstream(package, file if target.protect.key else f"{PUBLISHED}{file}")
        shipped = self._shipped(model, file)
        stated = self._add_all(stated_spec(target, frozen))
        moved = Upstream([*cut, *stated][0], CutStage.RECORD) if cut or stated else None
        decoding = Upstream(decoder[0], CutDecoderStage.RECORD) if decoder else None
        code = self._add_all(
            integration_spec(target, file, graph, frozen.interface, moved, package, decoding)
        )
        compress = self._add(compress_spec(target, graph, shipped))
        download = self._add_all(download_spec(target, file, shipped))
        sizes = (compress, *download)
        budget = self._add_all(
            budget_spec(target, frozen, graph, shipped, package, *sizes, lite=model)
        )
        candidate = self._add_all(candidate_spec(target, frozen))
        migration = self._add_all(migration_spec(target, frozen, steps))
        package_check = self._add_all(
            package_check_spec(target, graph, shipped, frozen, samples, checks)
        )
        validation = self._validate(frozen, graph, shipped)
        default_check = self._default_check(frozen, steps, model)
        source_nodes, nodes = self._nodes(frozen, graph)
        tasks = (
            *(
                freeze,
                *cut,
                *decoder,
                *stated,
                *samples,
                *self._calibrations,
                *self._searches,
                *steps,
                *checks,
            ),
            *(*damage, package, *{shipped.task} - {package}, *code, *sizes, *budget),
            *(*package_check, *candidate, *migration, *validation, *default_check),
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
                Upstream(source_nodes, NodesStage.RECORD),
                Upstream(nodes, NodesStage.RECORD),
                tuple(Upstream(task, PAGE) for task in (freeze, *steps)),
                tuple(step.name for step in target.transforms),
            ),
        )

    def _add(self, spec: StageSpec) -> str:
        return self._stages.add(self._recipe, self.target, spec)

    def _add_all(self, *specs: StageSpec | None) -> list[str]:
        """Add the stages that the recipe asks for, and return their tasks."""
        return [self._add(spec) for spec in specs if spec is not None]

    def _chain(self, frozen: Frozen) -> tuple[list[str], list[str], list[str]]:
        """Add the tasks of the transforms.

        Returns:
            The task that creates the samples of a check, if the recipe has one; the tasks of the
            transforms; and the tasks that check them.
        """
        target, check = self.target, self.target.check
        steps: list[str] = []
        checks: list[str] = []
        samples: list[str] = []
        if check is not None:
            samples = [self._add(samples_spec(target, check, frozen))]
        graph = frozen.graph
        for number, step in enumerate(target.transforms, start=1):
            label = f"{number:02d}-{step.name}"
            ranges = self._ranges(f"{label}-calibrate", graph, frozen, is_used=step.takes_ranges)
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

    def _ranges(
        self,
        label: str,
        graph: Upstream,
        frozen: Frozen,
        *,
        is_used: bool,
        for_litert: bool = False,
    ) -> Upstream | None:
        """Add a calibration, and return its ranges, or None if they are not used."""
        target = self.target
        if not is_used or target.calibration is None:
            return None
        spec = calibrate_spec(
            target, target.calibration, label, graph, frozen, for_litert=for_litert
        )
        self._calibrations.append(self._add(spec))
        return Upstream(self._calibrations[-1], CalibrateStage.RANGES)

    def _search(
        self, number: int, label: str, graph: Upstream, ranges: Upstream | None, frozen: Frozen
    ) -> str:
        """Add the tasks of a step that searches for the best layers to quantize."""
        target, validation = self.target, self.target.validation
        assert validation is not None
        assert ranges is not None
        return SearchPlanner(
            *(target, validation, label, number, graph, ranges, frozen, self._add, self._searches)
        ).plan()

    def _exceptions(
        self, file: str, graph: Upstream, ranges: Upstream | None, frozen: Frozen
    ) -> Upstream | None:
        """Add the search of ``quantize: auto`` in a .tflite file, and return its result."""
        target, validation = self.target, self.target.validation
        if not target.searches_exceptions or validation is None or ranges is None:
            return None
        return ExceptionPlanner(
            *(target, validation, file, graph, ranges, frozen, self._add, self._searches)
        ).plan()

    def _shipped(self, model: Upstream, file: str) -> Upstream:
        """Return the model file that the target publishes, which may be encrypted."""
        target = self.target
        if target.protect.key is None:
            return model
        file = encrypted_file(target, file)
        task = self._add(encrypt_spec(target, target.protect.key, file, model))
        return Upstream(task, f"{PUBLISHED}{file}")

    def _nodes(self, frozen: Frozen, graph: Upstream) -> tuple[str, str]:
        """Return the tasks that describe the nodes of the source and of the final graph."""
        inputs, ranges = self.target.inputs, self._calibrations
        source = NodesStage(inputs=inputs, graph=frozen.graph)
        shipped = NodesStage(
            inputs=inputs,
            graph=graph,
            ranges=tuple(Upstream(task, CalibrateStage.RANGES) for task in ranges),
        )
        label = f"{self.target.folder}/nodes"
        return self._add(StageSpec("nodes-source", source)), self._add(StageSpec(label, shipped))

    def _default_check(self, frozen: Frozen, steps: list[str], model: Upstream) -> list[str]:
        """Return the default quantization check, unless the recipe configures its own."""
        target = self.target
        if not needs_default_check(target):
            return []
        samples = self._add(default_samples_spec(target, frozen))
        spec = default_check_spec(target, frozen, steps, model, samples)
        return [samples, self._add(spec)]

    def _validate(self, frozen: Frozen, graph: Upstream, shipped: Upstream) -> list[str]:
        """Return the tasks of the validations, and the one that compares their data sets."""
        target = self.target
        befores, evaluations, validations = [], [], []
        for validation in target.validations:
            model = model_of(target, validation, graph, shipped)
            label = labeled(SOURCE_LABEL, validation)
            source = evaluate_spec(target, validation, label, frozen, looks_at_data=True)
            before = self._add(source)
            label = labeled(f"{target.folder}/evaluate", validation)
            after = self._add(evaluate_spec(target, validation, label, frozen, model))
            spec = validate_spec(target, validation, before, after, self._calibrations)
            befores.append(before)
            evaluations.append(after)
            validations.append(self._add(spec))
        steps = zip(befores, evaluations, validations, strict=True)
        gaps = gaps_spec(target, evaluations, validations)
        return [*chain.from_iterable(steps), *self._add_all(gaps)]


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
        **(
            {}
            if target.preprocessing == "keep"
            else {"preprocessing": digestible(target.preprocessing)}
        ),
        **({} if target.decoding == "keep" else {"decoding": target.decoding}),
        **({"min_runtime": target.min_runtime} if target.min_runtime else {}),
        **({"streaming": target.streaming.steps} if target.streaming else {}),
        # For other artifacts, the transforms below quantize.
        **({"quantize": _quantize_settings(target)} if target.artifact == "tflite" else {}),
        "registration": list(target.registration),
        **({"allow": list(target.allow)} if target.allow else {}),
        **({"ops": digestible(target.ops)} if target.ops else {}),
        "integration": _integration_settings(target),
        "protect": digestible(target.protect),
        "inputs": [digestible(i) for i in target.inputs],
        "outputs": list(target.outputs),
        "freeze": digestible(target.freeze),
        "engine": target.engine,
        "engine_versions": _engine_versions(target),
        "check": digestible(target.check),
        "calibration": digestible(target.calibration),
        "validation": _validation_settings(target),
        "budget": _budget_settings(target.budget),
        **({} if target.download is None else {"download": digestible(target.download)}),
        "device": _device_settings(target.device),
        **_measurement_settings(target.measurement),
        "transforms": [
            {
                "name": s.name,
                "options": {key: digestible(value) for key, value in s.options.items()},
                "ignore_errors": s.ignore_errors,
                **({"trials": s.trials} if s.trials else {}),
            }
            for s in target.transforms
        ],
    }


def _quantize_settings(target: Target) -> dict[str, Plain]:
    """Return the quantization; with the limit of ``auto`` only where it applies."""
    settings = structs.asdict(target.quantize)
    if not target.searches_exceptions:
        del settings["min_int8_macs"]
    return {name: digestible(value) for name, value in settings.items()}


def _validation_settings(target: Target) -> Any:  # noqa: ANN401 - JSON
    """Return the validation, or the list of named ones, as in the recipe."""
    is_list = isinstance(target.validation, NamedValidation)
    return digestible(target.validations if is_list else target.validation)


def _budget_settings(budget: Budget) -> Mapping[str, Any]:
    """Return the limits; only those that all recipes had in the first release are always there."""
    limits = structs.asdict(budget)
    if budget.download_bytes is None:
        del limits["download_bytes"]
    if budget.ram is None:
        del limits["ram"]
    return {name: digestible(limit) for name, limit in limits.items()}


def _device_settings(device: Device | None) -> Plain:
    settings = digestible(device)
    if isinstance(settings, dict) and not settings["rates"]:
        del settings["rates"]
    return settings


def _measurement_settings(measurement: Measurement | None) -> dict[str, Plain]:
    if measurement is None:
        return {}
    names = ("device", "build", "date", "sha256", "mean_ms")
    return {"measurement": {name: getattr(measurement, name) for name in names}}


def _integration_settings(target: Target) -> Any:  # noqa: ANN401 - JSON
    """Return the settings of the code; without `labels` if the recipe names none."""
    settings = digestible(target.integration)
    if isinstance(settings, dict) and settings["labels"] is None:
        return {key: value for key, value in settings.items() if key != "labels"}
    return settings


def _engine_versions(target: Target) -> Mapping[str, str]:
    """Return the versions of installed engines if a target's report depends on them."""
    if target.check is None and target.validation is None:
        return {}
    choices = (litert_choice(target, settings) for settings in (target.check, *target.validations))
    lite = next((choice for choice in choices if choice is not None), None)
    return {**engine_choice(target).versions, **({} if lite is None else lite.versions)}
