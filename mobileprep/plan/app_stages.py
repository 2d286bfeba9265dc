"""The kinds of stages of what goes with a model into an app: code, ciphers, another runtime."""

from __future__ import annotations

from typing import ClassVar, Final

from mobileprep.frozen import dataclass
from mobileprep.options.data import Reading
from mobileprep.plan.spec import PUBLISHED, Files, Stage, Upstream
from mobileprep.recipe.app import Integration
from mobileprep.recipe.quantize_settings import EndType
from mobileprep.recipe.settings import Artifact, InputSpec, Platform

ENCRYPTED: Final = ".enc"
"""What the name of an encrypted file ends in."""


@dataclass(frozen=True, kw_only=True)
class EncryptStage(Stage):
    """The model file, encrypted.

    Args:
        file: the name of the file to leave.
        artifact: the form of the model.
        variable: the variable of the environment that has the key.
        key_id: tells one key from another, and nothing else of it.
        model: the model file.
    """

    stage_name: ClassVar[str] = "encrypt"
    stage_version: ClassVar[int] = 1

    file: str
    artifact: Artifact
    variable: str
    key_id: str
    model: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The encrypted file alone."""
        return (f"{PUBLISHED}{self.file}",)


@dataclass(frozen=True, kw_only=True)
class IntegrationStage(Stage):
    """The code by which an app runs the model, and the names of its classes.

    Args:
        integration: what is asked for.
        file: the name of the model file.
        artifact: its form.
        encrypted: whether it is encrypted.
        input_type: the type of inputs in float in a .tflite file, if they are quantized.
        output_type: the same of outputs.
        inputs: what is fed, as far as the recipe says.
        reading: how pictures become values of ``picture_input``, or None.
        picture_input: the input that gets pictures; None for the only one.
        labels: the name of the file of classes to leave; empty for none.
        classes: the file that lists them.
        graph: the graph after all transforms.
        interface: what is fed and fetched.
    """

    stage_name: ClassVar[str] = "integration"
    stage_version: ClassVar[int] = 4

    integration: Integration
    file: str
    artifact: Artifact
    encrypted: bool = False
    input_type: EndType = "float"
    output_type: EndType = "float"
    inputs: tuple[InputSpec, ...] = ()
    reading: Reading | None = None
    picture_input: str | None = None
    labels: str = ""
    classes: Files | None = None
    graph: Upstream
    interface: Upstream


@dataclass(frozen=True, kw_only=True)
class MigrationStage(Stage):
    """Tells whether TensorFlow Mobile and LiteRT run a target's graph.

    Args:
        platform: what TensorFlow Mobile is built for.
        flatbuffers: the version of what writes files for LiteRT; empty where it is not there.
        before: the transform that quantizes the graph afterwards; empty where none does.
        graph: the graph before that transform, or after all.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
    """

    stage_name: ClassVar[str] = "migration"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "migration.json"

    platform: Platform
    flatbuffers: str
    before: str = ""
    graph: Upstream
    interface: Upstream
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)
