"""Read the records of a .tflite file, after checking all offsets."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.tflite.checker import check
from mobileprep.formats.tflite.flatbuffer import Table, root_table
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.records import (
    LiteTensor,
    ModelRecord,
    OperatorCode,
    OperatorRecord,
    Options,
    OptionValue,
    Quantization,
    SignatureRecord,
    SubGraphRecord,
    fault_of_texts,
)

_SHARED_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_ALL", "REDUCE_ANY"), "ReducerOptions"),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "ReducerOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    "L2_NORMALIZATION": "L2NormOptions",
}
# Bits of an element by type; strings have a separate encoding.
_BITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("FLOAT32", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("INT8", "UINT8", "BOOL"), 8),
    **dict.fromkeys(("INT64", "UINT64", "FLOAT64", "COMPLEX64"), 64),
    **dict.fromkeys(("INT4", "UINT4"), 4),
    "COMPLEX128": 128,
    "INT2": 2,
}


def read_model(data: bytes | memoryview, file: str) -> ModelRecord:
    """Read the records of a file. Of the options of operators, only numbers are read.

    Raises:
        CorruptFileError: if the file is damaged.
    """
    check(data, file)
    return _Reader(root_table(layout(), "Model", data), data, file).record()


class _Reader:
    """A file with valid offsets."""

    def __init__(self, model: Table, data: bytes | memoryview, file: str) -> None:
        self._model = model
        self._data = memoryview(data)
        self._file = file
        self._buffers = tuple(map(self._buffer, model.tables("buffers")))
        self._codes = tuple(map(_code, model.tables("operator_codes")))

    def record(self) -> ModelRecord:
        model = self._model
        graphs = tuple(map(self._subgraph, model.tables("subgraphs")))
        if not graphs:
            what = "has no subgraph"
            raise self._corrupt(what)
        signatures = tuple(self._signature(s, graphs) for s in model.tables("signature_defs"))
        metadata = tuple(map(self._metadata, model.tables("metadata")))
        return ModelRecord(graphs, self._buffers, signatures, metadata, model.text("description"))

    def _corrupt(self, what: str) -> CorruptFileError:
        return CorruptFileError(what, "the file is damaged: convert the model again", self._file)

    def _buffer(self, buffer: Table) -> memoryview:
        elements = buffer.array("data", "u1")
        if elements.size:
            return elements.data
        offset, size = buffer.number("offset"), buffer.number("size")
        if offset <= 1:
            return memoryview(b"")
        if offset + size > len(self._data):
            what = f"a buffer of {size} bytes lies behind the end"
            raise self._corrupt(what)
        return self._data[offset : offset + size]

    def _metadata(self, entry: Table) -> tuple[str, bytes]:
        number = entry.number("buffer")
        content = self._buffers[number] if number < len(self._buffers) else b""
        return entry.text("name"), bytes(content)

    def _subgraph(self, graph: Table) -> SubGraphRecord:
        tables = tuple(graph.tables("tensors"))
        tensors = tuple(self._tensor(table, tables) for table in tables)
        operators = tuple(self._operator(o, len(tensors)) for o in graph.tables("operators"))
        inputs = self._indices(_numbers(graph, "inputs"), len(tensors), 0)
        outputs = self._indices(_numbers(graph, "outputs"), len(tensors), 0)
        record = SubGraphRecord(graph.text("name"), tensors, inputs, outputs, operators)
        fault = fault_of_tensor_use(record, self._buffers)
        if fault is not None:
            raise self._corrupt(fault)
        return record

    def _indices(self, numbers: tuple[int, ...], count: int, lowest: int) -> tuple[int, ...]:
        """Check that tensor indices are in range."""
        if any(not lowest <= number < count for number in numbers):
            what = f"a tensor index is out of range: the subgraph has {count}"
            raise self._corrupt(what)
        return numbers

    def _tensor(self, tensor: Table, tables: Sequence[Table]) -> LiteTensor:
        name, kind = tensor.text("name"), layout().name("TensorType", tensor.number("type"))
        shape, buffer = _numbers(tensor, "shape"), tensor.number("buffer")
        signature = _numbers(tensor, "shape_signature")
        if buffer >= len(self._buffers) or any(size < 0 for size in shape):
            what = f"the tensor {name!r} has an unknown buffer, or a negative size"
            raise self._corrupt(what)
        self._check_size(name, kind, shape, self._buffers[buffer])
        details = tensor.table("quantization")
        blocks = _blocks(details)
        return LiteTensor(
            name,
            kind,
            shape,
            signature or None,
            buffer,
            _quantization(details)
            if blocks is None
            else self._block_quantization(name, shape, blocks, tables),
            bool(tensor.number("is_variable")),
        )

    def _check_size(
        self, name: str, kind: str, shape: tuple[int, ...], content: bytes | memoryview
    ) -> None:
        if kind == "STRING" and len(content):
            fault = fault_of_texts(content, math.prod(shape))
            if fault:
                what = f"the constant {name!r} {fault}"
                raise self._corrupt(what)
        bits = _BITS.get(kind)
        needed = None if bits is None else -(-math.prod(shape) * bits // 8)
        if len(content) and needed is not None and len(content) != needed:
            what = (
                f"the constant {name!r} of type {kind} and shape {list(shape)} takes {needed} "
                f"bytes, and has {len(content)}"
            )
            raise self._corrupt(what)

    def _block_quantization(
        self, name: str, shape: tuple[int, ...], blocks: Table, tables: Sequence[Table]
    ) -> Quantization:
        """Read the scales of blocks, which are the elements of another tensor."""
        size, number = blocks.number("block_size"), blocks.number("scales")
        columns = math.prod(shape[1:])
        if size < 1 or len(shape) < 2 or columns % size:
            what = f"the tensor {name!r} of shape {list(shape)} has blocks of {size} elements"
            raise self._corrupt(what)
        if not 0 <= number < len(tables) or tables[number].number("buffer") >= len(self._buffers):
            what = f"the scales of {name!r} are in the tensor {number}, which does not exist"
            raise self._corrupt(what)
        content = self._buffers[tables[number].number("buffer")]
        kind = layout().name("TensorType", tables[number].number("type"))
        count = shape[0] * (columns // size)
        if kind != "FLOAT16" or len(content) != 2 * count:
            stored = f"{len(content)} bytes of {kind}"
            what = f"the scales of {count} blocks of {name!r} are stored in {stored}"
            raise self._corrupt(what)
        scales = np.frombuffer(content, "<f2").astype(np.float32)
        by_block = scales.reshape(shape[0], columns // size)
        return Quantization(by_block, np.zeros(0, np.int64), 0, size, number)

    def _operator(self, operator: Table, tensors: int) -> OperatorRecord:
        number = operator.number("opcode_index")
        if number >= len(self._codes):
            what = f"an operator has the code {number}, which does not exist"
            raise self._corrupt(what)
        inputs = self._indices(_numbers(operator, "inputs"), tensors, -1)
        outputs = self._indices(_numbers(operator, "outputs"), tensors, 0)
        code = self._codes[number]
        self._check_options(operator.number("builtin_options_type"), code.builtin)
        inner = self._indices(_numbers(operator, "intermediates"), tensors, -1)
        options = self._options(operator, code.builtin)
        return OperatorRecord(code, inputs, outputs, options, intermediates=inner)

    def _options(self, operator: Table, builtin: str) -> Options | None:
        """Read the numbers in an operator's options, without strings and lists."""
        number, facts = operator.number("builtin_options_type"), layout()
        if number == 0 or number != _own_options(builtin):
            return None
        table = facts.name_of_table(number)
        options = operator.table("builtin_options", table)
        if options is None:
            return None
        values: dict[str, OptionValue] = {}
        for field in facts.tables[table]:
            if field is None or facts.width(field[1]) is None or not options.has(field[0]):
                continue
            name, kind = field
            if kind not in ("float", "double"):
                value = options.number(name)
                values[name] = facts.name(kind, value) if kind in facts.enums else int(value)
        return Options(table, values)

    def _check_options(self, options_type: int, builtin: str) -> None:
        own = _own_options(builtin)
        if own is not None and options_type not in (0, own):
            # LiteRT's interpreter may crash for such an operator.
            what = f"an operator {builtin} has options of another"
            raise self._corrupt(what)

    def _signature(self, entry: Table, graphs: tuple[SubGraphRecord, ...]) -> SignatureRecord:
        number = entry.number("subgraph_index")
        if number >= len(graphs):
            what = f"a signature is of the subgraph {number}, which does not exist"
            raise self._corrupt(what)
        count = len(graphs[number].tensors)
        inputs, outputs = (
            tuple(
                (item.text("name"), self._tensor_index(item.number("tensor_index"), count))
                for item in entry.tables(side)
            )
            for side in ("inputs", "outputs")
        )
        return SignatureRecord(entry.text("signature_key"), inputs, outputs, number)

    def _tensor_index(self, number: int, count: int) -> int:
        if number >= count:
            what = f"a signature names the tensor {number}, which does not exist"
            raise self._corrupt(what)
        return number


