"""The kinds of stages of what goes with a model into an app: code, ciphers, another runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from mobileprep.building.plan.sources import checkpoint_files, single_file
from mobileprep.building.plan.spec import (
    PUBLISHED,
    Files,
    Stage,
    StageSpec,
    Upstream,
    file_slot,
    places,
)
from mobileprep.core.keys import key_from_environment
from mobileprep.data.options import Reading
from mobileprep.recipe.model import Integration, Step, Target
from mobileprep.recipe.settings import Artifact, Data, InputFile, InputSpec, Platform
from mobileprep.recipe.validation_settings import EndType, Quantize

ENCRYPTED: Final = ".enc"
"""What the name of an encrypted file ends in."""


class EncryptStage(Stage, frozen=True, kw_only=True):
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


class IntegrationStage(Stage, frozen=True, kw_only=True):
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


class MigrationStage(Stage, frozen=True, kw_only=True):
    """Tells whether TensorFlow Mobile and LiteRT run a target's graph.

    Args:
        platform: what TensorFlow Mobile is built for.
        before: the transform that quantizes the graph afterwards; empty where none does.
        graph: the graph before that transform, or after all.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
    """

    stage_name: ClassVar[str] = "migration"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "migration.json"

    platform: Platform
    before: str = ""
    graph: Upstream
    interface: Upstream
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


def integration_spec(
    target: Target, integration: Integration, file: str, graph: Upstream, interface: Upstream
) -> StageSpec:
    """The stage that writes the code."""
    classes = app_classes(target)
    reading, picture_input = app_pictures(target)
    quantize = target.quantize if target.artifact == "tflite" else Quantize()
    stage = IntegrationStage(
        integration=integration,
        file=encrypted_file(target, file) or file,
        artifact=target.artifact,
        encrypted=target.protect.key is not None,
        input_type=quantize.inference_input_type,
        output_type=quantize.inference_output_type,
        inputs=target.inputs,
        reading=reading,
        picture_input=picture_input,
        labels=f"{file.rpartition('.')[0]}_labels.txt" if classes is not None else "",
        classes=single_file(classes) if classes is not None else None,
        graph=graph,
        interface=interface,
    )
    where = places(target, "integration", "inputs", "outputs")
    return StageSpec(f"{target.folder}/integration", stage, where)


def encrypted_file(target: Target, file: str) -> str:
    """The name of the encrypted file that ships in place of a model file, or an empty text."""
    return "" if target.protect.key is None else f"{file}{ENCRYPTED}"


def encrypt_spec(target: Target, variable: str, file: str, model: Upstream) -> StageSpec:
    """The stage that encrypts a model file."""
    where = target.place(("protect", "encrypt", "key"))
    key = key_from_environment(variable, where)
    stage = EncryptStage(
        file=file,
        artifact=target.artifact,
        variable=variable,
        key_id=key.id.hex(),
        model=model,
    )
    return StageSpec(f"{target.folder}/encrypt", stage, {"protect": where})


def app_classes(target: Target) -> InputFile | None:
    """The file of classes that an app gets, where it gets code or a file for LiteRT."""
    data = _app_data(target)
    is_told = target.integration is not None or target.artifact == "tflite"
    return data.classes if data is not None and is_told else None


def app_pictures(target: Target) -> tuple[Reading | None, str | None]:
    """How an app's pictures become values, and of which input, where that is said."""
    data = _app_data(target)
    is_fed, named = (False, None) if data is None else _pictures(data)
    return (data.reading if data is not None and is_fed else None), named


def lite_description(target: Target) -> dict[str, Any]:
    """What a ``PackageStage`` is told for the description of a file for LiteRT."""
    reading, picture_input = app_pictures(target)
    classes = app_classes(target)
    return {
        "inputs": target.inputs,
        "reading": reading,
        "picture_input": picture_input,
        "classes": None if classes is None else single_file(classes),
    }


def _app_data(target: Target) -> Data | None:
    """The data that is as what the app feeds: the validation's, else the calibration's."""
    if target.validation is not None:
        return target.validation.data
    return None if target.calibration is None else target.calibration.data


def _pictures(data: Data) -> tuple[bool, str | None]:
    """Whether pictures are fed, and to which input, where that is said."""
    if data.kind == "pictures":
        return True, data.reading.input
    names = [name for name, feature in data.reading.features if feature.encoding == "picture"]
    return bool(names), names[0] if names else None


def plugin_file(step: Step) -> Files | None:
    """The code of a transform from outside the package; None for the package's own."""
    return None if step.plugin is None else single_file(step.plugin.file)


def named_files(step: Step) -> Mapping[str, Files]:
    """The files that a step's parameters name, by slot; of a checkpoint, all that belong to it."""
    find = {"checkpoint": checkpoint_files, "path": single_file}
    return {file_slot(f.parameter, f.index): find[f.kind](f.file) for f in step.files}
