"""The ``checkpoint`` state file, which names the newest checkpoint of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mobileprep.core.files import read_bytes, unreadable
from mobileprep.core.paths import opened
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_records import parse
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.text_proto import text_to_wire

_FIELD: Final = b"model_checkpoint_path"
_USUAL_NAME: Final = "checkpoint"
_PROBE: Final = 4096
# Ten thousand checkpoints of a hundred letters; savers keep five.
_LARGEST: Final = 1 << 20


def is_state_file(path: Path) -> bool:
    """Whether a file is a state file, under its usual name or, by its content, another.

    Raises:
        CorruptFileError: the file cannot be read.
    """
    try:
        with opened(path) as stream:
            head = stream.read(_PROBE)
    except OSError as error:
        raise unreadable(path, error) from error
    # A table may be named "checkpoint", too; it has bytes that no text has.
    is_text = b"\0" not in head
    return is_text and (path.name == _USUAL_NAME or head.lstrip().startswith(_FIELD))


def newest_path(path: Path) -> str:
    """The path of the newest checkpoint as a state file gives it: absolute, or from its folder.

    Raises:
        CorruptFileError: the file is unreadable, too large, no state file, or names none.
    """
    text = read_bytes(path, limit=_LARGEST)
    state = parse(pb.CheckpointState, text_to_wire(text, pb.CheckpointState, str(path)), str(path))
    if not state.model_checkpoint_path:
        message = "names no checkpoint in 'model_checkpoint_path'"
        raise CorruptFileError(message, "name the checkpoint by its prefix", str(path))
    return state.model_checkpoint_path
