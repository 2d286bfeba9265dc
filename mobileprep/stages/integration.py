"""The integration stage: the code by which an app runs the model."""

from __future__ import annotations

from mobileprep.datasets.classes import class_names
from mobileprep.errors import AccuracyError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.fsio import write_text
from mobileprep.ir.refs import parse_ref
from mobileprep.packaging.integration.app_model import AppModel, AppTensor, Pictures, app_tensors
from mobileprep.packaging.integration.render import integration_code
from mobileprep.plan.app_stages import IntegrationStage
from mobileprep.plan.records import Interface
from mobileprep.plan.stages import PUBLISHED
from mobileprep.stages.base import Job, stage

FOLDER = "integration"


@stage(IntegrationStage)
def run(job: Job[IntegrationStage]) -> None:
    """Leaves code below ``files/integration/``, and the names of the classes beside the model.

    Raises:
        AccuracyError: the file of classes lists none, or one twice; the numbers that pictures are
            normalized by do not fit their channels.
        InvalidGraphError: an input or output is not in the graph.
        UnsupportedError: a language's interface takes no tensors of such a type, the recipe names
            no inputs or outputs, or Jinja is not installed.
    """
    asked = job.asked
    model = _app_model(job)
    for language in asked.integration.languages:
        try:
            files = integration_code(model, language)
        except UnsupportedError as error:
            raise error.at(job.place("integration")) from error
        for name, text in sorted(files.items()):
            write_text(job.output(f"{PUBLISHED}{FOLDER}/{name}"), text)
    if asked.classes is not None:
        lines = "".join(f"{name}\n" for name in class_names(asked.classes.root))
        write_text(job.output(f"{PUBLISHED}{asked.labels}"), lines)


def _app_model(job: Job[IntegrationStage]) -> AppModel:
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    declared = {spec.name: spec.shape for spec in asked.inputs}
    try:
        inputs, outputs = app_tensors(
            job.graph(asked.graph), interface.inputs, interface.outputs, declared
        )
    except UsageError as error:
        raise error.at(job.place("inputs")) from error
    return AppModel(
        file=asked.file,
        artifact=asked.artifact,
        inputs=inputs,
        outputs=outputs,
        init_ops=interface.init_ops,
        pictures=_pictures(asked, inputs),
        labels=asked.labels or None,
        threads=asked.integration.threads,
        package=asked.integration.package,
        class_name=asked.integration.class_name,
    )


def _pictures(asked: IntegrationStage, inputs: tuple[AppTensor, ...]) -> Pictures | None:
    """How pictures become values, the data's defaults filled in; None where none are fed."""
    reading = asked.reading
    named = asked.picture_input
    fed = [t for t in inputs if named is None or parse_ref(t.name) == parse_ref(named)]
    if reading is None or len(fed) != 1:
        return None
    count = 1 if reading.channels == "grayscale" else 3
    numbers = []
    whole = fed[0].dtype is not DType.FLOAT
    for key, given in (
        ("mean", reading.mean or (0.0,)),
        ("std", reading.std or (1.0 if whole else 255.0,)),
    ):
        if len(given) not in (1, count):
            message = f"{key!r} has {len(given)} numbers for {count} channels"
            raise AccuracyError(message, "give one number, or one for each channel")
        numbers.append(given * count if len(given) == 1 else given)
    return Pictures(fed[0].name, reading.channels, *numbers)
