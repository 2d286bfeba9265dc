"""TFRecords as samples."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.options import FeatureReading, Reading
from mobileprep.data.source import DataFiles
from mobileprep.errors import AccuracyError, CorruptFileError, MobileprepError
from mobileprep.formats.dtypes import DType
from tests.data.made import IMAGE, all_of, fed, labels_of, opened, pixels, tf_record, write
from tests.ops.examples import example, floats_of, integers_of, texts_of
from tests.ops.pictures import encoded
from tests.ops.sounds import wav

RECORDS = [
    example(
        image=texts_of(encoded(pixels(at), "PNG")),
        raw=texts_of(pixels(at).tobytes()),
        row=floats_of(at, at + 0.5),
        sound=texts_of(wav(np.array([[at], [2 * at]]))),
        ints=integers_of(at, 300),
        label=integers_of(at),
        name=texts_of(b"dog" if at else b"cat"),
    )
    for at in range(3)
]


def of(path: Path, data: bytes | None = None, labels: str | None = None, **features) -> DataFiles:
    if data is not None:
        write(path, data)
    reading = Reading(features=tuple(features.items()), labels=labels)
    return DataFiles("d.tfrecord", path, "tfrecord", reading)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
def test_plain_and_compressed_files_are_read(tmp_path: Path, pack) -> None:
    files = of(tmp_path / "d", pack(tf_record(RECORDS)), x=FeatureReading("row"))
    batch = all_of(opened(files, [fed((-1, 2))], labels="label"))
    assert batch.feeds["x"].tolist() == [[0, 0.5], [1, 1.5], [2, 2.5]]
    assert labels_of(batch) == [0, 1, 2]
    assert batch.names == ("record 0", "record 1", "record 2")


def test_labels_may_be_vectors_but_not_empty(tmp_path: Path) -> None:
    pairs = [example(row=floats_of(at), label=integers_of(at, at + 1)) for at in range(2)]
    files = of(tmp_path / "d", tf_record(pairs), x=FeatureReading("row"))
    batch = all_of(opened(files, [fed((-1, 1))], labels="label"))
    assert labels_of(batch) == [[0, 1], [1, 2]]
    records = [*pairs, example(row=floats_of(2), label=integers_of())]
    files = of(tmp_path / "d", tf_record(records), x=FeatureReading("row"))
    with pytest.raises(AccuracyError, match=r"record 2 has the shape \[0\].*record 0 \[2\]"):
        all_of(opened(files, [fed((-1, 1))], labels="label"))


def test_images_raw_bytes_and_audio_are_decoded(tmp_path: Path) -> None:
    files = of(
        tmp_path / "d",
        tf_record(RECORDS),
        image=FeatureReading("image", "picture"),
        b=FeatureReading("raw", "raw", "uint8", (4, 6, 3)),
        s=FeatureReading("sound", "wav"),
        i=FeatureReading("ints"),
    )
    inputs = [
        IMAGE,
        fed((-1, 4, 6, 3), DType.UINT8, "b"),
        fed((-1, 2), name="s"),
        fed((-1, 2), DType.INT32, "i"),
    ]
    batch = all_of(opened(files, inputs))
    expected = np.stack([pixels(at) for at in range(3)])
    np.testing.assert_array_equal(batch.feeds["b"], expected)
    np.testing.assert_array_equal(
        batch.feeds["image"], expected.astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(batch.feeds["s"][2] * 32768, [2, 4])
    assert batch.feeds["i"].tolist() == [[0, 300], [1, 300], [2, 300]]


def test_files_of_a_directory_are_concatenated(tmp_path: Path) -> None:
    write(tmp_path / "t/data-00000-of-00002", tf_record(RECORDS[:1]))
    write(tmp_path / "t/data-00001-of-00002", tf_record(RECORDS[1:]))
    classes = write(tmp_path / "c.txt", b"dog\ncat\n")
    reading = Reading(features=(("x", FeatureReading("row")),), labels="name")
    files = DataFiles("t", tmp_path / "t", None, reading, classes=classes)
    batch = all_of(opened(files, [fed((-1, 2))], labels="label"))
    assert batch.names[2] == "data-00001-of-00002, record 1"
    assert labels_of(batch) == [1, 0, 0]


def test_record_with_a_wrong_checksum_is_skipped(tmp_path: Path) -> None:
    data = bytearray(tf_record(RECORDS))
    data[30] ^= 1
    warnings: list[str] = []
    files = of(tmp_path / "d", bytes(data), x=FeatureReading("row"))
    batch = all_of(opened(files, [fed((-1, 2))], warnings=warnings))
    assert batch.names == ("record 1", "record 2")
    assert "record 0" in warnings[0]
    assert "its checksum is another" in warnings[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no records at all, but a text", "is not a TFRecord file"),
        (tf_record(RECORDS)[:-1], "ends within a record of"),
        (tf_record(RECORDS) + b"\0" * 20, "the checksum of a length does not match"),
        (gzip.compress(tf_record(RECORDS))[:-30], "is damaged"),
        (zlib.compress(tf_record(RECORDS))[:-30], "is damaged"),
        (b"", "holds no samples"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(MobileprepError, match=message) as caught:
        opened(of(tmp_path / "d", data, x=FeatureReading("row")), [fed((-1, 2))])
    assert caught.value.exit_code in (4, 8)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (FeatureReading("rwo"), "record 0 has no feature 'rwo'; it has image, ints"),
        (FeatureReading("row", shape=(3,)), r"'row' has 2 values, not those of \[3\]"),
        (FeatureReading("row", "raw"), "'row' is not a single string, as 'raw' needs it"),
        (FeatureReading("raw", "raw", "float64", (3,)), r"'raw' has 9 values"),
        (FeatureReading("ints"), "'ints' has values that uint8 cannot hold"),
    ],
)
def test_mismatched_features_are_reported(
    tmp_path: Path, feature: FeatureReading, message: str
) -> None:
    dtype = DType.UINT8 if feature.key == "ints" else DType.FLOAT
    with pytest.raises((AccuracyError, CorruptFileError), match=message):
        all_of(opened(of(tmp_path / "d", tf_record(RECORDS), x=feature), [fed((-1, 2), dtype)]))


def test_input_without_a_feature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="no feature is named for the input 'x'"):
        opened(of(tmp_path / "d", tf_record(RECORDS), y=FeatureReading("row")), [fed((-1, 2))])
