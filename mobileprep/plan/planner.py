"""From a recipe to a plan: which stages there are, what each is told, and what it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mobileprep.plan.checks import EXPECTED, SAMPLES, check_spec, sample_files, samples_spec
from mobileprep.plan.engines import engine_parameters
from mobileprep.plan.fingerprints import canonical
from mobileprep.plan.sources import checkpoint_files, folder_files, meta_graph_files, single_file
from mobileprep.plan.spec import InputFile, Plan, StageSpec, TargetPlan, Upstream
from mobileprep.plan.step_files import step_files, step_roots
from mobileprep.recipe.model import Recipe, Source, Step, Target, digestible

GRAPH: Final = "graph.pb"
INTERFACE: Final = "interface.json"
ASSETS: Final = "assets.npz"


def plan_recipes(recipes: Iterable[Recipe], wanted: frozenset[str] = frozenset()) -> Plan:
    """The plan of some recipes.

    Args:
        recipes: the recipes.
        wanted: the names of the targets to build; empty for all.

    Raises:
        CorruptFileError: a file that a recipe names is not there.
    """
    builder = _Builder()
    targets = [
        builder.target(recipe, target)
        for recipe in recipes
        for target in recipe.targets
        if not wanted or target.name in wanted or target.folder in wanted
    ]
    return Plan(tuple(builder.stages), tuple(targets))


class _Builder:
    """Collects stages; one that two targets both need is planned once."""

    def __init__(self) -> None:
        self.stages: list[StageSpec] = []
        self._known: dict[str, str] = {}
        self._names: set[str] = set()

    def target(self, recipe: Recipe, target: Target) -> TargetPlan:
        """Plan one target, from its source to its folder."""
        freeze = self._freeze(recipe, target)
        samples, steps, checks = self._chain(recipe, target, freeze)
        package = self._package(recipe, target, freeze, [freeze, *steps][-1])
        facts = {
            "freeze": Upstream(freeze, "freeze.json"),
            "package": Upstream(package, "package.json"),
        }
        if samples:
            facts["samples"] = Upstream(samples[0], "samples.json")
        validation: list[str] = []
        sources = list(_source_files(target.source))
        if target.validation is not None:
            validation = self._validate(recipe, target, freeze, package)
            facts["validation"] = Upstream(validation[-1], "validation.json")
            sources += single_file(target.validation.data)
        sources += sample_files(target)
        for step in target.transforms:
            sources += [file for files in step_files(step).values() for file in files]
        return TargetPlan(
            recipe.name,
            target.folder,
            (freeze, *samples, *steps, *checks, package, *validation),
            tuple(Upstream(s, "step.json") for s in steps),
            tuple(Upstream(c, "check.json") for c in checks),
            facts,
            tuple(sources),
            _settings(target),
        )

    def _chain(
        self, recipe: Recipe, target: Target, freeze: str
    ) -> tuple[list[str], list[str], list[str]]:
        """The tasks of the transforms.

        Returns:
            where a check is asked for, the task that makes its samples; the transforms' tasks;
            and those that check each of them.
        """
        steps: list[str] = []
        checks: list[str] = []
        graph, interface = Upstream(freeze, GRAPH), Upstream(freeze, INTERFACE)
        beside = {"interface": interface, "assets": Upstream(freeze, ASSETS)}
        samples: list[str] = []
        check = target.check
        if check is not None and target.transforms:
            spec = samples_spec(target, check, {"graph": graph, **beside})
            samples = [self._add(recipe, target, spec)]
            beside["samples"] = Upstream(samples[0], SAMPLES)
            beside["expected"] = Upstream(samples[0], EXPECTED)
        for number, step in enumerate(target.transforms, start=1):
            label = f"{number:02d}-{step.name}"
            earlier = [s.name for s in target.transforms[: number - 1]]
            inputs = {"graph": graph, "interface": interface}
            steps.append(self._transform(recipe, target, label, step, earlier, inputs))
            graph = Upstream(steps[-1], GRAPH)
            if check is not None:
                compared = check_spec(target, check, label, step, {"graph": graph, **beside})
                checks.append(self._add(recipe, target, compared))
        return samples, steps, checks

    def _freeze(self, recipe: Recipe, target: Target) -> str:
        source = target.source
        files = {"graph": _graph_files(source)}
        roots = {"graph": source.file.path}
        if source.checkpoint is not None:
            files["checkpoint"] = checkpoint_files(source.checkpoint)
            roots["checkpoint"] = source.checkpoint.path
        if source.saver is not None:
            files["saver"] = single_file(source.saver)
            roots["saver"] = source.saver.path
        parameters = {
            "kind": source.kind,
            "graph": source.file.name,
            "checkpoint": source.checkpoint.name if source.checkpoint else None,
            "saver": source.saver.name if source.saver else None,
            "tags": list(source.tags),
            "signature": source.signature,
            "freeze": digestible(target.freeze),
            "inputs": [digestible(i) for i in target.inputs],
            "outputs": list(target.outputs),
        }
        spec = StageSpec(
            "freeze",
            "freeze",
            parameters,
            files,
            roots,
            outputs=(GRAPH, INTERFACE, ASSETS, "freeze.json"),
            places=_places(target, "source", "freeze", "inputs", "outputs"),
        )
        return self._add(recipe, target, spec)

    def _transform(
        self,
        recipe: Recipe,
        target: Target,
        label: str,
        step: Step,
        earlier: list[str],
        inputs: Mapping[str, Upstream],
    ) -> str:
        parameters = {
            "name": step.name,
            "options": digestible_options(step),
            "ignore_errors": step.ignore_errors,
            "earlier": earlier,
        }
        places = {**_places(target, "inputs", "outputs"), "transforms": step.place}
        spec = StageSpec(
            label,
            "transform",
            parameters,
            step_files(step),
            step_roots(step),
            upstream=inputs,
            outputs=(GRAPH, "step.json"),
            places=places,
        )
        return self._add(recipe, target, spec)

    def _package(self, recipe: Recipe, target: Target, freeze: str, last: str) -> str:
        parameters = {
            "file": model_file(recipe, target),
            "artifact": target.artifact,
            "platform": target.platform,
            "abis": list(target.abis),
            "registration": list(target.registration),
            "budget": digestible(target.budget),
        }
        spec = StageSpec(
            f"{target.folder}/package",
            "package",
            parameters,
            upstream={"graph": Upstream(last, GRAPH), "interface": Upstream(freeze, INTERFACE)},
            outputs=(f"files/{model_file(recipe, target)}", "package.json"),
            places=_places(target, "budget", "registration", "artifact", "transforms"),
        )
        return self._add(recipe, target, spec)

    def _validate(self, recipe: Recipe, target: Target, freeze: str, package: str) -> list[str]:
        beside = {
            "interface": Upstream(freeze, INTERFACE),
            "assets": Upstream(freeze, ASSETS),
        }
        source = {"graph": Upstream(freeze, GRAPH), **beside}
        shipped = Upstream(package, f"files/{model_file(recipe, target)}")
        artifact = {"graph": shipped, **beside}
        before = self._evaluate(recipe, target, "evaluate-source", source)
        after = self._evaluate(recipe, target, f"{target.folder}/evaluate", artifact)
        validation = target.validation
        spec = StageSpec(
            f"{target.folder}/validate",
            "validate",
            {"max_drop": validation.max_drop if validation else 0.0},
            upstream={
                "before": Upstream(before, "evaluation.json"),
                "after": Upstream(after, "evaluation.json"),
                "before_outputs": Upstream(before, "outputs.npz"),
                "after_outputs": Upstream(after, "outputs.npz"),
            },
            outputs=("validation.json",),
            places={
                "max_drop": target.place(("validation", "max_drop")),
                **_places(target, "outputs"),
            },
        )
        return [before, after, self._add(recipe, target, spec)]

    def _evaluate(
        self, recipe: Recipe, target: Target, label: str, inputs: Mapping[str, Upstream]
    ) -> str:
        validation = target.validation
        assert validation is not None
        parameters = {
            "labels": validation.labels,
            "metric": validation.metric,
            "data": validation.data.name,
            **engine_parameters(target),
        }
        spec = StageSpec(
            label,
            "evaluate",
            parameters,
            {"data": single_file(validation.data)},
            upstream=inputs,
            outputs=("evaluation.json", "outputs.npz"),
            places=_places(target, "validation", "inputs", "outputs", "engine"),
        )
        return self._add(recipe, target, spec)

    def _add(self, recipe: Recipe, target: Target, spec: StageSpec) -> str:
        """Add a stage unless an equal one is planned; its task's name."""
        key = canonical(
            [
                spec.stage,
                spec.parameters,
                {slot: [str(f.path) for f in files] for slot, files in spec.files.items()},
                {slot: [up.task, up.output] for slot, up in spec.upstream.items()},
            ]
        )
        if key in self._known:
            return self._known[key]
        name = f"{recipe.name}/{spec.task}"
        if name in self._names:
            name = f"{recipe.name}/{target.folder}/{spec.task}"
        self._names.add(name)
        self._known[key] = name
        self.stages.append(dataclasses.replace(spec, task=name))
        return name


