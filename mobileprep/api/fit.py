"""Whether the models and data of recipes are what the recipes say, told at the recipes' lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mobileprep.api.target_check import foreseen
from mobileprep.chains.norms_left import norms_foreseen
from mobileprep.datasets.opening import data_kind, open_dataset
from mobileprep.datasets.source import DataFiles, SampleChoice, data_inputs
from mobileprep.errors import AccuracyError, CorruptFileError, MobileprepError, UnsupportedError
from mobileprep.freezing.fit import DeclaredInput, Fit, fit
from mobileprep.freezing.model import FreezeOptions, FreezeResult
from mobileprep.freezing.source import load_source
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.numerics.texts import Fault
from mobileprep.opdefs.definitions import slip_in
from mobileprep.options.data import Reading
from mobileprep.plan.sources import file_or_folder
from mobileprep.plan.spec import Files
from mobileprep.recipe.metrics import AUTO, metric_facts
from mobileprep.recipe.model import Recipe, Target, digestible
from mobileprep.recipe.problems import Problem, in_order, recipe_error, render
from mobileprep.recipe.settings import Data, InputFile
from mobileprep.recipe.tree import Key, place_of
from mobileprep.recipe.validation_settings import (
    USUAL_LABELS,
    MetricChoice,
    MetricFunction,
    Validation,
)
from mobileprep.runtime.sampling.data_files import (
    class_faults,
    has_labels,
    label_faults,
    sample_faults,
)
from mobileprep.runtime.sampling.draw import undrawable
from mobileprep.runtime.sampling.first_ops import first_ops
from mobileprep.runtime.sampling.inputs import FedTensor, known_shapes
from mobileprep.stages.data import data_files


def check_models(recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Open every model and every file of samples of some recipes.

    Returns:
        What the user should know of models that fit, each sentence once, with its place.

    Raises:
        InvalidRecipeError: a model is not what a recipe says; all problems of all recipes.
        UnsupportedError: the model fits, but the TensorFlow of a target cannot load or run it, or
            a step cannot run an op of the app.
        AccuracyError: only the data does not fit; all problems likewise.
        MobileprepError: a model or its data cannot be read, or the model cannot be frozen.
    """
    of_models: list[Problem] = []
    of_targets: list[Problem] = []
    of_data: list[Problem] = []
    cautions: list[str] = []
    known: dict[str, Fit] = {}
    for target in (target for recipe in recipes for target in recipe.targets):
        key = repr([target.source.file.path, target.source.checkpoint, *_asked(target)])
        if key not in known:
            known[key] = _fit(target)
        found = known[key]
        of_models += [_problem(target, m.keys, m.message, m.hint) for m in found.misfits]
        if found.frozen is not None and not found.misfits:
            inputs = _inputs(target, found.frozen)
            of_models += _draw_problems(target, found.frozen.graph, inputs)
            of_data += _data_problems(target, found.frozen, inputs)
            cautions += _unfolded_norms(target, found.frozen.graph)
            cautions += _slips_in_ops(target, found.frozen.graph)
            ahead = foreseen(target, found.frozen)
            of_targets += ahead.problems
            cautions += ahead.cautions
    if of_models:
        raise recipe_error([*of_models, *of_targets, *of_data])
    if of_targets:
        raise _unsupported(in_order([*of_targets, *of_data]))
    if of_data:
        raise AccuracyError(render(in_order(of_data)))
    return tuple(dict.fromkeys(cautions))


def _unsupported(problems: Sequence[Problem]) -> UnsupportedError:
    """The error of some problems; of a single one, as the build reports it."""
    if len(problems) > 1:
        return UnsupportedError(render(problems))
    (problem,) = problems
    return UnsupportedError(problem.message, problem.hint, str(problem.place))


def _asked(target: Target) -> Iterator[object]:
    """What decides whether a model fits, besides the model."""
    yield digestible(target.source)
    yield digestible(target.freeze)
    yield [digestible(declared) for declared in target.inputs]
    yield target.outputs


def _fit(target: Target) -> Fit:
    source = target.source
    path = source.file.path
    kind = source.kind if source.kind in ("meta_graph", "saved_model") else "graph"
    named = source.checkpoint if source.names_checkpoint else None
    checkpoint = None if named is None else named.path
    saver = None if source.saver is None else source.saver.path
    freeze = {f.name: getattr(target.freeze, f.name) for f in dataclasses.fields(target.freeze)}
    options = FreezeOptions(target.outputs, source.signature or "", **freeze)
    declared = [DeclaredInput(i.name, i.dtype, i.shape) for i in target.inputs]
    files: dict[str, Path | None] = {kind: path, "checkpoint": checkpoint, "saver": saver}
    try:
        loaded = load_source(tags=source.tags, **files)
        if source.assets is not None:
            members = file_or_folder(source.assets).members
            loaded = dataclasses.replace(loaded, files=tuple(member.path for member in members))
        return fit(loaded, options, declared)
    except MobileprepError as error:
        raise error.at(source.file.place, message=str(error)) from error


def _inputs(target: Target, frozen: FreezeResult) -> list[FedTensor]:
    names = tuple(i.name for i in target.inputs) or frozen.inputs
    return data_inputs(frozen.graph, names, {i.name: i.shape for i in target.inputs})


