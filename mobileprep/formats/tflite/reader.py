"""A .tflite file's records, read once every offset has been looked at."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.tflite.checker import check
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.library import schema_module
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
)
from mobileprep.formats.tflite.texts import fault_of_texts

_SHARED_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_ALL", "REDUCE_ANY"), "ReducerOptions"),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "ReducerOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    "L2_NORMALIZATION": "L2NormOptions",
}
# Bits of an element of each type; text has a table of its own.
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
    """The records of a file. Options of operators are not read.

    Args:
        data: the whole file; constants are views on it.
        file: its name, for messages.

    Raises:
        CorruptFileError: the file is damaged, or of another kind.
        UnsupportedError: flatbuffers is not installed.
    """
    check(data, file)
    model = schema_module().Model.GetRootAs(data, 0)
    return _Reader(model, data, file).record()


class _Reader:
    """One file whose offsets are known to be sound."""

    def __init__(self, model: Any, data: bytes | memoryview, file: str) -> None:  # noqa: ANN401
        self._model = model
        self._data = memoryview(data)
        self._file = file
        self._buffers = tuple(self._buffer(model.Buffers(i)) for i in range(model.BuffersLength()))

    def record(self) -> ModelRecord:
        model = self._model
        graphs = tuple(self._subgraph(model.Subgraphs(i)) for i in range(model.SubgraphsLength()))
        if not graphs:
            what = "has no subgraph"
            raise self._corrupt(what)
        signatures = tuple(
            self._signature(model.SignatureDefs(i), graphs)
            for i in range(model.SignatureDefsLength())
        )
        metadata = tuple(self._metadata(model.Metadata(i)) for i in range(model.MetadataLength()))
        return ModelRecord(graphs, self._buffers, signatures, metadata, _text(model.Description()))

    def _corrupt(self, what: str) -> CorruptFileError:
        return CorruptFileError(what, "the file is damaged: convert the model again", self._file)

    def _buffer(self, buffer: Any) -> memoryview:  # noqa: ANN401
        elements = buffer.DataAsNumpy() if buffer.DataLength() else None
        if elements is not None:
            return memoryview(elements)
        offset, size = buffer.Offset(), buffer.Size()
        if offset <= 1:
            return memoryview(b"")
        if offset + size > len(self._data):
            what = f"a buffer of {size} bytes lies behind the end"
            raise self._corrupt(what)
        return self._data[offset : offset + size]

    def _metadata(self, entry: Any) -> tuple[str, bytes]:  # noqa: ANN401
        number = entry.Buffer()
        content = self._buffers[number] if number < len(self._buffers) else b""
        return _text(entry.Name()), bytes(content)

    def _subgraph(self, graph: Any) -> SubGraphRecord:  # noqa: ANN401
        tensors = tuple(self._tensor(graph.Tensors(i)) for i in range(graph.TensorsLength()))
        operators = tuple(
            self._operator(graph.Operators(i), len(tensors)) for i in range(graph.OperatorsLength())
        )
        inputs = self._indices(graph.InputsAsNumpy(), len(tensors), 0)
        outputs = self._indices(graph.OutputsAsNumpy(), len(tensors), 0)
        record = SubGraphRecord(_text(graph.Name()), tensors, inputs, outputs, operators)
        fault = fault_of_tensor_use(record, self._buffers)
        if fault is not None:
            raise self._corrupt(fault)
        return record

    def _indices(self, given: Any, count: int, lowest: int) -> tuple[int, ...]:  # noqa: ANN401
        """Numbers of tensors that are there."""
        numbers = tuple(map(int, given)) if isinstance(given, np.ndarray) else ()
        if any(not lowest <= number < count for number in numbers):
            what = f"a tensor is named that is not there: there are {count}"
            raise self._corrupt(what)
        return numbers

    def _tensor(self, tensor: Any) -> LiteTensor:  # noqa: ANN401
        name, kind = _text(tensor.Name()), layout().name("TensorType", tensor.Type())
        shape = _numbers(tensor.ShapeAsNumpy())
        signature = _numbers(tensor.ShapeSignatureAsNumpy())
        if tensor.Buffer() >= len(self._buffers) or any(size < 0 for size in shape):
            what = f"the tensor {name!r} has a buffer that is not there, or a size below 0"
            raise self._corrupt(what)
        self._check_size(name, kind, shape, self._buffers[tensor.Buffer()])
        return LiteTensor(
            name,
            kind,
            shape,
            signature or None,
            tensor.Buffer(),
            _quantization(tensor.Quantization()),
            bool(tensor.IsVariable()),
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

    def _operator(self, operator: Any, tensors: int) -> OperatorRecord:  # noqa: ANN401
        number = operator.OpcodeIndex()
        if number >= self._model.OperatorCodesLength():
            what = f"an operator has the code {number}, which is not there"
            raise self._corrupt(what)
        inputs = self._indices(operator.InputsAsNumpy(), tensors, -1)
        outputs = self._indices(operator.OutputsAsNumpy(), tensors, 0)
        code = _code(self._model.OperatorCodes(number))
        self._check_options(operator.BuiltinOptionsType(), code.builtin)
        return OperatorRecord(code, inputs, outputs, self._options(operator, code.builtin))

    def _options(self, operator: Any, builtin: str) -> Options | None:  # noqa: ANN401
        """The numbers that an operator's options store; text and lists are not read."""
        number, options = operator.BuiltinOptionsType(), operator.BuiltinOptions()
        if options is None or number == 0 or number != _own_options(builtin):
            return None
        facts = layout()
        table = facts.name_of_table(number)
        values: dict[str, OptionValue] = {}
        for index, field in enumerate(facts.tables[table]):
            offset = options.Offset(4 + 2 * index)
            width = None if field is None else facts.width(field[1])
            if not offset or field is None or width is None or field[1] in ("float", "double"):
                continue
            start = options.Pos + offset
            value = int.from_bytes(self._data[start : start + width], "little", signed=True)
            is_name = field[1] in facts.enums
            values[field[0]] = facts.name(field[1], value) if is_name else value
        return Options(table, values)

    def _check_options(self, given: int, builtin: str) -> None:
        own = _own_options(builtin)
        if own is not None and given not in (0, own):
            # LiteRT's interpreter may end the process over such an operator.
            what = f"an operator {builtin} has options of another"
            raise self._corrupt(what)

    def _signature(self, entry: Any, graphs: tuple[SubGraphRecord, ...]) -> SignatureRecord:  # noqa: ANN401
        number = entry.SubgraphIndex()
        if number >= len(graphs):
            what = f"a signature is of the subgraph {number}, which is not there"
            raise self._corrupt(what)
        count = len(graphs[number].tensors)
        sides = (
            tuple(
                (_text(item(i).Name()), self._known(item(i).TensorIndex(), count))
                for i in range(length)
            )
            for item, length in (
                (entry.Inputs, entry.InputsLength()),
                (entry.Outputs, entry.OutputsLength()),
            )
        )
        inputs, outputs = sides
        return SignatureRecord(_text(entry.SignatureKey()), inputs, outputs, number)

    def _known(self, number: int, count: int) -> int:
        if number >= count:
            what = f"a signature names the tensor {number}, which is not there"
            raise self._corrupt(what)
        return number


