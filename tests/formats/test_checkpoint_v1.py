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


def written(path, tensors=TENSORS, **options):
    path.write_bytes(v1_table(v1_meta(tensors), values_of(tensors), **options))
    return CheckpointV1(path, (path,))


@pytest.mark.parametrize("method", [0, 1])
@pytest.mark.parametrize("per_block", [1, 3, 100])
def test_gives_back_every_tensor(tmp_path, method, per_block):
    with written(tmp_path / "old", method=method, per_block=per_block) as checkpoint:
        assert checkpoint.names() == sorted(TENSORS)
        assert checkpoint.files == (tmp_path / "old",)
        for name, expected in TENSORS.items():
            found = checkpoint.read(name)
            assert found.dtype == expected.dtype
            assert checkpoint.entry(name).shape == found.shape == expected.shape
            assert found.tolist() == expected.tolist()
            assert not found.flags.writeable


@pytest.mark.parametrize("name", ["kernel", "large"])
def test_large_floats_are_views_on_the_file(tmp_path, name):
    checkpoint = written(tmp_path / "old")
    tracemalloc.start()
    found = checkpoint.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    checkpoint.close()
    assert not found.flags.owndata
    assert peak < 20_000
    assert np.array_equal(found, TENSORS[name])


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
    found = CheckpointV1(path, (path,))
    assert found.names() == ["cut"]
    assert np.array_equal(found.read("cut"), MATRIX)
    assert np.array_equal(found.read("cut", "6 4 1,2:2,2"), MATRIX[1:3, 2:])


def test_slices_of_several_files_are_joined(tmp_path):
    step = {"step": np.array(3)}
    files = (write_cut(tmp_path / "a", [2, 0]), write_cut(tmp_path / "b", [1], step))
    found = CheckpointV1(tmp_path / "old", files)
    assert found.names() == ["cut", "step"]
    assert np.array_equal(found.read("cut"), MATRIX)
    assert found.read("step") == 3


def test_a_slice_in_two_files_is_refused(tmp_path):
    files = (write_cut(tmp_path / "a", [0, 1, 2]), write_cut(tmp_path / "b", [1]))
    with pytest.raises(CorruptFileError, match="overlap"):
        CheckpointV1(tmp_path / "old", files).read("cut")


def test_files_that_disagree_are_refused(tmp_path):
    one = write_cut(tmp_path / "a", [0])
    other = tmp_path / "b"
    other.write_bytes(v1_table(v1_meta({"cut": MATRIX.T}), {}))
    with pytest.raises(CorruptFileError, match="b, tensor 'cut': has another type or shape"):
        CheckpointV1(tmp_path / "old", (one, other))


def test_a_listed_slice_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(v1_table(v1_meta({"cut": MATRIX}), {}))
    with pytest.raises(CorruptFileError, match="'cut': a listed slice"):
        CheckpointV1(path, (path,)).read("cut")


@pytest.mark.parametrize(
    ("value", "fault"),
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
def test_a_value_that_does_not_fit_is_refused(tmp_path, value, fault):
    path = tmp_path / "old"
    path.write_bytes(v1_table(v1_meta({"cut": MATRIX}), {whole_key("cut", MATRIX): value}))
    with pytest.raises(CorruptFileError, match=fault):
        CheckpointV1(path, (path,)).read("cut")


def test_floats_that_are_not_packed_are_read(tmp_path):
    loose = b"".join(b"\x2d" + x.tobytes() for x in MATRIX.ravel())
    body = delimited(1, b"w") + delimited(3, loose)
    path = tmp_path / "old"
    values = {slice_key("w", [(0, -1)]): delimited(2, body)}
    path.write_bytes(v1_table(v1_meta({"w": MATRIX.ravel()}), values))
    assert np.array_equal(CheckpointV1(path, (path,)).read("w"), MATRIX.ravel())


def test_a_newer_format_is_refused(tmp_path):
    meta = v1_meta(TENSORS)
    meta.meta.versions.min_consumer = 2
    path = tmp_path / "old"
    path.write_bytes(v1_table(meta, {}))
    with pytest.raises(UnsupportedError, match="newer"):
        CheckpointV1(path, (path,))


def test_a_table_of_something_else_is_refused(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(table([(b"key", b"value")]))
    with pytest.raises(CorruptFileError, match="not a V1 checkpoint"):
        CheckpointV1(path, (path,))
