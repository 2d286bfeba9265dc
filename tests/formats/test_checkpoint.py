"""Reading checkpoints of TensorFlow: intact, truncated, and with flipped bits."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
import tracemalloc

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InternalError, MobileprepError, UnsupportedError
from mobileprep.formats.checkpoint import open_checkpoint
from mobileprep.formats.sstable import SortedTable
from tests.formats.checkpoint_writer import table, write_bundle
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
