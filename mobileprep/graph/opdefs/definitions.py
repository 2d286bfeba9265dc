"""Op definitions of TensorFlow releases, read from the package's data when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from mobileprep.errors import InvalidGraphError, UnsupportedError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, OpDef
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.serde import opdef_from_proto

TF115: Final = "1.15"
NEWEST: Final = "2.21"
RELEASES: Final = (TF115, NEWEST)
DEFAULT_RELEASE: Final = TF115
"""The default release of recipes, commands, and functions."""

_DATA = Path(__file__).parent / "data"


def op_def(name: str, release: str = NEWEST) -> OpDef | None:
    """Return the definition of an op in a release, or None if it does not exist there."""
    proto = _protos(release).get(name)
    return None if proto is None else _converted(name, release)


def any_op_def(name: str) -> OpDef | None:
    """Return the newest definition of an op, else that of 1.15 or of its library, or None."""
    return op_def(name) or op_def(name, TF115) or _LIBRARY_OPS.get(name)


def op_names(release: str) -> list[str]:
    """Return all ops of a release, sorted."""
    return sorted(_protos(release))


def slip_in(op: str) -> str:
    """Return a message for an op that no release has; empty for known ops."""
    names = {*op_names(NEWEST), *op_names(TF115)}
    if op in names:
        return ""
    near = nearest_hint(op, names)
    return f"no TensorFlow has an op {op!r}" + (f"; {near}" if near else "")


def _gather_tree(name: str) -> OpDef:
    inputs = ("step_ids", "parent_ids", "max_sequence_lengths", "end_token")
    kinds = ((DType.INVALID, "T"), (DType.INVALID, "T"), (DType.INT32, ""), (DType.INVALID, "T"))
    return OpDef(
        name,
        tuple(ArgDef(arg, *kind) for arg, kind in zip(inputs, kinds, strict=True)),
        (ArgDef("beams", DType.INVALID, "T"),),
        (AttrDef("T", "type"),),
    )


# Ops of tf.contrib.seq2seq and of TensorFlow Addons.
_LIBRARY_OPS: Final = {name: _gather_tree(name) for name in ("GatherTree", "Addons>GatherTree")}


@lru_cache(maxsize=4096)
def _converted(name: str, release: str) -> OpDef:
    return opdef_from_proto(_protos(release)[name], f"op definition {name}")


@lru_cache(maxsize=len(RELEASES))
def _protos(release: str) -> dict[str, pb.OpDef]:
    if release not in RELEASES:
        message = f"no op definitions of TensorFlow {release}"
        hint = nearest_hint(release, RELEASES) or f"one of {', '.join(RELEASES)}"
        raise UnsupportedError(message, hint)
    listed = pb.OpList()
    listed.ParseFromString((_DATA / f"op_defs-{release}.pb").read_bytes())
    return {op.name: op for op in listed.op}


_TYPES: Final = "list(type)"
# More tensors than any op has; an invalid graph could declare more than fits in memory.
MOST_TENSORS: Final = 1 << 20


def signature_of(node: Node, library: Library | None = None) -> OpDef | None:
    """Return the definition of a node's op or function, or None if it is unknown."""
    if library is not None and node.op in library.functions:
        return library.functions[node.op].signature
    return any_op_def(node.op)


def output_types(node: Node, definition: OpDef) -> list[DType]:
    """Return the dtype of each output of a node, in order, including reference types."""
    return _types(node, definition, definition.outputs)


def tensor_dtype(graph: Graph, ref: Ref) -> DType | None:
    """Return the dtype of a tensor, or None if its op is unknown."""
    node = graph[ref.node]
    definition = signature_of(node, graph.library)
    if definition is None:
        return None
    types = output_types(node, definition)
    return types[ref.index].base if ref.index < len(types) else None


def input_types(node: Node, definition: OpDef) -> list[DType]:
    """Return the dtype of each tensor input of a node, in order."""
    return _types(node, definition, definition.inputs)


def output_count(node: Node, library: Library | None = None) -> int | None:
    """Return the number of outputs of a node, or None if its op is unknown."""
    definition = signature_of(node, library)
    return None if definition is None else len(output_types(node, definition))


def input_count(node: Node) -> int | None:
    """Return the number of tensor inputs in the definition of a node's op; None if it is unknown.

    It is unknown for unknown ops, lists of any types, and lists without a number attribute.
    """
    definition = any_op_def(node.op)
    if definition is None or any(a.type_list_attr for a in definition.inputs):
        return None
    names = [a.number_attr for a in definition.inputs if a.number_attr]
    if any(name not in node.attrs for name in names):
        return None
    return len(definition.inputs) - len(names) + sum(node.attr_int(name) for name in names)


