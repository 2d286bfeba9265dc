"""Find the files of a model's source by name, without reading them."""

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


# Directories of a SavedModel that are read in addition to its graph.
_SAVED_MODEL_FOLDERS = ("assets", "variables")


_SHARD = re.compile(r"-\d{5}-of-\d{5}\Z")


def graph_files(source: Source) -> Files:
    """Return the files of a source's model, without its checkpoint."""
    if source.kind == "saved_model":
        error = source_kind_error(source)
        if error is not None:
            raise error
        return folder_files(source.file, maybe_links=_SAVED_MODEL_FOLDERS)
    if source.kind == "meta_graph":
        return meta_graph_files(source.file)
    return single_file(source.file)


def single_file(named: InputFile) -> Files:
    """Return a single file that a recipe names.

    Raises:
        CorruptFileError: it does not exist or is not a regular file.
    """
    path = named.path
    if os.path.isfile(path):  # noqa: PTH113 - Path raises an error for names that are too long
        return _files(named, [StageFile(named.name, path, named.written)])
    if os.path.exists(path):  # noqa: PTH110 - as above
        if _is_dir(path):
            raise directory_error(path, _where(named), named.shown)
        message = f"{named.shown} is not a regular file"
        raise CorruptFileError(message, "name a file", _where(named))
    raise _missing(named, path)


def folder_files(named: InputFile, *, maybe_links: Iterable[str] = ()) -> Files:
    """Return all files below a directory, sorted by name, without following directory symlinks.

    Args:
        maybe_links: subdirectories to search even if they are symlinks.
    """
    if not _is_dir(named.path):
        raise _missing(named, named.path)
    tops = (named.path, *(named.path / name for name in maybe_links))
    files = sorted({p for top in tops for p in top.rglob("*") if p.is_file()})
    if not files:
        message = f"{named.shown} is a folder without files"
        raise CorruptFileError(message, "name a file, or a folder with some", _where(named))
    return _files(named, (_below(named, p.relative_to(named.path).as_posix(), p) for p in files))


def meta_graph_files(named: InputFile) -> Files:
    """Return a MetaGraph file and the sorted files of the ``assets`` directory next to it."""
    (file,) = single_file(named).members
    folder = named.path.parent
    assets = sorted(p for p in (folder / "assets").rglob("*") if p.is_file())
    beside = [_beside(named, p.relative_to(folder).as_posix(), p) for p in assets]
    return _files(named, [file, *beside])


def data_files(data: Data) -> Files:
    """Return all files of samples: those of the file or directory, then the additional ones."""
    parts = [file_or_folder(named) for named in (data.file, *data.beside)]
    return _files(data.file, (member for part in parts for member in part.members))


def checkpoint_files(named: InputFile) -> Files:
    """Return the sorted files of a checkpoint, named by prefix, member, state file, or directory.

    A directory or a state file includes all checkpoints next to it. The state file names the newest
    one, and changing it must change the fingerprint.
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
        matches = files
    elif every:
        matches = [p for p in files if _belongs(p.name, head) and p.name.endswith(f"-of-{count}")]
    else:
        matches = [p for p in files if _belongs(p.name, prefix)]
    if not matches:
        raise _missing(named, folder / prefix, {_MEMBER.sub("", p.name) for p in files})
    members = tuple(_beside(named, p.name, p) for p in sorted(matches))
    return Files(named.name, named.path, members, is_checkpoint=True)


def source_checkpoint(source: Source) -> Files | None:
    """Return the checkpoint of a source, or None if it has none.

    A MetaGraph without variables may have none.
    """
    if source.checkpoint is None:
        return None
    files = checkpoint_files(source.checkpoint)
    is_alone = all(member.path == source.file.path for member in files.members)
    return None if is_alone and not source.names_checkpoint else files


def file_or_folder(named: InputFile) -> Files:
    """Return the file, or every file below the directory, that a recipe names."""
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
    return os.path.isdir(path)  # noqa: PTH112 - Path raises an error for names that are too long


def _where(named: InputFile) -> str:
    return named.place or str(named.path)


def _missing(named: InputFile, path: Path, names: Iterable[str] = ()) -> CorruptFileError:
    """Create the error for a missing path, and suggest the closest of some names or siblings."""
    description = what_is_there(path)
    if description:
        return CorruptFileError(f"{named.shown} is {description}", "", _where(named))
    message = f"{named.shown} does not exist"
    candidates = sorted(names)
    with contextlib.suppress(OSError):
        candidates = candidates or sorted(os.listdir(path.parent))  # noqa: PTH208 - only names are needed
    near = did_you_mean(path.name, candidates)
    hint = f"did you mean {near[0]!r}?" if near else f"no such file: {path}"
    return CorruptFileError(message, hint, named.place or str(path))


def labels_of(target: Target) -> str:
    """Return the file name of the labels, even if no metric names one."""
    metrics = () if target.validation is None else target.validation.metrics
    return next((m.labels for m in metrics if m.labels), USUAL_LABELS)


def calibration_data(target: Target) -> Data | None:
    """Return the samples of a target's calibration, if they exist: a range file needs none."""
    data = None if target.calibration is None else target.calibration.data
    return data if data is not None and data.file.path.exists() else None