def model_file(recipe: Recipe, target: Target) -> str:
    """The name of a target's model file."""
    return f"{target.model or recipe.name}.{'pbtxt' if target.artifact == 'text' else 'pb'}"


def digestible_options(step: Step) -> Mapping[str, Any]:
    """A step's options as JSON can hold them."""
    return {key: digestible(value) for key, value in step.options.items()}


def _graph_files(source: Source) -> tuple[InputFile, ...]:
    if source.kind == "saved_model":
        return folder_files(source.file)
    if source.kind == "meta_graph":
        return meta_graph_files(source.file)
    return single_file(source.file)


def _source_files(source: Source) -> tuple[InputFile, ...]:
    more = checkpoint_files(source.checkpoint) if source.checkpoint is not None else ()
    saver = single_file(source.saver) if source.saver is not None else ()
    return (*_graph_files(source), *more, *saver)


def _settings(target: Target) -> Mapping[str, Any]:
    return {
        "platform": target.platform,
        "abis": list(target.abis),
        "artifact": target.artifact,
        "registration": list(target.registration),
        "inputs": [digestible(i) for i in target.inputs],
        "outputs": list(target.outputs),
        "freeze": digestible(target.freeze),
        "engine": target.engine,
        "transforms": [
            {"name": s.name, "options": digestible_options(s), "ignore_errors": s.ignore_errors}
            for s in target.transforms
        ],
    }


def _places(target: Target, *sections: str) -> Mapping[str, str]:
    return {section: target.place((section,)) for section in sections}
