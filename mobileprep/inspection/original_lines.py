"""Output lines of the original ``summarize_graph``, which scripts parse."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.errors import MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import execution_order
from mobileprep.inspection.benchmarking.tables import readable
from mobileprep.inspection.summary import GraphSummary, SpottedTensor
from mobileprep.ops.numerics.differences import summary

_SHOWN = 3


def summary_lines(found: GraphSummary, path: str) -> Iterator[str]:
    """Yield the lines of the original. For a malformed graph, stop at the error."""
    if found.inputs:
        told = "".join(map(_tensor, found.inputs))
        yield f"Found {len(found.inputs)} possible inputs: {told}"
    else:
        yield "No inputs spotted."
    if found.variables:
        told = "".join(map(_tensor, found.variables))
        yield f"Found {len(found.variables)} variables: {told}"
    else:
        yield "No variables spotted."
    if found.outputs:
        told = "".join(f"(name={o.name}, op={o.op}) " for o in found.outputs)
        yield f"Found {len(found.outputs)} possible outputs: {told}"
    else:
        yield "No outputs spotted."
    constants, variables = found.const_parameters, found.variable_parameters
    yield (
        f"Found {constants} ({readable(constants)}) const parameters, "
        f"{variables} ({readable(variables)}) variable parameters, "
        f"and {found.control_edges} control_edges"
    )
    # The original prints no line break after devices.
    devices = "".join(f"{n} nodes assigned to device '{d}'" for d, n in found.devices.items())
    if found.missing:
        broken = [f"Invalid input {m.input} for node {m.node}" for m in found.missing]
        yield devices + broken[0]
        yield from broken[1:]
        return
    yield f"{devices}Op types used: " + ", ".join(f"{n} {op}" for op, n in found.ops.items())
    yield "To use with tensorflow/tools/benchmark:benchmark_model try these arguments:"
    yield _benchmark(found, path)


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
    told = f"[{','.join('?' if size == -1 else str(size) for size in shape)}]"
    if min(shape, default=0) < -1:
        where = "(where -1 means unknown)"
        return f"Shape {told} has dimensions with values below -1 {where}"
    return told


def _benchmark(found: GraphSummary, path: str) -> str:
    layers = (*found.inputs, *found.variables)
    shapes = [
        ",".join(map(str, t.shape)) if t.has_shape and t.shape and min(t.shape) >= -1 else ""
        for t in layers
    ]
    return (
        f"bazel run tensorflow/tools/benchmark:benchmark_model -- --graph={path} --show_flops"
        f" --input_layer={','.join(t.name for t in layers)}"
        f" --input_layer_type={','.join(t.type for t in layers)}"
        f" --input_layer_shape={':'.join(shapes)}"
        f" --output_layer={','.join(o.name for o in found.outputs)}"
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
