"""CSV files as samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.data.options import Reading
from mobileprep.data.source import DataFiles
from mobileprep.errors import AccuracyError, CorruptFileError, MobileprepError
from mobileprep.formats.dtypes import DType
from tests.data.made import all_of, fed, labels_of, opened, write

TEXT = 'a,b,"the ""label""",note\r\n1,2.5,0,"one\ntwo"\r\n3,4,1,\r\n\r\n5,6,2,x'


def of(folder: Path, text: str = TEXT, **options) -> DataFiles:
    return DataFiles("d.csv", write(folder / "d.csv", text.encode()), "csv", Reading(**options))


def test_columns_are_inputs_with_quotes_and_line_ends(tmp_path: Path) -> None:
    files = of(tmp_path, inputs=(("x", ("b", "a")), ("t", ("note",))), labels='the "label"')
    batch = all_of(opened(files, [fed((-1, 2)), fed((-1,), DType.STRING, "t")], labels="label"))
    assert batch.feeds["x"].tolist() == [[2.5, 1], [4, 3], [6, 5]]
    assert batch.feeds["t"].tolist() == [b"one\ntwo", b"", b"x"]
    assert labels_of(batch) == [0, 1, 2]
    assert batch.names == ("line 2", "line 4", "line 6")


def test_single_input_gets_all_columns_except_the_labels(tmp_path: Path) -> None:
    files = of(tmp_path, "7;1;2;3;4\n8;5;6;7;8\n", header=False, delimiter="semicolon", labels="0")
    batch = all_of(opened(files, [fed((-1, 2, 2, 1))], labels="label"))
    assert batch.feeds["x"].reshape(2, 4).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert labels_of(batch) == [7, 8]


def test_columns_are_matched_to_inputs_by_name(tmp_path: Path) -> None:
    batch = all_of(opened(of(tmp_path), [fed((-1,), DType.INT32, "a"), fed((-1, 1), name="b")]))
    assert batch.feeds["a"].tolist() == [1, 3, 5]
    assert batch.feeds["b"].tolist() == [[2.5], [4], [6]]


def test_labels_may_be_class_names(tmp_path: Path) -> None:
    classes = write(tmp_path / "c.txt", b"cat\ndog\n")
    files = DataFiles("d", write(tmp_path / "d.csv", b"x,label\n1,dog\n2,cat\n"), classes=classes)
    batch = all_of(opened(files, [fed((-1,))], labels="label"))
    assert labels_of(batch) == [1, 0]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TEXT, {"inputs": (("x", ("aa",)),)}, "d.csv has no column 'aa'; it has a, b, the"),
        (TEXT, {"inputs": (("z", ("a",)),)}, "'inputs' names the input 'z'; the model has x"),
        ("a,b\n1,x\n", {}, "d.csv: 1 of 1 samples .* line 2 .*'x' is not a number"),
        ("a,b\n1\n", {}, "has 1 columns, and the first row 2"),
        ("a,b\n", {}, "d.csv holds no samples"),
        ("", {}, "d.csv holds no samples"),
        ("a\n1\n", {}, r"takes the shape \[\?, 2\], and the sample has \[1\]"),
        ("a,b\n1,2\n", {"labels": "c"}, "d.csv has no column 'c'"),
    ],
)
def test_invalid_rows_and_options_are_reported(
    tmp_path: Path, text: str, options: dict, message: str
) -> None:
    with pytest.raises(MobileprepError, match=message):
        all_of(opened(of(tmp_path, text, **options), [fed((-1, 2))], labels=options.get("labels")))


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    files = DataFiles("d", write(tmp_path / "d.csv", b"a\n\xff\n"))
    with pytest.raises(CorruptFileError, match="is not valid UTF-8 in line 2"):
        opened(files, [fed((-1,))])


def test_integers_beyond_the_dtype_are_refused(tmp_path: Path) -> None:
    files = of(tmp_path, f"x\n{1 << 70}\n")
    with pytest.raises(AccuracyError, match="has a number that int32 cannot hold"):
        all_of(opened(files, [fed((-1,), DType.INT32)]))
