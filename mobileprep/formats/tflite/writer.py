"""Records to the bytes of a .tflite file, the same bytes for the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.errors import ArtifactError, UnsupportedError
from mobileprep.formats.tflite.checker import IDENTIFIER
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.library import flatbuffers_module, schema_module
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
"""Elements of constants begin at multiples of this many bytes, as the runtime wants them."""

VERSION: Final = 3
"""The format's version, which has not moved since 2017."""

MOST_BYTES: Final = (1 << 31) - 1
"""Offsets have 32 bits, of which builders use 31."""

# Old readers know the codes below it from a field of one byte alone.
_PLACEHOLDER_CODE: Final = 127
_SLACK: Final = 1 << 16
_MOST_INT: Final = (1 << 31) - 1


def model_bytes(model: ModelRecord, where: str = "") -> memoryview:
    """The bytes of a file.

    Args:
        model: what it is to hold.
        where: what the file is called, for messages.

    Raises:
        ArtifactError: it would pass the format's limit of 2 GiB.
        UnsupportedError: flatbuffers is not installed.
    """
    weights = sum(len(b) + ALIGNMENT for b in model.buffers)
    if weights + _SLACK > MOST_BYTES:
        message = f"the model has {weights} bytes of constants; a .tflite file has less than 2 GiB"
        hint = "store 16-bit weights: `quantize: float16`, or `mobileprep tflite --mode=float16`"
        raise ArtifactError(message, hint, where)
    return _Writer(model, weights).written(where)


