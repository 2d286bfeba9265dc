"""Write records as a .tflite file; equal records have equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.errors import ArtifactError, UnsupportedError
from mobileprep.formats.tflite.checker import IDENTIFIER
from mobileprep.formats.tflite.flatbuffer import MAX_BYTES, FlatBufferWriter, TooLargeError
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
)

ALIGNMENT: Final = 16
"""Alignment of the elements of constants in bytes, as the runtime expects."""

VERSION: Final = 3
"""Version of the format, unchanged since 2017."""

# Old readers only read codes below this one, from a 1-byte field.
_PLACEHOLDER_CODE: Final = 127
_SLACK: Final = 1 << 16
_MOST_INT: Final = (1 << 31) - 1


def model_bytes(model: ModelRecord, where: str = "") -> memoryview:
    """Return the bytes of a .tflite file.

    Raises:
        ArtifactError: if the file would exceed 2 GiB.
    """
    weights = sum(len(b) + ALIGNMENT for b in model.buffers)
    if weights + _SLACK > MAX_BYTES:
        message = f"the model has {weights} bytes of constants; a .tflite file has less than 2 GiB"
        hint = "store 16-bit weights: `quantize: float16`, or `mobileprep tflite --mode=float16`"
        raise ArtifactError(message, hint, where)
    return _Writer(model, weights).written(where)


class _Writer:
    """Writer of a single file."""

    def __init__(self, model: ModelRecord, weights: int) -> None:
        self._model = model
        self._file = FlatBufferWriter(layout(), weights + _SLACK)
        operators = (o for s in model.subgraphs for o in s.operators)
        self._codes = tuple(dict.fromkeys(o.code for o in operators))

    def written(self, where: str) -> memoryview:
        try:
            return self._file.finished(self._root(), IDENTIFIER)
        except TooLargeError as error:
            message = "the model takes more than the 2 GiB that a .tflite file can have"
            raise ArtifactError(message, "store weights in 16 or 8 bits", where) from error

    def _root(self) -> int:
        model = self._model
        metadata = range(len(model.buffers), len(model.buffers) + len(model.metadata))
        # The data that a runtime reads first is written last, so that it is at the start.
        buffers = [
            self._buffer(b) for b in reversed((*model.buffers, *(b for _, b in model.metadata)))
        ]
        entries = [
            self._file.table("Metadata", name=self._file.text(name), buffer=number)
            for (name, _), number in zip(model.metadata, metadata, strict=True)
        ]
        return self._file.table(
            "Model",
            version=VERSION,
            buffers=self._file.offsets(buffers[::-1]),
            metadata=self._file.offsets(entries),
            signature_defs=self._file.offsets([self._signature(s) for s in model.signatures]),
            subgraphs=self._file.offsets([self._subgraph(s) for s in model.subgraphs]),
            operator_codes=self._file.offsets([self._code(c) for c in self._codes]),
            description=self._file.text(model.description),
        )

    def _buffer(self, content: bytes | memoryview) -> int:
        if not len(content):
            return self._file.table("Buffer")
        data = self._file.vector(content, len(content), ALIGNMENT)
        return self._file.table("Buffer", data=data)

    def _code(self, code: OperatorCode) -> int:
        number = layout().number("BuiltinOperator", code.builtin)
        return self._file.table(
            "OperatorCode",
            deprecated_builtin_code=min(number, _PLACEHOLDER_CODE),
            custom_code=self._file.text(code.custom) if code.custom else None,
            version=code.version,
            builtin_code=number,
        )

    def _subgraph(self, graph: SubGraphRecord) -> int:
        return self._file.table(
            "SubGraph",
            tensors=self._file.offsets([self._tensor(t) for t in graph.tensors]),
            inputs=self._numbers(graph.inputs),
            outputs=self._numbers(graph.outputs),
            operators=self._file.offsets([self._operator(o) for o in graph.operators]),
            name=self._file.text(graph.name),
        )

    def _tensor(self, tensor: LiteTensor) -> int:
        details = None if tensor.quantization is None else self._quantization(tensor.quantization)
        signature = None if tensor.signature is None else self._numbers(tensor.signature)
        return self._file.table(
            "Tensor",
            shape=self._numbers(tensor.shape),
            type=layout().number("TensorType", tensor.type),
            buffer=tensor.buffer,
            name=self._file.text(tensor.name),
            quantization=details,
            is_variable=tensor.is_variable,
            shape_signature=signature,
            has_rank=True,
        )

    def _quantization(self, details: Quantization) -> int:
        if details.block_size:
            return self._blocks(details)
        scales = self._file.array(np.asarray(details.scales, np.float32))
        points = self._file.array(np.asarray(details.zero_points, np.int64))
        axis = details.axis
        return self._file.table(
            "QuantizationParameters", scale=scales, zero_point=points, quantized_dimension=axis
        )

    def _blocks(self, details: Quantization) -> int:
        """Write the quantization of a tensor whose scales are another tensor's elements."""
        kind = "BlockwiseQuantization"
        blocks = self._file.table(
            kind, scales=details.scale_tensor, zero_points=-1, block_size=details.block_size
        )
        number = layout().unions["QuantizationDetails"][kind]
        return self._file.table(
            "QuantizationParameters",
            details_type=number,
            details=blocks,
            quantized_dimension=details.axis,
        )

    def _operator(self, operator: OperatorRecord) -> int:
        options = operator.options
        custom = np.frombuffer(operator.custom_options, np.uint8)
        written = None if options is None else self._options(options)
        kind = "" if options is None else _union_field(options)
        number = None if options is None else layout().unions[_UNIONS[kind]][options.table]
        return self._file.table(
            "Operator",
            opcode_index=self._codes.index(operator.code),
            inputs=self._numbers(operator.inputs),
            outputs=self._numbers(operator.outputs),
            custom_options=self._file.array(custom) if custom.size else None,
            intermediates=(
                self._numbers(operator.intermediates) if operator.intermediates else None
            ),
            **({} if options is None else {f"{kind}_type": number, kind: written}),
        )

    def _options(self, options: Options) -> int:
        fields = {n: self._option(options.table, n, v) for n, v in options.values.items()}
        return self._file.table(options.table, **fields)

    def _option(self, table: str, name: str, value: OptionValue) -> int | float | bool:
        _, kind = layout().field(table, name)
        if kind == "[float]":
            return self._file.array(np.array(value, np.float32))
        if isinstance(value, tuple):
            return self._numbers(tuple(map(int, value)))
        if isinstance(value, str):
            is_enum = kind in layout().enums
            return layout().number(kind, value) if is_enum else self._file.text(value)
        return value

    def _signature(self, signature: SignatureRecord) -> int:
        def entries(named: Sequence[tuple[str, int]]) -> int:
            return self._file.offsets(
                [
                    self._file.table("TensorMap", name=self._file.text(n), tensor_index=i)
                    for n, i in named
                ]
            )

        return self._file.table(
            "SignatureDef",
            inputs=entries(signature.inputs),
            outputs=entries(signature.outputs),
            signature_key=self._file.text(signature.key),
            subgraph_index=signature.subgraph,
        )

    def _numbers(self, numbers: Sequence[int]) -> int:
        if any(not -_MOST_INT - 1 <= n <= _MOST_INT for n in numbers):
            message = f"{list(numbers)[:8]} do not all fit the 32 bits of a .tflite file's sizes"
            raise UnsupportedError(message, "make the graph's sizes smaller")
        return self._file.array(np.array(numbers, np.int32))


_UNIONS: Final = {"builtin_options": "BuiltinOptions", "builtin_options2": "BuiltinOptions2"}


def _union_field(options: Options) -> str:
    is_first_union = options.table in layout().unions["BuiltinOptions"]
    return "builtin_options" if is_first_union else "builtin_options2"
