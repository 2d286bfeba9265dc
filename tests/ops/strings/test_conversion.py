"""Conversion between strings and numbers."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests
from tests.ops.graphs import f32, i32, run
from tests.ops.strings.test_joining import texts


def as_strings(*values, **attrs) -> list[str]:
    return [w.decode() for w in run("AsString", *values, **attrs).ravel().tolist()]


def test_as_string() -> None:
    assert as_strings(i32(5, -7)) == ["5", "-7"]
    assert as_strings(f32(1.5, np.inf)) == ["1.500000", "inf"]
    assert as_strings(f32(1.5), precision=2) == ["1.50"]
    assert as_strings(f32(1500), scientific=True, precision=1) == ["1.5e+03"]
    assert as_strings(f32(0.25), shortest=True) == ["0.25"]
    assert as_strings(np.array([True, False])) == ["true", "false"]
    assert as_strings(np.array([1 + 2j], np.complex64), precision=0) == ["(1,2)"]


def test_as_string_width_and_fill() -> None:
    assert as_strings(i32(5), width=3) == ["  5"]
    assert as_strings(i32(-5), width=4, fill="0") == ["-005"]
    assert as_strings(i32(5), width=3, fill="-") == ["5  "]
    # C pads only digits with zeros, and prints no sign for unsigned types.
    assert as_strings(f32(np.nan), width=5, fill="0") == ["  nan"]
    assert as_strings(np.array([5], np.uint8), width=3, fill="+") == ["  5"]


@pytest.mark.parametrize(
    "attrs",
    [{"precision": 2}, {"scientific": True}, {"fill": "ab", "width": 4}, {"width": 1 << 20}],
)
def test_invalid_formats_are_refused(attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("AsString", i32(5), **attrs)


def test_string_to_number() -> None:
    result = run("StringToNumber", texts("1.5", " -2e3 ", "inf"), out_type=DType.FLOAT)
    assert (result.tolist(), result.dtype) == ([1.5, -2000, np.inf], np.float32)
    result = run("StringToNumber", texts("007", "-3"), out_type=DType.INT64)
    assert (result.tolist(), result.dtype) == ([7, -3], np.int64)


@pytest.mark.parametrize("word", ["", "x", "1_0", "1.5f", "99999999999"])
def test_invalid_number_is_refused(word: str) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("StringToNumber", texts(word), out_type=DType.INT32)


def test_decode_raw() -> None:
    pair = np.array([b"\x01\x00\x00\x02", b"\x00\x00\x01\x00"], dtype=object)
    result = run("DecodeRaw", pair, out_type=DType.INT16)
    assert result.tolist() == [[1, 512], [0, 1]]
    swapped = run("DecodeRaw", pair, out_type=DType.INT16, little_endian=False)
    assert swapped.tolist() == [[256, 2], [0, 256]]
    for wrong in (np.array([b"abc"], dtype=object), np.array([b"ab", b"abcd"], dtype=object)):
        with pytest.raises(InvalidGraphError, match="cannot all be read"):
            run("DecodeRaw", wrong, out_type=DType.INT16)


def test_web_safe_base64() -> None:
    plain = np.array([b"\xff\xfe", b"", b"hello"], dtype=object)
    coded = run("EncodeBase64", plain)
    assert coded.tolist() == [b"__4", b"", b"aGVsbG8"]
    assert run("EncodeBase64", plain, pad=True).tolist() == [b"__4=", b"", b"aGVsbG8="]
    for form in (coded, run("EncodeBase64", plain, pad=True)):
        assert run("DecodeBase64", form).tolist() == plain.tolist()
    with pytest.raises(InvalidGraphError, match="not base64"):
        run("DecodeBase64", texts("a!b"))
    # Characters of standard base64 are invalid.
    for plain_letter in ("+3", "a/bc"):
        with pytest.raises(InvalidGraphError, match="not base64"):
            run("DecodeBase64", texts(plain_letter))


def test_sign_fill_without_width() -> None:
    assert run("AsString", i32(-3, 4), fill=" ").tolist() == [b"-3", b" 4"]
    assert run("AsString", i32(-3, 4), fill="+").tolist() == [b"-3", b"+4"]
    assert run("AsString", np.array([3], np.uint8), fill="+").tolist() == [b"3"]


OP_CASES = [
    *(case(op, [(2, -1)], [(2, -1)]) for op in ("AsString", "DecodeBase64", "EncodeBase64")),
    case("StringToNumber", [(2, -1)], [(2, -1)]),
    case("DecodeRaw", [(2, 3)], [(2, 3, -1)], out_type=DType.FLOAT),
    case("DecodeRaw", [None], [None], out_type=DType.FLOAT),
]

test_shapes_and_costs = case_tests(OP_CASES)
