"""What the stages that make code for an app are told of a target."""

from __future__ import annotations

from typing import Any

from mobileprep.core.keys import key_from_environment
from mobileprep.options.data import Reading
from mobileprep.plan.app_stages import ENCRYPTED, EncryptStage, IntegrationStage
from mobileprep.plan.sources import single_file
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.recipe.app import Integration
from mobileprep.recipe.model import Target
from mobileprep.recipe.quantize_settings import Quantize
from mobileprep.recipe.settings import Data, InputFile


def integration_spec(
    target: Target, integration: Integration, file: str, graph: Upstream, interface: Upstream
) -> StageSpec:
    """The stage that writes the code.

    Args:
        target: whose code.
        integration: what is asked for.
        file: the name of the model file.
        graph: the graph that ships.
        interface: what is fed and fetched.
    """
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
    """The stage that encrypts a model file.

    Args:
        target: whose model.
        variable: the variable of the environment that has the key.
        file: the name of the encrypted file.
        model: the model file.

    Raises:
        RecipeError: the variable is not set, or has no key.
    """
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
