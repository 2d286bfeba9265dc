"""TensorFlow ops that the Flex delegate runs if an app links it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.tflite.flatbuffer import string_pair
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.graph.attrs import ArgDef, OpDef
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.serde import node_to_proto
from mobileprep.litert.program import Op, Value
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import NAMES

PREFIX: Final = "Flex"
"""Prefix of the names of such custom operators."""

# Ops that cannot be a single operator, like those that run functions.
_NOT_ALONE: Final = frozenset(
    {*SWITCHES, *MERGES, *ENTERS, *EXITS, *NEXT_ITERATIONS, "LoopCond", "Placeholder"}
)
_HANDLES: Final = frozenset({DType.RESOURCE, DType.VARIANT})


def as_flex(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
    """Return a node as a custom operator with its op's name and definition, or None if impossible.

    Source: ``CreateFlexOpCustomOptions`` of TensorFlow Lite's converter: a FlexBuffers vector of
    the op and the serialized NodeDef, which has no names and an empty string for each input.
    """
    definition = signature_of(node)
    if definition is None or node.op in _NOT_ALONE:
        return None
    if any("func" in value.kind for value in node.attrs.values()):
        return None
    kinds = output_types(node, definition)
    handled = [*kinds, *(value.dtype for value in inputs)]
    if any(kind not in NAMES or kind in _HANDLES for kind in handled):
        return None
    proto = pb.NodeDef()
    nameless = replace(node, name="", inputs=(), device="", debug_info=(b"", b""))
    node_to_proto(nameless, proto, frozenset())
    proto.input.extend([""] * len(inputs))
    options = string_pair(node.op, proto.SerializeToString(deterministic=True))
    outputs = [(scope.output_shape(node, i), kind) for i, kind in enumerate(kinds)]
    return scope.emit_custom(f"{PREFIX}{node.op}", inputs, outputs, options)


def can_be_flex(definition: OpDef) -> bool:
    """Return whether ``as_flex`` accepts some nodes of an op."""
    if definition.name in _NOT_ALONE or any("func" in a.kind for a in definition.attrs):
        return False
    return all(_has_type(arg, definition) for arg in (*definition.inputs, *definition.outputs))


def _has_type(arg: ArgDef, definition: OpDef) -> bool:
    """Return whether an argument can have a type that an operator can have."""
    kinds: Collection[DType] = (arg.dtype,)
    if arg.type_attr or arg.type_list_attr:
        declared = definition.attr(arg.type_attr or arg.type_list_attr)
        if declared is None or declared.allowed is None:
            return not arg.is_ref
        kinds = declared.allowed.value
    return not arg.is_ref and any(kind in NAMES and kind not in _HANDLES for kind in kinds)


def flex_ops(ops: Sequence[Op]) -> tuple[str, ...]:
    """Return the TensorFlow ops that operators pass to the Flex delegate, sorted."""
    return _flexible(op.custom for op in ops)


def flex_of(model: ModelRecord) -> tuple[str, ...]:
    """Return the TensorFlow ops that a file passes to the Flex delegate, sorted."""
    return _flexible(op.code.custom for part in model.subgraphs for op in part.operators)


def _flexible(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({n.removeprefix(PREFIX) for n in names if n.startswith(PREFIX)}))
