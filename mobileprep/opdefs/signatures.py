"""The element types of a node's inputs and outputs, worked out from its op's definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph, Library
from mobileprep.ir.node import Node
from mobileprep.ir.opdef import ArgDef, OpDef
from mobileprep.ir.refs import Ref
from mobileprep.opdefs.definitions import any_op_def

_TYPES: Final = "list(type)"
# More tensors than any op takes or gives; a faulty graph may declare what no memory holds.
MOST_TENSORS: Final = 1 << 20


def signature_of(node: Node, library: Library | None = None) -> OpDef | None:
    """The definition of a node's op or function, or None where nobody knows it."""
    if library is not None and node.op in library.functions:
        return library.functions[node.op].signature
    return any_op_def(node.op)


def output_types(node: Node, definition: OpDef) -> list[DType]:
    """The type of each output of a node, in order; reference types as such.

    Raises:
        InvalidGraphError: an attribute that the definition names is missing.
    """
    return _types(node, definition, definition.outputs)


def tensor_dtype(graph: Graph, ref: Ref) -> DType | None:
    """The type of a tensor, or None where nobody knows its op."""
    node = graph[ref.node]
    definition = signature_of(node, graph.library)
    if definition is None:
        return None
    types = output_types(node, definition)
    return types[ref.index].base if ref.index < len(types) else None


def input_types(node: Node, definition: OpDef) -> list[DType]:
    """The type of each tensor input of a node, in order."""
    return _types(node, definition, definition.inputs)


def output_count(node: Node, library: Library | None = None) -> int | None:
    """How many outputs a node has, or None for an op that nobody knows."""
    definition = signature_of(node, library)
    return None if definition is None else len(output_types(node, definition))


def input_count(node: Node) -> int | None:
    """How many tensors a node takes by its op's definition; None where that is not known.

    That is so of ops that nobody knows, of lists of any types, and where their count is missing.
    """
    definition = any_op_def(node.op)
    if definition is None or any(a.type_list_attr for a in definition.inputs):
        return None
    names = [a.number_attr for a in definition.inputs if a.number_attr]
    if any(name not in node.attrs for name in names):
        return None
    return len(definition.inputs) - len(names) + sum(node.attr_int(name) for name in names)


def check_input_count(node: Node, where: str) -> None:
    """Refuse a node that has other inputs than its op takes, or than its attribute counts.

    Args:
        node: the node; where it is not known what it takes, it passes.
        where: the graph's name, for messages.

    Raises:
        InvalidGraphError: there are more or fewer.
    """
    definition, found = any_op_def(node.op), len(node.data_inputs)
    if definition is None:
        return
    lists = sum(bool(a.number_attr or a.type_list_attr) for a in definition.inputs)
    least, known = len(definition.inputs) - lists, input_count(node)
    if found < least or (known is not None and found != known):
        wanted = least if known is None else known
        message = f"node {node.name!r} ({node.op}) takes {found} tensors, not {wanted}"
        raise InvalidGraphError(message, "export the graph again", where)


def output_slots(node: Node, definition: OpDef) -> dict[str, tuple[int, int]]:
    """For each output argument its first output's index and its number of outputs."""
    slots: dict[str, tuple[int, int]] = {}
    start = 0
    for arg in definition.outputs:
        count = len(_arg_types(node, definition, arg))
        slots[arg.name] = (start, count)
        start += count
    return slots


def _types(node: Node, definition: OpDef, args: Sequence[ArgDef]) -> list[DType]:
    return [dtype for arg in args for dtype in _arg_types(node, definition, arg)]


def _arg_types(node: Node, definition: OpDef, arg: ArgDef) -> list[DType]:
    if arg.type_list_attr:
        return list(_attr(node, definition, arg.type_list_attr, _TYPES))
    dtype = arg.dtype
    if arg.type_attr:
        dtype = _attr(node, definition, arg.type_attr, "type")
    if arg.is_ref and not dtype.is_ref:
        dtype = DType(dtype.value + 100)
    if not arg.number_attr:
        return [dtype]
    count = _attr(node, definition, arg.number_attr, "int")
    if not 0 <= count <= MOST_TENSORS:
        message = f"node {node.name!r} ({node.op}) declares {count} tensors for {arg.name!r}"
        raise InvalidGraphError(message, "the graph was written by a faulty tool")
    return [dtype] * count


def _attr(node: Node, definition: OpDef, name: str, kind: str) -> Any:  # noqa: ANN401 - by kind
    value = node.attrs.get(name)
    if value is None:
        declared = definition.attr(name)
        value = declared.default if declared is not None else None
    # An empty list does not tell of what it is a list.
    fits = value is not None and (value.kind == kind or (value.kind, kind) == ("list", _TYPES))
    if value is None or not fits:
        message = f"node {node.name!r} ({node.op}) has no {kind} attribute {name!r}"
        raise InvalidGraphError(message, "the graph was written by a faulty tool")
    return value.value
