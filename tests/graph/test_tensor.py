"""Tensors: the values of constants."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mobileprep.core.files import map_file
from mobileprep.errors import InvalidGraphError, MobileprepError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import MAX_BYTES, Tensor, check_shape
from tests.graph.graphs import NUMBERS

QUANTIZED = [d for d in NUMBERS if d.is_quantized]


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.short)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 0, 2)])
def test_elements_survive_a_round_trip(dtype: DType, shape: tuple[int, ...]) -> None:
    assert dtype.numpy is not None
    array = (np.arange(np.prod(shape, dtype=int)) % 2).astype(dtype.numpy).reshape(shape)
    for tensor in (Tensor.of(array, dtype), Tensor.packed(array, dtype)):
        assert (tensor.dtype, tensor.shape, tensor.size) == (dtype, shape, array.size)
        assert tensor.nbytes == array.nbytes
        assert tensor.array().tobytes() == array.tobytes()
        assert bytes(tensor.raw()) == array.tobytes()
        copy = Tensor(dtype, shape, content=bytes(tensor.raw()))
        assert copy.array().dtype == dtype.numpy
        assert copy == tensor


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1.5, DType.DOUBLE, ()),
        (7, DType.INT64, ()),
        (True, DType.BOOL, ()),
        (np.float32(2), DType.FLOAT, ()),
        ([1.5, 2], DType.DOUBLE, (2,)),
        (1 + 2j, DType.COMPLEX128, ()),
        (np.array(1, ml_dtypes.bfloat16), DType.BFLOAT16, ()),
        ("text", DType.STRING, ()),
        (b"text", DType.STRING, ()),
        ([["a"], ["b"]], DType.STRING, (2, 1)),
    ],
)
def test_dtypes_are_inferred_as_in_numpy(
    value: object, dtype: DType, shape: tuple[int, ...]
) -> None:
    tensor = Tensor.of(value)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)


@pytest.mark.parametrize("dtype", QUANTIZED, ids=lambda d: d.short)
def test_quantized_types_hold_plain_integers(dtype: DType) -> None:
    tensor = Tensor.of(np.array([0, 1, 100], dtype=dtype.numpy), dtype)
    assert tensor.dtype is dtype
    assert tensor.array().dtype == dtype.numpy
    plain = Tensor.of(tensor.array())
    assert plain.dtype is not dtype
    assert plain != tensor


def test_strings_are_bytes() -> None:
    tensor = Tensor.of(np.array(["\N{LATIN SMALL LETTER E WITH ACUTE}", "ab"]))
    assert tensor.array().tolist() == [b"\xc3\xa9", b"ab"]
    assert tensor.nbytes == 4
    assert Tensor.of([b"a\x00", b""]).array().tolist() == [b"a\x00", b""]
    assert Tensor.of([["a\x00"]]).array().tolist() == [[b"a\x00"]]
    assert Tensor.of("a\x00").array().item() == b"a\x00"


@pytest.mark.parametrize("elements", [[None], [1], [b"a", 1.5], [["a"]]])
def test_objects_other_than_strings_are_refused(elements: list[object]) -> None:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    with pytest.raises(UnsupportedError, match="is not a string"):
        Tensor.of(array)


@pytest.mark.parametrize("kind", ["M8[s]", "V3", [("a", "i4")]])
def test_unsupported_numpy_types_are_refused(kind: object) -> None:
    with pytest.raises(UnsupportedError, match="have no TensorFlow counterpart"):
        Tensor.of(np.zeros(2, dtype=kind))  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", [DType.RESOURCE, DType.VARIANT, DType(77)])
def test_types_without_elements_are_refused(dtype: DType) -> None:
    with pytest.raises(UnsupportedError, match=f"counterpart of type {dtype.short}"):
        Tensor.of(np.zeros(2), dtype)
    with pytest.raises(UnsupportedError, match="no elements that can be read"):
        Tensor(dtype, (2,)).array()


def test_strides_and_byte_order_do_not_matter() -> None:
    plain = np.arange(12, dtype="<i4").reshape(3, 4)
    expected = Tensor.of(plain)
    for other in (np.asfortranarray(plain), plain.astype(">i4"), plain[::-1][::-1]):
        tensor = Tensor.of(other)
        assert tensor.dtype is DType.INT32
        assert tensor == expected
        assert bytes(tensor.raw()) == plain.tobytes()
    transposed = Tensor.of(plain.T)
    assert transposed.shape == (4, 3)
    assert bytes(transposed.raw()) == plain.T.tobytes()
    assert bytes(Tensor.of(plain[:, ::2]).raw()) == plain[:, ::2].tobytes()
    assert bytes(Tensor.of(np.broadcast_to(np.float32(3), (2, 2))).raw()) == b"\0\0\x40\x40" * 4


def test_arrays_are_read_only() -> None:
    for tensor in (Tensor.of(np.zeros(3)), Tensor(DType.FLOAT, (2,), content=bytes(8))):
        with pytest.raises(ValueError, match="read-only"):
            tensor.array()[0] = 1
        assert tensor.array() is tensor.array()


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 4097])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_identical_compares_every_byte(count: int, dtype: type) -> None:
    array = np.arange(count).astype(dtype)
    assert Tensor.of(array).identical(
        Tensor(Tensor.of(array).dtype, (count,), content=bytes(array))
    )
    for i in {0, count // 2, count - 1}:
        other = array.copy()
        other[i] += 1
        assert not Tensor.of(array).identical(Tensor.of(other))


def test_equality_compares_bits_of_nan_and_zero() -> None:
    nan = np.array([np.nan, 0], np.float32)
    assert Tensor.of(nan) == Tensor.of(nan.copy())
    assert Tensor.of(nan) != Tensor.of(np.array([np.nan, -0.0], np.float32))
    other = nan.copy()
    other.view(np.uint32)[0] ^= 1
    assert Tensor.of(nan) != Tensor.of(other)


def test_equality_includes_type_and_shape() -> None:
    array = np.zeros((2, 3), np.int32)
    tensor = Tensor.of(array)
    assert tensor != Tensor.of(array.reshape(3, 2))
    assert tensor != Tensor.of(array.view(np.uint32))
    assert tensor != Tensor.of(array.view(np.float32))
    assert tensor != array.tolist()
    assert hash(tensor) == hash(Tensor.of(array.copy()))


def test_equality_of_opaque_and_string_tensors() -> None:
    a, b, c = (Tensor(DType.RESOURCE, (), opaque=x) for x in (b"a", b"a", b"c"))
    assert a == b
    assert a != c
    strings = Tensor.of(["a", "b"])
    assert strings == Tensor.of([b"a", b"b"])
    assert strings != Tensor.of(["a", "c"])


SPLAT = Tensor(DType.FLOAT, (1 << 20,), values=np.array([2.5], np.float32))


def test_last_value_is_repeated() -> None:
    values = np.array([1, 2], np.int32)
    tensor = Tensor(DType.INT32, (2, 2), values=values)
    assert tensor.array().tolist() == [[1, 2], [2, 2]]
    assert Tensor(DType.INT32, (3,)).array().tolist() == [0, 0, 0]
    assert Tensor(DType.STRING, (2,)).array().tolist() == [b"", b""]
    assert Tensor(DType.INT32, (1,), values=values).array().tolist() == [1]
    assert Tensor(DType.INT32, (0,), values=values).array().tolist() == []


def test_splat_takes_no_memory_until_its_bytes_are_read() -> None:
    tracemalloc.start()
    try:
        tensor = Tensor(DType.FLOAT, (1 << 28,), values=np.array([2.5], np.float32))
        assert tensor.array()[5] == 2.5
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 16
    assert bytes(SPLAT.raw()) == np.full(1 << 20, 2.5, np.float32).tobytes()


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor.of(np.arange(6)),
        Tensor.packed(np.arange(6)),
        Tensor(DType.INT32, (6,), values=np.array([4], np.int32)),
        Tensor.of(np.arange(6, dtype=np.uint8), DType.QUINT8),
        Tensor.of(["a", "b", "c", "d", "e", "f"]),
    ],
    ids=["array", "content", "values", "quantized", "strings"],
)
def test_reshaped_tensor_keeps_type_elements_and_storage(tensor: Tensor) -> None:
    reshaped = tensor.reshaped((2, 3))
    assert (reshaped.shape, reshaped.dtype) == ((2, 3), tensor.dtype)
    assert reshaped.array().tolist() == tensor.array().reshape(2, 3).tolist()
    assert reshaped.content is tensor.content
    assert reshaped.values is tensor.values
    for shape in ((2, 2), (7,), ()):
        with pytest.raises(InvalidGraphError, match="does not fit into"):
            tensor.reshaped(shape)


@pytest.mark.parametrize("dims", [[-1], [2, -3], [1 << 40, 1 << 40], [1 << 63], [0, 1 << 63]])
def test_impossible_shapes_are_refused(dims: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="cannot have the shape") as caught:
        check_shape(dims, "g.pb, node 'a'")
    assert caught.value.where == "g.pb, node 'a'"


@pytest.mark.parametrize("dims", [[], [0], [1, 2, 3], [1 << 62], [0, 5]])
def test_possible_shapes_are_accepted(dims: list[int]) -> None:
    assert check_shape(dims, "") == tuple(dims)


@pytest.mark.parametrize(
    ("dtype", "size"), [(DType.FLOAT, MAX_BYTES // 4 + 1), (DType.BOOL, 1 << 50)]
)
def test_oversized_tensors_are_not_allocated(dtype: DType, size: int) -> None:
    with pytest.raises(InvalidGraphError, match="would take"):
        Tensor(dtype, (size,)).array()
    with pytest.raises(InvalidGraphError, match="would take"):
        Tensor(dtype, (size,), values=np.zeros(1, dtype.numpy)).raw()


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor(DType.FLOAT, (3,), content=bytes(8)),
        Tensor(DType.STRING, (1 << 40,)),
        Tensor(DType.STRING, (1 << 40,), content=b"\x00"),
        Tensor(DType.STRING, (2,), content=b"\x05\x01ab"),
        Tensor(DType.STRING, (2,), content=b"\xff\xff"),
        Tensor(DType.FLOAT, (0, 1 << 62)),
        Tensor(DType.FLOAT, (1,) * 70),
    ],
)
def test_hostile_tensors_raise_our_errors(tensor: Tensor) -> None:
    with pytest.raises(MobileprepError):
        tensor.array()


def test_string_content_is_lengths_followed_by_characters() -> None:
    tensor = Tensor(DType.STRING, (3,), content=b"\x01\x00\x02abc")
    assert tensor.array().tolist() == [b"a", b"", b"bc"]


def test_repr_shows_type_and_shape() -> None:
    assert repr(SPLAT) == "Tensor(float32, [1048576])"


def test_strings_are_decoded_up_to_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each string needs at least 8 bytes for its reference.
    monkeypatch.setattr("mobileprep.graph.tensor.MAX_BYTES", 64)
    assert list(Tensor(DType.STRING, (8,), values=(b"a",)).array()) == [b"a"] * 8
    with pytest.raises(InvalidGraphError, match=r"a string tensor of shape \[9\] is too large"):
        Tensor(DType.STRING, (9,), values=(b"a",)).array()


@pytest.mark.parametrize("at", [0, 1 << 14, (1 << 17) - 1, 1 << 17, (1 << 17) + 2])
def test_difference_at_any_position_is_detected(at: int) -> None:
    array = np.zeros((1 << 17) + 3, np.uint8)
    other = array.copy()
    other[at] = 1
    assert not Tensor.of(array).identical(Tensor.of(other))
    assert Tensor.of(array).identical(Tensor.of(array.copy()))


def test_comparison_uses_digests_if_known() -> None:
    one, same, other = (
        Tensor(DType.UINT8, (2,), content=content) for content in (b"ab", b"ab", b"ac")
    )
    for tensor in (one, same, other):
        tensor.digest()
        tensor.content = None
    assert one.identical(same)
    assert not one.identical(other)


def _resident(path: Path) -> int:
    """Return the resident size of the mapping of a file in bytes."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return int(next(x for x in lines if x.startswith("Rss:")).split()[1]) << 10
    raise AssertionError(path)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_released_tensor_takes_no_memory_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "content"
    array = np.arange(1 << 18, dtype=np.float32)
    path.write_bytes(array.tobytes())
    tensor = Tensor(DType.FLOAT, array.shape, content=map_file(path))
    assert tensor.array().sum() == array.sum()
    assert _resident(path) == array.nbytes
    tensor.let_go()
    assert _resident(path) == 0
    assert tensor.array().tobytes() == array.tobytes()


def test_mapping_larger_than_the_tensor_is_not_released(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(bytes(1 << 20))
    whole = map_file(path)
    tensor = Tensor(DType.UINT8, (1 << 19,), content=whole[: 1 << 19])
    assert tensor.array().sum() + np.frombuffer(whole, np.uint8).sum() == 0
    tensor.let_go()
    Tensor.of(np.zeros(3)).let_go()
    assert tensor.array().sum() == 0
