"""Write the data for the report page: node tables, image options, and compressed sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.integration.spec import IntegrationStage
from mobileprep.building.stages.package.run import FRAME, compressed_size
from mobileprep.building.stages.package.spec import PackageStage
from mobileprep.building.stages.page.spec import NodesStage
from mobileprep.core.files import write_bytes
from mobileprep.core.parallel import at_once
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.streaming import Streaming
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import graph_to_pieces, pieces_size, raw_chunks
from mobileprep.graph.tensor import Tensor
from mobileprep.inspection.node_table import (
    StepChanges,
    left_out,
    node_table,
    step_changes,
    weight_spreads,
)
from mobileprep.targets.integration.render import AppTensor, Images, app_tensors


def run_nodes(job: Job[NodesStage]) -> None:
    """Write ``nodes.json``."""
    settings = job.asked
    graph = job.graph(settings.graph)
    feeds = {fed.name: fed.shape for fed in settings.inputs if fed.shape is not None}
    data = {
        "graph": {
            **structs.asdict(node_table(graph, feeds)),
            "weights": list(weight_spreads(graph)),
        },
        "ranges": list(_ranges(job)),
    }
    text = json.dumps(data, default=structs.asdict, separators=(",", ":"), allow_nan=False)
    write_bytes(job.output(settings.RECORD), text.encode())


def _ranges(job: Job[NodesStage]) -> Iterator[list[Any]]:
    """Yield the name, minimum, and maximum of each measured tensor."""
    if not job.asked.ranges:
        return
    from mobileprep.formats.range_file import ranges_from_bytes

    for upstream in job.asked.ranges:
        range_file = ranges_from_bytes(b"".join(job.data(upstream)), upstream.task)
        for name, values in range_file.tensors.items():
            yield [name, values.low, values.high]


def app_ends(
    job: Job[IntegrationStage] | Job[PackageStage],
    graph: Graph,
    interface: Interface,
    streaming: Streaming | None = None,
) -> tuple[tuple[AppTensor, ...], tuple[AppTensor, ...]]:
    """Return the inputs and outputs of a model for the app, without states of a stream."""
    declared = {spec.name: spec.shape for spec in job.asked.inputs}
    try:
        inputs, outputs = app_tensors(graph, interface.inputs, interface.outputs, declared)
    except UsageError as error:
        raise error.at(job.place("inputs")) from error
    if streaming is None:
        return inputs, outputs
    steps = streaming.steps
    return _shortened(inputs, streaming.inputs, steps), _shortened(
        outputs, streaming.outputs, steps
    )


def _shortened(
    tensors: Sequence[AppTensor], axes: Mapping[str, int], steps: int
) -> tuple[AppTensor, ...]:
    """Return tensors with the time steps of one call."""
    return tuple(
        structs.replace(
            tensor,
            shape=tuple(steps if i == axes[tensor.name] else s for i, s in enumerate(tensor.shape)),
        )
        if tensor.name in axes and tensor.shape is not None
        else tensor
        for tensor in tensors
    )


def images_of(
    settings: IntegrationStage | PackageStage, inputs: Sequence[AppTensor]
) -> Images | None:
    """Return the options for converting images to values, with defaults; None without images."""
    reading, named = settings.reading, settings.image_input
    fed = [t for t in inputs if named is None or parse_ref(t.name) == parse_ref(named)]
    if reading is None or len(fed) != 1:
        return None
    count = 1 if reading.channels == "grayscale" else 3
    numbers = []
    whole = fed[0].dtype is not DType.FLOAT
    for key, values in (
        ("mean", reading.mean or (0.0,)),
        ("std", reading.std or (1.0 if whole else 255.0,)),
    ):
        if len(values) not in (1, count):
            message = f"{key!r} has {len(values)} numbers for {count} channels"
            raise AccuracyError(message, "give one number, or one for each channel")
        numbers.append(values * count if len(values) == 1 else values)
    return Images(fed[0].name, reading.channels, *numbers)


_AT_ONCE: Final = 4 << 20


# Of large constants, compress ``_SAMPLE`` bytes of every ``_SAMPLED``: weights vary little, and
# compressing all of them after every step would take longer than the steps.
_SAMPLE: Final = 64 << 10


_SAMPLED: Final = 512 << 10


# Compressed sizes of large constants by digest. Graphs have most of them in common.
_sizes: dict[str, int] = {}


def write_graph_page(path: Path, graph: Graph, before: Graph | None = None) -> None:
    """Write a graph's compressed size and the nodes that a step changed, for the report page."""
    functions: dict[str, Callable[[], Any]] = {"compressed": lambda: compressed_graph(graph)}
    if before is not None:
        functions["step"] = lambda: _changes(before, graph)
    data = dict(zip(functions, at_once(lambda find: find(), list(functions.values())), strict=True))
    text = json.dumps(data, default=structs.asdict, separators=(",", ":"), allow_nan=False)
    write_bytes(path, text.encode())


def compressed_graph(graph: Graph) -> int:
    """Estimate the deflated size in bytes of a graph's file.

    In large graphs, each large constant is compressed separately, once for all graphs, and only an
    eighth of it, in evenly spaced runs.
    """
    pieces = list(graph_to_pieces(graph))
    if pieces_size(pieces) <= _AT_ONCE:
        return compressed_size(raw_chunks(pieces))
    rest = [piece for piece in pieces if not isinstance(piece, Tensor)]
    tensors = [piece for piece in pieces if isinstance(piece, Tensor)]
    sizes = at_once(_compressed_tensor, tensors)
    return compressed_size(rest) + sum(sizes)


def _changes(before: Graph, after: Graph) -> StepChanges:
    if left_out(before) or left_out(after):
        return StepChanges((), (), 0)
    return step_changes(before, after)


def _compressed_tensor(tensor: Tensor) -> int:
    key = tensor.digest()
    if key not in _sizes:
        raw = memoryview(tensor.raw())
        runs = [raw[at : at + _SAMPLE] for at in range(0, len(raw), _SAMPLED)]
        looked_at = sum(map(len, runs))
        size = compressed_size(runs) - FRAME
        _sizes[key] = size * len(raw) // max(looked_at, 1)
    return _sizes[key]
