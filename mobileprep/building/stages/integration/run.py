"""Generate code that runs the model in an app."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mobileprep.building.plan.spec import PUBLISHED
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.integration.spec import IntegrationStage
from mobileprep.building.stages.page.run import app_ends, images_of
from mobileprep.core.files import write_text
from mobileprep.data.file_samples import class_names
from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.recipe.validation_settings import EndType
from mobileprep.targets.integration.render import AppModel, AppTensor, integration_code

FOLDER = "integration"


def run(job: Job[IntegrationStage]) -> None:
    """Write code below ``files/integration/``, and the class names next to the model.

    Raises:
        AccuracyError: the file of classes is empty or has a duplicate, or the mean or standard
            deviation of images does not match the number of channels.
        InvalidGraphError: an input or output is not in the graph.
        UnsupportedError: a language's interface does not support a tensor's dtype, the recipe names
            no inputs or outputs, or Jinja is not installed.
    """
    settings = job.asked
    model = _app_model(job)
    for language in settings.integration.languages:
        try:
            files = integration_code(model, language)
        except UnsupportedError as error:
            raise error.at(job.place("integration")) from error
        for name, text in sorted(files.items()):
            write_text(job.output(f"{PUBLISHED}{FOLDER}/{name}"), text)
    if settings.classes is not None:
        lines = "".join(f"{name}\n" for name in class_names(settings.classes.root))
        write_text(job.output(f"{PUBLISHED}{settings.labels}"), lines)


def _app_model(job: Job[IntegrationStage]) -> AppModel:
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    inputs, outputs = app_ends(job, job.graph(settings.graph), interface)
    return AppModel(
        file=settings.file,
        artifact=settings.artifact,
        encrypted=settings.encrypted,
        inputs=_stored(inputs, settings.input_type),
        outputs=_stored(outputs, settings.output_type),
        init_ops=interface.init_ops,
        images=images_of(settings, inputs),
        labels=settings.labels or None,
        threads=settings.integration.threads,
        package=settings.integration.package,
        class_name=settings.integration.class_name,
    )


def _stored(tensors: Iterable[AppTensor], kind: EndType) -> tuple[AppTensor, ...]:
    """Return tensors with the dtype that float tensors have in the file."""
    integers = None if kind == "float" else DType[kind.upper()]
    return tuple(replace(t, integers=integers) if t.dtype is DType.FLOAT else t for t in tensors)
