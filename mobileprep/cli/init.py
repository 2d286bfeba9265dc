"""The verb ``init``: writes a first recipe for a model, which builds as it stands."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import comma_list, verb
from mobileprep.destinations import is_stdout, output_path
from mobileprep.errors import (
    ArtifactError,
    InvalidGraphError,
    MobileprepError,
    UnsupportedError,
    UsageError,
)
from mobileprep.fsio import write_text

if TYPE_CHECKING:
    from mobileprep.freezing.find_models import FoundModel
    from mobileprep.freezing.model import LoadedSource
    from mobileprep.freezing.proposal import Proposal, ProposedInput
    from mobileprep.pipeline.state import State
    from mobileprep.recipe.first import Draft, DraftInput

_UNTRIED = "it has not been built yet; 'check: true' runs the model after each step."


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        help="a graph, a .meta file, a checkpoint, a SavedModel, or a folder with one of them",
    )
    parser.add_argument("--checkpoint", help="the checkpoint of a graph that is not frozen")
    parser.add_argument("--tags", help="the tags of a SavedModel's MetaGraph, a,b")
    parser.add_argument("--signature", default="", help="the signature of a SavedModel")
    parser.add_argument("--inputs", help="names of the inputs, a,b, by default the likely ones")
    parser.add_argument("--outputs", help="names of the outputs, a,b, by default the likely ones")
    parser.add_argument("--data", help="an .npz file of labelled samples, to validate with")
    parser.add_argument("--labels", default="label", help="the name of its array of labels")
    parser.add_argument("--name", help="the recipe's name, by default from the model")
    parser.add_argument(
        "--recipe", default="recipe.yaml", help="the file to write, or - for standard output"
    )
    parser.add_argument(
        "--no-try", action="store_true", help="do not build first, and so leave out check"
    )


@verb("init", "write a first recipe for a model", _arguments)
def run(args: argparse.Namespace) -> int:
    """Write the recipe; an existing file is never overwritten.

    Raises:
        UsageError: the recipe exists, or a folder holds several models.
        CorruptFileError: the model is missing or damaged.
        InvalidGraphError: the model's graph is broken, or its values are not found.
        UnsupportedError: a file that is no model.
    """
    from mobileprep.freezing.find_models import find_model

    path = output_path(args.recipe)
    to_stdout = is_stdout(path)
    if to_stdout:
        path = Path("recipe.yaml")
    if not to_stdout:
        _check_absent(path)
    checkpoint = Path(args.checkpoint) if args.checkpoint else None
    with _folder(path.parent):
        try:
            text, summary = _written(args, find_model(Path(args.model), checkpoint), path)
        except MobileprepError as error:
            raise _elsewhere(error, args.model, path) from error
    if to_stdout:
        print(text, end="")
    else:
        _check_absent(path)
        write_text(path, text)
        print(f"{path}: written; {summary}", file=sys.stderr)
        print(f"look it over, then 'mobileprep build {path}'", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """The folder of the recipe, whose paths start there; gone again where nothing is written."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise ArtifactError(message, "name another file with --recipe", str(folder)) from error
    try:
        yield
    except MobileprepError:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _check_absent(path: Path) -> None:
    if os.path.lexists(path):
        message = f"{path} exists already"
        raise UsageError(message, "name another file with --recipe")


def _written(args: argparse.Namespace, found: FoundModel, path: Path) -> tuple[str, str]:
    """The recipe's text, and what its build came to.

    Where a training graph cannot be frozen, the graph for inference beside it is taken.
    """
    from mobileprep.freezing.find_models import inference_graph

    try:
        return _final(_draft(args, found, path), path, is_tried=not args.no_try)
    except (UnsupportedError, InvalidGraphError):
        other = inference_graph(found)
        if other is None:
            raise
        return _final(_draft(args, other, path), path, is_tried=not args.no_try)


def _elsewhere(error: MobileprepError, model: str, path: Path) -> MobileprepError:
    """An error that blames the model where it blamed a line of the recipe, which is not written."""
    if error.where and not error.where.startswith(f"{path}:"):
        return error
    return type(error)(error.message, error.hint, model)


def _final(draft: Draft, path: Path, *, is_tried: bool) -> tuple[str, str]:
    """The recipe's text, and what its build came to."""
    from dataclasses import replace

    from mobileprep.recipe.first import recipe_text

    if not is_tried:
        return recipe_text(replace(draft, unchecked=_UNTRIED)), "not built yet"
    from mobileprep.api.first_build import told, tried

    done = tried(draft, path, _run_stages)
    return recipe_text(done.draft), told(done.report)


def _run_stages(state: State) -> None:
    """Run what is stale, with a bar; its warnings come again with the user's own build."""
    from mobileprep.cli._progress import Progress
    from mobileprep.pipeline.runner import build, stale_stages

    with Progress(len(stale_stages(state))) as progress:
        build(state, listen=progress.listen, warn=lambda *_: None)


def _draft(args: argparse.Namespace, found: FoundModel, path: Path) -> Draft:
    from mobileprep.api.recipe_names import recipe_name
    from mobileprep.freezing.proposal import propose
    from mobileprep.recipe.first import Draft
    from mobileprep.recipe.schemas import modeline

    tags = comma_list(args.tags or "")
    given = {"inputs": comma_list(args.inputs or ""), "outputs": comma_list(args.outputs or "")}
    proposal = propose(_loaded(found, tags), signature=args.signature, **given)
    return Draft(
        args.name or recipe_name(found.path, path),
        modeline(path),
        tuple(_source(found, proposal, tags, path.parent)),
        tuple(map(_input, proposal.inputs)),
        proposal.outputs,
        (tuple(map(_sentence, found.notes)), proposal.about_inputs, proposal.about_outputs),
        validation=(_relative(Path(args.data), path.parent), args.labels) if args.data else None,
    )


def _loaded(found: FoundModel, tags: tuple[str, ...]) -> LoadedSource:
    from mobileprep.freezing.source import load_source

    if found.kind == "saved_model":
        return load_source(saved_model=found.path, tags=tags)
    if found.kind == "meta_graph":
        return load_source(meta_graph=found.path, checkpoint=found.checkpoint)
    return load_source(graph=found.path, checkpoint=found.checkpoint)


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
    from mobileprep.recipe.first import DraftInput
    from mobileprep.recipe.schemas import recipe_schema

    known = recipe_schema()["$defs"]["input"]["properties"]["dtype"]["enum"]
    spec = proposed.spec
    dtype = spec.dtype.short if spec.dtype.short in known else ""
    return DraftInput(spec.name, dtype, spec.shape, proposed.remark)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _relative(path: Path, folder: Path) -> str:
    """How the recipe in ``folder`` names a path: from there, if only the drive is the same."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.resolve().as_posix()
