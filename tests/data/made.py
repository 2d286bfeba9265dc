"""Sample files of each format, and inputs to read them for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.data.opening import open_dataset
from mobileprep.data.source import Batch, DataFiles, Dataset, SampleChoice
from mobileprep.formats.checksums import masked_crc32c
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.ops.pictures import encoded

IMAGE = FedTensor("image", DType.FLOAT, (-1, 4, 6, 3))


def fed(shape: tuple[int, ...] | None, dtype: DType = DType.FLOAT, name: str = "x") -> FedTensor:
    return FedTensor(name, dtype, shape)


def pixels(seed: int, height: int = 4, width: int = 6) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def pictures(folder: Path, names: Sequence[str], height: int = 4, width: int = 6) -> list[Array]:
    """Write PNG files with these names to a directory and return their pixels."""
    arrays = [pixels(seed, height, width) for seed in range(len(names))]
    for name, array in zip(names, arrays, strict=True):
        write(folder / name, encoded(array, "PNG"))
    return arrays


def tf_record(records: Sequence[bytes]) -> bytes:
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", masked_crc32c(length))
        out += record + struct.pack("<I", masked_crc32c(record))
    return out


def opened(
    files: DataFiles,
    inputs: Sequence[FedTensor],
    *,
    labels: str | None = None,
    samples: int | None = None,
    seed: int | None = None,
    strict: bool = False,
    warnings: list[str] | None = None,
) -> Dataset:
    messages = [] if warnings is None else warnings
    return open_dataset(
        files,
        inputs,
        SampleChoice(samples, seed, strict),
        labels=labels or "label",
        labeled=labels is not None,
        warn=messages.append,
    )


def all_of(dataset: Dataset, size: int = 100) -> Batch:
    """All samples of a small data set."""
    (batch,) = dataset.batches(size)
    return batch


def labels_of(batch: Batch) -> list[Any]:
    assert batch.labels is not None
    return batch.labels.tolist()
