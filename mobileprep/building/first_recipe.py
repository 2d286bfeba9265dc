"""Generate the first recipe of a model and summarize its build."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.fit import check_models
from mobileprep.building.pipeline.runner import collect
from mobileprep.building.pipeline.state import State
from mobileprep.building.preprocessing import PreprocessingFit, find_preprocessing
from mobileprep.building.report.collect import Report
from mobileprep.building.targets import build_report, plan_state
from mobileprep.core.paths import opened
from mobileprep.data.options import FOLDERS
from mobileprep.data.source import DataFiles, NoLabelsError
from mobileprep.errors import AccuracyError, InvalidGraphError, MobileprepError, UnsupportedError
from mobileprep.formats.arrays import read_headers
from mobileprep.freezing.find_models import FoundModel, inference_graph, load_found
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.proposal import Proposal, ProposedInput, propose
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, RELEASES, TF115
from mobileprep.recipe.first import Draft, DraftInput, quoted, recipe_text
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.schemas import modeline, recipe_schema
from mobileprep.transforms.cut_preprocessing import NoFrontError, find_front, without_front

_LABELS = "label"
_UNTRIED = "it has not been built yet; 'check: true' runs the model after each step."


class Wishes(Struct, frozen=True):
    """The user's choices for a recipe; empty values are chosen automatically.

    Args:
        name: name of the recipe.
        signature: signature of a SavedModel.
        tags: tags of its MetaGraph.
        inputs, outputs: names of inputs and outputs.
        data: an .npz file of samples for validation, or a directory of images.
        labels: name of its array of labels; empty for ``label`` if such an array exists. For
            images, the CSV file of labels; empty for the names of their directories.
        release: the TensorFlow release of the app; empty for the default, or a newer one if the
            default does not load the model.
    """

    name: str = ""
    signature: str = ""
    tags: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    data: Path | None = None
    labels: str = ""
    release: str = ""


def first_recipe(
    model: FoundModel,
    path: Path,
    wishes: Wishes,
    run: RunStages | None,
    show: Callable[[PreprocessingFit], None] = lambda _: None,
) -> tuple[str, str]:
    """Return the text of a recipe, and a summary of its build.

    If a training graph cannot be frozen, the inference graph in the same directory is used. If
    there is none, loops and conditionals are lowered if that helps.

    Args:
        model: the model.
        path: path of the recipe.
        wishes: choices of the user.
        run: runs the stages of a plan; None to skip the build and its checks.
        show: called with the preprocessing that was found for labeled images.
    """
    try:
        draft = _draft(model, path, wishes)
        if run is not None:
            draft = _preprocessed(draft, model, wishes, show)
        return _final(draft, path, run)
    except (UnsupportedError, InvalidGraphError) as error:
        other = inference_graph(model)
        if other is not None:
            return _final(_draft(other, path, wishes), path, run)
        if isinstance(error, UnsupportedError):
            with contextlib.suppress(MobileprepError):
                return _final(_lowered(model, path, wishes, error), path, run)
        raise


def _lowered(model: FoundModel, path: Path, wishes: Wishes, error: UnsupportedError) -> Draft:
    return replace(_draft(model, path, wishes), lowered=first_line(error))


def _final(draft: Draft, path: Path, run: RunStages | None) -> tuple[str, str]:
    if run is None:
        return recipe_text(replace(untried(draft, path), unchecked=_UNTRIED)), "not built yet"
    done = tried(draft, path, run)
    fed = {} if done.report.check is None else done.report.check.inputs
    inputs = tuple(
        _with_fed_shape(draft_input, fed.get(draft_input.name, ""))
        for draft_input in done.draft.inputs
    )
    return recipe_text(replace(done.draft, inputs=inputs)), summary_of(done.report)


def _with_fed_shape(draft_input: DraftInput, fed: str) -> DraftInput:
    """Note the shape that the check feeds in the comment of an input with unknown shape.

    Args:
        draft_input: the input.
        fed: value that the check feeds, such as ``float32 [1, 784], 0 to 1``; empty without a
            check.
    """
    shape = re.search(r"\[[0-9, ]*\]", fed)
    if draft_input.shape is not None or shape is None:
        return draft_input
    text = f"The graph does not record its shape, and the check feeds {shape[0]}: add 'shape:'"
    return replace(draft_input, remark=f"{text} with the shape that the app feeds.")


def _draft(model: FoundModel, path: Path, wishes: Wishes) -> Draft:
    source = load_found(model, wishes.tags)
    proposal = propose(
        source,
        signature=wishes.signature,
        inputs=wishes.inputs,
        outputs=wishes.outputs,
    )
    data = wishes.data
    return Draft(
        wishes.name or recipe_name(model.path, path),
        modeline(path),
        tuple(_source(model, proposal, wishes.tags, path.parent)),
        tuple(map(_input, proposal.inputs)),
        proposal.outputs,
        (model.notes, proposal.about_inputs, proposal.about_outputs),
        release=wishes.release,
        preprocessing=_preprocessing(source.graph, proposal.outputs),
        validation=None if data is None else (_relative(data, path.parent), _labels(data, wishes)),
        reading=() if data is None or not data.is_dir() else _labels_of_images(wishes, path),
    )


def _labels_of_images(wishes: Wishes, path: Path) -> tuple[tuple[str, str], ...]:
    listed = wishes.labels and _relative(Path(wishes.labels), path.parent)
    return (("labels", quoted(listed) if listed else FOLDERS),)


def _preprocessed(
    draft: Draft,
    model: FoundModel,
    wishes: Wishes,
    show: Callable[[PreprocessingFit], None],
) -> Draft:
    """Add the preprocessing of images to a draft, if it is clear."""
    data = wishes.data
    if data is None or draft.validation is None:
        return draft
    name, labels = draft.validation
    is_folder = data.is_dir()
    if not (is_folder or (labels and data.is_file() and zipfile.is_zipfile(data))):
        return draft
    listed = Path(wishes.labels) if is_folder and wishes.labels else None
    files = DataFiles(str(data), data, "pictures" if is_folder else None, labels=listed)
    options = FreezeOptions(outputs=draft.outputs, signature=wishes.signature)
    try:
        graph = freeze(load_found(model, wishes.tags), options).graph
        names = [i.name for i in draft.inputs]
        fit = find_preprocessing(graph, names, draft.outputs, files, labels)
    except NoLabelsError:
        return replace(draft, validation=(name, ""), reading=())
    except MobileprepError:
        return draft  # The build reports the error.
    if fit is None:
        return draft
    show(fit)
    about, reading = _described(fit)
    return replace(
        draft,
        about_data=(*about, *fit.table()),
        reading=(*draft.reading, *reading) if is_folder else (),
        stated=tuple(reading),
    )


def _described(fit: PreprocessingFit) -> tuple[list[str], list[tuple[str, str]]]:
    """Return comments on a preprocessing, and the keys of ``data`` that apply it."""
    choice = fit.choice
    if choice is None:
        return [f"The preprocessing is not clear: {fit.doubt}."], []
    accuracy = f"top-1 accuracy {choice.accuracy:.3f} on {len(choice.hits)} samples"
    about = [f"Pixels scaled to {choice.scaling.name}, channels {choice.channels}: {accuracy}."]
    if fit.doubt:
        about.append(f"Note: {fit.doubt}.")
    mean, std = choice.ordered
    if fit.stored and fit.stored != choice.scaling.name:
        scaled = f"(pixel - {mean}) / {std}"
        about.append(f"The arrays contain {fit.stored}: scale pixels of 0 to 255 as {scaled}.")
    if fit.stored and choice.channels == "bgr":
        about.append("The arrays have the channels in another order: reverse the last axis.")
    if choice.offset > 0:
        fix = "add 1 to the labels" if fit.stored else "list it first in a file, 'classes: FILE'"
        about.append(f"The model has a class before that of the first label: {fix}.")
    elif choice.offset < 0:
        about.append("The model counts classes from 0 and the labels count from 1: subtract 1.")
    return about, [("mean", mean), ("std", std), ("channels", choice.channels)]


def _preprocessing(graph: Graph, outputs: tuple[str, ...]) -> str:
    """Describe the first ops that can move into the app; an empty string if there are none."""
    try:
        front = find_front(graph)
        without_front(graph, front, outputs)
    except (NoFrontError, MobileprepError):
        return ""
    return str(front.preprocessing)


def _labels(data: Path, wishes: Wishes) -> str:
    """Return the name of the labels; empty if the user gives none and the default is missing."""
    if wishes.labels or not (data.is_file() and zipfile.is_zipfile(data)):
        return wishes.labels or _LABELS  # the build reports an invalid .npz file
    return _LABELS if _LABELS in read_headers(data) else ""


def _source(
    model: FoundModel, proposal: Proposal, tags: tuple[str, ...], folder: Path
) -> list[tuple[str, str | tuple[str, ...]]]:
    keys: list[tuple[str, str | tuple[str, ...]]] = [(model.kind, _relative(model.path, folder))]
    if model.checkpoint is not None:
        keys.append(("checkpoint", _relative(model.checkpoint, folder)))
    if tags:
        keys.append(("tags", tags))
    if proposal.signature:
        keys.append(("signature", proposal.signature))
    return keys


def _input(proposed: ProposedInput) -> DraftInput:
    dtypes = recipe_schema()["$defs"]["input"]["properties"]["dtype"]["enum"]
    spec = proposed.spec
    dtype = spec.dtype.short if spec.dtype.short in dtypes else ""
    return DraftInput(spec.name, dtype, spec.shape, proposed.remark)


def _relative(path: Path, folder: Path) -> str:
    """Return a path relative to the recipe's directory, or an absolute one on another drive."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.resolve().as_posix()


