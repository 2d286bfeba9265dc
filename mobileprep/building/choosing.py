"""Compare candidate models: sizes, cost on a device, unsupported ops, and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.stages.candidate.run import (
    counted_candidate,
    litert_lacks,
    tensorflow_lacks,
)
from mobileprep.building.stages.candidate.spec import Candidate
from mobileprep.building.stages.evaluate.run import evaluated
from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.data.metrics.base import MetricBatch, MetricOptions, make_metric
from mobileprep.data.opening import open_dataset
from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles, SampleChoice, data_inputs, no_samples
from mobileprep.data.survey import runs
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.freezing.loading import find_source
from mobileprep.freezing.trace import extract
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.inspection.summarizing import (
    CountedModel,
    SummaryOptions,
    counted_model,
    memory_as_saved,
    named_device,
)
from mobileprep.litert.in_memory import tflite_in_memory
from mobileprep.recipe.validation_settings import AUTO, USUAL_LABELS, metric_facts
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.targets.targets import platform_named

_BATCH: Final = 32

Runtime = Literal["tensorflow", "litert"]


class LabeledSamples(Struct, frozen=True):
    """Samples with labels, for the accuracy of candidates.

    Args:
        data: file or directory of samples, as in a recipe's ``validation``.
        labels: file of labels, or the name of the labels in the data; empty for the default name.
        metric: a metric of labels, such as ``top1`` or ``mean_absolute_error``.
        samples: number of samples; None for all.
        engine: engine that runs GraphDefs; LiteRT runs .tflite files.
    """

    data: str
    labels: str = ""
    metric: str = "top1"
    samples: int | None = None
    engine: str = "numpy"

    def files(self) -> DataFiles:
        """Return the files to read."""
        is_file = bool(self.labels) and Path(self.labels).is_file()
        reading = Reading(labels=self.labels if self.labels and not is_file else None)
        labels = Path(self.labels) if is_file else None
        return DataFiles(self.data, Path(self.data), reading=reading, labels=labels)


class Candidates(Struct, frozen=True):
    """Candidate models side by side.

    Args:
        candidates: one for each model, in the order of the request.
        metric: name of the metric; empty without data.
    """

    candidates: tuple[Candidate, ...]
    metric: str = ""


def choose(
    models: Sequence[FilePath],
    *,
    device: str = "",
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    input_shapes: Sequence[Sequence[int]] = (),
    batch: int = 1,
    runtime: Runtime = "tensorflow",
    tensorflow: str = DEFAULT_RELEASE,
    platform: str = "android",
    data: LabeledSamples | None = None,
    warn: Warn | None = None,
) -> Candidates:
    """Compare candidate models without preparing them.

    A model that cannot be counted has a ``reason`` instead of numbers.

    Args:
        models: paths of models in any format that ``summarize`` accepts, trained or not.
        device: name of a device, or path of a profile; without it, latencies are None.
        inputs: input tensors of all models; empty for the likely ones.
        outputs: output tensors of all models; empty for the likely ones.
        input_shapes: a shape for each input, in their order; empty for the shapes of the model.
        batch: size to use for unknown input dimensions.
        runtime: runtime whose unsupported ops are listed: TensorFlow Mobile or LiteRT.
        tensorflow: release of TensorFlow Mobile.
        platform: platform of TensorFlow Mobile.
        data: labeled samples for the metric, or None.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: there are no models, the device is unknown, or the metric is not one of labels.
        UnsupportedError: the platform is unknown.
    """
    paths = [Path(models)] if isinstance(models, str) else [Path(model) for model in models]
    if not paths:
        message = "no models are named"
        raise UsageError(message, "name the candidates: mobileprep choose a.pb b.pb")
    if data is not None:
        facts = metric_facts(data.metric)
        if facts is None or not facts.of_labels or data.metric == AUTO:
            message = f"{data.metric!r} is not a metric of labels"
            raise UsageError(message, "choose one such as top1, top5, or mean_absolute_error")
    platform_named(platform)
    options = SummaryOptions(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_shapes=tuple(map(tuple, input_shapes)),
        batch=batch,
        device=named_device(device),
        tensorflow=tensorflow,
    )
    builds = "" if runtime == "litert" else platform
    candidates = tuple(_candidate(p, options, builds, data, warn or as_warning) for p in paths)
    return Candidates(candidates, "" if data is None else data.metric)


def _candidate(
    path: Path, options: SummaryOptions, platform: str, data: LabeledSamples | None, warn: Warn
) -> Candidate:
    """Return a model's numbers, or the reason why there are none.

    Args:
        platform: platform of TensorFlow Mobile, or empty for LiteRT.
    """
    model = str(path)
    try:
        source = find_source(path)
        counted = counted_model(source.source, options)
        if counted.run is None:
            return Candidate(model, counted.notes[-1])
        memory = memory_as_saved(counted, path, options)
        candidate = counted_candidate(
            model,
            counted.run,
            options.device,
            ram_bytes=None if memory is None else memory.peak,
            is_trained=counted.is_frozen,
        )
        lacks = _lacks(counted, options.tensorflow, platform)
    except MobileprepError as error:
        return Candidate(model, error.message)
    notes = [*source.notes, *candidate.notes]
    if not counted.is_frozen:
        notes.append("not frozen: sizes are those of the variables' shapes")
    metric = None
    if data is not None and not counted.is_frozen:
        notes.append(f"no {data.metric}: the variables have no values")
    elif data is not None:
        try:
            metric = _metric(counted, Path(source.source.where), data, warn)
        except MobileprepError as error:
            notes.append(f"no {data.metric}: {error.message}")
    return replace(candidate, lacks=lacks, metric=metric, notes=tuple(notes))


def _lacks(counted: CountedModel, release: str, platform: str) -> tuple[str, ...]:
    """Return the ops that a runtime lacks; a .tflite file is for LiteRT."""
    if is_tflite_graph(counted.graph):
        return ()
    # A graph that is not frozen still has its training ops.
    graph = extract(counted.graph, [parse_ref(name).node for name in counted.proposal.outputs])
    if not platform:
        shapes = {i.spec.name: i.spec.shape for i in counted.proposal.inputs}
        return litert_lacks(graph, shapes, counted.proposal.outputs)
    return tensorflow_lacks(graph, [release], platform)


def _metric(counted: CountedModel, path: Path, data: LabeledSamples, warn: Warn) -> float:
    """Run a model on labeled samples."""
    graph, fetches = counted.graph, counted.proposal.outputs
    shapes = {i.spec.name: i.spec.shape for i in counted.proposal.inputs}
    inputs = data_inputs(graph, shapes, shapes)
    files = data.files()
    name = files.reading.labels or USUAL_LABELS
    choice = SampleChoice(data.samples)
    dataset = open_dataset(files, inputs, choice, labels=name, labeled=True, warn=warn)
    engine = open_engine(data.engine, graph, path, convert=tflite_in_memory)
    metric = make_metric(data.metric, MetricOptions())
    samples = 0
    for batch, results in evaluated(engine, runs(dataset, inputs, _BATCH), fetches):
        outputs = dict(zip(fetches, results, strict=True))
        metric.update(MetricBatch(outputs, fetches[:1], batch.count, batch.labels, name, samples))
        samples += batch.count
    if not samples:
        raise no_samples(data.data)
    return metric.value()
