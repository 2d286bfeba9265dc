"""Output lines of the original ``summarize_graph``, which scripts parse."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import execution_order
from mobileprep.inspection.benchmark_runs import readable
from mobileprep.inspection.summary import GraphSummary, SpottedTensor
from mobileprep.ops.numerics.differences import summary

_SHOWN = 3


def summary_lines(graph_summary: GraphSummary, path: str) -> Iterator[str]:
    """Yield the lines of the original. For a malformed graph, stop at the error."""
    if graph_summary.inputs:
        text = "".join(map(_tensor, graph_summary.inputs))
        yield f"Found {len(graph_summary.inputs)} possible inputs: {text}"
    else:
        yield "No inputs spotted."
    if graph_summary.variables:
        text = "".join(map(_tensor, graph_summary.variables))
        yield f"Found {len(graph_summary.variables)} variables: {text}"
    else:
        yield "No variables spotted."
    if graph_summary.outputs:
        text = "".join(f"(name={o.name}, op={o.op}) " for o in graph_summary.outputs)
        yield f"Found {len(graph_summary.outputs)} possible outputs: {text}"
    else:
        yield "No outputs spotted."
    constants, variables = graph_summary.const_parameters, graph_summary.variable_parameters
    yield (
        f"Found {constants} ({readable(constants)}) const parameters, "
        f"{variables} ({readable(variables)}) variable parameters, "
        f"and {graph_summary.control_edges} control_edges"
    )
    # The original prints no line break after devices.
    devices = "".join(
        f"{n} nodes assigned to device '{d}'" for d, n in graph_summary.devices.items()
    )
    if graph_summary.missing:
        broken = [f"Invalid input {m.input} for node {m.node}" for m in graph_summary.missing]
        yield devices + broken[0]
        yield from broken[1:]
        return
    yield f"{devices}Op types used: " + ", ".join(
        f"{n} {op}" for op, n in graph_summary.ops.items()
    )
    yield "To use with tensorflow/tools/benchmark:benchmark_model try these arguments:"
    yield _benchmark(graph_summary, path)


def structure_lines(graph: Graph) -> Iterator[str]:
    """Yield a line for each node, like the original's ``--print_structure``."""
    for node in execution_order(graph):
        inputs = ", ".join(map(str, node.inputs))
        yield f"{node.name} ({node.op}): [{inputs}]{_value(node)}"


def _tensor(tensor: SpottedTensor) -> str:
    shape = _shape(tensor.shape) if tensor.has_shape else "None"
    return f"(name={tensor.name}, type={tensor.type}({tensor.type_number}), shape={shape}) "


def _shape(shape: tuple[int, ...] | None) -> str:
    """Format a shape like ``PartialTensorShape``, or describe why it is invalid."""
    if shape is None:
        return "<unknown>"
    text = f"[{','.join('?' if size == -1 else str(size) for size in shape)}]"
    if min(shape, default=0) < -1:
        where = "(where -1 means unknown)"
        return f"Shape {text} has dimensions with values below -1 {where}"
    return text


def _benchmark(graph_summary: GraphSummary, path: str) -> str:
    layers = (*graph_summary.inputs, *graph_summary.variables)
    shapes = [
        ",".join(map(str, t.shape)) if t.has_shape and t.shape and min(t.shape) >= -1 else ""
        for t in layers
    ]
    return (
        f"bazel run tensorflow/tools/benchmark:benchmark_model -- --graph={path} --show_flops"
        f" --input_layer={','.join(t.name for t in layers)}"
        f" --input_layer_type={','.join(t.type for t in layers)}"
        f" --input_layer_shape={':'.join(shapes)}"
        f" --output_layer={','.join(o.name for o in graph_summary.outputs)}"
    )


def _value(node: Node) -> str:
    """Format a constant like ``Tensor::DebugString``, or return an empty string if unreadable."""
    value = node.attrs.get("value")
    if node.op != "Const" or value is None or value.kind != "tensor":
        return ""
    tensor = value.value
    try:
        elements = summary(tensor.array(), tensor.dtype, _SHOWN)
    except MobileprepError:
        return ""
    shape = ",".join(map(str, tensor.shape))
    kind = tensor.dtype.name.lower()
    return f", value=Tensor<type: {kind} shape: [{shape}] values: {elements}>"