# Names that exporters give every model, so they do not identify this one.
_GENERIC: Final = re.compile(
    r"(v?\d+|saved_?model|exports?|variables|checkpoints?|serving|frozen|"
    r"(frozen|optimized|eval|inference|output|train|training|test|tf|my|the|_)*(graph|model)"
    r"(_?def|\d+)?|(model|train|training|checkpoint|export)?\.?ckpt(-\d+)?|model-\d+|models?|"
    r"build|out|output|tmp|data|assets|public|src|app)\Z",
    re.IGNORECASE,
)
_SUFFIXES: Final = re.compile(r"(\.(pb|pbtxt|meta|index|bin|tf|graphdef))+\Z", re.IGNORECASE)
_NAMED: Final = re.compile(r"name:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9._-]*)")
_LONGEST: Final = 80
_LOOKED_AT: Final = 500
_HEAD: Final = 1 << 16


def recipe_name(model: Path, recipe: Path) -> str:
    """Return a name that describes the model and that no recipe nearby has.

    Output directories are named after recipes, so two recipes with the same name would overwrite
    each other's outputs.
    """
    path = Path(os.path.abspath(model))  # noqa: PTH100 - keep the names of symlinks
    stem = _clean(_SUFFIXES.sub("", path.name))
    names = [stem, *(_clean(p.name) for p in path.parents)]
    base = next((n for n in names if n and not _GENERIC.match(n)), "") or stem or "model"
    used_names = set(_used_names(recipe))
    numbered = (f"{base}-{number}" for number in itertools.count(2))
    longer = [f"{base}-{stem}"] if stem and stem != base else []
    return next(n for n in itertools.chain([base], longer, numbered) if n not in used_names)


