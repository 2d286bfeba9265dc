"""Cut preprocessing off the graph and compare it with the source, or check stated preprocessing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.cut.spec import CutStage, PreprocessingRecord, StatedStage
from mobileprep.building.stages.freeze.spec import GRAPH, INTERFACE, Interface
from mobileprep.building.stages.running import data_files
from mobileprep.data.opening import open_dataset
from mobileprep.data.options import Preprocessing
from mobileprep.data.source import SampleChoice
from mobileprep.errors import AccuracyError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import differences, shown_difference
from mobileprep.recipe.preprocessing import Conflict, StatedPreprocessing
from mobileprep.runtime.engines.agreement import TOLERANCE
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor, fed_tensors
from mobileprep.transforms.cut_preprocessing import (
    Front,
    NoFrontError,
    find_front,
    prepared,
    without_front,
)

# Samples of the comparison; each runs the whole network twice.
_SAMPLES: Final = 4
# Sizes of random images, and the length and rate of random audio.
_SIZES: Final = ((240, 320), (301, 199))
_LENGTH: Final = 16000
_RATE: Final = 16000


def run(job: Job[CutStage]) -> None:
    """Write the cut graph, its interface, and ``preprocessing.json``.

    Raises:
        TransformError: the graph has no preprocessing that can be cut.
        AccuracyError: the outputs of the source and of the cut graph differ.
    """
    settings = job.asked
    graph, ends = job.graph(settings.graph), job.record(Interface, settings.interface)
    try:
        front = find_front(graph)
    except NoFrontError as reason:
        message = f"the preprocessing cannot be cut: {reason}"
        hint = "remove 'preprocessing', or change the graph"
        raise TransformError(message, hint, job.place("preprocessing")) from reason
    cut = without_front(graph, front, ends.retained)
    job.leave_graph(GRAPH, cut)
    job.write_record(INTERFACE, _interface(graph, ends, front))
    data, samples, largest = _compare(job, graph, cut, front, ends)
    conversion = front.preprocessing
    record = PreprocessingRecord(
        conversion,
        str(conversion),
        len(graph.nodes) - len(cut.nodes),
        data,
        samples,
        shown_difference(largest),
        TOLERANCE,
    )
    job.write_record(settings.RECORD, record)


def run_stated(job: Job[StatedStage]) -> None:
    """Write ``preprocessing.json`` for the preprocessing that the recipe states.

    Raises:
        AccuracyError: it does not fit the input.
    """
    settings = job.asked
    stated = settings.stated
    names = job.record(Interface, settings.interface).inputs
    for conflict in stated.conflicts_among(names):
        raise AccuracyError(conflict.message, conflict.hint, job.place("preprocessing"))
    declared = {spec.name: spec.shape for spec in settings.inputs}
    (fed,) = fed_tensors(job.graph(settings.graph), stated.chosen(names), declared)
    for conflict in (*_dtype_conflicts(stated, fed), *stated.conflicts_with(fed.name, fed.shape)):
        raise AccuracyError(conflict.message, conflict.hint, job.place("preprocessing"))
    conversion = stated_preprocessing(stated, fed)
    job.write_record(settings.RECORD, PreprocessingRecord(conversion, str(conversion)))


def _dtype_conflicts(stated: StatedPreprocessing, fed: FedTensor) -> Iterator[Conflict]:
    if fed.dtype not in (DType.FLOAT, DType.UINT8):
        message = f"the input {fed.name!r} is {fed.dtype.short}, not float32 or uint8"
        yield Conflict("input", message, "remove 'preprocessing'")
    if fed.dtype is DType.UINT8 and (any(stated.mean or ()) or {*(stated.std or ()), 1} != {1}):
        message = f"the input {fed.name!r} is uint8, which the code does not scale"
        yield Conflict("mean", message, "remove 'mean' and 'std'")


def stated_preprocessing(stated: StatedPreprocessing, fed: FedTensor) -> Preprocessing:
    """Return stated preprocessing with the defaults that samples of the input have."""
    size = stated.resize or (fed.shape or (-1, -1, -1))[-3:-1]
    return Preprocessing(
        "",
        fed.name,
        central_crop=stated.central_crop,
        resize=None if min(size) < 0 else (size[0], size[1]),
        interpolation=stated.interpolation,
        align_corners=stated.align_corners,
        half_pixel_centers=stated.half_pixel_centers,
        channels=stated.channels,
        mean=stated.mean or (0.0,),
        std=stated.std or (255.0 if fed.dtype is DType.FLOAT else 1.0,),
    )


def _interface(graph: Graph, ends: Interface, front: Front) -> Interface:
    """Return the interface with the new inputs in place of the contents of files."""
    conversion = front.preprocessing
    contents = _contents(graph, front)
    others = tuple(name for name in ends.inputs if parse_ref(name).node != contents)
    new = (conversion.input, *((conversion.rate,) if conversion.rate else ()))
    return Interface((*new, *others), ends.outputs, ends.init_ops)


def _contents(graph: Graph, front: Front) -> str:
    """Return the node whose output is the encoded file."""
    return graph[parse_ref(front.preprocessing.decoded).node].data_inputs[0].node


def _compare(
    job: Job[CutStage], graph: Graph, cut: Graph, front: Front, ends: Interface
) -> tuple[str, int, float]:
    """Return the data, the number of samples, and the largest difference as a share.

    The new input is compared, too. Both graphs get the pixels of the graph's own decoder.
    """
    conversion = front.preprocessing
    source, rest = Interpreter(graph), Interpreter(cut)
    names = [conversion.input, *ends.outputs]
    expected: list[list[Array]] = []
    results: list[list[Array]] = []
    for feeds in _samples(job, graph, front):
        decoded = [conversion.decoded, *([f"{conversion.decoded}:1"] if conversion.rate else [])]
        pixels = source.run(decoded, feeds)
        values = pixels[0] if conversion.is_audio else prepared(conversion, pixels[0])
        if not conversion.is_audio and len(front.shape or ()) == 4:
            values = values[np.newaxis]
        values = values.astype(front.dtype.numpy)
        fed = {
            conversion.input: values,
            **({conversion.rate: pixels[1]} if conversion.rate else {}),
        }
        expected.append(source.run(names, feeds))
        results.append([values, *rest.run(list(ends.outputs), fed)])
    gaps = differences(names, expected, results, job.place("preprocessing"))
    worst = max(gaps, key=lambda gap: gap.share)
    data = "drawn" if job.asked.data is None else job.asked.data.name
    if not worst.share <= TOLERANCE or not math.isfinite(worst.share):
        message = (
            f"on {data}, the app's preprocessing and the graph's differ: {worst}; at most "
            f"{TOLERANCE:.0e} is allowed"
        )
        raise AccuracyError(message, "remove 'preprocessing'", job.place("preprocessing"))
    return data, len(expected), worst.share


def _samples(job: Job[CutStage], graph: Graph, front: Front) -> Iterator[dict[str, Array]]:
    """Yield the feeds of the source: encoded files, or random pixels or audio at the decoder."""
    conversion, settings = front.preprocessing, job.asked
    if settings.data is not None:
        fed = FedTensor(_contents(graph, front), DType.STRING, ())
        files = data_files(settings.data, settings.reading)
        choice = SampleChoice(_SAMPLES, exactly=False)
        for batch in open_dataset(files, [fed], choice, warn=job.warn).batches(1):
            yield {fed.name: batch.feeds[fed.name][0]}
        return
    random = np.random.default_rng(0)
    if conversion.is_audio:
        shape = (conversion.desired_samples or _LENGTH, conversion.desired_channels or 1)
        audio = random.uniform(-1, 1, shape).astype(np.float32)
        yield {conversion.decoded: audio, f"{conversion.decoded}:1": np.array(_RATE, np.int32)}
        return
    count = 1 if conversion.channels == "grayscale" else 3
    for height, width in _SIZES:
        yield {conversion.decoded: random.integers(0, 256, (height, width, count), np.uint8)}
