"""Cut the CTC decoder off the graph."""

from __future__ import annotations

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.decoder.spec import CutDecoderStage, DecodingRecord
from mobileprep.building.stages.freeze.spec import GRAPH, INTERFACE, Interface
from mobileprep.errors import TransformError
from mobileprep.graph.refs import parse_ref
from mobileprep.targets.decoding import NoTailError, find_tail, without_tail


def run(job: Job[CutDecoderStage]) -> None:
    """Write the cut graph, its interface, and ``decoding.json``.

    Raises:
        TransformError: the graph has no decoder that can be cut.
    """
    settings = job.asked
    graph, ends = job.graph(settings.graph), job.record(Interface, settings.interface)
    try:
        tail = find_tail(graph, ends.outputs)
    except NoTailError as reason:
        message = f"the decoder cannot be cut: {reason}"
        hint = "remove 'decoding', or name the outputs of the decoder"
        raise TransformError(message, hint, job.place("decoding")) from reason
    cut = without_tail(graph, tail, ends.init_ops)
    inputs = tuple(name for name in ends.inputs if parse_ref(name).node in cut)
    job.leave_graph(GRAPH, cut)
    job.write_record(INTERFACE, Interface(inputs, tail.outputs, ends.init_ops))
    removed = len(graph.nodes) - len(cut.nodes)
    record = DecodingRecord(tail.decoding, str(tail.decoding), removed)
    job.write_record(settings.RECORD, record)
