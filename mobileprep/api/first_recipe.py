"""A first recipe for a model: its text, and what building it came to."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path

from mobileprep.api.first_build import RunStages, first_line, told, tried, untried
from mobileprep.api.recipe_names import recipe_name
from mobileprep.errors import InvalidGraphError, MobileprepError, UnsupportedError
from mobileprep.formats.arrays import read_headers
from mobileprep.freezing.find_models import FoundModel, inference_graph, load_found
from mobileprep.freezing.proposal import Proposal, ProposedInput, propose
from mobileprep.frozen import dataclass
from mobileprep.recipe.first import Draft, DraftInput, recipe_text
from mobileprep.recipe.schemas import modeline, recipe_schema

_LABELS = "label"
_UNTRIED = "it has not been built yet; 'check: true' runs the model after each step."


@dataclass(frozen=True)
class Wishes:
    """What the user says of the recipe; empty for what is proposed.

    Args:
        name: the recipe's.
        signature: that of a SavedModel.
        tags: those of its MetaGraph.
        inputs, outputs: their names.
        data: an .npz file of samples to validate with.
        labels: the name of its array of labels; empty for ``label`` where there is such an array.
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
    found: FoundModel, path: Path, wishes: Wishes, run: RunStages | None
) -> tuple[str, str]:
    """The recipe's text, and what its build came to.

    Where a training graph cannot be frozen, the graph for inference beside it is taken; where there
    is none, loops and conditionals are lowered if that helps.

    Args:
        found: the model.
        path: where the recipe will lie.
        wishes: what the user says of it.
        run: runs the stages of a plan; None to build nothing, and so to leave out checks.

    Raises:
        MobileprepError: the model cannot be built.
    """
    try:
        return _final(_draft(found, path, wishes), path, run)
    except (UnsupportedError, InvalidGraphError) as error:
        other = inference_graph(found)
        if other is not None:
            return _final(_draft(other, path, wishes), path, run)
        if isinstance(error, UnsupportedError):
            with contextlib.suppress(MobileprepError):
                return _final(_lowered(found, path, wishes, error), path, run)
        raise


def _lowered(found: FoundModel, path: Path, wishes: Wishes, error: UnsupportedError) -> Draft:
    return replace(_draft(found, path, wishes), lowered=first_line(error))


def _final(draft: Draft, path: Path, run: RunStages | None) -> tuple[str, str]:
    if run is None:
        return recipe_text(replace(untried(draft, path), unchecked=_UNTRIED)), "not built yet"
    done = tried(draft, path, run)
    fed = {} if done.report.check is None else done.report.check.inputs
    inputs = tuple(_with_fed_shape(given, fed.get(given.name, "")) for given in done.draft.inputs)
    return recipe_text(replace(done.draft, inputs=inputs)), told(done.report)


def _with_fed_shape(given: DraftInput, fed: str) -> DraftInput:
    """An input of unknown shape with the one that the check feeds, in its comment.

    Args:
        given: the input.
        fed: what the check feeds, such as ``float32 [1, 784], 0 to 1``; empty without a check.
    """
    shape = re.search(r"\[[0-9, ]*\]", fed)
    if given.shape is not None or shape is None:
        return given
    text = f"The graph does not record its shape, and the check feeds {shape[0]}: add 'shape:'"
    return replace(given, remark=f"{text} with the shape that the app feeds.")


def _draft(found: FoundModel, path: Path, wishes: Wishes) -> Draft:
    proposal = propose(
        load_found(found, wishes.tags),
        signature=wishes.signature,
        inputs=wishes.inputs,
        outputs=wishes.outputs,
    )
    data = wishes.data
    return Draft(
        wishes.name or recipe_name(found.path, path),
        modeline(path),
        tuple(_source(found, proposal, wishes.tags, path.parent)),
        tuple(map(_input, proposal.inputs)),
        proposal.outputs,
        (found.notes, proposal.about_inputs, proposal.about_outputs),
        release=wishes.release,
        validation=None if data is None else (_relative(data, path.parent), _labels(data, wishes)),
    )


def _labels(data: Path, wishes: Wishes) -> str:
    """The name of the labels; none where the user names none and the usual array is not there."""
    if wishes.labels or not (data.is_file() and zipfile.is_zipfile(data)):
        return wishes.labels or _LABELS  # what is no .npz file, the build tells
    return _LABELS if _LABELS in read_headers(data) else ""


def _source(
    found: FoundModel, proposal: Proposal, tags: tuple[str, ...], folder: Path
) -> list[tuple[str, str | tuple[str, ...]]]:
    keys: list[tuple[str, str | tuple[str, ...]]] = [(found.kind, _relative(found.path, folder))]
    if found.checkpoint is not None:
        keys.append(("checkpoint", _relative(found.checkpoint, folder)))
    if tags:
        keys.append(("tags", tags))
    if proposal.signature:
        keys.append(("signature", proposal.signature))
    return keys


def _input(proposed: ProposedInput) -> DraftInput:
    known = recipe_schema()["$defs"]["input"]["properties"]["dtype"]["enum"]
    spec = proposed.spec
    dtype = spec.dtype.short if spec.dtype.short in known else ""
    return DraftInput(spec.name, dtype, spec.shape, proposed.remark)


def _relative(path: Path, folder: Path) -> str:
    """How the recipe in ``folder`` names a path: from there, if only the drive is the same."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.resolve().as_posix()
