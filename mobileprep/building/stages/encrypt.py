"""The encrypt stage: the model file as it ships where a key is named."""

from __future__ import annotations

from mobileprep.building.plan.app_stages import EncryptStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.core.files import write_bytes
from mobileprep.core.keys import key_from_environment
from mobileprep.errors import UnsupportedError
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.targets.memmapped import encrypt


@stage(EncryptStage)
def run(job: Job[EncryptStage]) -> None:
    """Leaves the encrypted file.

    Raises:
        ArtifactError: the model is too large.
        RecipeError: the variable has no key, or another than when the build began.
        UnsupportedError: the package cryptography is not installed.
    """
    asked, where = job.asked, job.place("protect")
    key = key_from_environment(asked.variable, where, asked.key_id)
    try:
        encrypted = encrypt(_content(job), key)
    except UnsupportedError as error:
        raise error.at(where) from error
    write_bytes(job.output(*asked.output_files), encrypted)


def _content(job: Job[EncryptStage]) -> bytes:
    """The bytes of the model file."""
    model = job.asked.model
    if job.asked.artifact == "frozen":
        return graph_to_bytes(job.graph(model))
    return b"".join(job.data(model))
