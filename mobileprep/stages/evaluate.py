"""The evaluate stage: runs a graph on data, measures it, and keeps its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mobileprep.datasets.source import no_samples
from mobileprep.datasets.survey import DataSurvey, FedRun
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.plan.records import Interface
from mobileprep.plan.running_records import EngineRecord, EvaluationRecord, MetricValue
from mobileprep.plan.running_stages import EvaluateStage
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.stages.assets import with_assets
from mobileprep.stages.base import Job, stage
from mobileprep.stages.data import data_files, data_record, norm_doubts, placed, stage_inputs
from mobileprep.stages.labelled import LabelledData
from mobileprep.stages.measuring import Measures
from mobileprep.stages.outputs import kept_outputs
from mobileprep.stages.running import (
    basis_of,
    compared_with_reference,
    measured_graph,
    measuring_engine,
    storable,
)

# Samples that a second engine runs too.
_COMPARED = 4
# The share of right answers of a source that is fed what it was trained on, in most cases.
_OFTEN = 0.5


@dataclass(frozen=True)
class RanSamples:
    """What a graph gave for some samples.

    Args:
        outputs: the fetched tensors, of types that files can hold; those with an entry for each
            sample have ``count`` of them.
        first: the number of the first sample.
        count: how many samples.
        fed: what was fed.
    """

    outputs: list[Array]
    first: int
    count: int
    fed: FedRun


@stage(EvaluateStage)
def run(job: Job[EvaluateStage]) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``.

    Raises:
        AccuracyError: the data does not fit together, the graph, or a metric.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    graph = measured_graph(job)
    inputs = stage_inputs(job, graph, interface.inputs)
    survey = DataSurvey(asked.data.name)
    with placed(job.place("validation")):
        data = LabelledData(job, inputs, survey)
        measures = Measures(job, interface, data.missing)
        samples, engine = _run(job, graph, data, interface.outputs, measures)
    values = measures.values()
    doubts: list[str] = []
    if asked.looks_at_data:
        doubts += survey.doubts(graph, inputs)
        doubts += _bytes_doubts(values, survey.unscaled(graph, inputs))
        with with_assets(graph, job.path(asked.assets)) as whole:
            doubts += norm_doubts(data_files(asked.data, asked.reading), whole, inputs)
    for doubt in doubts:
        job.warn(doubt)
    warnings = (*measures.warnings(), *doubts)
    basis = basis_of(job, engine)
    record = EvaluationRecord(interface.outputs, samples, values, warnings, engine, basis)
    job.write_record(asked.RECORD, record)
    job.write_record(asked.DATA, data_record(survey))


def _bytes_doubts(values: Sequence[MetricValue], unscaled: Iterable[str]) -> Iterator[str]:
    """That a source which is often wrong is fed 0 to 255, and the graph does not scale it."""
    for metric in values:
        if metric.classes is None or metric.value is None or metric.value >= _OFTEN:
            continue
        for fed in unscaled:
            yield (
                f"{fed}, the graph does not scale that, and the source's {metric.metric} accuracy "
                f"is {metric.value:.4f}: if it was trained on 0 to 1, divide by 255 ('std: 255')"
            )
        return


def _run(
    job: Job[EvaluateStage],
    graph: Graph,
    data: LabelledData,
    fetches: Sequence[str],
    measures: Measures,
) -> tuple[int, EngineRecord]:
    """Run all samples, measure and keep what comes; how many there were, and what ran them."""
    first: FedRun | None = None
    samples = 0
    with with_assets(graph, job.path(job.asked.assets)) as graph:
        engine = measuring_engine(job, graph, data.name, "validation")
        try:
            with kept_outputs(job.output(job.asked.OUTPUTS)) as keep:
                for ran in evaluated(engine, data.runs(), fetches):
                    first = first or ran.fed
                    keep(ran.outputs, ran.count)
                    outputs = dict(zip(fetches, ran.outputs, strict=True))
                    measures.update(outputs, data.labels, ran.first, ran.count)
                    samples += ran.count
                    job.progress(samples, len(data))
            if first is None:
                raise no_samples(data.name)
            few = first.head(_COMPARED)
            record = compared_with_reference(
                job, engine, graph, fetches, few.feeds, samples=few.count, where=data.name
            )
        except UsageError as error:
            raise AccuracyError(error.message, error.hint, error.where) from error
    return samples, record


def evaluated(
    engine: Engine, given: Iterable[FedRun], fetches: Sequence[str]
) -> Iterator[RanSamples]:
    """What the graph gives for the samples, batch by batch.

    Args:
        engine: what runs the graph.
        given: what it is fed.
        fetches: the tensors.

    Raises:
        UsageError: the data does not fit the graph's inputs.
    """
    first = 0
    for one in given:
        outputs = [storable(array) for array in engine.run(fetches, one.feeds)]
        cut = [a[: one.count] if a.ndim and len(a) == one.fed else a for a in outputs]
        yield RanSamples(cut, first, one.count, one)
        first += one.count
