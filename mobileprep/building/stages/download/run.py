"""Write the delta from the installed model to the new one."""

from __future__ import annotations

from typing import Final

from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.download.spec import DownloadRecord, DownloadStage
from mobileprep.core.files import read_bytes, write_bytes
from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.kinds import looks_like_text
from mobileprep.formats.memmapped import ends_as_package, is_encrypted
from mobileprep.formats.tflite.checker import is_tflite

MAX_BYTES: Final = 256 << 20
"""Maximum size of a model. bsdiff needs up to 17 bytes of memory for each byte of it."""


def run(job: Job[DownloadStage]) -> None:
    """Write the delta below ``files/download/``, and ``download.json``.

    The delta has the format of bsdiff 4 (``BSDIFF40``), which ``bspatch`` applies.

    Raises:
        CorruptFileError: the installed model cannot be read, or is of another kind.
        UnsupportedError: a model is too large, or bsdiff4 is not installed.
    """
    settings, where = job.asked, job.place("download")
    try:
        import bsdiff4
    except ImportError as error:
        message = "a delta needs the package bsdiff4, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[download]'", where) from error
    previous = read_bytes(settings.previous.root, limit=MAX_BYTES)
    kind = _kind(previous)
    if kind != settings.artifact:
        message = f"the installed model {settings.previous.name!r} is of the kind '{kind}', and "
        message += f"the target ships 'artifact: {settings.artifact}'"
        raise CorruptFileError(message, "name the model file that the app has now", where)
    model = b"".join(job.data(settings.model))
    if len(model) > MAX_BYTES:
        message = f"the model has {len(model):,} bytes, more than the {MAX_BYTES:,} of a delta"
        raise UnsupportedError(message, "remove 'download' from the target", where)
    delta = bsdiff4.diff(previous, model)
    write_bytes(job.output(f"{PUBLISHED}{settings.file}"), delta)
    job.write_record(settings.RECORD, DownloadRecord(settings.file, len(delta), len(previous)))


def _kind(data: bytes) -> str:
    """Return the kind of a model file, as in ``artifact``, or ``encrypted``."""
    if is_tflite(data):
        return "tflite"
    if is_encrypted(data):
        return "encrypted"
    if ends_as_package(data):
        return "memmapped"
    return "text" if looks_like_text(data) else "frozen"