def check_input_count(node: Node, where: str) -> None:
    """Check that a node has as many inputs as its op and attributes require.

    Raises:
        InvalidGraphError: if it has more or fewer inputs.
    """
    definition, count = any_op_def(node.op), len(node.data_inputs)
    if definition is None:
        return
    lists = sum(bool(a.number_attr or a.type_list_attr) for a in definition.inputs)
    least, exact = len(definition.inputs) - lists, input_count(node)
    if count < least or (exact is not None and count != exact):
        expected = least if exact is None else exact
        message = f"node {node.name!r} ({node.op}) takes {count} tensors, not {expected}"
        raise InvalidGraphError(message, "export the graph again", where)


def output_slots(node: Node, definition: OpDef) -> dict[str, tuple[int, int]]:
    """Return the first output index and the number of outputs of each output argument."""
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
    # The type of an empty list is unknown.
    fits = value is not None and (value.kind == kind or (value.kind, kind) == ("list", _TYPES))
    if value is None or not fits:
        message = f"node {node.name!r} ({node.op}) has no {kind} attribute {name!r}"
        raise InvalidGraphError(message, "the graph was written by a faulty tool")
    return value.value


OLDER_OPS: Final = {
    "AddV2": "Add",
    "BatchMatMulV2": "BatchMatMul",
    "BatchMatMulV3": "BatchMatMulV2",
    "CheckNumericsV2": "CheckNumerics",
    "FusedBatchNormV3": "FusedBatchNorm",
    "MatrixDiagPartV3": "MatrixDiagPartV2",
    "MatrixDiagV3": "MatrixDiagV2",
    "MatrixSetDiagV3": "MatrixSetDiagV2",
    "QuantizeAndDequantizeV4": "QuantizeAndDequantizeV2",
    "SelectV2": "Select",
}
"""Older replacements of ops, for which the transform ``downgrade`` has a rule."""


def default_attrs(op: str, library: Library) -> Mapping[str, AttrValue] | None:
    """Return the attributes with defaults of an op or function, or None if it is unknown.

    The definitions are those of TensorFlow 1.15, so that it can load the created nodes, or those of
    the newest release for ops that 1.15 does not have.
    """
    function = library.functions.get(op)
    definition = function.signature if function else op_def(op, TF115) or op_def(op, NEWEST)
    if definition is None:
        return None
    return {a.name: a.default for a in definition.attrs if a.default is not None}


TABLES: Final = frozenset(
    {
        "HashTable",
        "HashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
    }
)
"""Ops whose output is the handle of a table."""

READERS: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
"""Ops that fill a table, their first input, from a file, their second input."""

FILLERS: Final = READERS | {
    "InitializeTable",
    "InitializeTableV2",
    "LookupTableImport",
    "LookupTableImportV2",
    "LookupTableInsert",
    "LookupTableInsertV2",
}
"""Ops that fill a table, their first input."""


PASSED_ON: Final = frozenset(
    {
        *("Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics"),
        *("Reshape", "Squeeze", "ExpandDims", "Bitcast", "PlaceholderWithDefault"),
        *("Enter", "RefEnter", "Exit", "NextIteration", "LoopCond", "Switch", "Merge"),
    }
)
"""Ops whose outputs can share the memory of their inputs, unchanged."""

_ALL: Final = frozenset(range(64))
_NOT_FIRST: Final = _ALL - {0}

_READ: Final[Mapping[str, frozenset[int]]] = {
    # These write to their first input, usually an activation, but not to the parameters.
    **dict.fromkeys(("BiasAdd", "BiasAddV1", "BatchNormWithGlobalNormalization"), _NOT_FIRST),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _NOT_FIRST),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "_FusedConv2D"), _ALL),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2", "Dilation2D"), _ALL),
    **dict.fromkeys(("DepthwiseConv2dNativeBackpropInput", "FusedPadConv2D"), _ALL),
    **dict.fromkeys(("FusedResizeAndPadConv2D", "MatMul", "BatchMatMul", "BatchMatMulV2"), _ALL),
    **dict.fromkeys(("SparseMatMul", "_FusedMatMul", "Einsum"), _ALL),
    **dict.fromkeys(("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", "GRUBlockCell"), _ALL),
    **dict.fromkeys(("Gather", "GatherV2", "GatherNd", "ArgMax", "ArgMin", "TopKV2"), _ALL),
    **dict.fromkeys(("Shape", "ShapeN", "Size", "Rank"), _ALL),
    **dict.fromkeys(("Dequantize", "QuantizedMatMul", "QuantizedConv2D", "QuantizedBiasAdd"), _ALL),
    **dict.fromkeys(("QuantizedDepthwiseConv2D", "QuantizedConv2DPerChannel"), _ALL),
    **dict.fromkeys(("QuantizedBatchNormWithGlobalNormalization", "QuantizedInstanceNorm"), _ALL),
}


def only_reads(op: str, index: int) -> bool:
    """Return whether an op never changes the memory of an input and never aliases it."""
    return index in _READ.get(op, ())
