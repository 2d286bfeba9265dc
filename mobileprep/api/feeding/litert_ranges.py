"""The ranges by which a .tflite file computes in integers: of a range file, or of samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mobileprep.calibration.methods import Method
from mobileprep.calibration.observation import Subject
from mobileprep.calibration.ranges import check_tensors, ranges_of
from mobileprep.calibration.shards import observed
from mobileprep.datasets.opening import open_dataset
from mobileprep.datasets.source import DataFiles, SampleChoice, data_inputs
from mobileprep.formats.range_file import read_range_file
from mobileprep.ir.refs import Ref, edge, parse_ref
from mobileprep.ir.tensor_digests import tensor_digests
from mobileprep.litert.convert import CalibrationGraph
from mobileprep.recipe.quantize_settings import Calibration

_RANGE_FILES: Final = frozenset({".yaml", ".yml"})


def litert_ranges(
    calibration: Path, model: Callable[[], CalibrationGraph], warn: Callable[[str], None]
) -> Mapping[str, tuple[float, float]]:
    """The ranges of tensors, by name.

    Args:
        calibration: a range file as ``mobileprep calibrate`` writes it; or samples, as an ``.npz``
            file with an array for each input, on which the ranges are measured as a recipe's
            calibration does by default.
        model: returns the graph to run on samples.
        warn: receives a sentence on skipped samples, or on a range file without digests.

    Raises:
        CorruptFileError: the file does not exist or cannot be read.
        AccuracyError: the range file was measured on another graph; or the samples do not fit the
            model, or make a tensor NaN or infinite.
    """
    if calibration.suffix.lower() not in _RANGE_FILES:
        return _measured(calibration, model(), warn)
    ranges = read_range_file(calibration)
    if any(found.graph for found in ranges.tensors.values()):
        graph = model()
        fed = [edge(parse_ref(name)) for name in graph.inputs]
        digests = tensor_digests(graph.graph, graph.tensors, fed)
        check_tensors(ranges, {str(Ref(*t)): d for t, d in digests.items()}, str(calibration))
    else:
        warn(f"{calibration}: the ranges have no digests, so they may be of another model")
    return {name: (found.low, found.high) for name, found in ranges.tensors.items()}


def _measured(
    samples: Path, model: CalibrationGraph, warn: Callable[[str], None]
) -> Mapping[str, tuple[float, float]]:
    usual = Calibration()
    method = Method(usual.method, usual.percentile, usual.decay)
    inputs = data_inputs(model.graph, model.inputs, {})
    choice = SampleChoice(usual.samples, usual.seed, usual.strict)
    data = open_dataset(DataFiles(str(samples), samples), inputs, choice)
    fetches = tuple(dict.fromkeys(str(Ref(*tensor)) for tensor in model.tensors))
    subject = Subject(model.graph, fetches, model.tensors, method, tuple(inputs), usual.batch)
    found, _ = ranges_of(observed(subject, data, warn=warn), method)
    return {str(Ref(*tensor)): ends for tensor, ends in found.items()}
