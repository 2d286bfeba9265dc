"""The verb ``init``: writes a first recipe for a model, to be edited."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.cli.verb import comma_list, verb
from mobileprep.errors import CorruptFileError, MobileprepError, UsageError
from mobileprep.fsio import write_text
from mobileprep.recipe.default_chain import DEFAULT_CHAIN

if TYPE_CHECKING:
    from mobileprep.freeze.guess import Interface
    from mobileprep.freeze.model import TensorSpec

_MENTIONED = 5
_TEMPLATE = """\
version: 1
name: {name}
source:
  {source}
inputs: {inputs}
{outputs}
{chain}\
targets:
  phone:
    platform: android
    quantize: weights
    registration: {{tensorflow: ["1.15"]}}
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a graph, a .meta file or a SavedModel folder")
    parser.add_argument("--checkpoint", help="the checkpoint of a graph that is not frozen")
    parser.add_argument("--inputs", help="names of the inputs, a,b, by default the likely ones")
    parser.add_argument("--outputs", help="names of the outputs, a,b, by default the likely ones")
    parser.add_argument("--recipe", default="recipe.yaml", help="the file to write")


@verb("init", "write a first recipe for a model", _arguments)
def run(args: argparse.Namespace) -> int:
    """Write the recipe; an existing file is never overwritten.

    Raises:
        UsageError: the recipe exists.
        CorruptFileError: the model does not.
    """
    path, model = Path(args.recipe), Path(args.model)
    if path.exists():
        message = f"{path} exists already"
        raise UsageError(message, "name another file with --recipe")
    if not model.exists():
        message = "is not there"
        raise CorruptFileError(message, "name the model's file or folder", str(model))
    likely = None if args.inputs and args.outputs else _likely(model, args.checkpoint)
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in model.stem).strip("._-")
    text = _TEMPLATE.format(
        name=_quoted(name or "model"),
        source=_source(model, args.checkpoint, path.parent),
        inputs=_inputs(args.inputs, likely),
        outputs=_outputs(args.outputs, likely, whole=args.checkpoint is None),
        chain=DEFAULT_CHAIN,
    )
    write_text(path, text)
    advice = f"look over inputs and outputs, then 'mobileprep build {path}'"
    print(f"{path}: written; {advice}", file=sys.stderr)
    return 0


def _likely(model: Path, checkpoint: str | None) -> Interface | None:
    """What the model seems to take and give, or None, with the reason told, if that is not seen."""
    from mobileprep.freeze.guess import guess
    from mobileprep.freeze.outputs import chosen_signature
    from mobileprep.freeze.source import load_source

    kind = _kind(model, checkpoint)
    checkpoint_path = None if checkpoint is None else Path(checkpoint)
    try:
        if kind == "meta_graph":
            source = load_source(meta_graph=model, checkpoint=checkpoint_path)
        elif kind == "saved_model":
            source = load_source(saved_model=model, checkpoint=checkpoint_path)
        else:
            source = load_source(graph=model, checkpoint=checkpoint_path)
        found = guess(source, chosen_signature(source, ""))
    except MobileprepError as error:
        print(f"mobileprep: inputs and outputs are not known: {error}", file=sys.stderr)
        return None
    return found


def _inputs(given: str | None, likely: Interface | None) -> str:
    if given is not None:
        entries = [f"{_quoted(name)}: {{}}" for name in comma_list(given)]
    elif likely is not None:
        entries = [f"{_quoted(spec.name)}: {_declared(spec)}" for spec in likely.inputs]
    else:
        entries = ['"input": {}']
    return f"{{{', '.join(entries)}}}"


def _declared(spec: TensorSpec) -> str:
    shape = "" if spec.shape is None else f", shape: {list(spec.shape)}"
    return f"{{dtype: {spec.dtype.short}{shape}}}"


def _outputs(given: str | None, likely: Interface | None, *, whole: bool) -> str:
    """The outputs; of a model from training the likeliest only, some others in a comment."""
    if given is not None:
        names = comma_list(given)
    else:
        names = tuple(spec.name for spec in likely.outputs) if likely else ()
    shown = names if whole or given is not None else names[:1]
    line = f"outputs: [{', '.join(map(_quoted, shown or ('output',)))}]"
    others = names[len(shown) :][:_MENTIONED]
    return f"{line}  # likely too: {', '.join(others)}" if others else line


def _kind(model: Path, checkpoint: str | None) -> str:
    if model.is_dir():
        return "saved_model"
    if model.suffix == ".meta":
        return "meta_graph"
    return "graph" if checkpoint else "frozen"


def _source(model: Path, checkpoint: str | None, folder: Path) -> str:
    lines = [f"{_kind(model, checkpoint)}: {_quoted(_relative(model, folder))}"]
    if checkpoint:
        lines.append(f"checkpoint: {_quoted(_relative(Path(checkpoint), folder))}")
    return "\n  ".join(lines)


def _relative(path: Path, folder: Path) -> str:
    """How the recipe in ``folder`` names a path: from there, if only the drive is the same."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return path.resolve().as_posix()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
