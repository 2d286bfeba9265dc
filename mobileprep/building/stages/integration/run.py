"""Generate code that runs the model in an app."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.building.plan.spec import PUBLISHED, Files
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.cut.spec import PreprocessingRecord
from mobileprep.building.stages.decoder.spec import DecodingRecord
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.integration.spec import IntegrationStage
from mobileprep.building.stages.package.spec import PackageRecord
from mobileprep.building.stages.page.run import app_ends, images_of
from mobileprep.core.files import write_text
from mobileprep.data.file_samples import class_names, text_lines
from mobileprep.errors import AccuracyError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.streaming import Streaming
from mobileprep.recipe.validation_settings import EndType
from mobileprep.targets.integration.render import AppModel, AppTensor, Stream, integration_code

FOLDER = "integration"
_BACKGROUND: Final = frozenset({"background", "dummy", "none", "???"})


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
        names = (
            class_names(settings.classes.root)
            if not model.ranks
            else _labels(job, settings.classes, model)
        )
        lines = "".join(f"{name}\n" for name in names)
        write_text(job.output(f"{PUBLISHED}{settings.labels}"), lines)


def _labels(job: Job[IntegrationStage], file: Files, model: AppModel) -> list[str]:
    """Return the labels of the first output, which may repeat, one for each score.

    Raises:
        AccuracyError: their number does not match the output.
    """
    names = [line.strip() for line in text_lines(file.root)]
    while names and not names[-1]:
        names.pop()
    output = model.outputs[0]
    count = output.shape[-1] if output.shape else -1
    if count < 0 or len(names) == count:
        return names
    if model.decoding is not None and len(names) == count - 1:
        # The blank has no label.
        return names
    facts = f"{file.name} has {len(names)} labels, and the output {output.name!r} {count} scores"
    place = job.place("integration")
    if len(names) == count - 1:
        job.warn(f"{place}: {facts}; the first score is that of the background class")
        return ["background", *names]
    if len(names) == count + 1 and names[0].lower() in _BACKGROUND:
        job.warn(f"{place}: {facts}; the first label, {names[0]!r}, is left out")
        return names[1:]
    raise AccuracyError(facts, "write a label for each score, one per line", place)


def _app_model(job: Job[IntegrationStage]) -> AppModel:
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    streaming = None
    if settings.packaged is not None:
        lite = job.record(PackageRecord, settings.packaged).lite
        streaming = None if lite is None else lite.streaming
    inputs, outputs = app_ends(job, job.graph(settings.graph), interface, streaming)
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
        preprocessing=(
            None
            if settings.moved is None
            else job.record(PreprocessingRecord, settings.moved).preprocessing
        ),
        decoding=(
            None
            if settings.decoding is None
            else job.record(DecodingRecord, settings.decoding).decoding
        ),
        ranks=settings.integration.labels is not None,
        stream=None if streaming is None else Stream(streaming.steps, _sizes(streaming)),
        package=settings.integration.package,
        class_name=settings.integration.class_name,
    )


def _sizes(streaming: Streaming) -> tuple[int, ...]:
    """Return the bytes of each state."""
    return tuple(
        math.prod(state.shape) * np.dtype(state.dtype).itemsize for state in streaming.states
    )


def _stored(tensors: Iterable[AppTensor], kind: EndType) -> tuple[AppTensor, ...]:
    """Return tensors with the dtype that float tensors have in the file."""
    integers = None if kind == "float" else DType[kind.upper()]
    return tuple(replace(t, integers=integers) if t.dtype is DType.FLOAT else t for t in tensors)