def _code(code: Table) -> OperatorCode:
    # Files from before 2020 only have the old field; LiteRT uses the larger of the two.
    number = max(code.number("builtin_code"), code.number("deprecated_builtin_code"))
    builtin = layout().name("BuiltinOperator", number)
    return OperatorCode(builtin, code.text("custom_code"), code.number("version"))


@lru_cache(maxsize=256)
def _own_options(builtin: str) -> int | None:
    """Return the union number of a builtin operator's options; None if it has none."""
    named = _SHARED_OPTIONS.get(builtin, f"{builtin.replace('_', '')}options").lower()
    tables = layout().unions["BuiltinOptions"].items()
    return next((number for table, number in tables if table.lower() == named), None)


def _blocks(details: Table | None) -> Table | None:
    """Return the quantization of blocks, or None if scales are of a tensor or its slices."""
    kind = "BlockwiseQuantization"
    number = layout().unions["QuantizationDetails"][kind]
    if details is None or details.number("details_type") != number:
        return None
    return details.table("details", kind)


def _quantization(details: Table | None) -> Quantization | None:
    scales = np.zeros(0) if details is None else details.array("scale", "<f4")
    if details is None or not scales.size:
        return None
    points = details.array("zero_point", "<i8")
    if points.size != scales.size:
        points = np.resize(points, scales.size) if points.size else np.zeros(scales.size, np.int64)
    axis = details.number("quantized_dimension")
    return Quantization(scales.astype(np.float32), points.astype(np.int64), axis)


