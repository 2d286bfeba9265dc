"""Splitting large payloads from serialized graphs."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType, listed_values, packed_values
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    CONTENT_FIELD,
    DOUBLE_FIELD,
    FLOAT_FIELD,
    GRAPH_LAYOUT,
    LARGE,
    PAYLOAD_FIELD,
    Cursor,
    Layout,
    Payload,
    delimited,
    encode_varint,
    field_header,
    payload_at,
    split_fields,
    split_payloads,
)
from tests.work import lines_run

TENSOR = Layout(is_tensor=True)
MANY = 1 << 14


def joined(skeleton: pb.TensorProto, payloads: list[Payload]) -> pb.TensorProto:
    """Put the payload of a tensor back."""
    if skeleton.payload:
        payload = payload_at(payloads, skeleton.payload, "t")
        skeleton.ClearField("payload")
        skeleton.MergeFromString(delimited(payload.field, bytes(payload.view)))
    return skeleton


@given(
    content=st.integers(0, 3 * LARGE),
    floats=st.integers(0, LARGE),
    doubles=st.integers(0, LARGE),
    dims=st.lists(st.integers(0, 9), max_size=4),
)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_split_tensor_is_restored(content: int, floats: int, doubles: int, dims: list[int]) -> None:
    tensor = pb.TensorProto(dtype=1, float_val=range(floats), double_val=range(doubles))
    tensor.tensor_content = b"x" * content
    for size in dims:
        tensor.tensor_shape.dim.add(size=size)
    data = tensor.SerializeToString()
    skeleton, payloads = split_payloads(data, TENSOR, "t")
    assert joined(pb.TensorProto.FromString(skeleton), payloads) == tensor
    if payloads:
        assert len(skeleton) < len(data)


@pytest.mark.parametrize(
    ("tensor", "field"),
    [
        (pb.TensorProto(tensor_content=bytes(LARGE)), CONTENT_FIELD),
        (pb.TensorProto(float_val=[0.5] * LARGE), FLOAT_FIELD),
        (pb.TensorProto(double_val=[0.5] * LARGE), DOUBLE_FIELD),
    ],
)
def test_large_field_becomes_a_view(tensor: pb.TensorProto, field: int) -> None:
    data = tensor.SerializeToString()
    skeleton, payloads = split_payloads(data, TENSOR, "t")
    assert [p.field for p in payloads] == [field]
    assert np.shares_memory(np.frombuffer(payloads[0].view, np.uint8), np.frombuffer(data, "u1"))
    assert len(skeleton) < 16


def test_field_just_below_the_limit_is_not_split() -> None:
    data = pb.TensorProto(tensor_content=bytes(LARGE - 1)).SerializeToString()
    assert split_payloads(data, TENSOR, "t") == (data, [])


@pytest.mark.parametrize("minimal", [True, False])
def test_non_minimal_lengths_are_read(minimal: bool) -> None:
    length = encode_varint(LARGE)
    if not minimal:
        length = length[:-1] + bytes([length[-1] | 0x80, 0x80, 0])
    data = encode_varint(CONTENT_FIELD << 3 | 2) + length + b"y" * LARGE
    skeleton, payloads = split_payloads(data, TENSOR, "t")
    assert bytes(payloads[0].view) == b"y" * LARGE
    assert joined(pb.TensorProto.FromString(skeleton), payloads).tensor_content == b"y" * LARGE


def node(tensor: bytes) -> bytes:
    """Serialize a graph with one node that has a tensor attribute."""
    value = delimited(8, tensor)
    return delimited(1, delimited(1, b"c") + delimited(5, delimited(1, b"k") + delimited(2, value)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (node(encode_varint(1 << 3 | 3) + b"z" * LARGE), "wire type 3"),
        (node(encode_varint(1 << 3 | 4) + b"z" * LARGE), "wire type 4"),
        (node(encode_varint(1 << 3 | 6) + b"z" * LARGE), "wire type 6"),
        (node(b"\x00" * LARGE), "the number 0"),
        (node(b"\x02\x01z" + b"\x08\x01" * LARGE), "the number 0"),
        (node(encode_varint(PAYLOAD_FIELD << 3) + b"\x01" + b"\x08\x01" * LARGE), "no TensorFlow"),
        (node(field_header(4, LARGE) + b"z" * (LARGE - 1)), f"{LARGE} bytes are declared"),
        (node(field_header(4, 1 << 62) + b"z" * LARGE), "4611686018427387904 bytes are declared"),
        (node(b"\x08\x01" * LARGE + encode_varint(5 << 3 | 5) + b"z"), "4 bytes are declared"),
        (node(b"\x08\x01" * LARGE + encode_varint(6 << 3 | 1) + b"z"), "8 bytes are declared"),
        (node(b"\x08\x01" * LARGE + b"\xff"), "does not end"),
    ],
)
def test_invalid_graph_is_refused_with_its_position(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message) as caught:
        split_payloads(data, GRAPH_LAYOUT, "g.pb")
    assert caught.value.where.startswith("g.pb, byte ")


def test_payload_is_returned_once() -> None:
    payloads: list[Payload] = [Payload(CONTENT_FIELD, memoryview(b"abc"))]
    assert bytes(payload_at(payloads, 1, "g.pb").view) == b"abc"
    for number in (0, 1, 2, -1):
        with pytest.raises(CorruptFileError, match="no TensorFlow writes"):
            payload_at(payloads, number, "g.pb")


@pytest.mark.parametrize(
    "data",
    [
        node(b"\x2d\x00\x00\x00\x00" * MANY),
        node(b"\x22\x00" * MANY),
        delimited(1, b"\x2a\x00" * MANY),
        b"\x0a\x00" * MANY,
        delimited(2, b"\x0a\x00" * MANY),
    ],
    ids=["unpacked-elements", "empty-contents", "attributes", "nodes", "functions"],
)
def test_memory_use_is_proportional_to_the_file(data: bytes) -> None:
    tracemalloc.start()
    try:
        split_payloads(data, GRAPH_LAYOUT, "g.pb")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data) + (1 << 20)


def test_splitting_takes_linear_time() -> None:
    def work(count: int) -> int:
        data = node(b"\x2d\x00\x00\x00\x00" * count)
        return lines_run(lambda: split_payloads(data, GRAPH_LAYOUT, "g.pb"))

    assert work(5_000) < 11 * work(500)


@given(st.integers(0, 2**70))
def test_varints_are_minimal(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert all(byte & 0x80 for byte in encoded[:-1])
    assert not encoded[-1] & 0x80


def test_message_is_split_into_runs_of_fields() -> None:
    records = [delimited(1, bytes([65 + i]) * 5) for i in range(4)]
    large = delimited(2, bytes(20))
    data = b"".join([*records[:3], large, records[3]])
    runs = [data[run.position : run.end] for run in split_fields(data, 12, "f")]
    assert runs == [b"".join(records[:2]), records[2] + large, records[3]]
    assert list(split_fields(b"", 12, "f")) == []
    exactly = [run.end - run.position for run in split_fields(b"".join(records), 14, "f")]
    assert exactly == [14, 14]


def test_record_beyond_the_message_is_refused() -> None:
    with pytest.raises(CorruptFileError):
        list(split_fields(delimited(1, b"abc")[:-1], 12, "f"))


@given(st.integers(0, 2**64 - 1))
def test_varints_survive_a_round_trip(value: int) -> None:
    cursor = Cursor(encode_varint(value) + b"rest")
    assert cursor.varint() == value
    assert bytes(cursor.take(4)) == b"rest"
    assert not cursor


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x80\x00", 0),
        (b"\x81\x80\x80\x00", 1),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2**64 - 1),
        # Like protobuf, the reader drops bits beyond the 64th.
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 2**64 - 1),
    ],
)
def test_non_minimal_varints_are_read(data: bytes, value: int) -> None:
    cursor = Cursor(data)
    assert cursor.varint() == value
    assert cursor.position == len(data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 11])
def test_unterminated_varint_is_refused(data: bytes) -> None:
    cursor = Cursor(b"\x00" + data, 1, file="a.pb", base=100)
    with pytest.raises(CorruptFileError, match="does not end") as caught:
        cursor.varint()
    assert caught.value.where == "a.pb, byte 101"
    assert cursor.position == 1


def test_varint_stops_at_the_explicit_end() -> None:
    with pytest.raises(CorruptFileError, match="does not end"):
        Cursor(b"\x80\x01", end=1).varint()


@pytest.mark.parametrize("count", [4, 1 << 62, -1])
def test_take_beyond_the_end_is_refused(count: int) -> None:
    cursor = Cursor(b"abc")
    with pytest.raises(CorruptFileError, match="where 3 remain"):
        cursor.take(count)
    assert bytes(cursor.take(3)) == b"abc"


def test_end_is_limited_to_the_data() -> None:
    cursor = Cursor(b"abc", end=10)
    assert cursor.end == 3
    with pytest.raises(CorruptFileError):
        cursor.take(4)


def test_take_returns_a_view() -> None:
    data = bytearray(b"abcd")
    view = Cursor(memoryview(data)).take(2)
    data[0] = ord("X")
    assert bytes(view) == b"Xb"


def test_fixed_width_numbers_are_little_endian() -> None:
    cursor = Cursor(b"\x01\x02\x03\x04\xff")
    assert cursor.fixed(4) == 0x04030201
    assert cursor.fixed(1) == 255
    with pytest.raises(CorruptFileError, match="1 bytes are declared where 0 remain"):
        cursor.fixed(1)


@pytest.mark.parametrize(
    ("dtype", "field", "listed", "expected"),
    [
        (DType.FLOAT, "float_val", [1.5, -2], np.array([1.5, -2], dtype="f4")),
        (DType.INT8, "int_val", [1, -2, 300], np.array([1, -2, 44], dtype="i1")),
        (DType.QUINT8, "int_val", [0, 255], np.array([0, 255], dtype="u1")),
        (DType.UINT64, "uint64_val", [2**64 - 1], np.array([2**64 - 1], dtype="u8")),
        (DType.BOOL, "bool_val", [True, False], np.array([True, False])),
        (DType.HALF, "half_val", [0x3C00], np.array([1], dtype="f2")),
        (DType.BFLOAT16, "half_val", [0x3F80], np.array([1], dtype=ml_dtypes.bfloat16)),
        (DType.COMPLEX64, "scomplex_val", [1, 2, 3], np.array([1 + 2j], dtype="c8")),
        (DType.FLOAT8_E5M2, "float8_val", b"\x3c", np.array([1], dtype=ml_dtypes.float8_e5m2)),
        (DType.STRING, "string_val", [b"a", b""], np.array([b"a", b""], dtype=object)),
    ],
)
def test_elements_are_read_from_the_field_of_their_type(dtype, field, listed, expected):
    values = listed_values(pb.TensorProto(**{field: listed}), dtype)
    assert values.dtype == expected.dtype
    assert values.tolist() == expected.tolist()


def test_tensor_without_listed_values():
    assert listed_values(pb.TensorProto(int_val=[1]), DType.FLOAT) is None
    assert listed_values(pb.TensorProto(), DType.RESOURCE) is None


def test_packed_values_are_a_view():
    data = np.array([1.5, 2.5], dtype="<f8").tobytes()
    values = packed_values(Payload(DOUBLE_FIELD, memoryview(data)), "file")
    assert values.tolist() == [1.5, 2.5]
    assert not values.flags.owndata


def test_partial_element_is_refused():
    with pytest.raises(CorruptFileError, match="whole number"):
        packed_values(Payload(FLOAT_FIELD, memoryview(b"12345")), "file")
