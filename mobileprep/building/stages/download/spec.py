"""The stage `download`: its parameters, inputs, outputs, record, and lines of the report."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.fingerprints import library_version
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import PUBLISHED, Files, Stage, StageSpec, Upstream, places
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Artifact


class DownloadRecord(Struct, frozen=True):
    """The delta from the installed model, ``download.json``.

    Args:
        file: name of the delta in the target's directory.
        bytes: size of the delta in bytes.
        previous_bytes: size of the installed model in bytes.
    """

    file: str
    bytes: int
    previous_bytes: int


class DownloadStage(Stage, frozen=True, kw_only=True):
    """Write the delta from the installed model to the new one.

    Args:
        file: name of the delta in the target's directory.
        artifact: format of both models.
        library: the library that writes the delta, with its version.
        previous: the installed model.
        model: the new model.
    """

    stage_name: ClassVar[str] = "download"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "download.json"
    reported: ClassVar[type[Struct] | None] = DownloadRecord

    file: str
    artifact: Artifact
    library: str
    previous: Files
    model: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        return (f"{PUBLISHED}{self.file}", self.RECORD)


def download_spec(target: Target, file: str, model: Upstream) -> StageSpec | None:
    """Return the stage that writes the delta to a model file; None if the recipe does not ask."""
    if target.download is None:
        return None
    stage = DownloadStage(
        file=f"download/{file}.delta",
        artifact=target.artifact,
        library=f"bsdiff4 {library_version('bsdiff4', 'bsdiff4')}",
        previous=single_file(target.download.previous),
        model=model,
    )
    return StageSpec(f"{target.folder}/download", stage, places(target, "download"))


def download_text(download: DownloadRecord) -> str:
    """Format the size of the delta: ``9,009 bytes as a delta of 232,178``."""
    return f"{download.bytes:,} bytes as a delta of {download.previous_bytes:,}"