class _Writer:
    """One file; flatbuffers are written from the end to the beginning."""

    def __init__(self, model: ModelRecord, weights: int) -> None:
        self._model = model
        self._schema = schema_module()
        # With room for all constants: a builder that grows copies all it has.
        self._builder = flatbuffers_module().Builder(weights + _SLACK)
        operators = (o for s in model.subgraphs for o in s.operators)
        self._codes = tuple(dict.fromkeys(o.code for o in operators))

    def written(self, where: str) -> memoryview:
        from flatbuffers.builder import BuilderSizeError

        try:
            root = self._root()
        except BuilderSizeError as error:
            message = "the model takes more than the 2 GiB that a .tflite file can have"
            raise ArtifactError(message, "store weights in 16 or 8 bits", where) from error
        self._builder.Finish(root, IDENTIFIER)
        return memoryview(self._builder.Bytes)[self._builder.Head() :]

    def _root(self) -> int:
        model = self._model
        metadata = range(len(model.buffers), len(model.buffers) + len(model.metadata))
        # What a runtime reads first is written last, and so stands at the beginning.
        buffers = [
            self._buffer(b) for b in reversed((*model.buffers, *(b for _, b in model.metadata)))
        ]
        entries = [
            self._table("Metadata", name=self._text(name), buffer=number)
            for (name, _), number in zip(model.metadata, metadata, strict=True)
        ]
        return self._table(
            "Model",
            version=VERSION,
            buffers=self._offsets(buffers[::-1]),
            metadata=self._offsets(entries),
            signature_defs=self._offsets([self._signature(s) for s in model.signatures]),
            subgraphs=self._offsets([self._subgraph(s) for s in model.subgraphs]),
            operator_codes=self._offsets([self._code(c) for c in self._codes]),
            description=self._text(model.description),
        )

    def _table(self, kind: str, **fields: int | float | bool | None) -> int:
        """A table; fields that are None are left out. Offsets count as numbers."""
        schema, builder = self._schema, self._builder
        getattr(schema, f"{kind}Start")(builder)
        for name, value in fields.items():
            if value is not None:
                _adder(schema, kind, name)(builder, value)
        made: int = getattr(schema, f"{kind}End")(builder)
        return made

    def _buffer(self, content: bytes | memoryview) -> int:
        if not len(content):
            return self._table("Buffer")
        builder = self._builder
        builder.StartVector(1, len(content), ALIGNMENT)
        head = builder.Head() - len(content)
        builder.Bytes[head : head + len(content)] = content
        builder.head = head
        return self._table("Buffer", data=builder.EndVector())

    def _code(self, code: OperatorCode) -> int:
        number = layout().number("BuiltinOperator", code.builtin)
        return self._table(
            "OperatorCode",
            deprecated_builtin_code=min(number, _PLACEHOLDER_CODE),
            custom_code=self._text(code.custom) if code.custom else None,
            version=code.version,
            builtin_code=number,
        )

    def _subgraph(self, graph: SubGraphRecord) -> int:
        return self._table(
            "SubGraph",
            tensors=self._offsets([self._tensor(t) for t in graph.tensors]),
            inputs=self._numbers(graph.inputs),
            outputs=self._numbers(graph.outputs),
            operators=self._offsets([self._operator(o) for o in graph.operators]),
            name=self._text(graph.name),
        )

    def _tensor(self, tensor: LiteTensor) -> int:
        details = None if tensor.quantization is None else self._quantization(tensor.quantization)
        signature = None if tensor.signature is None else self._numbers(tensor.signature)
        return self._table(
            "Tensor",
            shape=self._numbers(tensor.shape),
            type=layout().number("TensorType", tensor.type),
            buffer=tensor.buffer,
            name=self._text(tensor.name),
            quantization=details,
            is_variable=tensor.is_variable,
            shape_signature=signature,
            has_rank=True,
        )

    def _quantization(self, details: Quantization) -> int:
        scales = self._builder.CreateNumpyVector(np.asarray(details.scales, np.float32))
        points = self._builder.CreateNumpyVector(np.asarray(details.zero_points, np.int64))
        axis = details.axis
        return self._table(
            "QuantizationParameters", scale=scales, zero_point=points, quantized_dimension=axis
        )

    def _operator(self, operator: OperatorRecord) -> int:
        options = operator.options
        custom = operator.custom_options
        bytes_of_custom = np.frombuffer(custom, np.uint8)
        written = None if options is None else self._options(options)
        kind = "" if options is None else _union_field(options)
        number = None if options is None else layout().unions[_UNIONS[kind]][options.table]
        return self._table(
            "Operator",
            opcode_index=self._codes.index(operator.code),
            inputs=self._numbers(operator.inputs),
            outputs=self._numbers(operator.outputs),
            custom_options=self._builder.CreateNumpyVector(bytes_of_custom) if custom else None,
            **({} if options is None else {f"{kind}_type": number, kind: written}),
        )

    def _options(self, options: Options) -> int:
        fields = {n: self._option(options.table, n, v) for n, v in options.values.items()}
        return self._table(options.table, **fields)

    def _option(self, table: str, name: str, value: OptionValue) -> int | float | bool:
        _, kind = layout().field(table, name)
        if kind == "[float]":
            made: int = self._builder.CreateNumpyVector(np.array(value, np.float32))
            return made
        if isinstance(value, tuple):
            return self._numbers(tuple(map(int, value)))
        if isinstance(value, str):
            known = kind in layout().enums
            return layout().number(kind, value) if known else self._text(value)
        return value

    def _signature(self, signature: SignatureRecord) -> int:
        def entries(named: Sequence[tuple[str, int]]) -> int:
            return self._offsets(
                [self._table("TensorMap", name=self._text(n), tensor_index=i) for n, i in named]
            )

        return self._table(
            "SignatureDef",
            inputs=entries(signature.inputs),
            outputs=entries(signature.outputs),
            signature_key=self._text(signature.key),
            subgraph_index=signature.subgraph,
        )

    def _text(self, text: str) -> int:
        made: int = self._builder.CreateString(text)
        return made

    def _numbers(self, numbers: Sequence[int]) -> int:
        if any(not -_MOST_INT - 1 <= n <= _MOST_INT for n in numbers):
            message = f"{list(numbers)[:8]} do not all fit the 32 bits of a .tflite file's sizes"
            raise UnsupportedError(message, "make the graph's sizes smaller")
        made: int = self._builder.CreateNumpyVector(np.array(numbers, np.int32))
        return made

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        made: int = self._builder.EndVector()
        return made


_UNIONS: Final = {"builtin_options": "BuiltinOptions", "builtin_options2": "BuiltinOptions2"}


def _union_field(options: Options) -> str:
    known = options.table in layout().unions["BuiltinOptions"]
    return "builtin_options" if known else "builtin_options2"


def _adder(schema: Any, kind: str, name: str) -> Callable[[Any, int | float | bool], None]:  # noqa: ANN401
    """The function that flatc has made to set a field."""
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    found: Callable[[Any, int | float | bool], None] = getattr(schema, f"{kind}Add{camel}")
    return found