def _draw_problems(target: Target, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[Problem]:
    """Inputs that a check would have to draw, and that cannot be drawn."""
    check = target.check
    if check is None or check.data or target.validation:
        return
    found = (undrawable(fed, first_ops(graph, fed.ref)) for fed in inputs)
    yield from (_problem(target, ("check",), *fault) for fault in found if fault is not None)


def _data_problems(
    target: Target, frozen: FreezeResult, inputs: Sequence[FedTensor]
) -> Iterator[Problem]:
    """What is wrong with the samples of a target's validation, check and calibration."""
    validation, check, calibration = target.validation, target.check, target.calibration
    if validation is not None:
        with _placed(validation.data.file):
            faults = [
                fault
                for choice in validation.metrics
                for fault in _metric_faults(choice, validation, frozen, inputs)
            ]
        for fault in dict.fromkeys(faults):
            yield _problem(target, ("validation", "data"), *fault)
    samples = {"check": None if check is None else check.data}
    if calibration is not None:
        samples["calibration"] = calibration.data
    for section, named in samples.items():
        # A range file may stand in for the data of a calibration.
        if named is None or (section == "calibration" and not named.file.path.exists()):
            continue
        file = named.file
        with _placed(file):
            if _is_plain_npz(named):
                faults = sample_faults(file.path, file.name, inputs)
            else:
                faults = list(_opening_faults(named, inputs, SampleChoice()))
        yield from (_problem(target, (section, "data"), *fault) for fault in faults)


def _is_plain_npz(data: Data) -> bool:
    """Whether data is arrays under the names of the inputs, of which more is told at once."""
    is_bare = data.reading == Reading()
    return is_bare and (data.kind or data_kind(_files(data))) == "npz"


def _opening_faults(
    data: Data, inputs: Sequence[FedTensor], choice: SampleChoice, labels: str | None = None
) -> Iterator[Fault]:
    """What is wrong with samples as far as opening them tells; a user's code is not run."""
    files = _files(data)
    if (files.kind or data_kind(files)) == "python":
        return
    try:
        open_dataset(files, inputs, choice, labels=labels or "", labelled=labels is not None)
    except AccuracyError as error:
        yield error.message, error.hint


def _files(data: Data) -> DataFiles:
    return data_files(Files(data.file.name, data.file.path, ()), data)


def _metric_faults(
    choice: MetricChoice,
    validation: Validation,
    frozen: FreezeResult,
    inputs: Sequence[FedTensor],
) -> list[Fault]:
    """What is wrong with the samples for one metric."""
    labels = choice.labels or USUAL_LABELS
    named = choice.labels is not None or validation.data.names_labels
    may_lack = choice.metric == AUTO and not named
    if not _is_plain_npz(validation.data):
        asked = not may_lack and _of_labels(choice, named=named)
        samples = SampleChoice(validation.samples)
        return list(_opening_faults(validation.data, inputs, samples, labels if asked else None))
    file = validation.data.file
    if isinstance(choice.metric, MetricFunction):
        return sample_faults(file.path, file.name, inputs)
    facts = metric_facts(choice.metric)
    if facts is None or not facts.of_labels:
        return sample_faults(file.path, file.name, inputs)
    if may_lack and not has_labels(file.path, labels, inputs):
        return sample_faults(file.path, file.name, inputs)
    if not choice.metric.startswith("top") and choice.metric != AUTO:
        faults = sample_faults(file.path, file.name, inputs)
        return [*faults, *label_faults(file.path, file.name, labels)]
    names = choice.named_outputs or frozen.outputs[:1]
    refs = [ref for ref in map(parse_ref, names) if ref.node in frozen.graph]
    scores = next(iter(known_shapes(frozen.graph, refs)), None)
    return class_faults(file.path, file.name, inputs, labels, scores)


def _of_labels(choice: MetricChoice, *, named: bool) -> bool:
    """Whether a metric surely takes labels; a user's function may do without."""
    if isinstance(choice.metric, MetricFunction):
        return named
    facts = metric_facts(choice.metric)
    return facts is not None and facts.of_labels


def _unfolded_norms(target: Target, graph: Graph) -> Iterator[str]:
    """Batch norms of the model that no step of the chain folds; a plugin may do anything."""
    if any(step.plugin is not None for step in target.transforms):
        return
    told = norms_foreseen(graph, [step.name for step in target.transforms])
    if told:
        assert target.tree is not None
        yield f"{place_of(target.tree, ('transforms',))}: {told}"


def _slips_in_ops(target: Target, graph: Graph) -> Iterator[str]:
    """Ops that a budget limits, and that neither the model nor any TensorFlow has."""
    limits = target.budget.ops
    bodies = (function.nodes for function in graph.library.functions.values())
    own = {node.op for nodes in (graph.nodes, *bodies) for node in nodes}
    for key, ops in () if limits is None else vars(limits).items():
        for number, op in enumerate(ops):
            slip = "" if op in own else slip_in(op)
            if slip:
                assert target.tree is not None
                yield f"{place_of(target.tree, ('budget', 'ops', key, number))}: {slip}"


@contextmanager
def _placed(file: InputFile) -> Iterator[None]:
    """Puts the place in the recipe before what is wrong with a file that it names."""
    try:
        yield
    except CorruptFileError as error:
        raise CorruptFileError(str(error), error.hint, file.place) from error


def _problem(target: Target, keys: Iterable[Key], message: str, hint: str) -> Problem:
    assert target.tree is not None
    return Problem(place_of(target.tree, keys), message, hint)
