"""Reading valid and damaged .tflite files."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.formats.tflite.checker import check
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.records import (
    LiteTensor,
    ModelRecord,
    OperatorCode,
    OperatorRecord,
    Options,
    Quantization,
    SignatureRecord,
    SubGraphRecord,
    fault_of_texts,
    packed,
    text_bytes,
    unpacked,
)
from mobileprep.formats.tflite.writer import model_bytes
from tests.fuzz.flatbuffer import places


def record() -> ModelRecord:
    """Return a dense layer with int8 weights and a custom operator."""
    details = Quantization(np.float32([0.5, 0.25]), np.int64([0, 0]), 0)
    tensors = (
        LiteTensor("x", "FLOAT32", (1, 3), (-1, 3)),
        LiteTensor("w", "INT8", (2, 3), None, 1, details),
        LiteTensor("y", "FLOAT32", (1, 2), (-1, 2)),
        LiteTensor("z", "FLOAT32", (1, 2)),
    )
    dense = OperatorRecord(
        OperatorCode("FULLY_CONNECTED", "", 12),
        (0, 1, -1),
        (2,),
        Options("FullyConnectedOptions", {"fused_activation_function": "RELU"}),
    )
    custom = OperatorRecord(OperatorCode("CUSTOM", "Mine"), (2,), (3,), None, b"\1\2\3")
    graph = SubGraphRecord("main", tensors, (0,), (2, 3), (dense, custom))
    signature = SignatureRecord("serving_default", (("x", 0),), (("y", 2), ("z", 3)))
    metadata = (("min_runtime_version", b"2.17.0"),)
    return ModelRecord((graph,), (b"", bytes(range(6))), (signature,), metadata, "a test")


CONTENT = bytes(model_bytes(record()))


def test_model_survives_a_round_trip() -> None:
    model, expected = read_model(CONTENT, "m.tflite"), record()
    assert model.signatures == expected.signatures
    assert model.metadata == expected.metadata
    assert model.description == expected.description
    assert bytes(model.buffers[1]) == expected.buffers[1]
    graph = model.subgraphs[0]
    assert [t.name for t in graph.tensors] == ["x", "w", "y", "z"]
    assert graph.tensors[0] == expected.subgraphs[0].tensors[0]
    weights = graph.tensors[1].quantization
    assert weights is not None
    np.testing.assert_array_equal(weights.scales, [0.5, 0.25])
    assert [(o.code, o.inputs, o.outputs) for o in graph.operators] == [
        (o.code, o.inputs, o.outputs) for o in expected.subgraphs[0].operators
    ]


@pytest.mark.parametrize("length", [0, 3, 8, 20, 100, len(CONTENT) // 2, len(CONTENT) - 32])
def test_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(CorruptFileError):
        read_model(CONTENT[:length], "m.tflite")


def test_file_of_another_kind_is_refused() -> None:
    with pytest.raises(CorruptFileError, match=r"is not a \.tflite file"):
        check(b"not a model at all", "m.tflite")


def test_any_damaged_byte_raises_only_our_error() -> None:
    """Whatever is there instead, the file is read, or refused in words."""
    for content, values in ((CONTENT, (0, 1, 0x7F, 0x80, 0xFF)), (blocks(), (0xFF,))):
        for position in range(len(content)):
            for value in values:
                damaged = bytearray(content)
                damaged[position] = value
                with contextlib.suppress(MobileprepError):
                    read_model(bytes(damaged), "m.tflite")


def test_any_damaged_word_raises_only_our_error() -> None:
    generator = np.random.default_rng(5)
    contents = (blocks(), CONTENT, CONTENT, CONTENT)
    for number in range(2000):
        damaged = np.frombuffer(contents[number % 4], np.uint8).copy()
        at = int(generator.integers(len(damaged) - 4))
        damaged[at : at + 4] = generator.integers(256, size=4)
        with contextlib.suppress(MobileprepError):
            read_model(damaged.tobytes(), "m.tflite")


def test_constant_of_the_wrong_size_is_refused() -> None:
    graph = record().subgraphs[0]
    short = ModelRecord((graph,), (b"", b"12345"))
    with pytest.raises(CorruptFileError, match="takes 6 bytes, and has 5"):
        read_model(bytes(model_bytes(short)), "m.tflite")


def changed(**changes: tuple[int, ...]) -> bytes:
    """Return the model with other tensor indices in the dense layer or in the subgraph."""
    whole = record()
    graph = whole.subgraphs[0]
    dense, custom = graph.operators
    own = {name: changes.pop(name) for name in ("reads", "writes") if name in changes}
    dense = replace(
        dense, inputs=own.get("reads", dense.inputs), outputs=own.get("writes", dense.outputs)
    )
    graph = replace(graph, operators=(dense, custom), **changes)
    return bytes(model_bytes(replace(whole, subgraphs=(graph,))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ()}, r"operator 0 \(FULLY_CONNECTED\) reads 'x' before anything gives it"),
        ({"inputs": (1,)}, "the constant 'w' is an input"),
        ({"reads": (3, 1, -1)}, r"operator 0 \(FULLY_CONNECTED\) reads 'z' before"),
        ({"reads": (0, -1, -1)}, r"operator 0 \(FULLY_CONNECTED\) has no input 1"),
        ({"reads": (-1, 1, -1)}, r"operator 0 \(FULLY_CONNECTED\) has no input 0"),
        ({"writes": (1,)}, r"operator 0 \(FULLY_CONNECTED\) writes the constant 'w'"),
        ({"writes": (0,)}, r"operator 1 \(Mine\) reads 'y' before"),
    ],
)
def test_invalid_tensor_use_is_refused(changes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        read_model(changed(**changes), "m.tflite")


def test_output_without_a_producer_is_refused() -> None:
    whole = record()
    graph = replace(whole.subgraphs[0], operators=whole.subgraphs[0].operators[:1])
    with pytest.raises(CorruptFileError, match="the output 'z' is not the output of any operator"):
        read_model(bytes(model_bytes(replace(whole, subgraphs=(graph,)))), "m.tflite")


def test_empty_tensors_and_variables_need_no_buffer() -> None:
    whole = record()
    state = LiteTensor("state", "FLOAT32", (1, 2), is_variable=True)
    nothing = LiteTensor("nothing", "INT32", (0,))
    graph = whole.subgraphs[0]
    dense, custom = graph.operators
    graph = replace(
        graph,
        tensors=(*graph.tensors, state, nothing),
        operators=(dense, replace(custom, inputs=(2, 4, 5))),
    )
    model = read_model(bytes(model_bytes(replace(whole, subgraphs=(graph,)))), "m.tflite")
    assert model.subgraphs[0].operators[1].inputs == (2, 4, 5)


@pytest.mark.parametrize(("sizes", "is_valid"), [((1, 6), True), ((1, 7), False), ((), False)])
def test_dequantized_output_must_have_the_input_size(
    sizes: tuple[int, ...], *, is_valid: bool
) -> None:
    tensors = (LiteTensor("w", "FLOAT16", (2, 3), None, 1), LiteTensor("y", "FLOAT32", sizes))
    unpack = OperatorRecord(OperatorCode("DEQUANTIZE"), (0,), (1,))
    graph = SubGraphRecord("main", tensors, (), (1,), (unpack,))
    data = bytes(model_bytes(ModelRecord((graph,), (b"", bytes(12)))))
    if is_valid:
        assert read_model(data, "m.tflite").subgraphs[0].operators == (unpack,)
        return
    with pytest.raises(CorruptFileError, match=r"DEQUANTIZE\) gives other sizes than it takes"):
        read_model(data, "m.tflite")


def test_greater_of_two_operator_codes_wins_as_in_litert() -> None:
    data = bytearray(CONTENT)
    old = next(place.at for place in places(CONTENT) if place.kind == "byte")
    dense, split = (layout().number("BuiltinOperator", n) for n in ("FULLY_CONNECTED", "SPLIT"))
    assert data[old] == dense
    data[old] = split
    with pytest.raises(CorruptFileError, match="an operator SPLIT has options of another"):
        read_model(bytes(data), "m.tflite")
    data[old] = 0
    operators = read_model(bytes(data), "m.tflite").subgraphs[0].operators
    assert operators == read_model(CONTENT, "m.tflite").subgraphs[0].operators


@pytest.mark.parametrize(
    ("op", "inputs", "missing"),
    [
        ("CONV_2D", (0, 0, -1), None),
        ("ADD", (0, -1), 1),
        ("LSTM", (0, -1, *[0] * 6, 0, -1, -1, -1, -1, 0, 0, 0, -1, -1, 0, 0), None),
        ("LSTM", (0, 0, -1), 2),
        ("BIDIRECTIONAL_SEQUENCE_LSTM", (*[0] * 18, -1, 0, 0, 0, -1), None),
        ("BIDIRECTIONAL_SEQUENCE_LSTM", (*[0] * 19, -1), 19),
        ("WHILE", (0, -1), None),
    ],
)
def test_only_optional_inputs_may_be_missing(
    op: str, inputs: tuple[int, ...], missing: int | None
) -> None:
    tensors = (LiteTensor("x", "FLOAT32", (1,)), LiteTensor("y", "FLOAT32", (1,)))
    operator = OperatorRecord(OperatorCode(op), inputs, (1,))
    graph = SubGraphRecord("main", tensors, (0,), (1,), (operator,))
    data = bytes(model_bytes(ModelRecord((graph,), (b"",))))
    if missing is None:
        assert read_model(data, "m.tflite").subgraphs[0].operators == (operator,)
        return
    with pytest.raises(CorruptFileError, match=rf"\({op}\) has no input {missing}"):
        read_model(data, "m.tflite")


def blocks(shape: tuple[int, ...] = (2, 64), **changes: object) -> bytes:
    """Return a constant in blocks of 32, whose scales are the tensor 1."""
    details = Quantization(np.zeros(0, np.float32), np.zeros(0, np.int64), 0, 32, 1)
    tensors = [
        LiteTensor("w", "INT4", shape, None, 1, details),
        LiteTensor("s", "FLOAT16", (2, 2), None, 2),
    ]
    for number, name in enumerate(("w", "s")):
        tensors[number] = replace(tensors[number], **changes.pop(name, {}))  # type: ignore[arg-type]
    graph = SubGraphRecord("main", tuple(tensors), (), (0,), ())
    scales = np.float16([[0.5, 1], [2, 4]]).tobytes()
    return bytes(model_bytes(ModelRecord((graph,), (b"", bytes(64), scales))))


@pytest.mark.parametrize("shape", [(1, 128), (4, 32), (2, 1, 64)])
def test_blocks_divide_each_slice(shape: tuple[int, ...]) -> None:
    details = read_model(blocks(shape), "m.tflite").subgraphs[0].tensors[0].quantization
    assert details is not None
    assert details.scales.shape == (shape[0], 4 // shape[0])


def test_blocks_have_the_scales_of_another_tensor() -> None:
    details = read_model(blocks(), "m.tflite").subgraphs[0].tensors[0].quantization
    assert details is not None
    assert (details.block_size, details.scale_tensor, details.axis) == (32, 1, 0)
    np.testing.assert_array_equal(details.scales, np.float32([[0.5, 1], [2, 4]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (128,)}, r"'w' of shape \[128\] has blocks of 32 elements"),
        ({"shape": (8, 16)}, r"'w' of shape \[8, 16\] has blocks of 32 elements"),
        ({"s": {"type": "INT16"}}, "the scales of 4 blocks of 'w' are stored in 8 bytes of INT16"),
        ({"s": {"shape": (32,), "buffer": 1}}, "of 'w' are stored in 64 bytes of FLOAT16"),
        ({"w": {"quantization": Quantization(np.zeros(0), np.zeros(0), 0, 32, 7)}}, "tensor 7"),
        ({"w": {"quantization": Quantization(np.zeros(0), np.zeros(0), 0, -1, 1)}}, "blocks of -1"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        read_model(blocks(**changes), "m.tflite")


def test_first_integer_is_in_the_lowest_bits() -> None:
    assert packed(np.int8([[7, -7, 1]]), 4).tobytes() == bytes([0x97, 0x01])
    assert packed(np.int8([1, -2, 0, -1, 1]), 2).tobytes() == bytes([0b11001001, 1])


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_unpacked_integers_are_those_that_were_packed(bits: int, count: int) -> None:
    levels = np.arange(count, dtype=np.int8) * 3 % (1 << bits) - (1 << (bits - 1))
    stored = packed(levels, bits).tobytes()
    assert len(stored) == -(-count * bits // 8)
    np.testing.assert_array_equal(unpacked(stored, bits, (1, count)), [levels])


def test_string_buffer_layout() -> None:
    data = text_bytes([b"a", b"", b"bc\0"])
    assert np.frombuffer(data, "<i4", 5).tolist() == [3, 20, 21, 21, 24]
    assert data[20:] == b"abc\0"
    assert fault_of_texts(data, 3) == ""


def numbers(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\1\0\0\0", "has 4 bytes, too few for strings"),
        (numbers(2, 16, 16), "has 2 strings, but its shape has 1"),
        (numbers(1, 12), "has 8 bytes, too few for the places of 1 strings"),
        (numbers(1, 8, 12), "has strings outside of its buffer"),
        (numbers(1, 12, 13), "has strings outside of its buffer"),
        (numbers(1, 12, -1), "has strings outside of its buffer"),
    ],
)
def test_invalid_string_buffers_are_reported(content: bytes, fault: str) -> None:
    assert fault_of_texts(content, 1) == fault
