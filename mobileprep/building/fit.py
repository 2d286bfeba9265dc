"""Check that models and data match their recipes, and report problems at lines of the recipes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from mobileprep.building.pipeline.publish import read_manifest
from mobileprep.building.plan.engines import check_installed
from mobileprep.building.plan.sources import file_or_folder
from mobileprep.building.plan.spec import Files
from mobileprep.building.stages.package.spec import HEADER
from mobileprep.building.stages.running import data_files
from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.core.files import map_file
from mobileprep.data.opening import data_kind, open_dataset
from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles, SampleChoice, data_inputs
from mobileprep.errors import (
    AccuracyError,
    CorruptFileError,
    MobileprepError,
    UnsupportedError,
    UsageError,
    named,
)
from mobileprep.formats.kinds import kind_of
from mobileprep.freezing.fit import DeclaredInput, Fit, fit
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.freezing.model import FreezeOptions, FreezeResult
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import check_holds_nodes, read_shipped_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, RELEASES, slip_in
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.ops.numerics.texts import Fault
from mobileprep.ops.registry import family_of
from mobileprep.recipe.load import load_recipes
from mobileprep.recipe.model import Recipe, Step, Target, digestible
from mobileprep.recipe.presence import check_files
from mobileprep.recipe.settings import Data, InputFile
from mobileprep.recipe.tree import Key, Problem, in_order, place_of, recipe_error, render
from mobileprep.recipe.validation_settings import (
    AUTO,
    USUAL_LABELS,
    MetricChoice,
    MetricFunction,
    Validation,
    metric_facts,
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
from mobileprep.targets.selective_registration import RegistrationHeader, read_registration_header
from mobileprep.targets.target_check import AppBuild, TargetGap, check_loads, ops_of, target_gaps
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, norms_foreseen, run_step


def validate(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
    *,
    files: bool = True,
    warn: Warn | None = None,
) -> list[Recipe]:
    """Check recipes without building them; all problems are reported at once.

    Args:
        recipes: recipes, or paths of recipe files.
        files: check the files that recipes name, too, and open models and data.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        The recipes.

    Raises:
        RecipeError: a recipe is invalid, or does not match its model or data.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a graph is malformed.
        UnsupportedError: an engine is not installed, or a file cannot be read.
    """
    warn = warn or as_warning
    loaded = load_recipes(recipes)
    if files:
        for recipe in loaded:
            check_files(recipe)
            for target in recipe.targets:
                check_installed(target)
        for caution in check_models(loaded):
            warn(caution)
    return list(loaded)


def check_models(recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Open every model and every data file of recipes.

    Returns:
        Distinct warnings with their locations.

    Raises:
        RecipeError: a model does not match its recipe.
        UnsupportedError: a target cannot load or run its graph.
        AccuracyError: data does not match its model.
    """
    of_models: list[Problem] = []
    of_targets: list[Problem] = []
    of_data: list[Problem] = []
    cautions: list[str] = []
    fits: dict[str, Fit] = {}
    for target in (target for recipe in recipes for target in recipe.targets):
        key = repr([target.source.file.path, target.source.checkpoint, *_fit_key(target)])
        if key not in fits:
            fits[key] = _fit(target)
        outcome = fits[key]
        of_models += [_problem(target, m.keys, m.message, m.hint) for m in outcome.misfits]
        if outcome.frozen is not None and not outcome.misfits:
            inputs = _inputs(target, outcome.frozen)
            of_models += _draw_problems(target, outcome.frozen.graph, inputs)
            of_data += _data_problems(target, outcome.frozen, inputs)
            cautions += _unfolded_norms(target, outcome.frozen.graph)
            cautions += _slips_in_ops(target, outcome.frozen.graph)
            ahead = foreseen(target, outcome.frozen)
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
    """Create the error of several problems, or of one problem as the build reports it."""
    if len(problems) > 1:
        return UnsupportedError(render(problems))
    (problem,) = problems
    return UnsupportedError(problem.message, problem.hint, str(problem.place))


def _fit_key(target: Target) -> Iterator[object]:
    """Yield everything besides the model that determines whether it matches."""
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
    freeze = structs.asdict(target.freeze)
    options = FreezeOptions(target.outputs, source.signature or "", **freeze)
    declared = [DeclaredInput(i.name, i.dtype, i.shape) for i in target.inputs]
    files: dict[str, Path | None] = {kind: path, "checkpoint": checkpoint, "saver": saver}
    try:
        loaded = load_source(tags=source.tags, **files)
        if source.assets is not None:
            members = file_or_folder(source.assets).members
            loaded = structs.replace(loaded, files=tuple(member.path for member in members))
        return fit(loaded, options, declared)
    except MobileprepError as error:
        raise error.at(source.file.place, message=str(error)) from error


def _inputs(target: Target, frozen: FreezeResult) -> list[FedTensor]:
    names = tuple(i.name for i in target.inputs) or frozen.inputs
    return data_inputs(frozen.graph, names, {i.name: i.shape for i in target.inputs})


