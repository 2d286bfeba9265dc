"""Folders of pictures as samples."""

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
from tests.data.made import IMAGE, all_of, fed, opened, pictures, write

NAMES = ["cat/1.png", "cat/2.png", "dog/a/3.PNG"]


def of(folder: Path, labels: Path | None = None, classes: Path | None = None, **options):
    return DataFiles("photos", folder, "pictures", Reading(**options), labels, classes)


def test_folders_are_labels_in_the_order_of_their_names(tmp_path: Path) -> None:
    arrays = pictures(tmp_path, NAMES)
    write(tmp_path / ".hidden/x.png", b"")
    write(tmp_path / "cat/notes.txt", b"")
    batch = all_of(opened(of(tmp_path), [IMAGE], labels="label"))
    assert batch.names == tuple(NAMES)
    assert batch.labels is not None
    assert batch.labels.tolist() == [0, 0, 1]
    expected = np.stack(arrays).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(batch.feeds["image"], expected)


def test_a_list_of_classes_gives_their_order(tmp_path: Path) -> None:
    pictures(tmp_path / "p", NAMES)
    classes = write(tmp_path / "labels.txt", b"dog\ncat\nbird\n")
    batch = all_of(opened(of(tmp_path / "p", classes=classes), [IMAGE], labels="label"))
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 1, 0]


def test_a_csv_file_has_labels_and_may_have_a_heading(tmp_path: Path) -> None:
    pictures(tmp_path / "p", NAMES)
    listed = write(
        tmp_path / "l.csv", b'\xef\xbb\xbffile,label\ncat/2.png,7\n"./cat/1.png",4\ndog/a/3.PNG,5\n'
    )
    batch = all_of(opened(of(tmp_path / "p", listed), [IMAGE], labels="label"))
    assert batch.labels is not None
    assert batch.labels.tolist() == [4, 7, 5]


def pixels_after(tmp_path: Path, shape=(-1, 4, 6, 3), dtype=DType.FLOAT, **options) -> Array:
    pictures(tmp_path, ["a.png"], 10, 12)
    found = all_of(opened(of(tmp_path, **options), [fed(shape, dtype, "image")]))
    assert found.labels is None
    return found.feeds["image"][0]


def test_pictures_are_cropped_resized_and_normalized_in_this_order(tmp_path: Path) -> None:
    (array,) = pictures(tmp_path, ["a.png"], 10, 12)
    found = pixels_after(
        tmp_path, central_crop=0.5, mean=(1.0, 2.0, 3.0), std=(4.0,), channels="bgr"
    )
    # tf.image.central_crop(0.5): 10 x 12 pixels lose int(2.5) and int(3.0) on each side.
    middle = array[2:-2, 3:-3]
    resized = resize_bilinear(middle[np.newaxis], (4, 6), Sampling())[0][..., ::-1]
    expected = (resized - np.array([1, 2, 3], np.float32)) / np.float32(4)
    np.testing.assert_array_equal(found, expected)


def test_resizing_from_centres_is_another(tmp_path: Path) -> None:
    found = pixels_after(tmp_path, half_pixel_centers=True, std=(1.0,))
    (array,) = pictures(tmp_path, ["a.png"], 10, 12)
    expected = resize_bilinear(array[np.newaxis], (4, 6), Sampling(half_pixel=True))[0]
    np.testing.assert_array_equal(found, expected)


def test_the_size_is_the_recipe_s_where_the_input_is_open(tmp_path: Path) -> None:
    assert pixels_after(tmp_path, (-1, -1, -1, 3), resize=(2, 5)).shape == (2, 5, 3)
    assert pixels_after(tmp_path, (-1, -1, -1, 3)).shape == (10, 12, 3)


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    assert pixels_after(tmp_path, (-1, 4, 6, 1), channels="grayscale").shape == (4, 6, 1)


def test_inputs_of_bytes_get_values_of_0_to_255(tmp_path: Path) -> None:
    found = pixels_after(tmp_path, dtype=DType.UINT8)
    floats = pixels_after(tmp_path, std=(1.0,))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.rint(floats))


def test_inputs_of_text_get_the_files_as_they_are(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png", "b.png"])
    batch = all_of(opened(of(tmp_path), [fed((), DType.STRING)]))
    assert batch.feeds["x"].tolist() == [(tmp_path / n).read_bytes() for n in batch.names]


def test_an_unreadable_picture_is_left_out_and_named(tmp_path: Path) -> None:
    pictures(tmp_path, NAMES)
    whole = (tmp_path / NAMES[1]).read_bytes()
    write(tmp_path / NAMES[1], whole[: len(whole) // 2])
    warnings: list[str] = []
    batch = all_of(opened(of(tmp_path), [IMAGE], labels="label", warnings=warnings))
    assert batch.names == (NAMES[0], NAMES[2])
    assert batch.labels is not None
    assert batch.labels.tolist() == [0, 1]
    (told,) = warnings
    assert told.startswith("photos: 1 of 3 samples cannot be read: cat/2.png (")
    assert told.endswith("; they are skipped")


def test_with_strict_an_unreadable_picture_is_an_error(tmp_path: Path) -> None:
    pictures(tmp_path, NAMES)
    write(tmp_path / NAMES[1], b"no picture")
    with pytest.raises(CorruptFileError, match="is not a JPEG, PNG, GIF, or BMP file") as caught:
        list(opened(of(tmp_path), [IMAGE], strict=True).batches(2))
    assert caught.value.where == "photos, cat/2.png"


def test_pictures_of_which_none_can_be_read_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.png", b"x")
    with pytest.raises(AccuracyError, match=r"photos: 1 of 1 samples cannot be read: a\.png"):
        list(opened(of(tmp_path), [IMAGE]).batches(2))


@pytest.mark.parametrize(
    ("make", "told"),
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
def test_what_is_wrong_is_told(tmp_path: Path, make: dict, told: str) -> None:
    pictures(tmp_path / "p", make.pop("names", NAMES))
    (tmp_path / "p").mkdir(exist_ok=True)
    files: dict[str, Path | None] = {}
    for key, name in (("labels", "l.csv"), ("classes", "l.txt")):
        text = make.pop(key, None)
        data = text.encode() if isinstance(text, str) else text
        files[key] = None if data is None else write(tmp_path / name, data)
    with pytest.raises(MobileprepError, match=told) as caught:
        list(opened(of(tmp_path / "p", **files, **make), [IMAGE], labels="label").batches(4))
    assert caught.value.exit_code in (4, 8)
    assert caught.value.hint


def test_pictures_of_different_sizes_are_no_batch(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png"])
    pictures(tmp_path, ["b.png"], 5, 5)
    dataset = opened(of(tmp_path), [fed((-1, -1, -1, 3))])
    with pytest.raises(AccuracyError, match=r"b\.png has the shape \[5, 5, 3\] for 'x', and a\.p"):
        list(dataset.batches(2))
    assert [b.feeds["x"].shape for b in dataset.batches(1)] == [(1, 4, 6, 3), (1, 5, 5, 3)]


def test_data_for_one_input_is_not_enough_for_two(tmp_path: Path) -> None:
    pictures(tmp_path, ["a.png"])
    with pytest.raises(AccuracyError, match="photos feeds one input, and the model has image, x"):
        opened(of(tmp_path, input="image"), [IMAGE, fed(())])
