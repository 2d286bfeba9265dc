"""Reading checkpoints of TensorFlow: intact, truncated, and with flipped bits."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
import tracemalloc

import numpy as np
import pytest

from mobileprep.errors import (
    CorruptFileError,
    InternalError,
    InvalidGraphError,
    MobileprepError,
    UnsupportedError,
)
from mobileprep.formats.checkpoint import CheckpointV1, open_checkpoint
from mobileprep.formats.checkpoint_reader import (
    TensorEntry,
    box_of,
    check_versions,
    element_type,
    entry_of,
    extents_of,
    gather,
    is_whole,
    overlap,
    parse,
    region_of,
    shape_of_box,
    slice_key,
    tiling_fault,
    whole,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graph
from mobileprep.formats.sstable import SortedTable
from mobileprep.formats.wire import delimited
from tests.formats.checkpoint_writer import (
    shape_into,
    table,
    v1_meta,
    v1_table,
    v1_value,
    write_bundle,
)
from tests.golden.checkpoints import make

SETS = {
    "types": make.every_type(),
    "cut": make.partitioned(),
    "old_types.ckpt": make.every_v1_type(),
    "old_cut.ckpt": make.partitioned(),
}
SPECS = {"cut": make.CUT_SPECS, "cut/twice": make.CUT_TWICE_SPECS}
FLIPS = 1_000  # For each set.
SLACK = 256 << 10


def same(actual, expected):
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype == object:
        return actual.tolist() == expected.tolist()
    return actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("prefix", SETS)
def test_every_tensor_is_read(prefix):
    with open_checkpoint(make.FOLDER / prefix) as checkpoint:
        assert checkpoint.names() == sorted(SETS[prefix])
        for name, expected in SETS[prefix].items():
            assert same(checkpoint.read(name), expected), name


@pytest.mark.parametrize("prefix", ["cut", "old_cut.ckpt"])
@pytest.mark.parametrize("name", SPECS)
def test_every_slice_is_read(prefix, name):
    with open_checkpoint(make.FOLDER / prefix) as checkpoint:
        for spec in SPECS[name]:
            result = checkpoint.read(name, spec)
            assert same(result, make.cut(SETS[prefix][name], spec))


@pytest.mark.parametrize("prefix", SETS)
def test_types_and_shapes_are_known_without_reading(prefix):
    with open_checkpoint(make.FOLDER / prefix) as checkpoint:
        for name, expected in SETS[prefix].items():
            entry = checkpoint.entry(name)
            kind = name.removeprefix("of/")
            assert entry.shape == expected.shape
            assert kind == name or entry.dtype.short == kind
            assert entry.nbytes == (0 if expected.dtype == object else expected.nbytes)


@pytest.mark.parametrize("prefix", SETS)
def test_files_of_the_checkpoint_are_listed(prefix):
    with open_checkpoint(make.FOLDER / prefix) as checkpoint:
        assert [p.name for p in checkpoint.files] == sorted(
            p.name for p in make.FOLDER.iterdir() if p.name.startswith(prefix)
        )


def test_closed_checkpoint_cannot_be_read(tmp_path):
    write_bundle(tmp_path / "m", {"w": np.zeros(1)})
    checkpoint = open_checkpoint(tmp_path / "m")
    checkpoint.close()
    with pytest.raises(InternalError, match="closed"):
        checkpoint.read("w")


def copied(prefix, folder):
    files = [p for p in make.FOLDER.iterdir() if p.name.startswith(prefix)]
    return sorted(shutil.copy(p, folder / p.name) for p in files)


def outcome(prefix, expected):
    """Count the tensors that are read correctly. All others must be refused with their file."""
    read = 0
    try:
        with open_checkpoint(prefix) as checkpoint:
            assert checkpoint.names() == sorted(expected)
            for name, value in expected.items():
                try:
                    tensor = checkpoint.read(name)
                except CorruptFileError as error:
                    assert str(prefix) in error.where
                else:
                    assert same(tensor, value), name
                    read += 1
    except MobileprepError as error:
        assert isinstance(error, CorruptFileError)
        assert str(prefix) in error.where
    return read


@contextlib.contextmanager
def flipped_bit(files, rng):
    """Flip a random bit in one of the files for the duration of the block."""
    with files[rng.integers(len(files))].open("r+b") as stream:
        position = int(rng.integers(stream.seek(0, 2)))
        stream.seek(position)
        byte = stream.read(1)
        stream.seek(position)
        stream.write(bytes([byte[0] ^ 1 << int(rng.integers(8))]))
        stream.flush()
        yield
        stream.seek(position)
        stream.write(byte)


@pytest.mark.parametrize("prefix", SETS)
def test_flipped_bits_are_detected_or_harmless(prefix, tmp_path):
    files = copied(prefix, tmp_path)
    rng = np.random.default_rng(2024)
    start = time.perf_counter()
    complete = 0
    for _ in range(FLIPS):
        with flipped_bit(files, rng):
            complete += outcome(tmp_path / prefix, SETS[prefix]) == len(SETS[prefix])
    # Only changes in the padding of footers are undetected.
    assert complete < FLIPS * 0.1
    assert time.perf_counter() - start < 120


@pytest.mark.parametrize("prefix", SETS)
def test_flipped_bits_do_not_increase_memory_use(prefix, tmp_path):
    files = copied(prefix, tmp_path)
    rng = np.random.default_rng(7)
    outcome(tmp_path / prefix, SETS[prefix])  # Warm up imports and caches.
    size = sum(p.stat().st_size for p in files)
    for _ in range(50):
        with flipped_bit(files, rng):
            tracemalloc.start()
            outcome(tmp_path / prefix, SETS[prefix])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 3 * size + SLACK


def boundaries(data):
    """Return the positions of the block boundaries of a table and of its whole footer."""
    parsed = SortedTable(memoryview(data), "")
    edges = {0, *range(len(data) - 48, len(data))}
    for block in parsed._handles:
        edges |= {block.offset, block.offset + block.size, block.end}
    return edges


@pytest.mark.parametrize("prefix", SETS)
def test_truncated_files_are_refused(prefix, tmp_path):
    for path in copied(prefix, tmp_path):
        data = path.read_bytes()
        edges = set(range(0, len(data), 16)) if ".data-" in path.name else boundaries(data)
        near = {e + d for e, d in itertools.product(edges, (-1, 0, 1))} & set(range(len(data)))
        for length in sorted(near):
            path.write_bytes(data[:length])
            read = outcome(tmp_path / prefix, SETS[prefix])
            assert read < len(SETS[prefix]), f"{path.name} cut to {length} bytes"
        path.write_bytes(data)
    assert outcome(tmp_path / prefix, SETS[prefix]) == len(SETS[prefix])


def scrambled(entries, rng):
    """Change a few bytes in the value of one entry."""
    entries = [(key, bytearray(value)) for key, value in entries]
    value = entries[rng.integers(len(entries))][1]
    for _ in range(rng.integers(1, 4)):
        if value and rng.integers(4):
            value[rng.integers(len(value))] = rng.integers(256)
        else:
            value.insert(rng.integers(len(value) + 1), rng.integers(256))
    return [(key, bytes(value)) for key, value in entries]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", SETS)
def test_damage_with_a_valid_checksum_gives_a_value_or_our_error(prefix, tmp_path):
    path = next(p for p in copied(prefix, tmp_path) if ".data-" not in p.name)
    original = list(SortedTable(memoryview(path.read_bytes()), ""))
    rng = np.random.default_rng(11)
    tracemalloc.start()
    for _ in range(300):
        path.write_bytes(table(scrambled(original, rng)))
        try:
            with open_checkpoint(tmp_path / prefix) as checkpoint:
                for name in checkpoint.names():
                    with contextlib.suppress(CorruptFileError, UnsupportedError):
                        checkpoint.read(name)
        except (CorruptFileError, UnsupportedError):
            continue
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


def shape(*sizes: int) -> graph.TensorShapeProto:
    proto = graph.TensorShapeProto()
    shape_into(proto, sizes)
    return proto


def test_entry_size_in_bytes():
    entry = entry_of(DType.DOUBLE, shape(2, 3), "f")
    assert entry == TensorEntry(DType.DOUBLE, (2, 3))
    assert (entry.size, entry.nbytes) == (6, 48)
    assert entry_of(DType.STRING, shape(2), "f").nbytes == 0
    assert entry_of(DType.BFLOAT16, shape(), "f").nbytes == 2


@pytest.mark.parametrize(
    "sizes", [(-1,), (1 << 40, 1 << 40), (0, 1 << 62), (1,) * 33, (2,) * 30_000]
)
def test_impossible_shape_is_refused(sizes):
    with pytest.raises(CorruptFileError, match="shape"):
        entry_of(DType.FLOAT, shape(*sizes), "f")


def test_unknown_rank_is_refused():
    with pytest.raises(CorruptFileError, match="shape"):
        entry_of(DType.FLOAT, graph.TensorShapeProto(unknown_rank=True), "f")


def test_element_types_of_dtypes():
    assert element_type(DType.STRING).hasobject
    assert element_type(DType.RESOURCE) is None
    assert element_type(DType(4711)) is None
    assert element_type(DType.QINT8) == "i1"


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x7f", b"\x08"])
def test_invalid_message_is_refused(data):
    with pytest.raises(CorruptFileError, match="BundleHeaderProto"):
        parse(pb.BundleHeaderProto, memoryview(data), "f")


def test_checkpoint_for_newer_readers_is_refused():
    check_versions(graph.VersionDef(producer=9, min_consumer=1), "f")
    for versions in (graph.VersionDef(min_consumer=2), graph.VersionDef(bad_consumers=[1])):
        with pytest.raises(UnsupportedError, match="newer reader"):
            check_versions(versions, "f")


def signed(value: int) -> bytes:
    """Return the encoding of one number in a key."""
    key = slice_key("", [(value, 0)])
    return key.removeprefix(b"\0\0\1\1\1").removesuffix(b"\x80")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "80"),
        (-1, "7f"),
        (63, "bf"),
        (-64, "40"),
        (64, "c040"),
        (-65, "3fbf"),
        (-0x800, "3800"),
        (0x424242, "f0424242"),
        ((1 << 62) - 1, "ffbfffffffffffffff"),
        (1 << 62, "ffc04000000000000000"),
        ((1 << 63) - 1, "ffc07fffffffffffffff"),
    ],
)
def test_numbers_are_encoded_as_in_tensorflow(value, expected):
    assert signed(value).hex() == expected


def test_encoded_numbers_sort_like_their_values():
    values = sorted({s * ((1 << b) + d) for b in range(62) for d in (-1, 0, 1) for s in (-1, 1)})
    codes = [signed(v) for v in values]
    assert codes == sorted(codes)


@pytest.mark.parametrize(
    ("name", "extents", "expected"),
    [
        ("w", [(0, 2), (0, -1)], b"\0" + b"w\0\1" + b"\1\2" + b"\x80\x82" + b"\x80\x7f"),
        ("step", [], b"\0step\0\1\0"),
        ("a\0b", [], b"\0a\0\xffb\0\1\0"),
    ],
    ids=["matrix", "scalar", "escaped"],
)
def test_key_has_zero_name_rank_and_extents(name, extents, expected):
    assert slice_key(name, extents) == expected


def box(*sides: tuple[int, int]) -> tuple[slice, ...]:
    return tuple(slice(*side) for side in sides)


def test_absent_length_of_an_extent_is_minus_one():
    proto = pb.TensorSliceProto()
    proto.extent.add()
    proto.extent.add(start=3, length=0)
    assert extents_of(proto) == ((0, -1), (3, 0))


def test_is_whole():
    assert is_whole(())
    assert is_whole(((0, -1), (0, -1)))
    assert not is_whole(((0, 2), (0, -1)))


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        (((0, -1), (1, 2)), box((0, 4), (1, 3))),
        (((3, 1), (0, 3)), box((3, 4), (0, 3))),
        (((3, 2), (0, 3)), None),
        (((-1, 2), (0, 3)), None),
        (((0, -2), (0, 3)), None),
        (((0, 4),), None),
    ],
)
def test_box_of_extents_in_a_shape(extents, expected):
    assert box_of(extents, (4, 3)) == expected


def test_overlap_of_boxes():
    assert overlap(box((0, 3), (0, 5)), box((2, 4), (1, 2))) == box((2, 3), (1, 2))
    assert overlap(box((0, 3)), box((3, 4))) is None
    assert overlap((), ()) == ()
    assert shape_of_box(box((2, 3), (1, 5))) == (1, 4)


@pytest.mark.parametrize(
    ("boxes", "shape", "fault"),
    [
        ([()], (), ""),
        ([(), ()], (), "overlap"),
        ([], (), "leave a part out"),
        ([box((0, 4), (0, 3))], (4, 3), ""),
        ([box((0, 1), (0, 3)), box((1, 4), (0, 3))], (4, 3), ""),
        ([box((0, 4), (0, 1)), box((0, 4), (1, 3))], (4, 3), ""),
        # Four boxes around a fifth: a tiling that is not a grid.
        (
            [
                box((0, 1), (0, 2)),
                box((0, 2), (2, 3)),
                box((2, 3), (1, 3)),
                box((1, 3), (0, 1)),
                box((1, 2), (1, 2)),
            ],
            (3, 3),
            "",
        ),
        ([box((0, 2), (0, 3)), box((1, 4), (0, 3))], (4, 3), "overlap"),
        ([box((0, 2), (0, 3)), box((0, 2), (0, 3))], (4, 3), "overlap"),
        ([box((0, 1), (0, 3)), box((2, 4), (0, 3))], (4, 3), "leave a part out"),
        ([box((0, 4), (0, 2))], (4, 3), "leave a part out"),
        ([box((0, 0))], (0,), ""),
    ],
)
def test_slices_must_tile_the_tensor(boxes, shape, fault):
    assert tiling_fault(boxes, shape) == fault


def test_too_fine_grid_is_refused():
    side = 10_000
    boxes = [box((i, i + 1), (i, i + 1)) for i in range(side)]
    assert tiling_fault(boxes, (side, side)) == "are cut too irregularly"


def test_single_part_is_not_copied():
    data = np.arange(12).reshape(4, 3)
    result = gather([(whole((4, 3)), data)], box((1, 3), (0, 3)), data.dtype)
    assert np.shares_memory(result, data)
    assert result.tolist() == data[1:3].tolist()
    assert not result.flags.writeable
    assert data.flags.writeable


def test_parts_are_joined():
    data = np.random.default_rng(0).normal(size=(5, 4, 3))
    boxes = [box((a, b), (0, 4), (c, d)) for a, b in ((0, 2), (2, 5)) for c, d in ((0, 1), (1, 3))]
    parts = [(b, data[b]) for b in boxes]
    for region in (whole(data.shape), box((1, 4), (1, 3), (0, 3)), box((0, 1), (0, 1), (1, 2))):
        result = gather(parts, region, data.dtype)
        assert np.array_equal(result, data[region])
        assert not result.flags.writeable


def test_scalar_is_an_array():
    result = gather([((), np.array(3.0))], (), np.dtype("f8"))
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


def test_region_of_a_restore_spec():
    assert region_of("10 4 2,5:-", (10, 4)) == box((2, 7), (0, 4))


@pytest.mark.parametrize(
    "spec",
    ["10 4", "10 4 2,5", "10 4 2,9:-", "9 4 2,5:-", "x 4 -:-", "10 4 2;5:-", "10 4 -1,2:-", "-"],
)
def test_mismatched_spec_is_refused(spec):
    with pytest.raises(InvalidGraphError, match="slice"):
        region_of(spec, (10, 4))


RNG = np.random.default_rng(4)
TENSORS = {
    "flags": np.array([True, False, True]),
    "half": RNG.normal(size=3).astype("f2"),
    "kernel": RNG.normal(size=(40, 10)).astype("f4"),
    "large": RNG.normal(size=(30, 10)),
    "names": np.array([[b"a", b""], [b"long" * 100, b"\xff\0"]], dtype=object),
    "nothing": np.zeros((3, 0), dtype="f4"),
    "offsets": np.array([-1, 2, -3], dtype="i4"),
    "step": np.array(12, dtype="i8"),
    "wave": (RNG.normal(size=4) + 1j).astype("c8"),
}


def whole_key(name, array):
    return slice_key(name, [(0, -1)] * array.ndim)


def values_of(tensors):
    return {whole_key(n, a): v1_value(n, a) for n, a in tensors.items()}


def opened(directory, data):
    path = directory / "old"
    path.write_bytes(data)
    return CheckpointV1(path, (path,))


def opened_tensors(directory, **options):
    return opened(directory, v1_table(v1_meta(TENSORS), values_of(TENSORS), **options))


@pytest.mark.parametrize("method", [0, 1])
@pytest.mark.parametrize("per_block", [1, 3, 100])
def test_checkpoint_v1_every_tensor_is_read(tmp_path, method, per_block):
    with opened_tensors(tmp_path, method=method, per_block=per_block) as checkpoint:
        assert checkpoint.names() == sorted(TENSORS)
        assert checkpoint.files == (tmp_path / "old",)
        for name, expected in TENSORS.items():
            tensor = checkpoint.read(name)
            assert tensor.dtype == expected.dtype
            assert checkpoint.entry(name).shape == tensor.shape == expected.shape
            assert tensor.tolist() == expected.tolist()
            assert not tensor.flags.writeable


@pytest.mark.parametrize("name", ["kernel", "large"])
def test_large_floats_are_views_of_the_file(tmp_path, name):
    checkpoint = opened_tensors(tmp_path)
    tracemalloc.start()
    tensor = checkpoint.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    checkpoint.close()
    assert not tensor.flags.owndata
    assert peak < 20_000
    assert np.array_equal(tensor, TENSORS[name])


MATRIX = np.arange(24, dtype="f4").reshape(6, 4)
PIECES = [[(0, 2), (0, -1)], [(2, 4), (0, 3)], [(2, 4), (3, 1)]]
ARRAYS = [MATRIX[:2], MATRIX[2:, :3], MATRIX[2:, 3:]]


def cut_values(numbers):
    return {slice_key("cut", PIECES[n]): v1_value("cut", ARRAYS[n], PIECES[n]) for n in numbers}


def write_cut(path, numbers, tensors=None):
    tensors = {"cut": MATRIX, **(tensors or {})}
    meta = v1_meta(tensors, {"cut": [PIECES[n] for n in numbers]})
    values = cut_values(numbers)
    values.update({whole_key(n, a): v1_value(n, a) for n, a in tensors.items() if n != "cut"})
    path.write_bytes(v1_table(meta, values))
    return path


def test_slices_of_one_file_are_joined(tmp_path):
    path = write_cut(tmp_path / "old", [0, 1, 2])
    checkpoint = CheckpointV1(path, (path,))
    assert checkpoint.names() == ["cut"]
    assert np.array_equal(checkpoint.read("cut"), MATRIX)
    assert np.array_equal(checkpoint.read("cut", "6 4 1,2:2,2"), MATRIX[1:3, 2:])


def test_slices_of_several_files_are_joined(tmp_path):
    step = {"step": np.array(3)}
    files = (write_cut(tmp_path / "a", [2, 0]), write_cut(tmp_path / "b", [1], step))
    checkpoint = CheckpointV1(tmp_path / "old", files)
    assert checkpoint.names() == ["cut", "step"]
    assert np.array_equal(checkpoint.read("cut"), MATRIX)
    assert checkpoint.read("step") == 3


def test_slice_in_two_files_is_refused(tmp_path):
    files = (write_cut(tmp_path / "a", [0, 1, 2]), write_cut(tmp_path / "b", [1]))
    with pytest.raises(CorruptFileError, match="overlap"):
        CheckpointV1(tmp_path / "old", files).read("cut")


def test_files_with_different_shapes_are_refused(tmp_path):
    one = write_cut(tmp_path / "a", [0])
    other = tmp_path / "b"
    other.write_bytes(v1_table(v1_meta({"cut": MATRIX.T}), {}))
    with pytest.raises(CorruptFileError, match="b, tensor 'cut': has another type or shape"):
        CheckpointV1(tmp_path / "old", (one, other))


def test_missing_slice_is_refused(tmp_path):
    data = v1_table(v1_meta({"cut": MATRIX}), {})
    with pytest.raises(CorruptFileError, match="'cut': a listed slice"):
        opened(tmp_path, data).read("cut")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (v1_value("other", MATRIX), "the slice belongs to 'other'"),
        (v1_value("cut", MATRIX[:5]), "20 elements instead of 24"),
        (v1_value("cut", MATRIX.astype("i4")), "0 elements instead of 24"),
        (v1_value("cut", RNG.normal(size=(600, 4))), "0 elements instead of 24"),
        (v1_value("cut", np.zeros((600, 4), "f4")), "2400 elements instead of 24"),
        (b"\x12\x7f", "declared where 0 remain"),
        (b"\x12\x02\x0a\x7f", "no SavedTensorSlices"),
        (b"", "the slice belongs to ''"),
    ],
)
def test_mismatched_value_is_refused(tmp_path, value, message):
    data = v1_table(v1_meta({"cut": MATRIX}), {whole_key("cut", MATRIX): value})
    with pytest.raises(CorruptFileError, match=message):
        opened(tmp_path, data).read("cut")


def test_unpacked_floats_are_read(tmp_path):
    fields = b"".join(b"\x2d" + x.tobytes() for x in MATRIX.ravel())
    body = delimited(1, b"w") + delimited(3, fields)
    values = {slice_key("w", [(0, -1)]): delimited(2, body)}
    data = v1_table(v1_meta({"w": MATRIX.ravel()}), values)
    assert np.array_equal(opened(tmp_path, data).read("w"), MATRIX.ravel())


def test_newer_format_is_refused(tmp_path):
    meta = v1_meta(TENSORS)
    meta.meta.versions.min_consumer = 2
    data = v1_table(meta, {})
    with pytest.raises(UnsupportedError, match="newer"):
        opened(tmp_path, data)


def test_other_table_is_refused(tmp_path):
    data = table([(b"key", b"value")])
    with pytest.raises(CorruptFileError, match="not a V1 checkpoint"):
        opened(tmp_path, data)
