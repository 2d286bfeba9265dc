"""Directories of images as samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles
from mobileprep.errors import AccuracyError, CorruptFileError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.resizing import Sampling, resize_bilinear
from tests.data.made import IMAGE, all_of, fed, labels_of, opened, pictures, write

NAMES = ["cat/1.png", "cat/2.png", "dog/a/3.PNG"]


def of(folder: Path, labels: Path | None = None, classes: Path | None = None, **options):
    return DataFiles("photos", folder, "pictures", Reading(**options), labels, classes)


def test_directories_are_labels_in_alphabetical_order(tmp_path: Path) -> None:
    arrays = pictures(tmp_path, NAMES)
    write(tmp_path / ".hidden/x.png", b"")
    write(tmp_path / "cat/notes.txt", b"")
    batch = all_of(opened(of(tmp_path), [IMAGE], labels="label"))
    assert batch.names == tuple(NAMES)
    assert labels_of(batch) == [0, 0, 1]
    expected = np.stack(arrays).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(batch.feeds["image"], expected)


def test_class_file_determines_the_order_of_labels(tmp_path: Path) -> None:
    pictures(tmp_path / "p", NAMES)
    classes = write(tmp_path / "labels.txt", b"dog\ncat\nbird\n")
    batch = all_of(opened(of(tmp_path / "p", classes=classes), [IMAGE], labels="label"))
    assert labels_of(batch) == [1, 1, 0]


def test_labels_from_a_csv_file_with_a_header(tmp_path: Path) -> None:
    pictures(tmp_path / "p", NAMES)
    listed = write(
        tmp_path / "l.csv", b'\xef\xbb\xbffile,label\ncat/2.png,7\n"./cat/1.png",4\ndog/a/3.PNG,5\n'
    )
    batch = all_of(opened(of(tmp_path / "p", listed), [IMAGE], labels="label"))
    assert labels_of(batch) == [4, 7, 5]


def read_pixels(tmp_path: Path, shape=(-1, 4, 6, 3), dtype=DType.FLOAT, **options) -> Array:
    pictures(tmp_path, ["a.png"], 10, 12)
    batch = all_of(opened(of(tmp_path, **options), [fed(shape, dtype, "image")]))
    assert batch.labels is None
    return batch.feeds["image"][0]


def test_images_are_cropped_then_resized_then_normalized(tmp_path: Path) -> None:
    (array,) = pictures(tmp_path, ["a.png"], 10, 12)
    pixels = read_pixels(
        tmp_path, central_crop=0.5, mean=(1.0, 2.0, 3.0), std=(4.0,), channels="bgr"
    )
    # tf.image.central_crop(0.5): 10 x 12 pixels lose int(2.5) and int(3.0) on each side.
    middle = array[2:-2, 3:-3]
    resized = resize_bilinear(middle[np.newaxis], (4, 6), Sampling())[0][..., ::-1]
    expected = (resized - np.array([1, 2, 3], np.float32)) / np.float32(4)
    np.testing.assert_array_equal(pixels, expected)


def test_half_pixel_centers_are_respected(tmp_path: Path) -> None:
    pixels = read_pixels(tmp_path, half_pixel_centers=True, std=(1.0,))
    (array,) = pictures(tmp_path, ["a.png"], 10, 12)
    expected = resize_bilinear(array[np.newaxis], (4, 6), Sampling(half_pixel=True))[0]
    np.testing.assert_array_equal(pixels, expected)


def test_resize_option_sets_the_size_of_open_inputs(tmp_path: Path) -> None:
    assert read_pixels(tmp_path, (-1, -1, -1, 3), resize=(2, 5)).shape == (2, 5, 3)
    assert read_pixels(tmp_path, (-1, -1, -1, 3)).shape == (10, 12, 3)


def test_grayscale_images_have_one_channel(tmp_path: Path) -> None:
    assert read_pixels(tmp_path, (-1, 4, 6, 1), channels="grayscale").shape == (4, 6, 1)


def test_uint8_inputs_get_values_from_0_to_255(tmp_path: Path) -> None:
    pixels = read_pixels(tmp_path, dtype=DType.UINT8)
    floats = read_pixels(tmp_path, std=(1.0,))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, np.rint(floats))


def test_string_inputs_get_the_file_content(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    batch = all_of(opened(of(tmp_path), [fed((), DType.STRING)]))
    assert batch.feeds["x"].tolist() == [(tmp_path / n).read_bytes() for n in batch.names]


def test_unreadable_image_is_skipped_with_a_warning(tmp_path: Path) -> None:
    pictures(tmp_path, NAMES)
    whole = (tmp_path / NAMES[1]).read_bytes()
    write(tmp_path / NAMES[1], whole[: len(whole) // 2])
    warnings: list[str] = []
    batch = all_of(opened(of(tmp_path), [IMAGE], labels="label", warnings=warnings))
    assert batch.names == (NAMES[0], NAMES[2])
    assert labels_of(batch) == [0, 1]
    (warning,) = warnings
    assert warning.startswith("photos: 1 of 3 samples cannot be read: cat/2.png (")
    assert warning.endswith("; they are skipped")


def test_unreadable_image_is_an_error_if_strict(tmp_path: Path) -> None:
    pictures(tmp_path, NAMES)
    write(tmp_path / NAMES[1], b"no picture")
    with pytest.raises(CorruptFileError, match="is not a JPEG, PNG, GIF, or BMP file") as caught:
        list(opened(of(tmp_path), [IMAGE], strict=True).batches(2))
    assert caught.value.where == "photos, cat/2.png"


def test_no_readable_images_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.png", b"x")
    with pytest.raises(AccuracyError, match=r"photos: 1 of 1 samples cannot be read: a\.png"):
        list(opened(of(tmp_path), [IMAGE]).batches(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ({"names": []}, "photos holds no files that end in"),
        ({"names": ["a.png", "cat/b.png"]}, r"1 of 2 files are not in a directory .* such as a\.p"),
        ({"classes": "cat\n"}, r"dog/a/3\.PNG has the label 'dog', which l\.txt does not list"),
        ({"classes": "cat\ncat\n"}, "the class 'cat' is listed in line 1 already"),
        ({"classes": ""}, "lists no classes"),
        ({"labels": "cat/1.png,0\n"}, r"2 of 3 files have no label in l\.csv, .* cat/2\.png"),
        ({"labels": "f,l\ncat/1.jpg,0\n"}, r"1 of 1 rows name no file of photos, .* 'cat/1\.jpg'"),
        ({"labels": "file\n"}, "a row needs two columns"),
        ({"labels": b"\xff\xfe"}, "is not valid UTF-8"),
        ({"resize": (5, 5)}, r"takes the shape \[\?, 4, 6, 3\], and the sample has \[5, 5, 3\]"),
        ({"mean": (1.0, 2.0)}, "'mean' has 2 numbers for 3 channels"),
        ({"input": "imagee"}, "photos is for the input 'imagee'; the model has image"),
    ],
)
def test_invalid_files_and_options_are_reported(tmp_path: Path, make: dict, message: str) -> None:
    pictures(tmp_path / "p", make.pop("names", NAMES))
    (tmp_path / "p").mkdir(exist_ok=True)
    files: dict[str, Path | None] = {}
    for key, name in (("labels", "l.csv"), ("classes", "l.txt")):
        text = make.pop(key, None)
        data = text.encode() if isinstance(text, str) else text
        files[key] = None if data is None else write(tmp_path / name, data)
    with pytest.raises(MobileprepError, match=message) as caught:
        list(opened(of(tmp_path / "p", **files, **make), [IMAGE], labels="label").batches(4))
    assert caught.value.exit_code in (4, 8)
    assert caught.value.hint


def test_images_of_different_sizes_cannot_form_a_batch(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png"])
    pictures(tmp_path, ["b.png"], 5, 5)
    dataset = opened(of(tmp_path), [fed((-1, -1, -1, 3))])
    with pytest.raises(AccuracyError, match=r"b\.png has the shape \[5, 5, 3\] for 'x', and a\.p"):
        list(dataset.batches(2))
    assert [b.feeds["x"].shape for b in dataset.batches(1)] == [(1, 4, 6, 3), (1, 5, 5, 3)]


def test_data_for_one_of_two_inputs_is_refused(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png"])
    with pytest.raises(AccuracyError, match="photos feeds one input, and the model has image, x"):
        opened(of(tmp_path, input="image"), [IMAGE, fed(())])