def _draw_problems(target: Target, graph: Graph, inputs: Sequence[FedTensor]) -> Iterator[Problem]:
    """Yield a problem for each input for which a check cannot generate random data."""
    check = target.check
    if check is None or check.data or target.validation:
        return
    faults = (undrawable(fed, first_ops(graph, fed.ref)) for fed in inputs)
    yield from (_problem(target, ("check",), *fault) for fault in faults if fault is not None)


def _data_problems(
    target: Target, frozen: FreezeResult, inputs: Sequence[FedTensor]
) -> Iterator[Problem]:
    """Yield problems with the data of a target's validation, check, and calibration."""
    check, calibration = target.check, target.calibration
    for validation in target.validations:
        with _placed(validation.data.file):
            faults = [
                fault
                for choice in validation.metrics
                for fault in _metric_faults(choice, validation, frozen, inputs)
            ]
        for fault in dict.fromkeys(faults):
            yield _problem(target, (*target.validation_keys(validation), "data"), *fault)
    samples = {"check": None if check is None else check.data}
    if calibration is not None:
        samples["calibration"] = calibration.data
    for section, source in samples.items():
        # A range file may replace the data of a calibration.
        if source is None or (section == "calibration" and not source.file.path.exists()):
            continue
        file = source.file
        with _placed(file):
            if _is_plain_npz(source):
                faults = sample_faults(file.path, file.name, inputs)
            else:
                faults = list(_opening_faults(source, inputs, SampleChoice()))
        yield from (_problem(target, (section, "data"), *fault) for fault in faults)


def _is_plain_npz(data: Data) -> bool:
    """Return whether data is an .npz of the inputs, for which more problems are found at once."""
    is_bare = data.reading == Reading()
    return is_bare and (data.kind or data_kind(_files(data))) == "npz"


def _opening_faults(
    data: Data, inputs: Sequence[FedTensor], choice: SampleChoice, labels: str | None = None
) -> Iterator[Fault]:
    """Yield problems that occur when opening data; code of the user is not run."""
    files = _files(data)
    if (files.kind or data_kind(files)) == "python":
        return
    try:
        open_dataset(files, inputs, choice, labels=labels or "", labeled=labels is not None)
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
    """Return problems with the data for one metric."""
    labels = choice.labels or USUAL_LABELS
    named = choice.labels is not None or validation.data.names_labels
    may_lack = choice.metric == AUTO and not named
    if not _is_plain_npz(validation.data):
        is_needed = not may_lack and _of_labels(choice, named=named)
        samples = SampleChoice(validation.samples)
        return list(
            _opening_faults(validation.data, inputs, samples, labels if is_needed else None)
        )
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
    """Return whether a metric certainly requires labels; a user's function may not."""
    if isinstance(choice.metric, MetricFunction):
        return named
    facts = metric_facts(choice.metric)
    return facts is not None and facts.of_labels


def _unfolded_norms(target: Target, graph: Graph) -> Iterator[str]:
    """Warn of batch norms that no step of the chain folds, unless a plugin could do it."""
    if any(step.plugin is not None for step in target.transforms):
        return
    warning = norms_foreseen(graph, [step.name for step in target.transforms])
    if warning:
        assert target.tree is not None
        yield f"{place_of(target.tree, ('transforms',))}: {warning}"


def _slips_in_ops(target: Target, graph: Graph) -> Iterator[str]:
    """Warn of ops that a budget limits but neither the model nor any TensorFlow release has."""
    limits = target.budget.ops
    bodies = (function.nodes for function in graph.library.functions.values())
    own = {node.op for nodes in (graph.nodes, *bodies) for node in nodes}
    for key, ops in () if limits is None else structs.asdict(limits).items():
        for number, op in enumerate(ops):
            slip = "" if op in own else slip_in(op)
            if slip:
                assert target.tree is not None
                yield f"{place_of(target.tree, ('budget', 'ops', key, number))}: {slip}"


@contextmanager
def _placed(file: InputFile) -> Iterator[None]:
    """Add the location in the recipe to errors of a file."""
    try:
        yield
    except CorruptFileError as error:
        raise CorruptFileError(str(error), error.hint, file.place) from error


def _problem(target: Target, keys: Iterable[Key], message: str, hint: str) -> Problem:
    assert target.tree is not None
    return Problem(place_of(target.tree, keys), message, hint)


DEFAULT_PLATFORM: Final = "android"


class TargetCheck(Struct, frozen=True):
    """The requirements of a model that a build of TensorFlow lacks.

    Args:
        graph: path of the model.
        tensorflow: the release.
        platform: the platform that TensorFlow is built for.
        header: path of the registration header that it is built with; empty for none.
        loads: whether nothing is missing.
        gaps: unsupported ops and features.
    """

    graph: str
    tensorflow: str
    platform: str
    header: str
    loads: bool
    gaps: tuple[TargetGap, ...]


