"""The nodes stage: what the report page tells of the nodes of a graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from mobileprep.building.plan.app_stages import IntegrationStage
from mobileprep.building.plan.stages import NodesStage, PackageStage
from mobileprep.building.stages.base import Job, stage
from mobileprep.core.files import write_bytes
from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.refs import parse_ref
from mobileprep.inspection.node_table import node_table, weight_spreads
from mobileprep.targets.integration.render import AppTensor, Pictures


@stage(NodesStage)
def run(job: Job[NodesStage]) -> None:
    """Leaves ``nodes.json``."""
    asked = job.asked
    graph = job.graph(asked.graph)
    feeds = {fed.name: fed.shape for fed in asked.inputs if fed.shape is not None}
    data = {
        "graph": {
            **structs.asdict(node_table(graph, feeds)),
            "weights": list(weight_spreads(graph)),
        },
        "ranges": list(_ranges(job)),
    }
    text = json.dumps(data, default=structs.asdict, separators=(",", ":"), allow_nan=False)
    write_bytes(job.output(asked.LEFT), text.encode())


def _ranges(job: Job[NodesStage]) -> Iterator[list[Any]]:
    """The values that tensors took when they were measured: name, least and greatest."""
    if not job.asked.ranges:
        return
    from mobileprep.formats.range_file import ranges_from_bytes

    for upstream in job.asked.ranges:
        found = ranges_from_bytes(b"".join(job.data(upstream)), upstream.task)
        for name, values in found.tensors.items():
            yield [name, values.low, values.high]


def pictures_of(
    asked: IntegrationStage | PackageStage, inputs: Sequence[AppTensor]
) -> Pictures | None:
    """How pictures become values, the data's defaults filled in; None where none are fed."""
    reading, named = asked.reading, asked.picture_input
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
