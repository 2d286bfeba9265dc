"""The nodes stage: what the report page tells of the nodes of a graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mobileprep.core.files import write_bytes
from mobileprep.frozen import fields_of
from mobileprep.inspection.node_table import node_table, weight_spreads
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
            **fields_of(node_table(graph, feeds)),
            "weights": list(weight_spreads(graph)),
        },
        "ranges": list(_ranges(job)),
    }
    text = json.dumps(data, default=fields_of, separators=(",", ":"), allow_nan=False)
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