def _numbers(table: Table, name: str) -> tuple[int, ...]:
    return tuple(table.array(name, "<i4").tolist())


_NONE: Final = -1
_UNPACKS: Final = frozenset({"DENSIFY", "DEQUANTIZE"})
_TOO_EARLY: Final = "before anything gives it"
# Optional inputs of LSTM cells: weights and bias of an input gate, peepholes, and projection.
_CELL: Final = (1, 5, 9, 10, 11, 12, 16, 17)
_LSTM: Final = frozenset((*_CELL, 20, 21, 22, 23))
_OPTIONAL: Final[Mapping[str, Collection[int]]] = {
    **dict.fromkeys(("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (2,)),
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "SVDF", "TRANSPOSE_CONV"), (3,)),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _LSTM),
    "BIDIRECTIONAL_SEQUENCE_LSTM": frozenset((*_CELL, *(17 + at for at in _CELL), *range(39, 48))),
    "BIDIRECTIONAL_SEQUENCE_RNN": (9, 10, 11),
}
"""Inputs of an operator that can be omitted, as LiteRT's kernels define."""
_ANY: Final = frozenset(
    {
        *("CALL", "CALL_ONCE", "CUSTOM", "IF", "WHILE"),
        *("STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_CUSTOM_CALL", "STABLEHLO_WHILE"),
    }
)
"""Operators that return their inputs, or that are unknown."""


def fault_of_tensor_use(graph: SubGraphRecord, buffers: Sequence[bytes | memoryview]) -> str | None:
    """Return the problem of a subgraph's operators, their order, or their inputs; None if valid."""
    constants = {at for at, t in enumerate(graph.tensors) if len(buffers[t.buffer])}
    for at in graph.inputs:
        if at in constants:
            return f"the constant {graph.tensors[at].name!r} is an input"
    there = {at for at, tensor in enumerate(graph.tensors) if _is_from_the_start(tensor)}
    there |= constants | {_NONE, *graph.inputs}
    for number, operator in enumerate(graph.operators):
        lacking = _lacking(operator)
        if lacking is not None:
            return f"{_named(number, operator)} has no input {lacking}"
        for at in operator.inputs:
            if at not in there:
                return f"{_named(number, operator)} reads {graph.tensors[at].name!r} {_TOO_EARLY}"
        for at in operator.outputs:
            if at in constants:
                return f"{_named(number, operator)} writes the constant {graph.tensors[at].name!r}"
        if operator.code.builtin in _UNPACKS and not _is_same_size(graph, operator):
            return f"{_named(number, operator)} gives other sizes than it takes"
        there.update(operator.outputs)
    missing = next((at for at in graph.outputs if at not in there), None)
    return (
        None
        if missing is None
        else f"the output {graph.tensors[missing].name!r} is not the output of any operator"
    )


def _is_from_the_start(tensor: LiteTensor) -> bool:
    """Return whether a tensor needs neither data in the file nor an operator that writes it."""
    return tensor.is_variable or math.prod(tensor.shape) == 0


def _lacking(operator: OperatorRecord) -> int | None:
    """Return the first omitted input that is not optional."""
    if _NONE not in operator.inputs or operator.code.builtin in _ANY:
        return None
    optional = _OPTIONAL.get(operator.code.builtin, ())
    left_out = (i for i, at in enumerate(operator.inputs) if at == _NONE)
    return next((i for i in left_out if i not in optional), None)


def _is_same_size(graph: SubGraphRecord, operator: OperatorRecord) -> bool:
    """Return whether the input and output of an operator have the same number of elements."""
    input_shapes = [graph.tensors[at].shape for at in operator.inputs[:1] if at != _NONE]
    output_shapes = [graph.tensors[at].shape for at in operator.outputs[:1]]
    return list(map(math.prod, input_shapes)) == list(map(math.prod, output_shapes))


def _named(number: int, operator: OperatorRecord) -> str:
    return f"the operator {number} ({operator.code.custom or operator.code.builtin})"
