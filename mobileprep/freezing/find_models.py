"""Find the model at a path, by content instead of file extension."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from mobileprep.core.paths import Foreign
from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    NotDownloadedError,
    UnsupportedError,
    UsageError,
)
from mobileprep.formats.checkpoint_files import find_checkpoint
from mobileprep.formats.kinds import file_kind
from mobileprep.formats.saved_model import SAVED_MODEL_NAMES, VARIABLES_PREFIX
from mobileprep.freezing.fit import Candidate, examined, with_checkpoint
from mobileprep.freezing.source import LoadedSource, load_source

ModelKind = Literal["frozen", "graph", "meta_graph", "saved_model"]

_DEEPEST: Final = 2
_SHOWN: Final = 8


class FoundModel(Struct, frozen=True):
    """A model, as the ``source`` of a recipe names it.

    Args:
        kind: key of ``source``.
        path: the file, or the directory of a SavedModel.
        checkpoint: prefix of the checkpoint if the recipe has to name it, otherwise None.
        notes: sentences about the choice and its reasons.
    """

    kind: ModelKind
    path: Path
    checkpoint: Path | None = None
    notes: tuple[str, ...] = ()


def find_model(path: Path, checkpoint: Path | None = None) -> FoundModel:
    """Return the model at a path.

    Args:
        path: a graph, a MetaGraph, a file or directory of a SavedModel, a checkpoint's prefix or
            any of its files, or a directory that contains one of these.

    Raises:
        CorruptFileError: if there is no such file, or it is not a model.
        UnsupportedError: if the file is of a known foreign format.
        UsageError: if there are several models, or a checkpoint has no graph.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path raises for names that are too long
        return _in_folder(path, checkpoint)
    if not os.path.lexists(path):
        if prefixes_of(path.parent, path.name):
            return _of_checkpoint(path)
        message = "does not exist"
        raise CorruptFileError(message, "name the model's file or folder", str(path))
    kind = file_kind(path)
    if isinstance(kind, Foreign):
        message = f"is {kind.what}"
        raise UnsupportedError(message, kind.hint, str(path))
    if kind is None:
        message = "is neither a graph, a MetaGraph, a SavedModel nor a checkpoint"
        raise CorruptFileError(message, "the file is damaged or of another kind", str(path))
    if kind == "SavedModel":
        return _saved_model(path)
    if kind == "GraphDef" or kind == "MetaGraphDef":
        return _of_graph(path, kind, checkpoint)
    return _of_checkpoint(path)


def load_found(model: FoundModel, tags: Sequence[str] = ()) -> LoadedSource:
    if model.kind == "saved_model":
        return load_source(saved_model=model.path, tags=tags)
    if model.kind == "meta_graph":
        return load_source(meta_graph=model.path, checkpoint=model.checkpoint)
    return load_source(graph=model.path, checkpoint=model.checkpoint)


def inference_graph(model: FoundModel) -> FoundModel | None:
    """Return the inference graph next to a training MetaGraph with the same checkpoint."""
    if model.kind != "meta_graph":
        return None
    prefix = model.checkpoint or examined(model.path, "MetaGraphDef").own_checkpoint
    if prefix is None:
        return None
    fitting = [
        c
        for c in _candidates(model.path.parent, [prefix])
        if c.checkpoint == prefix and not c.is_of_training and c.path != model.path
    ]
    if not fitting:
        return None
    note = f"The MetaGraph {model.path.name} trains the model and cannot be frozen."
    return _paired(_best(fitting), note)


def _saved_model(path: Path) -> FoundModel:
    if path.name not in SAVED_MODEL_NAMES:
        message = "is the file of a SavedModel under another name"
        hint = f"call it {SAVED_MODEL_NAMES[0]}, in a folder with its variables"
        raise CorruptFileError(message, hint, str(path))
    return FoundModel("saved_model", path.parent)


def _of_graph(
    path: Path, kind: Literal["GraphDef", "MetaGraphDef"], checkpoint: Path | None
) -> FoundModel:
    candidate = examined(path, kind)
    if checkpoint is not None:
        with_checkpoint(candidate, [checkpoint]).check()
        return FoundModel("meta_graph" if kind == "MetaGraphDef" else "graph", path, checkpoint)
    if candidate.variables and candidate.own_checkpoint is None:
        candidate = with_checkpoint(candidate, ranked_prefixes(path.parent)).check()
    return _paired(candidate)


