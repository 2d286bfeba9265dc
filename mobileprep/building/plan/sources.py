"""The files that make up a model's source, found by name alone, nothing read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from mobileprep.building.plan.spec import Files, StageFile
from mobileprep.core.paths import directory_error
from mobileprep.errors import CorruptFileError, did_you_mean
from mobileprep.recipe.files import what_is_there
from mobileprep.recipe.model import Target
from mobileprep.recipe.presence import source_kind_error
from mobileprep.recipe.settings import EVERY_SHARD, Data, InputFile, Source
from mobileprep.recipe.validation_settings import USUAL_LABELS

_MEMBER = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})\Z")


# What a SavedModel is read from beside its graph.
_SAVED_MODEL_FOLDERS = ("assets", "variables")


_SHARD = re.compile(r"-\d{5}-of-\d{5}\Z")


def graph_files(source: Source) -> Files:
    """The model that a source names, without its checkpoint."""
    if source.kind == "saved_model":
        error = source_kind_error(source)
        if error is not None:
            raise error
        return folder_files(source.file, maybe_links=_SAVED_MODEL_FOLDERS)
    if source.kind == "meta_graph":
        return meta_graph_files(source.file)
    return single_file(source.file)


def single_file(named: InputFile) -> Files:
    """The one file that a recipe names."""
    path = named.path
    if os.path.isfile(path):  # noqa: PTH113 - answers, where Path raises, for names too long
        return _files(named, [StageFile(named.name, path, named.written)])
    if os.path.exists(path):  # noqa: PTH110 - as above
        if _is_dir(path):
            raise directory_error(path, _where(named), named.shown)
        message = f"{named.shown} is not a regular file"
        raise CorruptFileError(message, "name a file", _where(named))
    raise _missing(named, path)


def folder_files(named: InputFile, *, maybe_links: Iterable[str] = ()) -> Files:
    """Every file below a folder, sorted by name. Folders that a link leads to are passed over."""
    if not _is_dir(named.path):
        raise _missing(named, named.path)
    tops = (named.path, *(named.path / name for name in maybe_links))
    files = sorted({p for top in tops for p in top.rglob("*") if p.is_file()})
    if not files:
        message = f"{named.shown} is a folder without files"
        raise CorruptFileError(message, "name a file, or a folder with some", _where(named))
    return _files(named, (_below(named, p.relative_to(named.path).as_posix(), p) for p in files))


def meta_graph_files(named: InputFile) -> Files:
    """A MetaGraph and the assets beside it, sorted."""
    (file,) = single_file(named).members
    folder = named.path.parent
    assets = sorted(p for p in (folder / "assets").rglob("*") if p.is_file())
    beside = [_beside(named, p.relative_to(folder).as_posix(), p) for p in assets]
    return _files(named, [file, *beside])


def data_files(data: Data) -> Files:
    """All files of samples: those of the file or folder itself, then those named beside it."""
    parts = [file_or_folder(named) for named in (data.file, *data.beside)]
    return _files(data.file, (member for part in parts for member in part.members))


def checkpoint_files(named: InputFile) -> Files:
    """The files of a checkpoint named by prefix, member, state file or folder, sorted.

    A folder, or a state file, stands for all checkpoints beside it: which one is newest is in
    the state file, and a change of it must be seen.
    """
    path = named.path
    if _is_dir(path):
        return replace(folder_files(named), is_checkpoint=True)
    folder = path.parent
    prefix = _MEMBER.sub("", path.name)
    head, every, count = path.name.rpartition(EVERY_SHARD)
    files = [p for p in folder.glob("*") if p.is_file()] if _is_dir(folder) else []
    is_state = path.name == "checkpoint" and path in files
    if is_state:
        found = files
    elif every:
        found = [p for p in files if _belongs(p.name, head) and p.name.endswith(f"-of-{count}")]
    else:
        found = [p for p in files if _belongs(p.name, prefix)]
    if not found:
        raise _missing(named, folder / prefix, {_MEMBER.sub("", p.name) for p in files})
    members = tuple(_beside(named, p.name, p) for p in sorted(found))
    return Files(named.name, named.path, members, is_checkpoint=True)


def source_checkpoint(source: Source) -> Files | None:
    """The checkpoint of a source; None where it has none, as a MetaGraph without variables may."""
    if source.checkpoint is None:
        return None
    found = checkpoint_files(source.checkpoint)
    is_alone = all(member.path == source.file.path for member in found.members)
    return None if is_alone and not source.names_checkpoint else found


def file_or_folder(named: InputFile) -> Files:
    """The file, or every file below the folder, that a recipe names."""
    return folder_files(named) if _is_dir(named.path) else single_file(named)


def _files(named: InputFile, members: Iterable[StageFile]) -> Files:
    return Files(named.name, named.path, tuple(members))


def _belongs(name: str, prefix: str) -> bool:
    if not name.startswith(prefix):
        return False
    rest = name[len(prefix) :]
    return not rest or bool(_MEMBER.match(rest)) or bool(_SHARD.match(rest))


def _below(named: InputFile, relative: str, path: Path) -> StageFile:
    name, written = (n and f"{n.rstrip('/')}/{relative}" for n in (named.name, named.written))
    return StageFile(name, path, written)


def _beside(named: InputFile, sibling: str, path: Path) -> StageFile:
    name, written = (n and _sibling(n, sibling) for n in (named.name, named.written))
    return StageFile(name, path, written)


def _sibling(name: str, sibling: str) -> str:
    head, slash, _ = name.rpartition("/")
    return f"{head}{slash}{sibling}"


def _is_dir(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - answers, where Path raises, for names too long


def _where(named: InputFile) -> str:
    return named.place or str(named.path)


def _missing(named: InputFile, path: Path, names: Iterable[str] = ()) -> CorruptFileError:
    """The error for a path, with the nearest of some names, or else of those in its folder."""
    found = what_is_there(path)
    if found:
        return CorruptFileError(f"{named.shown} is {found}", "", _where(named))
    message = f"{named.shown} does not exist"
    known = sorted(names)
    with contextlib.suppress(OSError):
        known = known or sorted(os.listdir(path.parent))  # noqa: PTH208 - names alone are asked
    near = did_you_mean(path.name, known)
    hint = f"did you mean {near[0]!r}?" if near else f"no such file: {path}"
    return CorruptFileError(message, hint, named.place or str(path))


def labels_of(target: Target) -> str:
    """The name of the labels, which are no input even where nobody asks for them."""
    metrics = () if target.validation is None else target.validation.metrics
    return next((m.labels for m in metrics if m.labels), USUAL_LABELS)