def _clean(name: str) -> str:
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return cleaned.strip("._-")[:_LONGEST].rstrip("._-")


def _used_names(recipe: Path) -> Iterator[str]:
    """Yield recipe names in the new recipe's and the working directory, and two levels below."""
    below = _folders(Path.cwd())
    near = [*below, *(inner for folder in below for inner in _folders(folder))]
    folder = Path(os.path.abspath(recipe)).parent  # noqa: PTH100 - as above
    folders = dict.fromkeys([folder, Path.cwd(), *near[:_LOOKED_AT]])
    files = (
        path
        for place in folders
        for path in _listed(place)
        if path.suffix in (".yaml", ".yml") and path.is_file()
    )
    for path in itertools.islice(files, _LOOKED_AT):
        try:
            with opened(path) as stream:
                text = stream.read(_HEAD).decode("utf-8", "replace")
        except OSError:
            continue
        yield from (match[1] for line in text.splitlines() if (match := _NAMED.match(line)))


def _folders(folder: Path) -> list[Path]:
    return [p for p in _listed(folder) if p.is_dir() and not p.name.startswith(".")]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:_LOOKED_AT]
    except OSError:
        return []


# Maximum change of outputs as a fraction of the largest magnitude: for 8-bit weights, and for
# rounding of folded weights.
EIGHT_BIT_LIMIT = 0.05
FLOAT_LIMIT = 0.001
_T = TypeVar("_T")
RunStages = Callable[[State], None]
"""Runs the stale stages of a plan."""

_UNQUANTIZED = "The weights stay float: nothing would check what 8 bits do to them."
_CHANNEL = "{mode: weights, granularity: channel}"
_FLOAT16 = "float16"
_NEXT_STEPS = (
    "Next steps towards 8 bits: check on samples of your own ('check: {data: FILE.npz}'), or let "
    "'quantize: auto' find the layers that have to stay float; it needs a calibration and a "
    "validation."
)


class Tried(Struct, frozen=True):
    """A draft that builds, and the report of its build."""

    draft: Draft
    report: Report