def _paired(candidate: Candidate, *notes: str) -> FoundModel:
    kind: ModelKind = "frozen" if candidate.checkpoint is None else "graph"
    if candidate.kind == "MetaGraphDef":
        kind = "meta_graph"
    checkpoint = candidate.checkpoint if candidate.own_checkpoint is None else None
    return FoundModel(kind, candidate.path, checkpoint, notes)


def _of_checkpoint(path: Path) -> FoundModel:
    """Return the graph next to a checkpoint, given its prefix, a file, or the state file."""
    prefix = find_checkpoint(path).prefix
    if prefix.parts[-2:] == VARIABLES_PREFIX.parts:
        folder = prefix.parent.parent
        if any((folder / name).is_file() for name in SAVED_MODEL_NAMES):
            return FoundModel("saved_model", folder)
    for folder in (prefix.parent, prefix.parent.parent):
        fitting = [c for c in _candidates(folder, [prefix]) if c.checkpoint == prefix]
        if fitting:
            return _paired(_best(fitting), *_about_others(fitting))
    message = "is a checkpoint without a graph, and no graph next to it matches"
    hint = "name the graph; `init` and `summarize` take the checkpoint as --checkpoint=PREFIX"
    raise UsageError(message, hint, str(prefix))


def _in_folder(folder: Path, checkpoint: Path | None) -> FoundModel:
    if any((folder / name).is_file() for name in SAVED_MODEL_NAMES):
        return FoundModel("saved_model", folder)
    prefixes = ranked_prefixes(folder) if checkpoint is None else [checkpoint]
    candidates = _candidates(folder, prefixes)
    groups = _groups([c for c in candidates if c.variables and not c.lacking])
    frozen = _binary_first([c for c in candidates if not c.variables])
    if len(groups) == 1:
        (group,) = groups
        notes = _about_others([*group, *frozen])
        return _paired(_best(group), *notes)
    if not groups and len(frozen) == 1:
        return _paired(frozen[0])
    if groups or frozen:
        raise _several(folder, [*map(_best, groups), *frozen])
    lost = next((c for c in candidates if c.lacking), None)
    if lost is not None:
        lost.check()
    if prefixes:
        _report_pointers(folder)
        return _of_checkpoint(prefixes[0])
    return _below(folder)


def _candidates(folder: Path, prefixes: Sequence[Path]) -> list[Candidate]:
    """Return the graphs and MetaGraphs of a directory, each with the first matching checkpoint."""
    candidates = []
    for path in entries_of(folder).files:
        try:
            kind = file_kind(path)
            if kind == "GraphDef" or kind == "MetaGraphDef":
                candidates.append(with_checkpoint(examined(path, kind), prefixes))
        except MobileprepError:
            continue  # Many files of a directory are not models.
    return candidates


