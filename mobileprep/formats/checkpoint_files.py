"""Find the files of a checkpoint from its prefix, a member, a directory, or a state file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.core.files import read_bytes, unreadable
from mobileprep.core.paths import opened
from mobileprep.errors import CorruptFileError, did_you_mean
from mobileprep.formats.checkpoint_reader import parse
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.sstable import MAGIC
from mobileprep.formats.text_proto import text_to_wire

_STATE: Final = "checkpoint"
_MEMBER: Final = re.compile(r"(.+)(?:\.index|\.meta|\.data-\d{5}-of-\d{5})\Z", re.DOTALL)
_TABLE: Final = re.compile(r"(.+)(?<!\.data)-(?:\d{5}|\?{5})-of-(\d{5})\Z", re.DOTALL)
_SHOWN: Final = 10
# Maximum number of files to open for detection, so that a huge directory does not delay an error.
_LOOKED_AT: Final = 10_000


class CheckpointFiles(Struct, frozen=True):
    """The location of a checkpoint.

    Args:
        prefix: common path prefix of its files.
        tables: all files of a V1 checkpoint; empty for V2, whose files follow from the prefix.
    """

    prefix: Path
    tables: tuple[Path, ...] = ()

    @property
    def is_v1(self) -> bool:
        """Whether the checkpoint has the older format."""
        return bool(self.tables)


def index_path(prefix: Path) -> Path:
    """Return the path of the index of a V2 checkpoint."""
    return prefix.with_name(f"{prefix.name}.index")


def shard_paths(prefix: Path, count: int) -> tuple[Path, ...]:
    """Return the data files of a V2 checkpoint.

    Raises:
        CorruptFileError: if one does not exist.
    """
    return _all_parts(prefix.with_name(f"{prefix.name}.data"), count)


def find_checkpoint(path: Path) -> CheckpointFiles:
    """Find the checkpoint at a path.

    Args:
        path: a prefix, any file of the set, a ``checkpoint`` state file, or a directory with a
            state file or a single checkpoint.

    Raises:
        CorruptFileError: if there is no such checkpoint, or there are several.
    """
    if _is_folder(path):
        return _in_folder(path)
    if _is_file(path) and is_state_file(path):
        return _named_by(path)
    files = _at(path)
    if files is None:
        raise _nothing_at(path)
    return files


def _in_folder(folder: Path) -> CheckpointFiles:
    state = folder / _STATE
    if _is_file(state) and is_state_file(state):
        return _named_by(state)
    prefixes = _prefixes(folder)
    files = _at(folder / prefixes[0]) if len(prefixes) == 1 else None
    if files is not None:
        return files
    if not prefixes:
        message, hint = "holds no checkpoint", "name the folder or the prefix of one"
    else:
        message = "holds several checkpoints, and no state file that names the newest"
        hint = f"name one of: {_listed(prefixes)}"
    raise CorruptFileError(message, hint, str(folder))


def _named_by(state: Path) -> CheckpointFiles:
    """Return the newest checkpoint in a state file, or one of that name next to the file."""
    named = newest_path(state)
    base = re.split(r"[/\\]", named)[-1]
    files = _at(state.parent / named) or (_at(state.parent / base) if base else None)
    if files is None:
        message = f"names {named!r}, which does not exist"
        raise CorruptFileError(message, _prefix_hint(state.parent, base), str(state))
    return files


def _at(path: Path) -> CheckpointFiles | None:
    """Return the checkpoint with that prefix, otherwise the one that contains that file."""
    member = _MEMBER.match(path.name)
    files = _of_prefix(path, is_table=member is None)
    if files is None and member is not None:
        files = _of_prefix(path.with_name(member[1]), is_table=True)
    return files


def _of_prefix(prefix: Path, *, is_table: bool) -> CheckpointFiles | None:
    """Return the checkpoint of exactly that prefix; like TensorFlow, prefer the newer format."""
    if not prefix.name:
        return None
    if _is_file(index_path(prefix)):
        return CheckpointFiles(prefix)
    named = _TABLE.match(prefix.name)
    if named is not None:
        return _of_tables(prefix.with_name(named[1]), int(named[2]))
    counts = _table_counts(prefix)
    if len(counts) > 1:
        message = f"is the prefix of checkpoints of {' and of '.join(map(str, counts))} files"
        hint = f"name one as {prefix.name}-?????-of-{counts[0]:05d}"
        raise CorruptFileError(message, hint, str(prefix))
    if counts:
        return _of_tables(prefix, counts[0])
    if is_table and _is_file(prefix):
        return CheckpointFiles(prefix, (prefix,))
    return None


def _of_tables(prefix: Path, count: int) -> CheckpointFiles | None:
    """Return the V1 checkpoint with ``count`` tables, or None if none of them exists."""
    if count not in _table_counts(prefix):
        return None
    return CheckpointFiles(prefix, _all_parts(prefix, count))


def _table_counts(prefix: Path) -> list[int]:
    """Return the possible numbers of tables of V1 checkpoints with a prefix, sorted."""
    names = (_TABLE.match(name) for name in _file_names(prefix.parent))
    counts = {int(n[2]) for n in names if n is not None and n[1] == prefix.name}
    return sorted(counts - {0})


def _prefixes(folder: Path) -> list[str]:
    """Return the names of the checkpoints in a directory, sorted."""
    names = set()
    for name in _file_names(folder)[:_LOOKED_AT]:
        table = _TABLE.match(name)
        if name.endswith(".index"):
            names.add(name.removesuffix(".index"))
        elif not _MEMBER.match(name) and _ends_as_table(folder / name):
            names.add(table[1] if table else name)
    return sorted(names - {""})


def _all_parts(stem: Path, count: int) -> tuple[Path, ...]:
    """Return the ``count`` files of a set, in order; raise an error for the first missing one."""
    paths = []
    for number in range(count):
        path = stem.with_name(f"{stem.name}-{number:05d}-of-{count:05d}")
        if not _is_file(path):
            message = f"part {number + 1} of {count} of the checkpoint is missing"
            raise CorruptFileError(message, "copy it to the same directory", str(path))
        paths.append(path)
    return tuple(paths)


def _file_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_file())
    except (OSError, ValueError):  # The directory does not exist, or its name is invalid.
        return []


def _ends_as_table(path: Path) -> bool:
    try:
        with opened(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - len(MAGIC), 0))
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    # os.path returns False for invalid names; Path raises for some of them.
    return os.path.isfile(path)  # noqa: PTH113


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - as above


def _nothing_at(path: Path) -> CorruptFileError:
    if not _is_folder(path.parent):
        message, hint = "the directory does not exist", "correct the path of the checkpoint"
        return CorruptFileError(message, hint, str(path.parent))
    member = _MEMBER.match(path.name)
    if member is not None and _is_file(path):
        index = index_path(path.with_name(member[1]))
        message = "belongs to a checkpoint whose index is missing"
        return CorruptFileError(message, f"copy {index.name} to the same directory", str(path))
    hint = _prefix_hint(path.parent, path.name)
    return CorruptFileError("no checkpoint with this name exists", hint, str(path))


def _prefix_hint(folder: Path, name: str) -> str:
    prefixes = _prefixes(folder)
    if not prefixes:
        return "the folder holds no checkpoint"
    near = did_you_mean(name, prefixes)
    start = f"did you mean {near[0]!r}? " if near else ""
    return f"{start}the folder holds: {_listed(prefixes)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


_FIELD: Final = b"model_checkpoint_path"
_USUAL_NAME: Final = "checkpoint"
_PROBE: Final = 4096
# Ten thousand checkpoints with names of 100 characters; savers keep five.
_LARGEST: Final = 1 << 20


def is_state_file(path: Path) -> bool:
    """Return whether a file is a state file, by its usual name or by its content."""
    try:
        with opened(path) as stream:
            head = stream.read(_PROBE)
    except OSError as error:
        raise unreadable(path, error) from error
    # A table can also be named "checkpoint", but it contains NUL bytes.
    is_text = b"\0" not in head
    return is_text and (path.name == _USUAL_NAME or head.lstrip().startswith(_FIELD))


def newest_path(path: Path) -> str:
    """Return the newest checkpoint in a state file: an absolute path, or relative to the file."""
    text = read_bytes(path, limit=_LARGEST)
    state = parse(pb.CheckpointState, text_to_wire(text, pb.CheckpointState, str(path)), str(path))
    if not state.model_checkpoint_path:
        message = "names no checkpoint in 'model_checkpoint_path'"
        raise CorruptFileError(message, "name the checkpoint by its prefix", str(path))
    return state.model_checkpoint_path
