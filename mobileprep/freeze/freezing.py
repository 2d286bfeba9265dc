"""Turns a loaded model into a graph without variables."""

from __future__ import annotations

from mobileprep.errors import UsageError
from mobileprep.freeze.convert import convert
from mobileprep.freeze.model import LoadedSource
from mobileprep.freeze.options import FreezeOptions, FreezeResult
from mobileprep.freeze.subgraph import clear_devices, extract
from mobileprep.freeze.trace import trace, variables_of
from mobileprep.freeze.updates import without_updates
from mobileprep.freeze.values import read_values
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.verify import check_inputs, check_names, check_tensors


def freeze(source: LoadedSource, options: FreezeOptions) -> FreezeResult:
    """Replace variables by constants, and keep what the outputs need.

    Constants, their names and the ops that read them come out as the original ``freeze_graph``
    writes them. A graph without variables is only cut down to its outputs.

    Args:
        source: the model; large weights of its checkpoint become views, not copies.
        options: what to keep and convert.

    Raises:
        UsageError: no outputs are named.
        InvalidGraphError: an output is not there, or a variable has no fitting value.
        CorruptFileError: the checkpoint cannot be read.
        UnsupportedError: an output needs an op that changes a variable.
        ArtifactError: the result would pass protobuf's limit of 2 GiB.
    """
    graph, where = source.graph, source.where
    check_names(graph, where)
    check_inputs(graph, where)
    outputs = _outputs(source, options)
    roots = [parse_ref(name).node for name in outputs]
    needed = extract(graph, roots)
    warnings: list[str] = []
    converted = [n for n in variables_of(needed) if options.converts(n.name)]
    uses = trace(needed, converted)
    if uses.blocked:
        needed = without_updates(needed, roots, uses, where, warnings)
        converted = [n for n in converted if n.name in needed]
        uses = trace(needed, converted)
    values = read_values(needed, converted, source, options)
    frozen = convert(needed, values.tensors, uses, where)
    if options.clear_devices:
        frozen = clear_devices(frozen)
    return FreezeResult(frozen, (), outputs, values.keys, (*warnings, *values.warnings))


def _outputs(source: LoadedSource, options: FreezeOptions) -> tuple[str, ...]:
    if not options.outputs:
        message = "no outputs are named"
        raise UsageError(message, "name the tensors that the app fetches", source.where)
    check_tensors(source.graph, options.outputs, "output", source.where)
    return options.outputs
