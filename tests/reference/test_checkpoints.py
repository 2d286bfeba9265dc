"""Checkpoints of every format are read as TensorFlow reads them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.checkpoint import open_checkpoint
from mobileprep.formats.checkpoint_reader import slice_key
from tests.formats.checkpoint_writer import v1_meta, v1_table, v1_value, write_bundle
from tests.golden.checkpoints import make

pytestmark = pytest.mark.reference

V1, V2 = 1, 2


def assert_same(array, expected, name=""):
    if isinstance(expected, bytes):
        expected = np.array(expected, dtype=object)
    assert array.shape == expected.shape, name
    if expected.dtype == object:
        assert array.tolist() == expected.tolist(), name
    else:
        assert array.dtype == expected.dtype, name
        assert array.tobytes() == expected.tobytes(), name


def compare_with_reader(tf, checkpoint, prefix):
    """Compare all tensors with TensorFlow's reader, and return their number."""
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    types = reader.get_variable_to_dtype_map()
    assert checkpoint.names() == sorted(shapes)
    for name, shape in shapes.items():
        entry = checkpoint.entry(name)
        assert list(entry.shape) == shape
        assert entry.dtype == types[name].as_datatype_enum
        assert_same(checkpoint.read(name), reader.get_tensor(name), name)
    return len(shapes)


def build_variables(tf, *, resource):
    """Create variables on four devices: whole, and partitioned by rows and by columns."""
    v1 = tf.compat.v1
    rng = np.random.default_rng(5)
    values = {}

    def variable(name, value, partitioner=None):
        values[name] = value

        def part(shape, dtype, partition_info):
            at = partition_info.var_offset if partition_info else [0] * value.ndim
            box = tuple(slice(a, a + n) for a, n in zip(at, shape, strict=True))
            return tf.constant(value[box], dtype)

        v1.get_variable(
            name,
            shape=value.shape,
            initializer=part,
            dtype=value.dtype,
            partitioner=partitioner,
            use_resource=resource,
        )

    for device in range(4):
        with tf.device(f"/cpu:{device}"):
            variable(f"d{device}/kernel", rng.normal(size=(3, 3, 8, 16)).astype("f4"))
            variable(f"d{device}/bias", rng.normal(size=16).astype("f4"))
            variable(f"d{device}/count", np.array(device, dtype="i8"))
            variable(f"d{device}/table", rng.integers(-9, 9, size=300).astype("i4"))
    with tf.device("/cpu:0"):
        rows = v1.fixed_size_partitioner(3, axis=0)
        variable("embedding", rng.normal(size=(100, 12)).astype("f4"), rows)
    with tf.device("/cpu:3"):
        columns = v1.fixed_size_partitioner(4, axis=1)
        variable("wide", rng.normal(size=(5, 22)), columns)
    return values


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_savers_of_both_formats(tf, tmp_path, version, sharded, resource):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        values = build_variables(tf, resource=resource)
        saver = v1.train.Saver(sharded=sharded, write_version=version)
        config = v1.ConfigProto(device_count={"CPU": 4})
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            saved = saver.save(session, str(tmp_path / "model.ckpt"), global_step=7)
    for path in (tmp_path, Path(saved), tmp_path / "model.ckpt-7", tmp_path / "checkpoint"):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.prefix == tmp_path / "model.ckpt-7"
            assert len(checkpoint.files) == (4 if sharded else 1) + (version == V2)
            assert checkpoint.names() == sorted(values)
            for name, value in values.items():
                assert_same(checkpoint.read(name), value, name)


def test_every_type(tf, tmp_path):
    types = make.every_type()
    names = [n for n in types if n.removeprefix("of/") not in make.QUANTIZED]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(types[n]) for n in names],
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert compare_with_reader(tf, checkpoint, tmp_path / "m") == len(names)


def test_int4_tensors(tf, tmp_path):
    values = tf.cast(tf.constant([-8, 7, 0, 3]), tf.as_dtype("int4"))
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"), tensor_names=["w"], shape_and_slices=[""], tensors=[values]
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        array = checkpoint.read("w")
    assert array.dtype == ml_dtypes.int4
    assert array.tolist() == [-8, 7, 0, 3]


def test_large_string_tensors(tf, tmp_path):
    rng = np.random.default_rng(6)
    words = np.array([rng.bytes(n) for n in rng.integers(0, 400, size=5_000)], dtype=object)
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"), tensor_names=["s"], shape_and_slices=[""], tensors=[words]
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert_same(checkpoint.read("s"), words)


