"""Reading and writing range files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError
from mobileprep.formats.range_file import (
    RangeFile,
    TensorRange,
    number,
    range_file_text,
    ranges_from_bytes,
    read_range_file,
)

HEAD = "version: 1\nmethod: min_max\ntensors:\n"
_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
_ENDS = st.tuples(_FLOATS, _FLOATS).map(sorted).map(tuple)
_RANGES = st.builds(
    lambda ends, sixteen: TensorRange(*ends, sixteen=sixteen), _ENDS, st.none() | _ENDS
)


def read(text: str) -> RangeFile:
    return ranges_from_bytes(text.encode(), "ranges.yaml")


@given(st.dictionaries(st.text(max_size=20), _RANGES, max_size=5), st.text(max_size=10))
@settings(deadline=None)
def test_range_files_survive_a_round_trip(tensors, text) -> None:
    file = RangeFile(tensors, text, 12, "ab12", tuple(sorted(tensors)))
    assert read(range_file_text(file)) == file


def test_each_tensor_has_a_line_in_order() -> None:
    ranges = {
        "b:1": TensorRange(-0.1, 6.0, "12e4"),
        "MobilenetV1/Conv/Relu6": TensorRange(0, 5.9999995),
        "no": TensorRange(-1e-5, 3e38),
        "sum": TensorRange(0, 1, "ab", (-2, 4)),
    }
    text = range_file_text(RangeFile(ranges, "percentile 99.99", 200, "f00d", ("dead",)))
    assert text.splitlines()[1:] == [
        "version: 1",
        'method: "percentile 99.99"',
        "samples: 200",
        "data: f00d",
        "tensors:",
        "  MobilenetV1/Conv/Relu6: {min: 0.0, max: 5.9999995}",
        '  "b:1": {min: -0.1, max: 6.0, graph: "12e4"}',
        '  "no": {min: -1.0e-05, max: 3.0e+38}',
        '  sum: {min: 0.0, max: 1.0, min16: -2.0, max16: 4.0, graph: "ab"}',
        "unseen:",
        "  - dead",
    ]
    # Other YAML readers parse the same values.
    assert yaml.safe_load(text)["tensors"]["no"] == {"min": -1e-5, "max": 3e38}


def test_long_tensor_name() -> None:
    file = RangeFile({"a" * 5000: TensorRange(0, 1)})
    text = range_file_text(file)
    assert read(text) == file
    assert list(yaml.load(text, yaml.SafeLoader)["tensors"]) == ["a" * 5000]


@given(_FLOATS)
def test_numbers_have_enough_digits_for_float32(value) -> None:
    text = number(value)
    assert np.float32(float(text)) == np.float32(value)
    assert isinstance(yaml.safe_load(text), float)


@pytest.mark.parametrize(
    ("text", "location", "message"),
    [
        ("", "ranges.yaml:1", "the file is empty"),
        ("- a\n", "ranges.yaml:1", "a mapping is expected here"),
        ("version: 2\ntensors: {}\n", "ranges.yaml:1", "its version is not 1"),
        ("tensors: {}\n", "ranges.yaml:1", "its version is not 1"),
        ("version: 1\nmethods: a\n", "ranges.yaml:2", "unknown key 'methods'"),
        ("version: 1\nsamples: -3\n", "ranges.yaml:1", "'samples' is not a number: '-3'"),
        ("version: 1\nunseen: {}\n", "ranges.yaml:2", "a list is expected here"),
        (HEAD + "  a: {min: 1}\n", "ranges.yaml:4", "'a' has no max"),
        (HEAD + "  a: {min: 1, max: 2, min16: 0}\n", "ranges.yaml:4", "'a' has no max16"),
        (
            HEAD + "  a: {min: 1, max: 2, min16: 4, max16: 3}\n",
            "ranges.yaml:4",
            "the range of 'a' is empty: min16 4 is above max16 3",
        ),
        (
            HEAD + "  a: {min: 1, max: 2, min16: 1, max16: .inf}\n",
            "ranges.yaml:4",
            "the max16 of 'a' is not a finite",
        ),
        (HEAD + "  a: {min: 1, max: 2, m: 3}\n", "ranges.yaml:4", "a range has no 'm'"),
        (HEAD + "  a: {min: 2, max: 1}\n", "ranges.yaml:4", "the range of 'a' is empty"),
        (HEAD + "  a: {min: .nan, max: 1}\n", "ranges.yaml:4", "the min of 'a' is not a finite"),
        (HEAD + "  a: {min: nan, max: 1}\n", "ranges.yaml:4", "the min of 'a' is not a finite"),
        (HEAD + "  a: {min: 0, max: 1e39}\n", "ranges.yaml:4", "the max of 'a' is not a finite"),
        (HEAD + "  a: {min: 0, max: 1_0}\n", "ranges.yaml:4", "the max of 'a' is not a finite"),
        (HEAD + "  a: {min: [0], max: 1}\n", "ranges.yaml:4", "a text or a number is expected"),
        (HEAD + "  a: &a {min: 0, max: 1}\n", "ranges.yaml:4", "tags and anchors are not read"),
        (HEAD + "  a: {min: !!int 0, max: 1}\n", "ranges.yaml:4", "tags and anchors"),
        (HEAD + "  a: {min: 0, max: 1}\n  a: {}\n", "ranges.yaml:5", "'a' is given twice"),
        (HEAD + "  a: {min: 0\n", "ranges.yaml:5", "not YAML: "),
        (HEAD + "  a: *b\n", "ranges.yaml:4", "a mapping is expected here"),
        (f"version: 1\ndata: {'a' * 20_001}\n", "ranges.yaml:2", "a text has at most 20,000"),
        ("version: 1\n---\nversion: 1\n", "ranges.yaml:2", "a second YAML document"),
    ],
)
def test_invalid_range_file_is_refused_with_its_line(text, location, message) -> None:
    with pytest.raises(CorruptFileError) as error:
        read(text)
    assert message in error.value.message
    assert error.value.where == location
    assert "mobileprep calibrate" in error.value.hint


def test_invalid_utf8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ranges.yaml"
    path.write_bytes(b"version: 1\n\xff")
    with pytest.raises(CorruptFileError, match="byte 11 is not valid UTF-8"):
        read_range_file(path)
    with pytest.raises(CorruptFileError):
        read_range_file(tmp_path / "missing.yaml")


def test_range_for_16_bits() -> None:
    both = TensorRange(0, 1, "", (-2, 4))
    assert [both.ends(is_sixteen=yes) for yes in (False, True)] == [(0, 1), (-2, 4)]
    assert TensorRange(0, 1).ends(is_sixteen=True) == (0, 1)
