"""The verb ``init``: writes a first recipe for a model, to be edited."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mobileprep.cli.verb import comma_list, verb
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.fsio import write_text

_TEMPLATE = """\
version: 1
name: {name}
source:
  {source}
inputs: {inputs}
outputs: [{outputs}]
transforms:
  - strip_unused_nodes
  - remove_nodes: {{op: [Identity, CheckNumerics]}}
  - fold_constants: {{ignore_errors: true}}
  - fold_batch_norms: {{ignore_errors: true}}
  - fold_old_batch_norms
targets:
  phone:
    platform: android
    quantize: weights
    registration: {{tensorflow: ["1.15"]}}
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a graph, a .meta file or a SavedModel folder")
    parser.add_argument("--checkpoint", help="the checkpoint of a graph that is not frozen")
    parser.add_argument("--inputs", default="input", help="names of the inputs, a,b")
    parser.add_argument("--outputs", default="output", help="names of the outputs, a,b")
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
    inputs = ", ".join(f"{_quoted(name)}: {{}}" for name in comma_list(args.inputs))
    outputs = ", ".join(_quoted(name) for name in comma_list(args.outputs))
    source = _source(model, args.checkpoint, path.parent)
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in model.stem).strip("._-")
    text = _TEMPLATE.format(
        name=_quoted(name or "model"), source=source, inputs=f"{{{inputs}}}", outputs=outputs
    )
    write_text(path, text)
    advice = f"edit inputs and outputs, then 'mobileprep build {path}'"
    print(f"{path}: written; {advice}", file=sys.stderr)
    return 0


def _source(model: Path, checkpoint: str | None, folder: Path) -> str:
    kind = "frozen"
    if model.is_dir():
        kind = "saved_model"
    elif model.suffix == ".meta":
        kind = "meta_graph"
    elif checkpoint:
        kind = "graph"
    lines = [f"{kind}: {_quoted(_relative(model, folder))}"]
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
