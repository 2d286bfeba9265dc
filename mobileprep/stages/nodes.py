"""The nodes stage: what the report page tells of the nodes of a graph."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from mobileprep.formats.range_file import ranges_from_bytes
from mobileprep.fsio import write_bytes
from mobileprep.inspection.node_table import node_table
from mobileprep.inspection.weights import weight_spreads
from mobileprep.plan.stages import NodesStage
from mobileprep.stages.base import Job, stage


@stage(NodesStage)
def run(job: Job[NodesStage]) -> None:
    """Leaves ``nodes.json``."""
    asked = job.asked
    graph = job.graph(asked.graph)
    feeds = {fed.name: fed.shape for fed in asked.inputs if fed.shape is not None}
    data = {
        "graph": {
            **dataclasses.asdict(node_table(graph, feeds)),
            "weights": [dataclasses.asdict(spread) for spread in weight_spreads(graph)],
        },
        "ranges": list(_ranges(job)),
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    write_bytes(job.output(asked.LEFT), text.encode())


def _ranges(job: Job[NodesStage]) -> Iterator[list[Any]]:
    """The values that tensors took when they were measured: name, least and greatest."""
    for upstream in job.asked.ranges:
        found = ranges_from_bytes(b"".join(job.data(upstream)), upstream.task)
        for name, values in found.tensors.items():
            yield [name, values.low, values.high]