def test_variant_tensor_is_rejected(tf, tmp_path):
    handle = tf.raw_ops.EmptyTensorList(
        element_shape=[2], max_num_elements=3, element_dtype=tf.float32
    )
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=["list", "w"],
        shape_and_slices=["", ""],
        tensors=[handle, tf.constant(1.0)],
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert checkpoint.read("w") == 1.0
        with pytest.raises(UnsupportedError, match="'list' is of type variant"):
            checkpoint.read("list")


def test_object_based_checkpoint(tf, tmp_path):
    dense = tf.Module()
    dense.kernel = tf.Variable(np.random.default_rng(7).normal(size=(40, 9)).astype("f4"))
    dense.steps = [tf.Variable(n, dtype=tf.int64) for n in range(12)]
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(net=dense), str(tmp_path), 2)
    saved = [manager.save() for _ in range(3)][-1]
    with open_checkpoint(tmp_path) as checkpoint:
        assert str(checkpoint.prefix) == saved
        assert compare_with_reader(tf, checkpoint, saved) == 15
        assert "_CHECKPOINTABLE_OBJECT_GRAPH" in checkpoint


def test_index_of_a_thousand_tensors(tf, tmp_path):
    """Several blocks of the table, with and without shared key prefixes."""
    names = [f"{'block' * (i % 7)}/layer_{i % 13}/weights_{i}" for i in range(1_500)]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(np.full((i % 3, 2), i, dtype="i4")) for i in range(len(names))],
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert compare_with_reader(tf, checkpoint, tmp_path / "m") == len(names)


def test_tensorflow_reads_snappy_blocks(tf, tmp_path):
    """Snappy blocks, which TensorFlow reads but does not write."""
    rng = np.random.default_rng(8)
    tensors = {f"layer{i:02d}/w": rng.normal(size=(i, 4)).astype("f4") for i in range(40)}
    write_bundle(tmp_path / "new", tensors, shards=3, method=1)
    keys = {slice_key(n, [(0, -1)] * 2): v1_value(n, a) for n, a in tensors.items()}
    (tmp_path / "old").write_bytes(v1_table(v1_meta(tensors), keys, method=1))
    for name in ("new", "old"):
        with open_checkpoint(tmp_path / name) as checkpoint:
            assert compare_with_reader(tf, checkpoint, tmp_path / name) == len(tensors)
            for key, value in tensors.items():
                assert_same(checkpoint.read(key), value, key)


def test_slice_specifications(tf, tmp_path):
    whole = np.random.default_rng(9).normal(size=(10, 6)).astype("f4")
    specs = ["10 6 0,4:-", "10 6 4,6:-"]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=["cut", "cut"],
        shape_and_slices=specs,
        tensors=[tf.constant(make.cut(whole, s)) for s in specs],
    )
    with open_checkpoint(tmp_path / "m") as checkpoint:
        for spec in [*specs, "10 6 2,5:1,3", "10 6 -:5,1", ""]:
            theirs = tf.raw_ops.RestoreV2(
                prefix=str(tmp_path / "m"),
                tensor_names=["cut"],
                shape_and_slices=[spec],
                dtypes=[tf.float32],
            )
            assert_same(checkpoint.read("cut", spec), theirs[0].numpy(), spec)


def test_real_checkpoints(tf, models):
    v2 = sorted(models.rglob("*.index"))
    v1 = sorted(models.rglob("sugyan-mnist-v1ckpt/*.ckpt"))
    tables = sorted(models.rglob("*-00000-of-00001"))
    tables = [p for p in tables if ".data-" not in p.name]
    assert v2
    assert v1
    assert tables
    for path in [*v2, *v1, *tables]:
        with open_checkpoint(path) as checkpoint:
            pattern = path.name.replace("-00000-of-", "-?????-of-")
            prefix = path.with_name(pattern) if path in tables else checkpoint.prefix
            assert compare_with_reader(tf, checkpoint, prefix) > 0, path


def test_moved_directory_with_an_outdated_state_file(models):
    folder = models / "tf-serving-testdata/bad_half_plus_two/00000123"
    if not folder.is_dir():
        pytest.skip("the model is not installed")
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.prefix == folder / "export"
        assert checkpoint.names() == ["Variable", "Variable_1"]
