"""The verb ``init``: writes a first recipe for a model that builds without changes."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli._shared.arguments import tensorflow_argument
from mobileprep.cli.verb import Group, comma_list, file_name, verb
from mobileprep.core.files import write_text
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import (
    ArtifactError,
    MobileprepError,
    UsageError,
)

if TYPE_CHECKING:
    from mobileprep.building.first_recipe import Wishes
    from mobileprep.building.pipeline.state import State
    from mobileprep.building.preprocessing import PreprocessingFit


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=file_name,
        help="Graph, .meta file, checkpoint, SavedModel, or a directory with one of them",
    )
    parser.add_argument("--checkpoint", help="Checkpoint of a graph that is not frozen")
    parser.add_argument("--tags", help="Tags of the SavedModel's MetaGraph, a,b")
    parser.add_argument("--signature", default="", help="Signature of the SavedModel")
    parser.add_argument("--inputs", help="Names of the inputs, a,b [default: detected]")
    parser.add_argument("--outputs", help="Names of the outputs, a,b [default: detected]")
    parser.add_argument("--data", help="Samples for validation: .npz file or directory of images")
    labels = "Array of labels, or CSV file for images [default: label, or their directories]"
    parser.add_argument("--labels", default="", help=labels)
    tensorflow_argument(parser, "oldest that loads the model, from ")
    parser.add_argument("--name", help="Name of the recipe [default: from the model]")
    parser.add_argument(
        "--recipe", default="recipe.yaml", help="File to write, or - for standard output"
    )
    parser.add_argument(
        "--no-try",
        action="store_true",
        help="Do not try a build first; the recipe then has no check section",
    )


@verb(
    "init",
    Group.BUILD,
    "Write a first recipe for a model",
    _arguments,
    "mobileprep init model/frozen.pb",
    "mobileprep init saved_model --data test.npz",
)
def run(args: argparse.Namespace) -> int:
    """Write the recipe; an existing file is never overwritten.

    Raises:
        UsageError: the recipe exists, or the directory contains several models.
        CorruptFileError: the model is missing or damaged.
        InvalidGraphError: the graph is broken, or values of variables are not found.
        UnsupportedError: the file is not a model.
    """
    from mobileprep.building.first_recipe import first_recipe
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
            model = find_model(Path(args.model), checkpoint)
            text, summary = first_recipe(
                model, path, _wishes(args), None if args.no_try else _run_stages, _show
            )
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


def _show(fit: PreprocessingFit) -> None:
    """Print the accuracy with each preprocessing."""
    print(*fit.table(), sep="\n", file=sys.stderr)


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Create the directory of the recipe; remove it again after an error."""
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


def _wishes(args: argparse.Namespace) -> Wishes:
    from mobileprep.building.first_recipe import Wishes
    from mobileprep.targets.headers import release_of

    return Wishes(
        name=args.name or "",
        signature=args.signature,
        tags=comma_list(args.tags or ""),
        inputs=comma_list(args.inputs or ""),
        outputs=comma_list(args.outputs or ""),
        data=Path(args.data) if args.data else None,
        labels=args.labels,
        release=release_of(args.tensorflow) if args.tensorflow else "",
    )


def _elsewhere(error: MobileprepError, model: str, path: Path) -> MobileprepError:
    """Replace a location in the recipe, which is not written, with the model."""
    if error.where and not error.where.startswith(f"{path}:"):
        return error
    return error.at(model)


def _run_stages(state: State) -> None:
    """Run the stale stages, with a progress bar on a terminal.

    A failed trial is not an error: a comment in the recipe gives the reason. The user's build
    repeats the warnings.
    """
    from mobileprep.building.pipeline.eviction import store_bound
    from mobileprep.building.pipeline.execute import Executor
    from mobileprep.building.pipeline.runner import build, stale_stages
    from mobileprep.cli._shared.terminal import is_terminal
    from mobileprep.cli._shared.terminal.progress import Progress

    bound = store_bound(os.environ)
    stages = len(stale_stages(state))
    try:
        with contextlib.ExitStack() as stack:
            if is_terminal(sys.stderr):
                executor = Executor(state, listen=stack.enter_context(Progress(stages)).listen)
            else:
                if stages:
                    print(f"trying a recipe: {stages} stages to run", file=sys.stderr)
                executor = Executor(state)
            executor.attempt(lambda: build(executor))
    finally:
        state.store.finish(bound)