def check_target(
    path: Path,
    release: str | None = None,
    platform: str | None = None,
    *,
    selective: bool | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> TargetCheck:
    """Check a GraphDef, including memory-mapped ones, or another model after freezing it.

    Args:
        path: path of the model.
        release: the TensorFlow release. None uses that of the header, or else the default.
        platform: a name of `targets.targets.PLATFORMS`. None uses that of the manifest next to the
            model, or else ``DEFAULT_PLATFORM``.
        selective: whether the app builds with a registration header and its build files. None uses
            the header next to the model, if there is one; False ignores it.
        tell: called with a message for each change by freezing, and for an unused header.
    """
    frozen = path.is_dir() or kind_of(map_file(path)) != "GraphDef"
    graph = load_model(path, ModelOptions(), tell).graph if frozen else read_shipped_graph(path)
    check_holds_nodes(graph, str(path))
    if is_tflite_graph(graph):
        message = "the file is for LiteRT, not for TensorFlow"
        raise UsageError(message, "`mobileprep summarize` lists its operators", str(path))
    header = None if selective is False else _header(path, release, tell)
    release = release or (header.release if header is not None else "") or DEFAULT_RELEASE
    platform = platform or _platform(path)
    gaps = target_gaps(
        graph,
        release,
        platform,
        selective=bool(selective) or header is not None,
        header=None if header is None else header.registered,
    )
    used = "" if header is None else str(header.path)
    return TargetCheck(str(path), release, platform, used, not gaps, gaps)


def _header(
    path: Path, release: str | None, report_message: Callable[[str], None]
) -> RegistrationHeader | None:
    """Return the header next to a model; with several, the one of the release."""
    several = [path.parent / f"tensorflow-{name}" / HEADER for name in RELEASES]
    there = [file for file in (path.parent / HEADER, *several) if file.is_file()]
    headers = [read_registration_header(file) for file in there]
    fitting = [h for h in headers if h.release in ("", release or h.release)]
    if headers and not fitting:
        report_message(f"{there[0]} is for TensorFlow {headers[0].release}, and is not used")
    return fitting[0] if fitting else None


def _platform(path: Path) -> str:
    with contextlib.suppress(CorruptFileError):
        manifest = read_manifest(path.parent)
        if path.name in manifest.files:
            return str(manifest.settings.get("platform", DEFAULT_PLATFORM))
    return DEFAULT_PLATFORM


class Foreseen(Struct, frozen=True):
    """The errors and the located warnings that a build would report for a target."""

    problems: tuple[Problem, ...] = ()
    cautions: tuple[str, ...] = ()


def foreseen(target: Target, frozen: FreezeResult) -> Foreseen:
    """Check the graph that a build would ship, as the build does, without building it.

    Steps that need code, files, or ranges of the user are skipped. If there are such steps, a graph
    that does not load is only a warning, because they may change it.
    """
    if target.artifact == "tflite":
        return Foreseen()
    build = AppBuild(
        target.registration, target.platform, target.allow, [op.name for op in target.ops]
    )
    skipped: list[str] = []
    graph = frozen.graph
    if any(any(build.gaps(graph, release)) for release in target.registration):
        graph, skipped = _after_chain(target, frozen)
    place = place_of(target.tree, ("registration",)) if target.tree is not None else None
    assert place is not None
    problems = list(_unrunnable(target, graph))
    cautions = [f"{place}: {text}" for text in (*build.accepted(graph), *_unused(target, graph))]
    try:
        check_loads(graph, build)
    except UnsupportedError as error:
        if not skipped:
            problems.append(Problem(place, error.message, error.hint))
        else:
            unless = f"unless {named(skipped)} changes that"
            cautions.append(f"{place}: {error.message}, {unless}; {error.hint}")
    return Foreseen(tuple(problems), tuple(cautions))


def _after_chain(target: Target, frozen: FreezeResult) -> tuple[Graph, list[str]]:
    """Return the graph after the steps that can run now, and the names of the others."""
    inputs = tuple(i.name for i in target.inputs) or frozen.inputs
    context = Context(inputs, (*frozen.outputs, *frozen.init_ops))
    skipped: list[str] = []
    graph = frozen.graph
    for step in target.transforms:
        if _needs_more(step):
            skipped.append(step.name)
            continue
        # The build reports problems with a step.
        with contextlib.suppress(MobileprepError):
            graph = run_step(graph, ChainStep(step.name, step.options), context).graph
    return graph, skipped


def _needs_more(step: Step) -> bool:
    return bool(step.plugin or step.files or step.takes_ranges or step.trials)


def _unrunnable(target: Target, graph: Graph) -> Iterator[Problem]:
    """Yield a problem for each section that would run an op of the app."""
    assert target.tree is not None
    used = ops_of(graph)
    own = [op.name for op in target.ops if op.name in used and not family_of(op.name)]
    runs = {
        "check": target.check is not None and bool(target.transforms),
        "validation": target.validation is not None,
        "calibration": target.takes_ranges,
    }
    for section in (key for key, is_run in runs.items() if own and is_run):
        if target.tree.get(section) is not None:
            message = f"`{section}` runs the model, and mobileprep has no kernel for {named(own)}"
            hint = f"remove `{section}`, or set `{section}: null` for this target"
            yield Problem(place_of(target.tree, (section,)), message, hint)


def _unused(target: Target, graph: Graph) -> Iterator[str]:
    for op in target.ops:
        if op.name not in ops_of(graph):
            yield f"`ops` declares `{op.name}`, which the model does not have"
