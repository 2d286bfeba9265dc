from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.formats.checkpoint import TensorBundle
from mobileprep.formats.checkpoint_reader import slice_key
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import checkpoint_pb2 as pb
from tests.formats.checkpoint_writer import shape_into, slice_into, table, write_bundle

RNG = np.random.default_rng(3)
TENSORS = {
    "dense/bias": RNG.normal(size=7).astype("f4"),
    "dense/kernel": RNG.normal(size=(5, 7)).astype("f4"),
    "half": RNG.normal(size=3).astype(ml_dtypes.bfloat16),
    "names": np.array([[b"a", b""], [b"long" * 100, b"\xff\0"]], dtype=object),
    "nothing": np.zeros((3, 0), dtype="f8"),
    "no_names": np.empty((0,), dtype=object),
    "step": np.array(12, dtype="i8"),
}


def bundle_of(directory, tensors, **options):
    write_bundle(directory / "m", tensors, **options)
    return TensorBundle(directory / "m")


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("method", [0, 1])
def test_every_tensor_is_read(tmp_path, shards, method):
    prefix = tmp_path / "m.ckpt-1"
    write_bundle(prefix, TENSORS, shards=shards, method=method)
    with TensorBundle(prefix) as bundle:
        assert bundle.names() == sorted(TENSORS)
        for name, expected in TENSORS.items():
            tensor = bundle.read(name)
            assert tensor.dtype == expected.dtype
            assert bundle.entry(name).shape == tensor.shape == expected.shape
            assert tensor.tolist() == expected.tolist()
            assert not tensor.flags.writeable
        assert [p.name for p in bundle.files] == [
            *(f"m.ckpt-1.data-{n:05d}-of-{shards:05d}" for n in range(shards)),
            "m.ckpt-1.index",
        ]


def test_views_outlive_the_closed_bundle(tmp_path):
    bundle = bundle_of(tmp_path, TENSORS)
    tensor = bundle.read("dense/kernel")
    bundle.close()
    assert not tensor.flags.owndata
    assert np.array_equal(tensor, TENSORS["dense/kernel"])


def partitioned(prefix, pieces, *, shape=(5, 4), edit=None):
    """Write a bundle of one matrix in pieces of (extents, array)."""
    whole = pb.BundleEntryProto(dtype=DType.FLOAT)
    shape_into(whole.shape, shape)
    extra = []
    arrays = {}
    for number, (extents, array) in enumerate(pieces):
        slice_into(whole.slices.add(), extents)
        arrays[f"piece{number}"] = array.astype("f4")

    def record(name, entry):
        if edit:
            edit(name, entry)
        if name.startswith("piece"):
            extents = pieces[int(name.removeprefix("piece"))][0]
            extra.append((slice_key("cut", extents), entry.SerializeToString()))

    write_bundle(prefix, arrays, edit=record)  # Records the offsets of the pieces.
    extra.append((b"cut", whole.SerializeToString()))
    write_bundle(prefix, arrays, extra=extra)


MATRIX = np.arange(20, dtype="f4").reshape(5, 4)


def test_slices_are_joined(tmp_path):
    pieces = [
        ([(0, 3), (0, 1)], MATRIX[:3, :1]),
        ([(0, 3), (1, 3)], MATRIX[:3, 1:]),
        ([(3, 2), (0, -1)], MATRIX[3:]),
    ]
    partitioned(tmp_path / "m", pieces)
    bundle = TensorBundle(tmp_path / "m")
    assert bundle.names() == ["cut", "piece0", "piece1", "piece2"]
    assert np.array_equal(bundle.read("cut"), MATRIX)
    assert np.array_equal(bundle.read("cut", "5 4 2,2:0,2"), MATRIX[2:4, :2])
    stored = bundle.read("cut", "5 4 3,2:-")
    assert np.array_equal(stored, MATRIX[3:])
    assert not stored.flags.owndata


def test_part_of_a_whole_tensor_is_read(tmp_path):
    bundle = bundle_of(tmp_path, {"w": MATRIX})
    assert np.array_equal(bundle.read("w", "5 4 1,2:-"), MATRIX[1:3])
    with pytest.raises(InvalidGraphError, match=r"6 4 .*does not fit .*\[5, 4\]"):
        bundle.read("w", "6 4 1,2:-")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([([(0, 3), (0, -1)], MATRIX[:3])], "leave a part out"),
        ([([(0, 3), (0, -1)], MATRIX[:3]), ([(2, 3), (0, -1)], MATRIX[2:])], "overlap"),
        ([([(0, 9), (0, -1)], MATRIX)], "outside"),
        ([([(0, 5)], MATRIX)], "outside"),
        ([([(0, 2), (0, 4)], MATRIX[:2]), ([(2, 3), (0, 4)], MATRIX[1:])], "not as the whole"),
    ],
)
def test_slices_that_do_not_tile_the_tensor_are_refused(tmp_path, pieces, message):
    partitioned(tmp_path / "m", pieces)
    with pytest.raises(CorruptFileError, match=message):
        TensorBundle(tmp_path / "m").read("cut")


def test_slice_without_an_entry_is_refused(tmp_path):
    whole = pb.BundleEntryProto(dtype=DType.FLOAT)
    shape_into(whole.shape, (4,))
    slice_into(whole.slices.add(), [(0, 4)])
    with pytest.raises(CorruptFileError, match="'cut' is missing"):
        bundle_of(tmp_path, {}, extra=[(b"cut", whole.SerializeToString())]).read("cut")


