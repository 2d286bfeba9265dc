"""Options and shape records shared by the remote graph transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType, dtype_from_text
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.verify import check_inputs, check_tensors
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, Transform, refuse

OUTPUT_TYPES: Final = "_default_remote_graph_output_data_types"
OUTPUT_SHAPES: Final = "_default_remote_output_shapes"

_FEEDABLE: Final = (DType.FLOAT, DType.INT32, DType.QUINT8)
_LARGEST_FEED: Final = 1 << 28


class RemoteOptions(Transform, frozen=True):
    """Selection of the graph part that a remote processor runs, and the name of its op."""

    remote_fused_graph_executor_name: Annotated[
        str,
        Option("The program that runs the part on the remote processor."),
    ]
    remote_fused_graph_node_name: Annotated[
        str,
        Option("Name of the node that replaces the part."),
    ] = ""
    fused_nodes: Annotated[str, Option("The part's nodes, divided by commas.")] = ""
    border_inputs: Annotated[
        str,
        Option("Instead of fused_nodes: the tensors that go into the part, divided by commas."),
    ] = ""
    border_outputs: Annotated[
        str,
        Option("With border_inputs: the tensors that come out of the part, divided by commas."),
    ] = ""
    fused_op_types: Annotated[
        str,
        Option("Instead of fused_nodes: the ops that make up the part, divided by commas."),
    ] = ""
    fuse_by_executor: Annotated[
        bool,
        Option("Instead of fused_nodes: let the executor choose, if it is available."),
    ] = False
    input_types: Annotated[
        str,
        Option(
            "Dtypes of the graph's inputs, separated by commas. If set, the dtypes and shapes of "
            "all tensors are recorded."
        ),
    ] = ""
    input_shapes: Annotated[
        str,
        Option(
            "With input_types: the shapes of the inputs, divided by colons, as in 1,299,299,3:1."
        ),
    ] = ""

    def checked(self, graph: Graph, context: Context) -> Graph:
        """Validate the graph, and record all tensor shapes if input types are set.

        Raises:
            TransformError: the executor is empty, or an input type or shape is invalid.
            InvalidGraphError: a tensor does not exist.
        """
        if not self.remote_fused_graph_executor_name:
            message = "remote_fused_graph_executor_name is empty"
            raise self.refused(message, "name an executor")
        check_inputs(graph, self.transform_name)
        check_tensors(graph, context.inputs, "input", self.transform_name)
        check_tensors(graph, context.outputs, "output", self.transform_name)
        return self._with_shapes(graph, context) if self.input_types else graph

    def refused(self, message: str, hint: str = "") -> TransformError:
        """Create an error of this transform."""
        return refuse(self.transform_name, message, hint)

    def _with_shapes(self, graph: Graph, context: Context) -> Graph:
        feeds = self._feeds(context.inputs)
        outputs = {n.name: _outputs(n, graph) for n in graph}
        fed = {parse_ref(name).node for name in feeds}
        fetched = [str(r) for name, refs in outputs.items() if name not in fed for r in refs]
        values = dict(zip(fetched, Interpreter(graph).run(fetched, feeds), strict=True))
        values.update((str(parse_ref(name)), array) for name, array in feeds.items())
        return graph.with_nodes(_recorded(n, outputs[n.name], values, graph) for n in graph)

    def _feeds(self, inputs: Sequence[str]) -> dict[str, Array]:
        types, shapes = self.input_types.split(","), self.input_shapes.split(":")
        if not len(inputs) == len(types) == len(shapes):
            message = f"{len(inputs)} inputs have {len(types)} types and {len(shapes)} shapes"
            raise self.refused(message, "types are divided by commas, shapes by colons")
        triples = zip(inputs, types, shapes, strict=True)
        return {name: self._zeros(dtype, shape) for name, dtype, shape in triples}

    def _zeros(self, type_text: str, shape_text: str) -> Array:
        dtype = dtype_from_text(type_text.strip())
        if dtype not in _FEEDABLE or dtype.numpy is None:
            message = f"{type_text!r} is not a dtype for inputs"
            raise self.refused(message, "one of float, int32, quint8")
        sizes = [part.strip() for part in shape_text.split(",")] if shape_text else []
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in sizes):
            message = f"{shape_text!r} is not a shape"
            raise self.refused(message, "give numbers divided by commas")
        shape = tuple(int(part) for part in sizes)
        if int(np.prod(shape, dtype=np.float64)) > _LARGEST_FEED:
            message = f"an input of shape {list(shape)} is too large to be run"
            raise self.refused(message, "give the shape that the model is used with")
        return np.zeros(shape, dtype.numpy)


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; an empty string has no names."""
    return tuple(text.split(",")) if text else ()


def recorded(node: Node) -> tuple[tuple[DType, ...], tuple[tuple[int, ...], ...]] | None:
    """Return the recorded types and shapes of a node's outputs, or None."""
    if OUTPUT_TYPES not in node.attrs or OUTPUT_SHAPES not in node.attrs:
        return None
    shapes = node.attr_shapes(OUTPUT_SHAPES)
    return node.attr_dtypes(OUTPUT_TYPES), tuple(s or () for s in shapes)


def with_record(node: Node, types: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> Node:
    """Record the types and shapes of a node's outputs."""
    attrs = {
        OUTPUT_TYPES: AttrValue("list(type)" if types else "list", tuple(types)),
        OUTPUT_SHAPES: AttrValue("list(shape)" if shapes else "list", tuple(shapes)),
    }
    return replace(node, attrs={**node.attrs, **attrs})


def output_dtypes(node: Node, graph: Graph) -> Sequence[DType]:
    """Return the types of a node's outputs, or an empty list if the op is unknown."""
    definition = signature_of(node, graph.library)
    return [] if definition is None else output_types(node, definition)


def _outputs(node: Node, graph: Graph) -> list[Ref]:
    return [Ref(node.name, i) for i in range(len(output_dtypes(node, graph)))]


def _recorded(node: Node, refs: Sequence[Ref], values: dict[str, Array], graph: Graph) -> Node:
    types = output_dtypes(node, graph)
    shapes = [values[str(r)].shape for r in refs]
    return with_record(node, [t.base for t in types], shapes)
