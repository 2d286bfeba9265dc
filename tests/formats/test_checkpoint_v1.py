from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.checkpoint import CheckpointV1
from mobileprep.formats.checkpoint_reader import slice_key
from mobileprep.formats.wire import delimited
from tests.formats.checkpoint_writer import table, v1_meta, v1_table, v1_value

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
def test_every_tensor_is_read(tmp_path, method, per_block):
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