def test_missing_data_file_is_reported(tmp_path):
    write_bundle(tmp_path / "m", TENSORS, shards=3)
    (tmp_path / "m.data-00001-of-00003").unlink()
    with pytest.raises(CorruptFileError, match=r"m\.data-00001-of-00003: part 2 of 3"):
        TensorBundle(tmp_path / "m")


def test_tensor_in_a_truncated_data_file_is_refused(tmp_path):
    write_bundle(tmp_path / "m", TENSORS)
    data = tmp_path / "m.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    bundle = TensorBundle(tmp_path / "m")
    assert bundle.read("dense/bias") is not None
    with pytest.raises(CorruptFileError, match=r"data-00000-of-00001, byte \d+: 'step' takes 8"):
        bundle.read("step")


def test_missing_tensor_is_reported_with_the_closest_name(tmp_path):
    bundle = bundle_of(tmp_path, TENSORS)
    assert "dense/kernel" in bundle
    assert "dense/kernels" not in bundle
    for method in (bundle.entry, bundle.read):
        with pytest.raises(CorruptFileError, match="no tensor named 'dense/kernels'") as caught:
            method("dense/kernels")
        assert "dense/kernel" in caught.value.hint


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        ({"endianness": pb.BundleHeaderProto.BIG}, UnsupportedError, "big-endian"),
        ({"version": {"min_consumer": 2}}, UnsupportedError, "newer"),
        ({"num_shards": 0}, CorruptFileError, "0 data files"),
        ({"num_shards": -1}, CorruptFileError, "-1 data files"),
        ({"num_shards": 2**31 - 1}, CorruptFileError, "part 1 of 2147483647"),
    ],
)
def test_unsupported_header_is_refused(tmp_path, header, error, message):
    with pytest.raises(error, match=message):
        bundle_of(tmp_path, TENSORS, header=header)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 139}, "139 bytes where type float32 and shape .* take 140"),
        ({"size": -1}, "-1 bytes"),
        ({"offset": 1 << 62}, "takes 140 bytes, and the file ends"),
        ({"offset": -4}, "takes 140 bytes, and the file ends"),
        ({"offset": 4}, "checksum"),
        ({"crc32c": 5}, "checksum"),
        ({"shard_id": 1}, "data file 1 of 1"),
        ({"shard_id": -1}, "data file -1 of 1"),
        ({"dtype": DType.DOUBLE}, "take 280"),
    ],
)
def test_invalid_entry_is_refused(tmp_path, fields, message):
    def edit(name, entry):
        if name == "dense/kernel":
            entry.MergeFrom(pb.BundleEntryProto(**fields))

    bundle = bundle_of(tmp_path, TENSORS, edit=edit)
    assert bundle.read("dense/bias") is not None
    with pytest.raises(CorruptFileError, match=message):
        bundle.read("dense/kernel")


@pytest.mark.parametrize("dtype", [DType.RESOURCE, DType.VARIANT, DType.INT2, 4711, 0])
def test_type_without_elements_is_refused(tmp_path, dtype):
    def edit(name, entry):
        entry.dtype = dtype

    bundle = bundle_of(tmp_path, {"handle": np.zeros(2, "i1")}, edit=edit)
    assert bundle.names() == ["handle"]
    with pytest.raises(UnsupportedError, match=f"'handle' is of type {DType(dtype).short},"):
        bundle.read("handle")


def test_huge_shapes_do_not_allocate_memory(tmp_path):
    def edit(name, entry):
        entry.shape.Clear()
        shape_into(entry.shape, [1 << 20, 1 << 30])
        entry.size = entry.size if name == "names" else 1 << 52

    tensors = {"names": np.array([b"a" * 50], dtype=object), "w": np.zeros(8, "f4")}
    write_bundle(tmp_path / "m", tensors, edit=edit)
    tracemalloc.start()
    bundle = TensorBundle(tmp_path / "m")
    for name in tensors:
        with pytest.raises(CorruptFileError):
            bundle.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("position", range(8))
def test_damaged_strings_are_refused(tmp_path, position):
    """Flip a bit in the lengths, in the checksum of the lengths, and in the characters."""
    write_bundle(tmp_path / "m", {"s": np.array([b"ab", b"cd"], dtype=object)})
    data = tmp_path / "m.data-00000-of-00001"
    damaged = bytearray(data.read_bytes())
    assert len(damaged) == 2 + 4 + 4  # Lengths, checksum, and characters.
    damaged[position] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(CorruptFileError, match=r"'s'|declared"):
        TensorBundle(tmp_path / "m").read("s")


def test_invalid_utf8_in_a_name_is_refused(tmp_path):
    entry = pb.BundleEntryProto(dtype=DType.FLOAT)
    entry.shape.SetInParent()
    with pytest.raises(CorruptFileError, match="not a string"):
        bundle_of(tmp_path, {}, extra=[(b"\xc3\x28", entry.SerializeToString())])


def test_index_without_a_header_is_refused(tmp_path):
    (tmp_path / "m.index").write_bytes(table([(b"w", b"")]))
    with pytest.raises(CorruptFileError, match="no header"):
        TensorBundle(tmp_path / "m")
