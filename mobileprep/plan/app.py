"""What the stages that make code for an app are told of a target."""

from __future__ import annotations

from mobileprep.plan.app_stages import IntegrationStage
from mobileprep.plan.sources import single_file
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.recipe.app import Integration
from mobileprep.recipe.model import Target
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
    data = _app_data(target)
    is_fed, picture_input = (False, None) if data is None else _pictures(data)
    classes = app_classes(target)
    stage = IntegrationStage(
        integration=integration,
        file=file,
        artifact=target.artifact,
        inputs=target.inputs,
        reading=data.reading if data is not None and is_fed else None,
        picture_input=picture_input,
        labels=f"{file.rpartition('.')[0]}_labels.txt" if classes is not None else "",
        classes=single_file(classes) if classes is not None else None,
        graph=graph,
        interface=interface,
    )
    where = places(target, "integration", "inputs", "outputs")
    return StageSpec(f"{target.folder}/integration", stage, where)


def app_classes(target: Target) -> InputFile | None:
    """The file of classes that an app gets, where it gets code."""
    data = _app_data(target)
    return None if data is None or target.integration is None else data.classes


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