def _code(code: Any) -> OperatorCode:  # noqa: ANN401
    # Files from before 2020 have the old field alone; where they differ LiteRT takes the greater.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    builtin = layout().name("BuiltinOperator", number)
    return OperatorCode(builtin, _text(code.CustomCode()), code.Version())


@lru_cache(maxsize=256)
def _own_options(builtin: str) -> int | None:
    """The number of the options of a builtin, most often named after it; None where it has none."""
    named = _SHARED_OPTIONS.get(builtin, f"{builtin.replace('_', '')}options").lower()
    tables = layout().unions["BuiltinOptions"].items()
    return next((number for table, number in tables if table.lower() == named), None)


def _quantization(details: Any) -> Quantization | None:  # noqa: ANN401
    if details is None or not details.ScaleLength():
        return None
    scales = np.array(details.ScaleAsNumpy(), np.float32)
    points = details.ZeroPointAsNumpy()
    known = np.array(points, np.int64) if isinstance(points, np.ndarray) else np.zeros(0, np.int64)
    if known.size != scales.size:
        known = np.resize(known, scales.size) if known.size else np.zeros(scales.size, np.int64)
    return Quantization(scales, known, details.QuantizedDimension())


def _numbers(given: Any) -> tuple[int, ...]:  # noqa: ANN401 - an array, or 0 for none
    return tuple(map(int, given)) if isinstance(given, np.ndarray) else ()


def _text(given: bytes | None) -> str:
    return "" if given is None else given.decode("utf-8", "backslashreplace")


_NONE: Final = -1
_UNPACKS: Final = frozenset({"DENSIFY", "DEQUANTIZE"})
_TOO_EARLY: Final = "before anything gives it"
# Of LSTM cells: the weights and bias of an input gate, peepholes, and a projection.
_CELL: Final = (1, 5, 9, 10, 11, 12, 16, 17)
_LSTM: Final = frozenset((*_CELL, 20, 21, 22, 23))
_OPTIONAL: Final[Mapping[str, Collection[int]]] = {
    **dict.fromkeys(("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (2,)),
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "SVDF", "TRANSPOSE_CONV"), (3,)),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _LSTM),
    "BIDIRECTIONAL_SEQUENCE_LSTM": frozenset((*_CELL, *(17 + at for at in _CELL), *range(39, 48))),
    "BIDIRECTIONAL_SEQUENCE_RNN": (9, 10, 11),
}
"""Which inputs of an operator may be left out, by LiteRT's kernels."""
_ANY: Final = frozenset(
    {
        *("CALL", "CALL_ONCE", "CUSTOM", "IF", "WHILE"),
        *("STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_CUSTOM_CALL", "STABLEHLO_WHILE"),
    }
)
"""Operators that hand on what they are given, or of which nothing is known."""


def fault_of_tensor_use(graph: SubGraphRecord, buffers: Sequence[bytes | memoryview]) -> str | None:
    """What is wrong with a subgraph's operators, their order or inputs; None where nothing is.

    Args:
        graph: the subgraph.
        buffers: those of the file.
    """
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
        else f"the output {graph.tensors[missing].name!r} is given by nothing"
    )


def _is_from_the_start(tensor: LiteTensor) -> bool:
    """Whether a tensor needs neither bytes of the file nor an operator that gives it."""
    return tensor.is_variable or math.prod(tensor.shape) == 0


def _lacking(operator: OperatorRecord) -> int | None:
    """The first input that is left out and must not be."""
    if _NONE not in operator.inputs or operator.code.builtin in _ANY:
        return None
    optional = _OPTIONAL.get(operator.code.builtin, ())
    left_out = (i for i, at in enumerate(operator.inputs) if at == _NONE)
    return next((i for i in left_out if i not in optional), None)


def _is_same_size(graph: SubGraphRecord, operator: OperatorRecord) -> bool:
    """Whether a tensor and what is made of it have as many elements, by the file."""
    taken = [graph.tensors[at].shape for at in operator.inputs[:1] if at != _NONE]
    given = [graph.tensors[at].shape for at in operator.outputs[:1]]
    return list(map(math.prod, taken)) == list(map(math.prod, given))


def _named(number: int, operator: OperatorRecord) -> str:
    return f"the operator {number} ({operator.code.custom or operator.code.builtin})"
