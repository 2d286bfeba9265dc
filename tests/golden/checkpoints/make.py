"""Write the checkpoints in this directory with TensorFlow 2.21; tests import their values.

python -m tests.golden.checkpoints.make
"""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent
SHAPE = (2, 3)
PLAIN = {
    "bfloat16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "complex128": np.complex128,
    "complex64": np.complex64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "int8": np.int8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "uint8": np.uint8,
}
QUANTIZED = {
    "qint16": np.int16,
    "qint32": np.int32,
    "qint8": np.int8,
    "quint16": np.uint16,
    "quint8": np.uint8,
}
NEW = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
NOT_IN_V1 = frozenset({"bfloat16", "qint16", "quint16", "uint32", "uint64", *NEW})
STRINGS = np.array([b"", b"a", b"text", b"\x00\xff", b"x" * 200, b"end"], dtype=object)
CUT = np.arange(5 * 4, dtype=np.float32).reshape(5, 4)
CUT_SPECS = ("5 4 0,2:-", "5 4 2,2:-", "5 4 4,1:-")
CUT_TWICE = np.arange(300 * 2, dtype=np.float64).reshape(300, 2)
CUT_TWICE_SPECS = (
    "300 2 0,100:0,1",
    "300 2 0,100:1,1",
    "300 2 100,200:0,1",
    "300 2 100,200:1,1",
)


def numbers(kind: type) -> np.ndarray:
    """Two rows of three numbers, with negative ones if the type is signed."""
    values = np.array([[0, 1, 2], [3, 100, 7]], dtype=np.float64)
    signed = np.dtype(kind).kind not in "ub"
    return (values * ([[1], [-1]] if signed else 1)).astype(kind)


def every_type() -> dict[str, np.ndarray]:
    """A tensor of each type, by name; quantized ones as plain integers."""
    kinds = {**PLAIN, **QUANTIZED, **NEW}
    tensors = {f"of/{name}": numbers(kind) for name, kind in sorted(kinds.items())}
    tensors["of/string"] = STRINGS.reshape(SHAPE)
    tensors["scalar"] = np.array(1.5, dtype=np.float32)
    tensors["empty"] = np.zeros((0, 4), dtype=np.float32)
    return tensors


def every_v1_type() -> dict[str, np.ndarray]:
    """The tensors of types that V1 checkpoints support."""
    return {k: v for k, v in every_type().items() if k.removeprefix("of/") not in NOT_IN_V1}


def partitioned() -> dict[str, np.ndarray]:
    """The tensors of the partitioned checkpoints."""
    return {"cut": CUT, "cut/twice": CUT_TWICE, "step": np.array(7, dtype=np.int64)}


def cut(array: np.ndarray, spec: str) -> np.ndarray:
    """The part of an array for the slice specification of a save op."""
    box = []
    for part in spec.split(" ")[-1].split(":"):
        start, length = (0, None) if part == "-" else map(int, part.split(","))
        box.append(slice(start, None if length is None else start + length))
    return array[tuple(box)]


def main() -> None:
    """Write all files."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    def tensor(name: str, array: np.ndarray) -> tf.Tensor:
        kind = name.removeprefix("of/")
        if kind in QUANTIZED:
            return tf.bitcast(tf.constant(array), tf.as_dtype(kind))
        return tf.constant(array, dtype=tf.as_dtype(kind) if name.startswith("of/") else None)

    types = every_type()
    tensors = [tensor(k, v) for k, v in types.items()]
    tf.raw_ops.SaveV2(
        prefix=str(FOLDER / "types"),
        tensor_names=list(types),
        shape_and_slices=[""] * len(types),
        tensors=tensors,
    )
    old = every_v1_type()
    tf.raw_ops.Save(
        filename=str(FOLDER / "old_types.ckpt"),
        tensor_names=list(old),
        data=[tensor(k, v) for k, v in old.items()],
    )
    parts = [("cut", s, cut(CUT, s)) for s in CUT_SPECS]
    parts += [("cut/twice", s, cut(CUT_TWICE, s)) for s in CUT_TWICE_SPECS]
    parts += [("step", "", np.array(7, dtype=np.int64))]
    halves = parts[::2], parts[1::2]
    for number, half in enumerate(halves):
        names, specs, arrays = zip(*half, strict=True)
        tf.raw_ops.SaveV2(
            prefix=str(FOLDER / f"part{number}"),
            tensor_names=list(names),
            shape_and_slices=list(specs),
            tensors=[tf.constant(a) for a in arrays],
        )
        tf.raw_ops.SaveSlices(
            filename=str(FOLDER / f"old_cut.ckpt-{number:05d}-of-00002"),
            tensor_names=list(names),
            shapes_and_slices=list(specs),
            data=[tf.constant(a) for a in arrays],
        )
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(FOLDER / "part0"), str(FOLDER / "part1")],
        destination_prefix=str(FOLDER / "cut"),
        delete_old_dirs=False,
    )


if __name__ == "__main__":
    main()
