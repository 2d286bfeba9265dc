"""Measure the errors of each layer of a quantized .tflite file, and their causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.layers.spec import (
    LayerErrorRecord,
    LayerRecord,
    LayersRecord,
    LayersStage,
    OutputErrorRecord,
    OutputRecord,
    SharesRecord,
)
from mobileprep.building.stages.package.lite import integers_of, weights_of
from mobileprep.building.stages.running import asset_folder, data_files, stage_inputs
from mobileprep.data.opening import open_dataset
from mobileprep.data.source import Dataset, SampleChoice
from mobileprep.data.survey import runs
from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import INTEGERS, Mode, programs
from mobileprep.litert.emulation import Emulation, emulation_of
from mobileprep.litert.layer_errors import FileErrors, LayerError, Shares, file_errors
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.subgraph import with_found_assets
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.transforms.base import transform_class, transform_names

# A run keeps the outputs of all layers in memory, see ``file_errors``.
_BATCH: Final = 1


def run(job: Job[LayersStage]) -> None:
    """Write ``layers.json``.

    The record is informational, so an error is reported in it and does not fail the build.
    """
    settings = job.asked
    try:
        record = measured_layers(job, SampleChoice(settings.count, 0, exactly=False))
    except MobileprepError as error:
        record = LayersRecord(settings.data.name, 0, unmeasured=error.message)
    job.write_record(settings.RECORD, record)


def measured_layers(job: Job[LayersStage], choice: SampleChoice) -> LayersRecord:
    """Measure the layers of a file before and after each repair.

    Raises:
        MobileprepError: a graph cannot be converted or run, or the data does not fit.
    """
    settings = job.asked
    interface = job.record(Interface, settings.interface)
    levels: list[FileErrors] = []
    with asset_folder(job.path(settings.assets)) as folder:
        first = job.graph(settings.graphs[0])
        inputs = stage_inputs(job, first, interface.inputs)
        files = data_files(settings.data, settings.reading)
        data = open_dataset(files, inputs, choice, labels=settings.labels)
        base: Emulation | None = None
        for number, upstream in enumerate(settings.graphs):
            graph = with_found_assets(job.graph(upstream), (folder,))
            emulation = _emulation(job, graph, interface, number)
            if base is None or _moves_scales(settings.repairs[number - 1]):
                base = emulation
            levels.append(file_errors(emulation, base, _feeds(job, data, inputs, number)))
    return LayersRecord(
        settings.data.name,
        len(data),
        settings.repairs,
        tuple(_layers(levels)),
        tuple(_outputs(levels, interface.outputs)),
    )


def _feeds(
    job: Job[LayersStage], data: Dataset, inputs: Sequence[FedTensor], number: int
) -> Iterator[list[Array]]:
    """Yield the arrays of the inputs for each run, and report the progress."""
    done, total = number * len(data), len(job.asked.graphs) * len(data)
    for fed in runs(data, inputs, _BATCH):
        yield [fed.feeds[tensor.name] for tensor in inputs]
        done += fed.count
        job.progress(done, total)


def _emulation(job: Job[LayersStage], graph: Graph, interface: Interface, number: int) -> Emulation:
    """Return the errors of the file that a graph becomes."""
    settings = job.asked
    ranges: Path | None = job.path(settings.ranges[number]) if settings.ranges else None
    mode = cast(Mode, settings.quantize.mode)
    return emulation_of(
        programs(
            graph,
            [CutInput(name) for name in interface.inputs],
            interface.outputs,
            mode=mode,
            integers=integers_of(settings.quantize, ranges) if mode in INTEGERS else None,
            rules=tuple(rule.text for rule in settings.quantize.rules),
            weights=weights_of(settings.quantize),
            flex=settings.flex,
        )
    )


def _moves_scales(repair: str) -> bool:
    return repair in transform_names() and transform_class(repair).moves_scales


def _layers(levels: Sequence[FileErrors]) -> Iterator[LayerRecord]:
    """Yield the layers of the file, with their errors on each level.

    A repair may rename a layer's node, or change the tensor in which it ends.
    """
    by_tensor = [{layer.tensor: layer for layer in level.layers} for level in levels]
    by_name = [{layer.layer: layer for layer in level.layers} for level in levels]
    for layer in levels[-1].layers:
        errors = (
            _layer_error(tensors.get(layer.tensor) or names.get(layer.layer))
            for tensors, names in zip(by_tensor, by_name, strict=True)
        )
        yield LayerRecord(layer.layer, layer.op, tuple(errors))


def _outputs(levels: Sequence[FileErrors], names: Sequence[str]) -> Iterator[OutputRecord]:
    by_index = [{output.output: output for output in level.outputs} for level in levels]
    for index, name in enumerate(names):
        errors = [outputs.get(index) for outputs in by_index]
        if any(error is not None for error in errors):
            records = (
                None
                if error is None
                else OutputErrorRecord(_rounded(error.sqnr), _shares(error.shares))
                for error in errors
            )
            yield OutputRecord(name, tuple(records))


def _layer_error(error: LayerError | None) -> LayerErrorRecord | None:
    if error is None:
        return None
    alone = None if error.alone is None else _rounded(error.alone)
    return LayerErrorRecord(_rounded(error.sqnr), alone, _shares(error.shares))


def _shares(shares: Shares | None) -> SharesRecord | None:
    """Round shares so that they still add up to 1."""
    if shares is None:
        return None
    weights, clipping, rounding = (
        round(part, 3) for part in (shares.weights, shares.clipping, shares.rounding)
    )
    rest = round(1 - weights - clipping - rounding, 3)
    return SharesRecord(weights, clipping, rounding, rest)


def _rounded(sqnr: float) -> float:
    """Round a ratio to digits that do not depend on the processor's BLAS."""
    return round(sqnr, 1)