def _groups(fitting: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group candidates by checkpoint, with only the newest checkpoint of each model."""
    groups: dict[Path | None, list[Candidate]] = {}
    for candidate in fitting:
        groups.setdefault(candidate.checkpoint, []).append(candidate)
    newest: dict[str, Path | None] = {}
    prefixes = [p for c in fitting for p in ranked_prefixes(c.path.parent)]
    for prefix in [*dict.fromkeys(prefixes), *groups]:
        if prefix in groups:
            base = "" if prefix is None else prefix.name.rstrip("0123456789")
            newest.setdefault(base, prefix)
    return [groups[prefix] for prefix in newest.values()]


def _best(group: Sequence[Candidate]) -> Candidate:
    """Prefer graphs for inference over those for training, and MetaGraphs over graphs."""
    return min(
        group,
        key=lambda c: (c.is_of_training, c.kind != "MetaGraphDef", c.is_text, c.path.name),
    )


def _binary_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Omit text files that also exist in binary form."""
    binary = {c.path.stem for c in candidates if not c.is_text}
    return [c for c in candidates if not c.is_text or c.path.stem not in binary]


def _about_others(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    best = _best([c for c in candidates if c.variables] or candidates)
    others = sorted(c.path.name for c in candidates if c.path != best.path)
    if not others:
        return ()
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return (f"Other files of the model in the directory: {', '.join(others[:_SHOWN])}{more}.",)


def _several(folder: Path, candidates: Sequence[Candidate]) -> UsageError:
    names = [
        c.path.name if c.checkpoint is None else f"{c.path.name} with {c.checkpoint.name}"
        for c in candidates
    ]
    return _choice(folder, names, candidates[0].path)


def _choice(folder: Path, names: Sequence[str], first: Path) -> UsageError:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"holds {len(names)} models: {', '.join(names[:_SHOWN])}{more}"
    return UsageError(message, f"name one, such as {first}", str(folder))


def _report_pointers(folder: Path) -> None:
    """Raise the error of the first file in a directory that Git LFS has not downloaded."""
    for path in entries_of(folder).files:
        try:
            file_kind(path)
        except NotDownloadedError:
            raise
        except MobileprepError:
            continue


def _below(folder: Path, depth: int = 1) -> FoundModel:
    """Return the model in a subdirectory; if all names are version numbers, the newest."""
    models: list[FoundModel] = []
    names = entries_of(folder).folders
    for below in names:
        try:
            models.append(_in_folder(below, None) if depth else _below(below))
        except (CorruptFileError, InvalidGraphError):
            continue
    if not models:
        _report_pointers(folder)
        message = "holds no model"
        hint = "name a graph, a MetaGraph, a SavedModel or a checkpoint"
        raise CorruptFileError(message, hint, str(folder))
    if len(models) == 1:
        return models[0]
    shown = [os.path.relpath(f.path, folder) for f in models]
    if all(below.name.isdecimal() for below in names):
        newest = max(models, key=lambda f: int(Path(os.path.relpath(f.path, folder)).parts[0]))
        note = f"The newest of the versions {', '.join(sorted(p.name for p in names))}."
        return FoundModel(newest.kind, newest.path, newest.checkpoint, (*newest.notes, note))
    raise _choice(folder, shown, models[0].path)


# Maximum number of directory entries to examine, so that a huge directory is not read for hours.
_LOOKED_AT: Final = 1000
_STEP: Final = re.compile(r"(\d+)\Z")
_SHARDS: Final = re.compile(r"-\d{5}-of-\d{5}\Z")
_INDEX: Final = ".index"


class Entries(Struct, frozen=True):
    """The regular files and subdirectories of a directory, without hidden ones, sorted by name."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def entries_of(folder: Path) -> Entries:
    """Return the entries of a directory; empty if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted(
                (e.name, e.is_dir(), e.is_file()) for e in entries if not e.name.startswith(".")
            )[:_LOOKED_AT]
    except (OSError, ValueError):
        return Entries()
    return Entries(
        tuple(folder / name for name, _, is_file in listed if is_file),
        tuple(folder / name for name, is_folder, _ in listed if is_folder),
    )


def prefixes_of(folder: Path, prefix: str = "") -> list[Path]:
    """Return the prefixes of the checkpoints in a directory, sorted."""
    prefixes: dict[Path, None] = {}
    for path in entries_of(folder).files:
        if not path.name.startswith(prefix):
            continue
        try:
            kind = file_kind(path)
        except NotDownloadedError:
            # Still a prefix: opening it reports the Git LFS pointer.
            kind = "checkpoint index" if path.name.endswith(_INDEX) else None
        except MobileprepError:
            continue
        if kind == "checkpoint index":
            prefixes[path.with_name(path.name.removesuffix(_INDEX))] = None
        elif kind == "checkpoint table":
            prefixes[path.with_name(_SHARDS.sub("", path.name))] = None
    return [p for p in prefixes if not prefix or p.name == prefix]


def ranked_prefixes(folder: Path) -> list[Path]:
    """Return the prefixes of the checkpoints in a directory, the most likely one first.

    The prefix in the state file is first; the others are sorted by step, highest first.
    """
    prefixes = sorted(prefixes_of(folder), key=_step, reverse=True)
    try:
        newest = find_checkpoint(folder).prefix
    except MobileprepError:
        return prefixes
    return [newest, *(p for p in prefixes if p.name != newest.name)]


def _step(prefix: Path) -> tuple[int, str]:
    number = _STEP.search(prefix.name)
    return (int(number[1]) if number else -1, prefix.name)
