"""Load models of any kind, and freeze those with variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.core.files import map_file
from mobileprep.errors import UsageError
from mobileprep.formats.kinds import Kind, file_kind, kind_of
from mobileprep.formats.saved_model import SAVED_MODEL_NAMES, saved_model_file
from mobileprep.freezing.find_models import find_model, load_found
from mobileprep.freezing.freeze import chosen_signature
from mobileprep.freezing.freeze import freeze as freeze_source
from mobileprep.freezing.model import (
    FreezeOptions,
    FreezeResult,
    LoadedSource,
    Signature,
    TensorSpec,
)
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import FILLERS
from mobileprep.graph.reachability import ends
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tflite import is_tflite_file, read_tflite


class ModelOptions(Struct, frozen=True):
    """Options for freezing a model; empty values use the model's own.

    Args:
        fetches: tensors to compute, or outputs of the signature.
        signature: name of the signature.
        tags: tags of the MetaGraph in a SavedModel.
        checkpoint: checkpoint with the variables.
    """

    fetches: tuple[str, ...] = ()
    signature: str = ""
    tags: tuple[str, ...] = ()
    checkpoint: str = ""


class Model(Struct, frozen=True):
    """A runnable model.

    Args:
        graph: the graph, without variables.
        path: file of the model; other files that the graph reads are near it.
        outputs: tensors that a signature or the options name; empty for a GraphDef.
        names: tensor names by argument name of the signature.
    """

    graph: Graph
    path: Path
    outputs: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def tensor(self, name: str) -> str:
        """Return the tensor of a name, which can be an argument of the signature."""
        is_node = parse_ref(name).node in self.graph
        return name if is_node else self.names.get(name, name)

    def tensors(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tensors of names; the name of a signature selects all of its outputs."""
        tensors = tuple(self.tensor(name) for name in names)
        if self.outputs and any(parse_ref(name).node not in self.graph for name in tensors):
            return self.outputs
        return tensors


def load_model(path: Path, options: ModelOptions, warn: Callable[[str], None]) -> Model:
    """Read a GraphDef or a .tflite file, or freeze a model with variables.

    Models with variables are SavedModels, MetaGraphs, and graphs with a checkpoint.
    """
    file = saved_model_file(path) if path.is_dir() else path
    if is_tflite_file(file):
        lite = read_tflite(file)
        return Model(lite.graph, file, lite.outputs, lite.names)
    kind = kind_of(map_file(file))
    _check(options, kind, file)
    if kind not in ("SavedModel", "MetaGraphDef") and not options.checkpoint:
        return Model(read_graph(file), file)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    source = open_source(file, checkpoint=checkpoint, tags=options.tags)
    return _frozen(source, file, options, warn)


def computed_ends(graph: Graph) -> tuple[str, ...]:
    """Return the ends of a graph, without nodes that only fill its tables."""
    return tuple(name for name in ends(graph) if graph[name].op not in FILLERS)


def open_source(
    path: Path,
    *,
    checkpoint: Path | None = None,
    saver: Path | None = None,
    tags: Sequence[str] = (),
) -> LoadedSource:
    """Load a model, and detect its kind from its content."""
    file = saved_model_file(path) if path.is_dir() else path
    if is_tflite_file(file):
        return _tflite_source(file)
    kind = kind_of(map_file(file))
    if kind == "SavedModel":
        named = {"saved_model": file.parent}
    else:
        named = {"meta_graph" if kind == "MetaGraphDef" else "graph": file}
    return load_source(**named, checkpoint=checkpoint, saver=saver, tags=tags)


def _tflite_source(file: Path) -> LoadedSource:
    """Load a .tflite file, with its inputs and outputs as the only signature."""
    lite = read_tflite(file)
    interface = lite.interface
    inputs, outputs = (
        {name: TensorSpec(t.name, t.dtype, t.shape) for name, t in side.items()}
        for side in (interface.inputs, interface.outputs)
    )
    signatures = {interface.key: Signature(inputs, outputs)}
    return LoadedSource(lite.graph, str(file), signatures=signatures)


class FoundSource(Struct, frozen=True):
    """The model at a path.

    Args:
        source: the model.
        notes: sentences about the loaded files if they are not those that the path names.
    """

    source: LoadedSource
    notes: tuple[str, ...] = ()


