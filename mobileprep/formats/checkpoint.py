"""Opens a checkpoint of either format, however it is named."""

from __future__ import annotations

from pathlib import Path

from mobileprep.formats.checkpoint_files import find_checkpoint
from mobileprep.formats.checkpoint_reader import Checkpoint
from mobileprep.formats.checkpoint_records import TensorEntry
from mobileprep.formats.checkpoint_v1 import CheckpointV1
from mobileprep.formats.tensor_bundle import TensorBundle

__all__ = ["Checkpoint", "TensorEntry", "open_checkpoint"]


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint that a path leads to; its tensors are read when asked for.

    Args:
        path: its prefix, any file of the set, a ``checkpoint`` state file (the newest that it
            names is taken, beside the file where it moved), or a folder.

    Raises:
        CorruptFileError: nothing of that name is there, or its tables are damaged.
        UnsupportedError: it is big-endian, compressed in an unknown way, or of a newer format.
    """
    found = find_checkpoint(path)
    return CheckpointV1(found.prefix, found.tables) if found.is_v1 else TensorBundle(found.prefix)
