"""Loads a model from the files that training or exporting left."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mobileprep.errors import UsageError
from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.formats.saved_model import (
    ASSETS_FOLDER,
    VARIABLES_PREFIX,
    MetaGraph,
    read_meta_graph,
    read_saved_model,
    read_saver,
    saved_model_file,
)
from mobileprep.freezing.meta_graph import assets_of, init_ops_of, signatures_of, slices_of
from mobileprep.freezing.model import LoadedSource
from mobileprep.freezing.object_graph import keys_by_full_name
from mobileprep.freezing.partitions import slices_by_name
from mobileprep.freezing.restore import SavedValue
from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_from_proto

__all__ = ["LoadedSource", "load_source"]


def load_source(
    *,
    graph: Path | None = None,
    meta_graph: Path | None = None,
    saved_model: Path | None = None,
    checkpoint: Path | None = None,
    saver: Path | None = None,
    tags: Sequence[str] = (),
) -> LoadedSource:
    """Load a model; exactly one of ``graph``, ``meta_graph`` and ``saved_model`` is given.

    Args:
        graph: a GraphDef, binary or text, frozen or not.
        meta_graph: a MetaGraphDef, binary or text.
        saved_model: the folder of a SavedModel.
        checkpoint: the values of the variables: a prefix, any file of the set, or a folder.
            Without it a MetaGraph's own is looked for beside it, and a SavedModel's inside.
        saver: a SaverDef, binary or text, that names the op by which the graph restores.
        tags: which MetaGraph of a SavedModel; without them the one for serving.

    Raises:
        UsageError: none or several of the three are given, or no MetaGraph has the tags.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a constant has an impossible shape.
        UnsupportedError: a checkpoint is of a kind that is not read.
    """
    given = [p for p in (graph, meta_graph, saved_model) if p is not None]
    if len(given) != 1:
        message = f"{len(given)} of a graph, a meta graph and a saved model are named"
        raise UsageError(message, "name exactly one")
    if graph is not None:
        loaded = _from_graph(graph, checkpoint)
    elif meta_graph is not None:
        loaded = _from_meta_graph(meta_graph, checkpoint)
    else:
        loaded = _from_saved_model(given[0], tags, checkpoint)
    if saver is None:
        return loaded
    return replace(loaded, restore_op=read_saver(saver).restore_op_name)


def _from_graph(path: Path, checkpoint: Path | None) -> LoadedSource:
    graph, opened = read_graph(path), _opened(checkpoint)
    keys = _keys(opened, graph)
    return LoadedSource(graph, str(path), opened, keys=keys)


def _from_meta_graph(path: Path, checkpoint: Path | None) -> LoadedSource:
    meta = read_meta_graph(path)
    beside = path.with_suffix("") if path.suffix == ".meta" else None
    if checkpoint is None and beside is not None and _is_checkpoint(beside):
        checkpoint = beside
    return _loaded(meta, _opened(checkpoint), path.parent / ASSETS_FOLDER)


def _from_saved_model(folder: Path, tags: Sequence[str], checkpoint: Path | None) -> LoadedSource:
    root = saved_model_file(folder).parent
    meta = read_saved_model(folder, tags)
    inside = root / VARIABLES_PREFIX
    if checkpoint is None and _is_checkpoint(inside):
        checkpoint = inside
    return _loaded(meta, _opened(checkpoint), root / ASSETS_FOLDER)


def _loaded(meta: MetaGraph, checkpoint: Checkpoint | None, assets: Path) -> LoadedSource:
    proto = meta.proto
    graph = graph_from_proto(proto.graph_def, meta.payloads, meta.file)
    keys = {**_keys(checkpoint, graph), **slices_of(proto, meta.file)}
    return LoadedSource(
        graph,
        meta.file,
        checkpoint,
        signatures_of(proto),
        proto.saver_def.restore_op_name,
        init_ops_of(proto),
        assets_of(proto, assets, meta.file),
        keys,
    )


def _keys(checkpoint: Checkpoint | None, graph: Graph) -> dict[str, SavedValue]:
    """What the checkpoint itself tells of where variables lie in it."""
    if checkpoint is None:
        return {}
    return {**slices_by_name(checkpoint, graph), **keys_by_full_name(checkpoint, graph)}


def _opened(checkpoint: Path | None) -> Checkpoint | None:
    return None if checkpoint is None else open_checkpoint(checkpoint)


def _is_checkpoint(prefix: Path) -> bool:
    """Whether a checkpoint of either format has this prefix."""
    if prefix.with_name(f"{prefix.name}.index").is_file() or prefix.is_file():
        return True
    return any(prefix.parent.glob(f"{glob.escape(prefix.name)}-?????-of-?????"))