def find_source(
    path: Path, *, checkpoint: Path | None = None, tags: Sequence[str] = ()
) -> FoundSource:
    """Load a model like ``open_source``, or find one next to a checkpoint or in a directory.

    Args:
        path: path as for ``open_source``, a checkpoint's prefix or any of its files, or a directory
            of checkpoints, graphs, or versions as for ``find_model``.
    """
    if _is_model(path):
        return FoundSource(open_source(path, checkpoint=checkpoint, tags=tags))
    model = find_model(path, checkpoint)
    values = f" with {model.checkpoint}" if model.checkpoint is not None else ""
    notes = (f"the following is of {model.path}{values}", *model.notes)
    return FoundSource(load_found(model, tags), notes)


def _is_model(path: Path) -> bool:
    """Return whether the path is that of a graph, or of a file that is not part of a model."""
    if os.path.isdir(path):  # noqa: PTH112 - Path raises for names that are too long
        return any((path / name).is_file() for name in SAVED_MODEL_NAMES)
    if not os.path.lexists(path):
        return False
    return is_tflite_file(path) or file_kind(path) in (
        "GraphDef", "MetaGraphDef", "SavedModel", None,
    )  # fmt: skip


def _check(options: ModelOptions, kind: Kind | None, path: Path) -> None:
    if options.tags and kind != "SavedModel":
        message = (
            f"the tags {','.join(options.tags)!r} choose within a SavedModel, which this is not"
        )
        raise UsageError(message, "leave them out", str(path))
    if options.signature and kind not in ("SavedModel", "MetaGraphDef"):
        message = f"the signature {options.signature!r} is named, and a GraphDef has none"
        raise UsageError(message, "leave it out, and name tensors", str(path))


def _frozen(
    source: LoadedSource, path: Path, options: ModelOptions, warn: Callable[[str], None]
) -> Model:
    signature = chosen_signature(source, options.signature)
    freeze_options = FreezeOptions(outputs=options.fetches, signature=options.signature)
    result = freeze_source(source, freeze_options)
    for warning in result.warnings:
        warn(warning)
    sides = () if signature is None else (signature.inputs, signature.outputs)
    names = {name: spec.name for side in sides for name, spec in side.items()}
    return Model(result.graph, path, result.outputs, names)


def freeze(
    model: FilePath,
    outputs: Sequence[str] = (),
    *,
    signature: str = "",
    checkpoint: FilePath | None = None,
    saver: FilePath | None = None,
    tags: Sequence[str] = (),
    options: FreezeOptions | None = None,
    warn: Warn | None = None,
) -> FreezeResult:
    """Convert the variables of a model to constants, and keep only the nodes that its outputs need.

    Args:
        model: a GraphDef, a MetaGraph (``.meta``), or a SavedModel directory, detected from the
            content.
        outputs: tensors to keep, or outputs of the signature. Default: all outputs of the
            signature.
        signature: name of the signature. Default: ``serving_default``, or the only one.
        checkpoint: checkpoint with the variables: a prefix, any file of the set, or a directory.
            Default: the checkpoint next to a MetaGraph, or in a SavedModel.
        saver: a SaverDef that names the restore op of the graph.
        tags: tags of the MetaGraph in a SavedModel. Default: the one for serving.
        options: other options; ``outputs`` and ``signature`` override its fields if set.
        warn: function to call with each warning. Default: issue a ``MobileprepWarning``.

    Raises:
        UsageError: if no outputs are known, or no MetaGraph has the tags.
        CorruptFileError: if a file is missing or damaged.
        InvalidGraphError: if the model is malformed, an output does not exist, or a variable has no
            value.
        UnsupportedError: if the model contains something that cannot be frozen.
    """
    chosen = options or FreezeOptions()
    chosen = replace(
        chosen,
        outputs=names_of(outputs) or chosen.outputs,
        signature=signature or chosen.signature,
    )
    source = open_source(
        Path(model),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        saver=None if saver is None else Path(saver),
        tags=names_of(tags),
    )
    result = freeze_source(source, chosen)
    for sentence in result.warnings:
        (warn or as_warning)(sentence)
    return result
