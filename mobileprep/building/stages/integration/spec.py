"""The stage `integration`: its parameters, inputs, and outputs."""

from __future__ import annotations

from typing import ClassVar

from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.package.spec import (
    PackageStage,
    app_classes,
    app_images,
    encrypted_file,
)
from mobileprep.data.options import Reading
from mobileprep.recipe.model import Integration, Target
from mobileprep.recipe.settings import Artifact, InputSpec
from mobileprep.recipe.validation_settings import EndType, Quantize


class IntegrationStage(Stage, frozen=True, kw_only=True):
    """Code that runs the model in an app, and the names of its classes.

    Args:
        integration: settings of the recipe.
        file: name of the model file.
        artifact: format of the model file.
        encrypted: whether it is encrypted.
        input_type: dtype of float inputs in a .tflite file, if they are quantized.
        output_type: dtype of float outputs in a .tflite file, if they are quantized.
        inputs: inputs that the recipe declares.
        reading: options for converting images to values of ``image_input``, or None.
        image_input: input for images; None for the only input.
        labels: name of the file of classes to write; empty for none.
        classes: file that lists the classes: `labels` of the recipe, or those of the samples.
        graph: the graph after all transforms.
        interface: inputs and outputs.
        packaged: record of the package of a .tflite file that runs a stream, or None.
        moved: record of the preprocessing that the code does instead of the graph, or None.
        decoding: record of the decoder that the code runs instead of the graph, or None.
    """

    stage_name: ClassVar[str] = "integration"
    stage_version: ClassVar[int] = 5

    integration: Integration
    file: str
    artifact: Artifact
    encrypted: bool = False
    input_type: EndType = "float"
    output_type: EndType = "float"
    inputs: tuple[InputSpec, ...] = ()
    reading: Reading | None = None
    image_input: str | None = None
    labels: str = ""
    classes: Files | None = None
    graph: Upstream
    interface: Upstream
    packaged: Upstream | None = None
    moved: Upstream | None = None
    decoding: Upstream | None = None


def integration_spec(
    target: Target,
    file: str,
    graph: Upstream,
    interface: Upstream,
    moved: Upstream | None,
    package: str,
    decoding: Upstream | None,
) -> StageSpec | None:
    """Return the stage that generates the code, if the recipe asks for it."""
    if target.integration is None:
        return None
    labels = target.integration.labels
    classes = labels or app_classes(target)
    reading, image_input = app_images(target)
    quantize = target.quantize if target.artifact == "tflite" else Quantize()
    stage = IntegrationStage(
        integration=target.integration,
        file=encrypted_file(target, file) or file,
        artifact=target.artifact,
        encrypted=target.protect.key is not None,
        input_type=quantize.inference_input_type,
        output_type=quantize.inference_output_type,
        inputs=target.inputs,
        reading=reading,
        image_input=image_input,
        labels=f"{file.rpartition('.')[0]}_labels.txt" if classes is not None else "",
        classes=single_file(classes) if classes is not None else None,
        graph=graph,
        interface=interface,
        packaged=None if target.streaming is None else Upstream(package, PackageStage.RECORD),
        moved=moved,
        decoding=decoding,
    )
    where = places(target, "integration", "inputs", "outputs")
    return StageSpec(f"{target.folder}/integration", stage, where)