def tried(draft: Draft, path: Path, run: RunStages) -> Tried:
    """Return the most complete draft that builds: checked and quantized, only checked, or plain.

    Weights are stored in 8 bits in the smallest way that keeps the outputs close to the source's,
    or else in 16 bits. Comments of the recipe name rejected ways and the reasons.

    Outputs stay in the cache, so that the user's first build has little to do.
    """
    draft, plain_report = _registered(draft, lambda plain: _built(plain, path, run))
    why: list[str] = []
    for smaller in _smaller(draft):
        try:
            report = _built(smaller, path, run)
        except AccuracyError as error:
            why.append(_rejected(smaller, first_line(error)))
            continue
        except MobileprepError as error:
            why = [f"The weights stay float: {first_line(error)}."]
            break
        if report.check is not None and report.check.warnings:
            # A check with warnings proves too little to accept 8-bit weights.
            why = [f"The weights stay float: {report.check.warnings[0]}."]
            break
        note = (*why, *((_NEXT_STEPS,) if smaller.quantize == _FLOAT16 else ()))
        return Tried(replace(smaller, about_weights=note), report)
    else:
        why.append(f"The weights stay float. {_NEXT_STEPS}")
    try:
        checked = replace(draft, check=FLOAT_LIMIT, about_weights=tuple(why))
        return Tried(checked, _built(checked, path, run))
    except MobileprepError as error:
        unchecked = f"{_reason(draft) or first_line(error)}."
    return Tried(replace(draft, unchecked=unchecked, about_weights=(_UNQUANTIZED,)), plain_report)


def untried(draft: Draft, path: Path) -> Draft:
    """Return a draft that its release loads, as far as that is known without building it."""
    plain = replace(draft, release=draft.release or DEFAULT_RELEASE)
    with contextlib.suppress(MobileprepError):
        return _registered(draft, lambda tried: check_models([_recipe(tried, path)]))[0]
    return plain


def _registered(draft: Draft, attempt: Callable[[Draft], _T]) -> tuple[Draft, _T]:
    """Return the first draft that its release loads: as it is, downgraded, with a newer release.

    Args:
        draft: the draft.
        attempt: raises UnsupportedError if the release does not load the model of a draft.
    """
    requested = draft.release
    plain = replace(draft, release=requested or DEFAULT_RELEASE)
    try:
        return plain, attempt(plain)
    except UnsupportedError as error:
        for other in _loadable(plain, first_line(error), fixed=bool(requested)):
            with contextlib.suppress(UnsupportedError):
                return other, attempt(other)
        raise


def _loadable(plain: Draft, reason: str, *, fixed: bool) -> Iterator[Draft]:
    """Yield drafts for a model that the release of ``plain`` does not load as it is."""
    if plain.release == TF115:
        yield replace(plain, downgrade=f"{reason}.")
    for release in RELEASES if not fixed else ():
        if release != plain.release:
            why = f"TensorFlow {release}, as the default does not load the model: {reason}."
            yield replace(plain, release=release, release_reason=why)


def first_line(error: MobileprepError) -> str:
    """Return the part of an error for a comment."""
    return error.message.partition("\n")[0]


def _reason(draft: Draft) -> str:
    """Return an obvious reason why the model cannot be checked, or an empty string."""
    unknown = [i.name for i in draft.inputs if i.shape is None]
    if not unknown:
        return ""
    return f"the graph does not record the shape of {', '.join(unknown)}"


def _smaller(draft: Draft) -> Iterator[Draft]:
    """Yield drafts with smaller weights, cheapest first."""
    draft = replace(draft, check=EIGHT_BIT_LIMIT)
    yield replace(draft, quantize="weights")
    yield replace(draft, quantize=_CHANNEL)
    yield replace(draft, quantize="weights", then="[equalize_ranges]")
    yield replace(draft, quantize=_FLOAT16)


def _rejected(draft: Draft, reason: str) -> str:
    """Describe a rejected way of storing weights for a comment."""
    before = f"then: {draft.then}, " if draft.then else ""
    return f"Rejected '{before}quantize: {draft.quantize}': {reason.partition('; at most')[0]}."


def _built(draft: Draft, path: Path, run: RunStages) -> Report:
    state = plan_state([_recipe(draft, path)])
    run(state)
    (built,) = collect(state)
    return build_report(built)


def _recipe(draft: Draft, path: Path) -> Recipe:
    return load_recipe(path, environ=os.environ, text=recipe_text(draft))


def summary_of(report: Report) -> str:
    """Summarize a build in one line."""
    size, before = report.model.bytes, report.source.bytes
    line = f"{before:,} bytes frozen, {size:,} prepared"
    model = None if report.check is None else report.check.model
    return f"{line}; outputs differ by at most {model.largest_difference:.2g}" if model else line
